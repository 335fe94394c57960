"""Where each client is told of our hook, and in which form: rows, and the change to its file."""

import json
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ringfence.agents.hooks.dialects import BLOCK
from ringfence.agents.settings_files import Change, Files, Scope, as_text, file_of, parse_object, read_settings
from ringfence.dataclass import dataclass
from ringfence.errors import AlreadyExists, InvalidConfig

Entry = dict[str, Any]
SECONDS: Final = 30
"""How long a client waits for the hook; one that is late counts as a yes to most of them, so it is many times what the
hook takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFile:
    """Of one client."""

    title: str
    files: Files
    events: Mapping[str, Callable[[str], Entry]]
    """What is added to the list of each event, from the command line of the hook."""
    members: Mapping[str, Any] | None = None
    """What else the file has to say."""
    note: str = ""


def _matched(matcher: str) -> Callable[[str], Entry]:
    return lambda command: {
        "matcher": matcher,
        "hooks": [{"type": "command", "command": command, "timeout": SECONDS}],
    }


def _matched_ms(matcher: str) -> Callable[[str], Entry]:
    """Gemini counts in milliseconds."""
    return lambda command: {
        "matcher": matcher,
        "hooks": [{"name": "ringfence", "type": "command", "command": command, "timeout": SECONDS * 1000}],
    }


def _copilot(command: str) -> Entry:
    return {"type": "command", "bash": command, "timeoutSec": SECONDS}


def _cursor(command: str) -> Entry:
    return {"command": command, "timeout": SECONDS, "failClosed": True}


def _plain(command: str) -> Entry:
    return {"command": command, "show_output": True}


def _codex_home(home: Path) -> Path:
    return Path(os.environ.get("CODEX_HOME") or home / ".codex")


FILES: Final[Mapping[str, HookFile]] = {
    "claude-code": HookFile(
        title="Claude Code",
        files={
            Scope.PROJECT: lambda project, home: project / ".claude" / "settings.json",
            Scope.USER: lambda project, home: home / ".claude" / "settings.json",
        },
        events={
            "PreToolUse": _matched("Bash"),
            "PostToolUse": _matched("Bash"),
            "PostToolUseFailure": _matched("Bash"),
        },
        note="VS Code and Cursor run the same hook, for all of their tools; it answers for shells alone. Claude Code "
        "skips hooks with --bare and disableAllHooks.",
    ),
    "codex": HookFile(
        title="Codex",
        files={
            Scope.USER: lambda project, home: _codex_home(home) / "hooks.json",
            Scope.PROJECT: lambda project, home: project / ".codex" / "hooks.json",
        },
        events={"PreToolUse": _matched("Bash"), "PostToolUse": _matched("Bash")},
        note="Codex asks once whether the hook is trusted (/hooks). Its own sandbox leaves no room for ours: set "
        'sandbox_mode = "danger-full-access". What is typed into a shell that is open (write_stdin) fires no hook.',
    ),
    "gemini": HookFile(
        title="Gemini CLI",
        files={
            Scope.PROJECT: lambda project, home: project / ".gemini" / "settings.json",
            Scope.USER: lambda project, home: home / ".gemini" / "settings.json",
        },
        events={"BeforeTool": _matched_ms("run_shell_command"), "AfterTool": _matched_ms("run_shell_command")},
    ),
    "copilot": HookFile(
        title="Copilot CLI",
        files={Scope.PROJECT: lambda project, home: project / ".github" / "hooks" / "ringfence.json"},
        events={"preToolUse": _copilot, "postToolUse": _copilot},
        members={"version": 1},
    ),
    "cursor": HookFile(
        title="Cursor",
        files={
            Scope.PROJECT: lambda project, home: project / ".cursor" / "hooks.json",
            Scope.USER: lambda project, home: home / ".cursor" / "hooks.json",
        },
        events={"beforeShellExecution": _cursor, "afterShellExecution": _cursor},
        members={"version": 1},
    ),
    "goose": HookFile(
        title="Goose",
        files={
            Scope.USER: lambda project, home: home / ".agents" / "plugins" / "ringfence" / "hooks" / "hooks.json",
            Scope.PROJECT: lambda project, home: project / ".agents" / "plugins" / "ringfence" / "hooks" / "hooks.json",
        },
        events={"PreToolUse": _matched("shell"), "PostToolUse": _matched("shell")},
    ),
    "windsurf": HookFile(
        title="Windsurf",
        files={
            Scope.PROJECT: lambda project, home: project / ".windsurf" / "hooks.json",
            Scope.USER: lambda project, home: home / ".codeium" / "windsurf" / "hooks.json",
        },
        events={"pre_run_command": _plain, "post_run_command": _plain},
    ),
}


def plan_hook(client: str, scope: Scope | None, command: Sequence[str], project: Path, home: Path) -> Change:
    """The change that makes a client call the hook.

    Raises:
        InvalidArgument: the client has no file of this scope.
        InvalidConfig: the file cannot be changed without losing something; says what to add by hand.
        AlreadyExists: a hook of ours with other options is there.
        PermissionDenied: the file cannot be read.
    """
    row = FILES[client]
    path = file_of(row.files, scope, row.title, project, home)
    old = read_settings(path)
    # Clients take every other code for a yes: that of a program that is gone or was killed, too.
    line = f"{shlex.join(command)} || exit {BLOCK}"
    entries = {event: make(line) for event, make in row.events.items()}
    by_hand = f"add this by hand: {json.dumps({'hooks': entries})}"
    settings = parse_object(path, old or "", by_hand)
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict) or any(not isinstance(hooks.get(event, []), list) for event in entries):
        raise InvalidConfig("hooks in it is no object of lists", source=os.fspath(path), hint=by_hand)
    if all(entry in hooks.get(event, []) for event, entry in entries.items()):
        return Change(path, old, old or "")
    for event in entries:
        if any("ringfence" in text and " hook " in text for text in map(json.dumps, hooks.get(event, []))):
            raise AlreadyExists(
                "there is another hook of Ringfence", path=os.fspath(path), hint="remove it first, or change it by hand"
            )
    changed = {**hooks, **{event: [*hooks.get(event, []), entry] for event, entry in entries.items()}}
    new = {**(row.members or {}), **settings, "hooks": changed}
    return Change(path, old, as_text(new, old or ""))
