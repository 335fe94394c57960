"""The blocking twin: one call, one box, one result."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ringfence.dataclass import replace
from ringfence.deferred import deferred, deferred_module
from ringfence.values.request import Overflow

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Sequence
    from typing import TypedDict, Unpack

    from ringfence.manager import ahead, policing, sandbox
    from ringfence.manager.arguments import Duration, Stdin
    from ringfence.manager.loops_at_once import loop_place
    from ringfence.manager.options import OptionFields, SandboxOptions, StrPath, make_options
    from ringfence.manager.pipeline import Prepare
    from ringfence.manager.portal import portal
    from ringfence.values.outcome import Result
    from ringfence.values.request import OnOutput
else:  # `import ringfence; ringfence.run` is paid by every program that may run something
    asyncio = deferred_module("asyncio")
    ahead = deferred_module("ringfence.manager.ahead")
    policing = deferred_module("ringfence.manager.policing")
    sandbox = deferred_module("ringfence.manager.sandbox")
    loop_place = deferred("ringfence.manager.loops_at_once", "loop_place")
    make_options = deferred("ringfence.manager.options", "make_options")
    portal = deferred("ringfence.manager.portal", "portal")

T = TypeVar("T")

if TYPE_CHECKING:

    class _Call(TypedDict, total=False):
        """What all calls of a sandbox take."""

        cwd: StrPath | None
        stdin: Stdin | None
        timeout: Duration | None
        overflow: Overflow
        on_output: OnOutput | None
        prepare: Prepare | None


def run(
    command: str | Sequence[str],
    options: SandboxOptions | None = None,
    *,
    cwd: StrPath | None = None,
    stdin: Stdin | None = None,
    timeout: Duration | None = None,
    overflow: Overflow = Overflow.STOP,
    on_output: OnOutput | None = None,
    language: str | None = None,
    on_published: Callable[[dict[int, str]], None] | None = None,
    **fields: Unpack[OptionFields],
) -> Result:
    """Run one command in a box of its own, wait for it, and throw the box away.

    A string goes to the shell, a sequence is a program with its arguments; with `language`, a string is code in it. The
    other arguments are those of `Sandbox.shell` and the fields of `SandboxOptions`; `Sandbox` says what is raised.
    `on_published` is told, before the command starts, where the ports are reached that `network` publishes
    (`Sandbox.published`).

        >>> ringfence.run("echo hello").stdout
        'hello\\n'
        >>> ringfence.run("6 * 7", language="python").results[0].text
        '42'
    """
    chosen = make_options(options, fields)
    if chosen.tool is None and language is not None:
        chosen = replace(chosen, tool=policing.CODE_TOOL)

    async def one() -> Result:
        async with sandbox.Sandbox.for_one_call(chosen) as box:

            async def prepare() -> None:
                if on_published is not None and box.published:
                    on_published(box.published)

            result = await run_in(
                box,
                command,
                language=language,
                cwd=cwd,
                stdin=stdin,
                timeout=timeout,
                overflow=overflow,
                on_output=on_output,
                prepare=prepare,
            )
            if (before := ahead.current()) is not None:
                before.call_is_over(box, may_stand=language is None)
            return result

    return wait_for(one())


async def run_in(
    box: sandbox.Sandbox, command: str | Sequence[str], *, language: str | None, **call: Unpack[_Call]
) -> Result:
    """One call of a sandbox: a string for the shell, code in a language, or a program with its arguments."""
    if not isinstance(command, str):
        return await box.exec(command, **call)
    if language is not None:
        return await box.code(language, command, **call)
    return await box.shell(command, **call)


def wait_for(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end, also where an event loop is already running in this thread (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        if (before := ahead.current()) is not None:
            return before.run(work)
        with loop_place(work):
            return asyncio.run(work)
    return portal().run(work)
