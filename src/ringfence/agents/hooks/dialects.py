"""The hook protocols of the clients, as rows: how a call is read, and how each answer is said. Pure.

Every one of them goes on with the call if a hook crashes, is late, or exits with 1; 2 refuses. So each row is asked for
three things only: pass (say nothing), deny, or run this instead. "Ask" is said only where the client is known to wait
for a person then: Codex takes it for a failed hook, and runs the command.
"""

import json
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from ringfence.dataclass import dataclass

Fields = Mapping[str, Any]


class Way(StrEnum):
    """How a command gets inside the wall."""

    REWRITE = "rewrite"
    """The client runs what the hook answers."""
    TELL = "tell"
    """The client cannot, or is not known to: the command is denied, and the model is told what to run instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookCall:
    """A call of a tool, as a client tells of it."""

    tool: str
    arguments: Fields
    command: str
    session: str
    call: str
    """What the client calls this very call; empty if it has no name for it."""
    cwd: str
    mode: str
    """Of the client's permissions; empty if it has none."""
    is_over: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What is written for the client."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One client."""

    name: str
    title: str
    way: Way
    shell_tools: frozenset[str]
    """Names of tools that run commands; every other call passes."""
    read: Callable[[Fields], HookCall]
    """
    Raises:
        LookupError, TypeError, ValueError: it is no call of a tool.
    """
    deny: Callable[[str], Answer]
    rewrite: Callable[[HookCall, str, bool], Answer]
    """The call with another command; whether the client need ask nobody before."""
    report: Callable[[str], Answer]
    """After the call: tell the model."""
    ask: Callable[[HookCall, str, str], Answer] | None = None
    """The same with a question to the person, and why."""
    asking_modes: frozenset[str] = frozenset()
    """Modes in which the client really asks then."""
    project_variable: str = ""
    """Of the hook's environment: where the project is, wherever the agent's shell has gone meanwhile."""


BLOCK: Final = 2
"""The one exit code that stops a call."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value


def _command(arguments: object, name: str) -> str:
    """A text, or, in older clients, a list of words that ends in `-c COMMAND`."""
    given = arguments.get(name) if isinstance(arguments, Mapping) else None
    if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        return str(given[-1])
    return given if isinstance(given, str) else ""


def _read_claude(fields: Fields) -> HookCall:
    arguments = fields["tool_input"]
    return HookCall(
        tool=_text(fields["tool_name"]),
        arguments=arguments if isinstance(arguments, Mapping) else {},
        command=_command(arguments, "command"),
        session=str(fields.get("session_id", "")),
        call=str(fields.get("tool_use_id", "") or ""),
        cwd=str(fields.get("cwd", "") or ""),
        mode=str(fields.get("permission_mode", "") or ""),
        is_over=str(fields.get("hook_event_name", "")).startswith(("Post", "After")),
    )


def _claude(event: str, **more: object) -> Answer:
    return Answer(stdout=json.dumps({"hookSpecificOutput": {"hookEventName": event, **more}}))


def _deny_claude(why: str) -> Answer:
    return _claude("PreToolUse", permissionDecision="deny", permissionDecisionReason=why)


def _rewrite_claude(call: HookCall, command: str, is_trusted: bool) -> Answer:
    decision = {"permissionDecision": "allow"} if is_trusted else {}
    return _claude("PreToolUse", **decision, updatedInput={**call.arguments, "command": command})


def _rewrite_codex(call: HookCall, command: str, _: bool) -> Answer:
    """It takes a rewrite only with `allow`; whether a person is asked is up to its approval policy, which comes
    after."""
    return _rewrite_claude(call, command, True)


def _ask_claude(call: HookCall, command: str, why: str) -> Answer:
    changed = {**call.arguments, "command": command}
    return _claude("PreToolUse", permissionDecision="ask", permissionDecisionReason=why, updatedInput=changed)


def _report_claude(why: str) -> Answer:
    return Answer(stdout=json.dumps({"decision": "block", "reason": why}), stderr=why)


def _deny_gemini(why: str) -> Answer:
    return Answer(stdout=json.dumps({"decision": "deny", "reason": why}))


def _rewrite_gemini(call: HookCall, command: str, _: bool) -> Answer:
    changed = {"hookEventName": "BeforeTool", "tool_input": {**call.arguments, "command": command}}
    return Answer(stdout=json.dumps({"hookSpecificOutput": changed}))


def _report_gemini(why: str) -> Answer:
    return Answer(stdout=json.dumps({"decision": "deny", "reason": why}), stderr=why)


def _read_copilot(fields: Fields) -> HookCall:
    given = fields["toolArgs"]
    arguments = json.loads(given) if isinstance(given, str) else given
    return HookCall(
        tool=_text(fields["toolName"]),
        arguments=arguments if isinstance(arguments, Mapping) else {},
        command=_command(arguments, "command"),
        session=str(fields.get("sessionId", "")),
        call=str(fields.get("toolCallId", "") or ""),
        cwd=str(fields.get("cwd", "") or ""),
        mode="",
        is_over="toolResult" in fields,
    )


def _deny_copilot(why: str) -> Answer:
    return Answer(stdout=json.dumps({"permissionDecision": "deny", "permissionDecisionReason": why}))


def _rewrite_copilot(call: HookCall, command: str, is_trusted: bool) -> Answer:
    decision = {"permissionDecision": "allow"} if is_trusted else {}
    return Answer(stdout=json.dumps({**decision, "modifiedArgs": {**call.arguments, "command": command}}))


def _read_cursor(fields: Fields) -> HookCall:
    """`beforeShellExecution`, which is called for the shell alone."""
    return HookCall(
        tool="shell",
        arguments={"command": _text(fields["command"])},
        command=_text(fields["command"]),
        session=str(fields.get("conversation_id", "")),
        call="",
        cwd=str(fields.get("cwd", "") or ""),
        mode="",
        is_over=str(fields.get("hook_event_name", "")).startswith("after"),
    )


def _deny_cursor(why: str) -> Answer:
    return Answer(stdout=json.dumps({"permission": "deny", "user_message": why, "agent_message": why}))


def _pass_cursor(call: HookCall, command: str, _: bool) -> Answer:
    return Answer(stdout=json.dumps({"permission": "allow"}))


def _read_goose(fields: Fields) -> HookCall:
    arguments = fields["tool_input"]
    return HookCall(
        tool=_text(fields["tool_name"]),
        arguments=arguments if isinstance(arguments, Mapping) else {},
        command=_command(arguments, "command"),
        session=str(fields.get("session_id", "")),
        call="",
        cwd=str(fields.get("working_dir", "") or ""),
        mode="",
        is_over=str(fields.get("event", "")).startswith("Post"),
    )


def _read_windsurf(fields: Fields) -> HookCall:
    """`pre_run_command`, which is called for the shell alone."""
    info = fields["tool_info"]
    command = _text(info["command_line"])
    return HookCall(
        tool="shell",
        arguments={"command": command},
        command=command,
        session=str(fields.get("trajectory_id", "")),
        call=str(fields.get("execution_id", "") or ""),
        cwd=str(info.get("cwd", "") or ""),
        mode="",
        is_over=str(fields.get("agent_action_name", "")).startswith("post"),
    )


def _exit_2(why: str) -> Answer:
    return Answer(stderr=why, code=BLOCK)


def _pass(call: HookCall, command: str, _: bool) -> Answer:
    return Answer()


_ROWS: Final = (
    Dialect(
        name="claude-code",
        title="Claude Code",
        way=Way.REWRITE,
        # VS Code and Cursor run the same hooks for all of their tools, under their own names for the shell.
        shell_tools=frozenset(("Bash", "Shell", "runTerminalCommand", "runInTerminal", "run_in_terminal")),
        read=_read_claude,
        deny=_deny_claude,
        rewrite=_rewrite_claude,
        report=_report_claude,
        ask=_ask_claude,
        # In bypassPermissions and dontAsk nobody may be there.
        asking_modes=frozenset(("default", "acceptEdits", "plan")),
        project_variable="CLAUDE_PROJECT_DIR",
    ),
    Dialect(
        name="codex",
        title="Codex",
        way=Way.REWRITE,
        shell_tools=frozenset(("Bash", "shell", "exec_command", "local_shell")),
        read=_read_claude,
        deny=_deny_claude,
        rewrite=_rewrite_codex,
        report=_report_claude,
    ),
    Dialect(
        name="gemini",
        title="Gemini CLI",
        way=Way.REWRITE,
        shell_tools=frozenset(("run_shell_command",)),
        read=_read_claude,
        deny=_deny_gemini,
        rewrite=_rewrite_gemini,
        report=_report_gemini,
        project_variable="GEMINI_PROJECT_DIR",
    ),
    Dialect(
        name="copilot",
        title="Copilot CLI",
        way=Way.REWRITE,
        shell_tools=frozenset(("bash", "shell", "powershell")),
        read=_read_copilot,
        deny=_deny_copilot,
        rewrite=_rewrite_copilot,
        report=_exit_2,
    ),
    Dialect(
        name="cursor",
        title="Cursor",
        way=Way.TELL,  # beforeShellExecution has no rewrite; what preToolUse does with one is not documented
        shell_tools=frozenset(("shell",)),
        read=_read_cursor,
        deny=_deny_cursor,
        rewrite=_pass_cursor,
        report=_exit_2,
    ),
    Dialect(
        name="goose",
        title="Goose",
        way=Way.TELL,
        shell_tools=frozenset(("shell", "developer__shell")),
        read=_read_goose,
        deny=_exit_2,
        rewrite=_pass,
        report=_exit_2,
    ),
    Dialect(
        name="windsurf",
        title="Windsurf",
        way=Way.TELL,
        shell_tools=frozenset(("shell",)),
        read=_read_windsurf,
        deny=_exit_2,
        rewrite=_pass,
        report=_exit_2,
    ),
)
DIALECTS: Final = {row.name: row for row in _ROWS}
