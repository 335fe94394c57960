"""`DefaultSandbox`: the document's sandbox, a view of `ringfence.Sandbox` that raises what ours returns."""

import os
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from ringfence.compat.layered.config import ResourceLimits, SandboxConfig
from ringfence.compat.layered.paths import PathPolicy
from ringfence.compat.layered.violations import ViolationStore
from ringfence.errors import CommandNotAllowed, NetworkAccessDenied, PathAccessDenied
from ringfence.values.outcome import Exited, Result, Signalled, Usage
from ringfence.values.verdict import Reason, Verdict

StrPath = str | os.PathLike[str]

SandboxedExecution = Result
"""What a command did: exit code, output, usage, and the rest of `ringfence.Result`."""
ResourceUsage = Usage
"""CPU and wall seconds, memory."""


class Sandbox(Protocol):
    """The document's trait."""

    def name(self) -> str: ...

    def check_path(self, path: StrPath, write: bool) -> None: ...

    def check_command(self, command: str) -> None: ...

    def check_network(self, host: str, port: int) -> None: ...

    def resource_limits(self) -> ResourceLimits: ...

    async def execute_command(
        self,
        command: str,
        args: Sequence[str] | None,
        working_dir: StrPath | None,
        env: Mapping[str, str] | None,
    ) -> SandboxedExecution: ...

    async def read_file(self, path: StrPath) -> str: ...

    async def write_file(self, path: StrPath, content: str) -> None: ...

    def is_active(self) -> bool: ...

    def current_usage(self) -> ResourceUsage: ...


class DefaultSandbox:
    """One box, many commands in turn. Close it, or use it as an async context manager.

    Args:
        config: what it is to be.

    Raises:
        InvalidConfig, PathAccessDenied: what was given makes no sense or cannot be granted.
        InitializationFailed: this machine cannot build the wall.
    """

    def __init__(self, config: SandboxConfig) -> None:
        self.config = config
        self._sandbox = config.to_builder().build()
        self._closed = False
        workspace = os.fspath(self._sandbox.workspace)
        writable = (workspace, *map(os.path.realpath, config.allowed_write_paths))
        self.path_policy = PathPolicy(
            allowed_read_paths=tuple(map(os.path.realpath, config.allowed_read_paths)),
            allowed_write_paths=writable,
            strict_sensitive_files=config.strict_sensitive_files,
        )

    @classmethod
    def new(cls, config: SandboxConfig) -> Self:
        return cls(config)

    async def __aenter__(self) -> Self:
        await self._sandbox.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that runs in it."""
        self._closed = True
        await self._sandbox.close()

    # --- checks -------------------------------------------------------------------------------------------------------

    def name(self) -> str:
        return self._sandbox.name

    def check_path(self, path: StrPath, write: bool = False) -> None:
        """
        Raises:
            PathAccessDenied: it may not be read, or written; names the rule and what would allow it.
        """
        text = os.path.join(self._sandbox.workspace, os.fspath(path))
        self.path_policy.check_path(text, write)
        reason = self._sandbox.check_path(text, write=write)
        if reason.verdict is not Verdict.ALLOW:
            raise PathAccessDenied(text, reason.why, rule=reason.place, hint=reason.allow_by)

    def check_command(self, command: str) -> None:
        """
        Raises:
            CommandNotAllowed: it would be refused, or a person asked.
        """
        reason = self._sandbox.check_command(command)
        if reason.verdict is not Verdict.ALLOW:
            raise CommandNotAllowed(reason.why, command=command, rule=reason.place, hint=reason.allow_by)

    def check_network(self, host: str, port: int | None = None) -> None:
        """
        Raises:
            NetworkAccessDenied: the policy does not let tools reach the host. Inside the box there is no network in
                any case.
        """
        reason: Reason = self._sandbox.check_network(host, port)
        if reason.verdict is not Verdict.ALLOW:
            raise NetworkAccessDenied(host, reason.why, rule=reason.place, hint=reason.allow_by)

    def resource_limits(self) -> ResourceLimits:
        """Those that are in force."""
        return ResourceLimits.of(self._sandbox.resource_limits)

    # --- work ---------------------------------------------------------------------------------------------------------

    async def execute_command(
        self,
        command: str,
        args: Sequence[str] | None = None,
        working_dir: StrPath | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SandboxedExecution:
        """Run a program with its arguments; with None for these, a command line with the shell.

        Raises:
            CommandNotAllowed, PathAccessDenied, NetworkAccessDenied: it was refused.
            Timeout, ResourceLimitExceeded: it was ended.
            SpawnFailed, InitializationFailed, PermissionDenied, Internal: it could not be run.
        """
        if args is None:
            result = await self._sandbox.shell(command, cwd=working_dir, env=env)
        else:
            result = await self._sandbox.exec((command, *args), cwd=working_dir, env=env)
        if not isinstance(result.ending, Exited | Signalled):
            try:
                result.check()
            except CommandNotAllowed as refusal:
                refusal.command = command if args is None else " ".join((command, *args))
                raise
        return result

    async def read_file(self, path: StrPath) -> str:
        """
        Raises:
            PathAccessDenied: as `check_path`, or it leads out of the workspace.
        """
        self.check_path(path, False)
        return (await self._sandbox.read_file(path)).decode("utf-8", "replace")

    async def write_file(self, path: StrPath, content: str) -> None:
        """
        Raises:
            PathAccessDenied: as `check_path`, or it leads out of the workspace.
        """
        self.check_path(path, True)
        await self._sandbox.write_file(path, content)

    def is_active(self) -> bool:
        """Whether it takes commands: from `build` to `close`."""
        return not self._closed

    def current_usage(self) -> ResourceUsage:
        return self._sandbox.current_usage()

    @property
    def violations(self) -> ViolationStore:
        """What was refused in it."""
        return ViolationStore.of(self._sandbox.violations)
