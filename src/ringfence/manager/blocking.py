"""The blocking twin: one call, one box, one result."""

import asyncio
import threading
from collections.abc import Coroutine, Mapping, Sequence
from typing import TypeVar

from ringfence.approvals.base import ConfirmationService
from ringfence.manager.granting import REQUIRED
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.sandbox import Sandbox, StrPath
from ringfence.values.grant import Explain
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.outcome import Result
from ringfence.values.request import OnOutput, Overflow
from ringfence.workspace.shadow import Shadow

T = TypeVar("T")


def run(
    command: str | Sequence[str],
    *,
    workspace: StrPath | None = None,
    cwd: StrPath | None = None,
    read: Sequence[StrPath] = (),
    write: Sequence[StrPath] = (),
    deny: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    timeout: float | None = None,
    limits: Limits | None = None,
    config: StrPath | None = None,
    requires: frozenset[Guarantee] = REQUIRED,
    policy: PolicyEngine | StrPath | None = None,
    role: str | None = None,
    tool: str = "shell_exec",
    confirmation: ConfirmationService | None = None,
    overflow: Overflow = Overflow.STOP,
    on_output: OnOutput | None = None,
    language: str | None = None,
    python: StrPath | None = None,
    explain: Explain | str = Explain.CHANGES,
    strict: bool = False,
    shadow: Shadow | None = None,
    shadow_bytes: int = 0,
) -> Result:
    """Run one command in a box of its own, wait for it, and throw the box away.

    A string goes to the shell, a sequence is a program with its arguments; with `language`, a string is code in it. The
    other arguments are those of `Sandbox` and `Sandbox.shell`, which also say what is raised.

        >>> ringfence.run("echo hello").stdout
        'hello\\n'
        >>> ringfence.run("6 * 7", language="python").results[0].text
        '42'
    """

    async def one() -> Result:
        sandbox = Sandbox(
            workspace,
            read=read,
            write=write,
            deny=deny,
            env=env,
            limits=limits,
            config=config,
            requires=requires,
            policy=policy,
            role=role,
            tool=tool,
            confirmation=confirmation,
            python=python,
            explain=explain,
            strict=strict,
            shadow=shadow,
            shadow_bytes=shadow_bytes,
            once=True,
        )
        async with sandbox:
            if language is not None and isinstance(command, str):
                return await sandbox.code(
                    language, command, stdin=stdin, timeout=timeout, overflow=overflow, on_output=on_output
                )
            if isinstance(command, str):
                return await sandbox.shell(
                    command, cwd=cwd, stdin=stdin, timeout=timeout, overflow=overflow, on_output=on_output
                )
            return await sandbox.exec(
                command, cwd=cwd, stdin=stdin, timeout=timeout, overflow=overflow, on_output=on_output
            )

    return wait_for(one())


def wait_for(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine to its end, also where an event loop is already running in this thread (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    box: list[T] = []
    fault: list[BaseException] = []

    def elsewhere() -> None:
        try:
            box.append(asyncio.run(work))
        except BaseException as problem:
            fault.append(problem)

    thread = threading.Thread(target=elsewhere, name="ringfence")
    thread.start()
    thread.join()
    if fault:
        raise fault[0]
    return box[0]
