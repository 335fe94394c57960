"""What `ringfence run` does once its options are read, by Typer or by `quick.py`."""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

from ringfence.cli.elsewhere import URL_VARIABLE, is_on_server
from ringfence.cli.exits import Finished
from ringfence.cli.options import typed_limits, typed_options
from ringfence.cli.say import print_line, print_note
from ringfence.dataclass import replace
from ringfence.deferred import deferred
from ringfence.errors import CommandNotAllowed, InvalidArgument
from ringfence.manager.assemble import has_policy
from ringfence.manager.blocking import run as run_blocking
from ringfence.manager.blocking import wait_for
from ringfence.manager.granting import BY_CALLER
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.manager.sandbox import Sandbox
from ringfence.values.limits import Limit
from ringfence.values.outcome import REFUSED_CODE, Ending, Exited, LimitHit, Refused, Result, TimedOut
from ringfence.values.remedy import Door, raising
from ringfence.values.request import Overflow, Stream
from ringfence.values.sizes import parse_duration, show_seconds, show_size
from ringfence.values.violation import ViolationType

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import NoReturn

    from ringfence.approvals.base import ConfirmationService
    from ringfence.approvals.terminal import TerminalConfirmationService
    from ringfence.cli.attaching import attach, require_terminal
    from ringfence.cli.on_server import run_there
    from ringfence.cli.piping import pipe
    from ringfence.cli.shadows import work_on
    from ringfence.cli.typed_network import say_published, typed_network
    from ringfence.manager.options import SandboxOptions
    from ringfence.values.annotate import violation_lines
else:
    TerminalConfirmationService = deferred("ringfence.approvals.terminal", "TerminalConfirmationService")
    attach = deferred("ringfence.cli.attaching", "attach")
    require_terminal = deferred("ringfence.cli.attaching", "require_terminal")
    pipe = deferred("ringfence.cli.piping", "pipe")
    run_there = deferred("ringfence.cli.on_server", "run_there")
    work_on = deferred("ringfence.cli.shadows", "work_on")
    say_published = deferred("ringfence.cli.typed_network", "say_published")
    typed_network = deferred("ringfence.cli.typed_network", "typed_network")
    violation_lines = deferred("ringfence.values.annotate", "violation_lines")


def run_command(
    command: list[str],
    *,
    workspace: Path | None = None,
    write: list[Path] | None = None,
    read: list[Path] | None = None,
    deny: list[str] | None = None,
    timeout: str | None = None,
    cpu_time: str | None = None,
    memory: str | None = None,
    processes: int | None = None,
    output: str | None = None,
    read_only: bool = False,
    env: list[str] | None = None,
    language: str | None = None,
    python: Path | None = None,
    stdin: bool = False,
    terminal: bool = False,
    config: Path | None = None,
    policy: Path | None = None,
    role: str | None = None,
    tool: str | None = None,
    as_json: bool = False,
    trace: str | None = None,
    shadow: bool = False,
    shadow_size: str | None = None,
    use_shadow: str | None = None,
    mediate_opens: bool = False,
    allow: list[str] | None = None,
    secret: list[str] | None = None,
    publish: list[str] | None = None,
    reach: list[int] | None = None,
    ask_network: bool = False,
    verbose: bool = False,
    engine: Literal["native", "wasi"] | None = None,
    streams_input: bool = False,
    cwd: str | None = None,
    confirmation: ConfirmationService | None = None,
) -> None:
    """What `ringfence run` does with what was typed.

    Args:
        streams_input: whether standard input is passed on as it comes; for whoever calls this as a shell.
        cwd: where in the workspace it runs, if not at its top.
        confirmation: who is asked, if not the person at this terminal.

    Raises:
        Finished: always; how to exit.
        RingfenceError: the command was not run.
    """
    if language is not None and len(command) != 1:
        raise InvalidArgument("with --language there is one argument, the code", hint="quote it")
    options = run_options(
        workspace=workspace,
        read=read,
        write=write,
        read_only=read_only,
        deny=deny,
        env=env,
        cpu_time=cpu_time,
        memory=memory,
        processes=processes,
        output=output,
        config=config,
        policy=policy,
        role=role,
        tool=tool,
        language=language,
        python=python,
        trace=trace,
        mediate_opens=mediate_opens,
        network=typed_network(allow=allow, secret=secret, publish=publish, reach=reach, ask=ask_network)
        if allow or secret or publish or reach or ask_network
        else None,
    )
    if terminal:
        _refuse_with_terminal(stdin=stdin, as_json=as_json, language=language)
    # Who calls this as a shell means its own directory, and what is installed here is no tool of a server's.
    if is_on_server(os.environ) and cwd is None and engine is None:
        if shadow or use_shadow is not None or shadow_size is not None:
            raise InvalidArgument("a shadow of a server's", hint=f"leave out --shadow, or unset {URL_VARIABLE}")
        ended = run_there(
            command,
            options,
            terminal=terminal,
            stdin=sys.stdin.buffer.read() if stdin else None,
            timeout=None if timeout is None else parse_duration(timeout),
            language=language,
            on_output=None if as_json else _pass_through,
        )
        _finish(ended, options, as_json=as_json, verbose=verbose)
    confirmation = confirmation or _confirmation(options, stdin=stdin or streams_input)
    options = replace(options, confirmation=confirmation, engine=engine)
    with _place(options, shadow=shadow, use_shadow=use_shadow, shadow_size=shadow_size) as chosen:
        if terminal:
            ended = wait_for(_on_terminal(command, chosen, timeout))
        elif streams_input:
            ended = wait_for(_piped(command, chosen, cwd))
        else:
            ended = run_blocking(
                command[0] if len(command) == 1 else command,
                chosen,
                cwd=cwd,
                stdin=sys.stdin.buffer.read() if stdin else None,
                timeout=None if timeout is None else parse_duration(timeout),
                language=language,
                overflow=Overflow.STOP,
                on_output=None if as_json else _pass_through,
                on_published=say_published,
            )
    _finish(ended, options, as_json=as_json, verbose=verbose)


def _finish(ended: int | Result, options: SandboxOptions, *, as_json: bool, verbose: bool) -> NoReturn:
    """Say how it ended, unless its terminal has shown all of it."""
    if isinstance(ended, int):
        raise Finished(ended)
    if as_json:
        print(ended.to_json())
    else:
        _show_results(ended)
        _say_how_it_ended(ended, Door.POLICY if has_policy(options, os.environ) else Door.COMMAND_LINE)
    if verbose:
        _say_more(ended)
    raise Finished(ended.exit_code)


def run_options(
    *,
    cpu_time: str | None = None,
    memory: str | None = None,
    processes: int | None = None,
    output: str | None = None,
    config: Path | None = None,
    tool: str | None = None,
    language: str | None = None,
    **typed: Any,
) -> SandboxOptions:
    """The sandbox that `ringfence run` makes of what was typed; the rest is as `typed_options` takes it.

    Raises:
        RingfenceError: something that was typed makes no sense.
    """
    return typed_options(
        limits=typed_limits(config, cpu_time=cpu_time, memory=memory, processes=processes, output=output),
        config=config,
        tool=tool or (SHELL_TOOL if language is None else CODE_TOOL),
        **typed,
    )


def _place(
    options: SandboxOptions, *, shadow: bool, use_shadow: str | None, shadow_size: str | None
) -> AbstractContextManager[SandboxOptions]:
    """Where it works; without a word about shadows, nothing of them is loaded."""
    if not shadow and use_shadow is None and shadow_size is None:
        return nullcontext(options)
    return work_on(options, shadow=shadow, use_shadow=use_shadow, shadow_size=shadow_size)


def _refuse_with_terminal(*, stdin: bool, as_json: bool, language: str | None) -> None:
    """
    Raises:
        InvalidArgument: there is no terminal, or something that a terminal leaves no room for.
    """
    others = {"--stdin": stdin, "--json": as_json, "--language": language is not None}
    clash = next((name for name, given in others.items() if given), None)
    if clash is not None:
        raise InvalidArgument(f"{clash} and a terminal", hint=f"leave out -t or {clash}")
    require_terminal("-t")


async def _on_terminal(command: list[str], options: SandboxOptions, timeout: str | None) -> int:
    async with Sandbox.for_one_call(options) as box:
        words = command[0] if len(command) == 1 else command
        # Whoever sits at a terminal may take their time, unless somebody has set one.
        by_policy = box.terms.value("limits.wall") if box.terms is not None else None
        asked = None if timeout is None else parse_duration(timeout)
        seconds = min((each for each in (asked, by_policy) if each is not None), default=None)
        if box.grant.network is not None and box.grant.network.publish:
            await box.open()
            say_published(box.published)
        try:
            return await attach(
                box, words, seconds=seconds, asks=options.confirmation is not None, typed_by_person=True
            )
        except CommandNotAllowed as refusal:
            if not refusal.rule:
                raise
            print_line(f"refused: {refusal}")
            return REFUSED_CODE


async def _piped(command: list[str], options: SandboxOptions, cwd: str | None) -> int:
    async with Sandbox.for_one_call(options) as box:
        try:
            code, result = await pipe(box, command[0] if len(command) == 1 else command, cwd=cwd)
        except CommandNotAllowed as refusal:
            if not refusal.rule:
                raise
            print_line(f"refused: {refusal}")
            return REFUSED_CODE
        if result is not None:
            _say_how_it_ended(result, Door.POLICY if has_policy(options, os.environ) else Door.COMMAND_LINE)
        return code


def _confirmation(options: SandboxOptions, *, stdin: bool) -> ConfirmationService | None:
    """Whoever sits at the terminal is asked where the policy says so, or about hosts; piped input is no answer. Without
    a policy nobody is asked about the command: whoever sits there has just typed it."""
    asks = has_policy(options, os.environ) or (options.asked_network is not None and options.asked_network.ask)
    if not asks or stdin or not sys.stdin.isatty():
        return None
    return TerminalConfirmationService()


def _pass_through(stream: Stream, data: bytes) -> None:
    target = sys.stdout.buffer if stream is Stream.STDOUT else sys.stderr.buffer
    target.write(data)
    target.flush()


def _show_results(result: Result) -> None:
    """The value of the last expression, as an interactive interpreter shows it; what has no text is named."""
    for shown in result.results:
        print(shown.text if shown.text is not None else f"<{', '.join(shown.types)}>", flush=True)


def _say_how_it_ended(result: Result, door: Door) -> None:
    ending = result.ending
    if not isinstance(ending, Exited):
        print_line(_said(ending, door))
    if isinstance(ending, Refused):
        return
    hit = isinstance(ending, LimitHit)  # which has just been said
    others = (each for each in result.violations if not (hit and each.kind is ViolationType.RESOURCE_LIMIT))
    for line in violation_lines(others, door):
        print_note(line)


def _said(ending: Ending, door: Door) -> str:
    """How it ended, and which option would have let it go on."""
    match ending:
        case LimitHit():
            return f"{ending}; to allow more: {raising(ending.limit, door)}"
        case TimedOut() if not ending.capped_by or ending.capped_by == BY_CALLER:  # who has typed it
            return f"{replace(ending, capped_by='')}; to give it longer: {raising(Limit.WALL, Door.COMMAND_LINE)}"
        case _:
            return str(ending)


def _say_more(result: Result) -> None:
    wall, usage = result.wall, result.usage
    if wall is not None:
        print_note(f"wall: {wall.name}; limits by {', '.join(wall.limits_by)}")
        print_note(f"guarantees: {', '.join(sorted(wall.guarantees))}")
        for text in wall.notes:
            print_note(text)
    print_note(
        f"{result.ending}; {show_seconds(usage.wall_seconds)}, CPU {show_seconds(usage.cpu_seconds)}, "
        f"at most {show_size(usage.peak_memory_bytes)}"
    )
    print_note(f"journal: run {result.run_id}")
