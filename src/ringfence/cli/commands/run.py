"""`ringfence run`: one command in a box of its own."""

import base64
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.approvals.terminal import TerminalConfirmationService
from ringfence.cli.exits import Finished
from ringfence.cli.say import note
from ringfence.cli.shadows import work_on
from ringfence.errors import InvalidConfig
from ringfence.manager.assemble import Judged
from ringfence.manager.blocking import run as run_blocking
from ringfence.manager.configuring import home_directory, load_config
from ringfence.manager.workspaces import Shadow
from ringfence.values.annotate import violation_lines
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited, LimitHit, Refused, Result
from ringfence.values.request import Overflow, Stream
from ringfence.values.sizes import parse_duration, parse_size, show_seconds, show_size
from ringfence.values.violation import ViolationType


def run(
    command: Annotated[
        list[str],
        typer.Argument(
            help="One word is a line for the shell; several are a program and its arguments.", show_default=False
        ),
    ],
    workspace: Annotated[
        Path | None,
        typer.Option(
            "--workspace", "-w", metavar="DIR", help="The directory it works in and may write; default: here."
        ),
    ] = None,
    write: Annotated[
        list[Path] | None, typer.Option(metavar="DIR", help="A further directory that it may write.")
    ] = None,
    read: Annotated[
        list[Path] | None, typer.Option(metavar="PATH", help="A further file or directory that it may read.")
    ] = None,
    deny: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Hide what matches, also in what is granted.")
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="TIME", help="End it after this long: 30s, 5m.")] = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory of the whole process tree: 512MB, 2GB.")
    ] = None,
    processes: Annotated[int | None, typer.Option(metavar="N", help="Processes and threads of the whole tree.")] = None,
    output: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Bytes of stdout, and of stderr, before it is ended.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[=VALUE]", help="A variable for it; without a value, ours. Nothing else comes along."
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option("--language", "-l", metavar="NAME", help="It is code in this language: python, js, ts, bash, ..."),
    ] = None,
    python: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The interpreter for Python code; default: the first on PATH.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass our standard input on to it.")] = False,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Use this configuration file.")] = None,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Judge it by this policy.")] = None,
    role: Annotated[str | None, typer.Option(metavar="NAME", help="The role in the policy.")] = None,
    tool: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="As which of the policy's tools it runs; default: shell_exec, or code_run."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object with everything, instead of its output.")
    ] = False,
    observe: Annotated[
        str, typer.Option(metavar="LEVEL", help="What is looked at while it runs: off, changes, or full (every open).")
    ] = "changes",
    shadow: Annotated[
        bool,
        typer.Option("--shadow", help="Work on a shadow of the workspace; shows the changes and how to commit them."),
    ] = False,
    shadow_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="How much may be changed in the shadow: kept in memory while it runs."),
    ] = None,
    inside: Annotated[
        str | None, typer.Option("--in", metavar="SHADOW", help="Work on this shadow: its id or name.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Hold the blacklist at each open, also against links and later files.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say on stderr what the wall was and what was used.")
    ] = False,
) -> None:
    """Run a command in a sandbox, and exit as it exits.

    Its output passes through untouched. The exit code is the command's own, or 122 if it was refused, 123 if it hit a
    limit, 124 if it timed out, 125 if it could not be run.

    Examples:

        ringfence run "pytest -q | tail"

        ringfence run --write ../cache --timeout 5m -- make -j4 all

        ringfence run --language python "sum(range(100))"
    """
    if language is not None and len(command) != 1:
        raise InvalidConfig("with --language there is one argument, the code", hint="quote it")
    limits = _limits(config, timeout, memory, processes, output)
    tool = tool or ("shell_exec" if language is None else "code_run")
    judged = Judged(policy=policy, role=role, tool=tool)
    with work_on(workspace, judged, shadow=shadow, inside=inside) as (place, chosen):
        result = run_blocking(
            command[0] if len(command) == 1 else command,
            workspace=place,
            shadow=chosen,
            shadow_bytes=_shadow_bytes(shadow_size, chosen),
            read=read or (),
            write=write or (),
            deny=deny or (),
            env=_variables(env or []),
            stdin=sys.stdin.buffer.read() if stdin else None,
            limits=limits,
            config=config,
            policy=policy,
            role=role,
            tool=tool,
            language=language,
            python=python,
            explain=observe,
            strict=strict,
            # Whoever sits at the terminal is asked where the policy says so; piped input is no answer.
            confirmation=TerminalConfirmationService() if sys.stdin.isatty() and not stdin else None,
            overflow=Overflow.STOP,
            on_output=None if as_json else _pass_through,
        )
    if as_json:
        print(json.dumps(_as_json(result)))
    else:
        _show_results(result)
        _say_how_it_ended(result)
    if explain:
        _explain(result)
    raise Finished(result.exit_code)


def _shadow_bytes(size: str | None, shadow: Shadow | None) -> int:
    if size is not None and shadow is None:
        raise InvalidConfig("--shadow-size without a shadow", hint="add --shadow, or --in SHADOW")
    return 0 if size is None else parse_size(size)


def _limits(
    config: Path | None, timeout: str | None, memory: str | None, processes: int | None, output: str | None
) -> Limits:
    configured = load_config(os.environ, home_directory(os.environ), config).limits
    return configured.changed(
        wall_seconds=None if timeout is None else parse_duration(timeout),
        memory_bytes=None if memory is None else parse_size(memory),
        processes=processes,
        output_bytes=None if output is None else parse_size(output),
    )


def _variables(given: list[str]) -> dict[str, str]:
    out: dict[str, str] = {}
    for entry in given:
        name, has_value, value = entry.partition("=")
        if not has_value:
            if name not in os.environ:
                raise InvalidConfig(f"--env {name}: there is no such variable here", hint=f"write --env {name}=VALUE")
            value = os.environ[name]
        out[name] = value
    return out


def _pass_through(stream: Stream, data: bytes) -> None:
    target = sys.stdout.buffer if stream is Stream.STDOUT else sys.stderr.buffer
    target.write(data)
    target.flush()


def _show_results(result: Result) -> None:
    """The value of the last expression, as an interactive interpreter shows it; what has no text is named."""
    for shown in result.results:
        print(shown.text if shown.text is not None else f"<{', '.join(shown.types)}>", flush=True)


def _say_how_it_ended(result: Result) -> None:
    if not isinstance(result.ending, Exited):
        note(str(result.ending))
    if isinstance(result.ending, Refused):
        return
    hit = isinstance(result.ending, LimitHit)  # which has just been said
    others = (each for each in result.violations if not (hit and each.kind is ViolationType.RESOURCE_LIMIT))
    for line in violation_lines(others):
        note(line)


def _explain(result: Result) -> None:
    wall, usage = result.wall, result.usage
    if wall is not None:
        note(f"wall: {wall.name}; limits by {', '.join(wall.limits_by)}")
        note(f"guarantees: {', '.join(sorted(wall.guarantees))}")
        for text in wall.notes:
            note(text)
    note(
        f"{result.ending}; {show_seconds(usage.wall_seconds)}, CPU {show_seconds(usage.cpu_seconds)}, "
        f"at most {show_size(usage.peak_memory_bytes)}"
    )
    note(f"journal: run {result.run_id}")


def _as_json(result: Result) -> dict[str, Any]:
    wall, usage = result.wall, result.usage
    return {
        "run": result.run_id,
        "ending": type(result.ending).__name__.lower(),
        "ending_text": str(result.ending),
        "exit_code": result.exit_code,
        **_text("stdout", result.stdout_bytes),
        **_text("stderr", result.stderr_bytes),
        "stdout_dropped": result.stdout_dropped,
        "stderr_dropped": result.stderr_dropped,
        "results": [{mime: _form(form) for mime, form in shown.forms} for shown in result.results],
        "error": None
        if result.error is None
        else {"type": result.error.type, "value": result.error.value, "traceback": result.error.traceback},
        "blocked": result.blocked,
        "blocked_reason": result.blocked_reason,
        "violations": [violation.as_record() for violation in result.violations],
        "usage": {
            "wall_seconds": usage.wall_seconds,
            "cpu_seconds": usage.cpu_seconds,
            "peak_memory_bytes": usage.peak_memory_bytes,
            "measured_by": usage.measured_by,
        },
        "wall": None
        if wall is None
        else {
            "name": wall.name,
            "guarantees": sorted(wall.guarantees),
            "limits_by": wall.limits_by,
            "notes": wall.notes,
        },
        "audit": None if result.audit is None else {"wrapper": result.audit.wrapper, "command": result.audit.command},
    }


def _form(form: str | bytes) -> str:
    """Text as it is, everything else as base64, as notebooks do."""
    return form if isinstance(form, str) else base64.b64encode(form).decode()


def _text(name: str, data: bytes) -> dict[str, str]:
    """Output as text; as base64 beside it where text would not give the bytes back."""
    out = {name: data.decode("utf-8", "replace")}
    if out[name].encode() != data:
        out[f"{name}_base64"] = base64.b64encode(data).decode()
    return out
