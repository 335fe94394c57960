"""`SandboxExecutor`: a command and a directory in; output, exit code and whether it was blocked out (A8)."""

import os
from dataclasses import dataclass

from ringfence.manager.sandbox import Sandbox, StrPath
from ringfence.values.outcome import Result


@dataclass(frozen=True, slots=True)
class SandboxResult:
    """What a command said, its exit code, and whether something was refused."""

    stdout: str
    stderr: str
    exit_code: int
    blocked: bool
    blocked_reason: str | None
    full: Result
    """Everything that is known about the run."""


class SandboxExecutor:
    """Each command in a box of its own; the working directory is its workspace."""

    def __init__(self, config: StrPath | None = None) -> None:
        self._config = config

    async def run(self, command: str, cwd: StrPath | None = None, *, timeout: float | None = None) -> SandboxResult:
        """Run a command in a directory.

        Raises:
            RingfenceError: the request makes no sense, or the wall cannot be built; never runs bare.
        """
        async with Sandbox(os.fspath(cwd) if cwd is not None else None, config=self._config) as sandbox:
            result = await sandbox.shell(command, timeout=timeout)
        return SandboxResult(
            result.stdout, result.stderr, result.exit_code, result.blocked, result.blocked_reason, result
        )
