"""Document 001 (managed sandboxes with policy, pool and audit) by its own names.

    manager = SandboxManager(pool_size=5, policy_file="sandbox_policy.yaml")
    result = await manager.execute_code(language="python", code="print(6 * 7)", timeout=30)
    print(result.stdout, result.exit_code)

The document's nine steps are one call of `SandboxManager`. Who wants to take them one by one has them here:

    sandbox = await pool.acquire_sandbox()
    await sandbox.prepare_workspace({"analyze.py": b"..."})
    await sandbox.execute(command="python3 analyze.py")
    result = sandbox.collect_results()
    pool.release_sandbox(sandbox)
"""

import os
import posixpath
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Final, Self

from ringfence.audit.redact import Redactor
from ringfence.dataclass import dataclass, replace
from ringfence.errors import InvalidArgument
from ringfence.manager.configuring import home_directory, open_journal, state_directory
from ringfence.manager.executing import run_in
from ringfence.manager.manager import SandboxManager as OurManager
from ringfence.manager.options import Docker, SandboxOptions, StrPath
from ringfence.manager.policing import CODE_TOOL, PolicyEngine
from ringfence.manager.pooling import SandboxPool
from ringfence.manager.records import records
from ringfence.manager.sandbox import Sandbox as OurSandbox
from ringfence.policy.bounds import Bounds, pool_size, read_bounds
from ringfence.policy.schema import RiskLevel
from ringfence.pool.plan import PoolConfig
from ringfence.tools.editing import FileEditTool
from ringfence.tools.files import FileReadTool, FileWriteTool
from ringfence.tools.searching import FileListTool, SearchTool
from ringfence.values.execution import ExecutionRequest
from ringfence.values.limits import Limits
from ringfence.values.outcome import Result
from ringfence.values.sizes import parse_size

__all__ = [
    "WORKSPACE_DIRECTORIES",
    "AuditLogger",
    "PolicyEngine",
    "PoolManager",
    "RiskLevel",
    "Sandbox",
    "SandboxConfig",
    "SandboxManager",
]

_FILE_TOOLS: Final = (FileReadTool, FileWriteTool, FileEditTool, FileListTool, SearchTool)
_SESSION: Final = "default"
"""Whose files the file tools work on, where nobody names a session."""
WORKSPACE_DIRECTORIES: Final = ("code", "data", "output")
"""What every workspace has when it is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """What the document's deployment sets."""

    docker_url: str | None = None
    """None: native boxes, without a daemon."""
    pool_size: int = 2
    """How many boxes wait."""
    policy_file: StrPath | None = None
    max_memory: int | str | None = None
    """Of one execution: `512m`, or bytes."""
    max_cpu: float | None = None
    """Processors of one execution."""
    network: str = "none"
    """There is no other value yet."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """SANDBOX_POOL_SIZE, SANDBOX_MAX_MEMORY, SANDBOX_MAX_CPU and SANDBOX_NETWORK, or our names for them.

        Raises:
            InvalidConfig: a value makes no sense; names the variable.
        """
        environ = os.environ if environ is None else environ
        bounds = read_bounds(environ)
        return cls(pool_size=pool_size(environ), max_memory=bounds.memory_bytes, max_cpu=bounds.cores)

    @property
    def limits(self) -> Limits | None:
        """None where nothing is said."""
        if self.max_memory is None and self.max_cpu is None:
            return None
        memory = parse_size(self.max_memory) if self.max_memory is not None else None
        return Bounds(memory_bytes=memory, cores=self.max_cpu).limits(Limits())

    def __post_init__(self) -> None:
        if self.network != "none":
            raise InvalidArgument(f"network is {self.network!r}, and there is none inside a box", hint="`none`")


class SandboxManager(OurManager):
    """`ringfence.SandboxManager` as the document makes it; a new workspace has `code`, `data` and `output`.

    Args:
        docker_url: boxes are containers of this daemon; native ones if not given.
        pool_size: how many wait; SANDBOX_POOL_SIZE, else 2, if not given.
        policy_file: the policy in force.
        config: the same and more as one value; single arguments win.
    """

    def __init__(
        self,
        docker_url: str | None = None,
        pool_size: int | None = None,
        policy_file: StrPath | PolicyEngine | None = None,
        *,
        config: SandboxConfig | None = None,
    ) -> None:
        chosen = config if config is not None else SandboxConfig.from_environment()
        url = docker_url if docker_url is not None else chosen.docker_url
        ready = pool_size if pool_size is not None else chosen.pool_size
        options = SandboxOptions(
            policy=policy_file if policy_file is not None else chosen.policy_file,
            engine=Docker(url=url) if url is not None else None,
            limits=chosen.limits,
        )
        size = PoolConfig(min_instances=ready, max_instances=max(10, 2 * ready))
        super().__init__(pool=SandboxPool(options, size=size, directories=WORKSPACE_DIRECTORIES))

    async def cleanup(self, session_id: str | None = None) -> None:
        """End one session; or, without a name, everything."""
        await super().cleanup(session_id)
        if session_id is None:
            await self.pool.stop()

    @property
    def pool_manager(self) -> "PoolManager":
        return PoolManager(self.pool)

    async def execute_tool(self, action: Any, session_id: str | None = None) -> Result:
        """What an agent asks for: `action.tool` with `action.params`, or a mapping with these two.

        Raises:
            InvalidArgument: there is no such tool here, or its parameters make no sense; otherwise as `execute`.
        """
        if isinstance(action, Mapping):
            name, params = str(action["tool"]), dict(action.get("params") or {})
        else:
            name, params = str(action.tool), dict(action.params)
        match name:
            case "code_run":
                return await self.execute_code(**{"language": "python", **params, "session_id": session_id})
            case "shell_exec":
                return await self.execute_shell(**params, session_id=session_id)
            case _:
                pass
        for tool in _FILE_TOOLS:
            if tool.name == name:
                return await tool(self, session_id or self.session_id or _SESSION).execute(**params)
        known = ("code_run", "shell_exec", *(tool.name for tool in _FILE_TOOLS))
        raise InvalidArgument(f"there is no tool {name!r} here", hint=f"one of {', '.join(known)}")


class Sandbox:
    """One box for one execution, with the steps apart."""

    def __init__(self, sandbox: OurSandbox) -> None:
        self.sandbox = sandbox
        """The box's own face."""
        self._given: dict[str, bytes] = {}
        self._result: Result | None = None

    async def prepare_workspace(self, files: Mapping[str, bytes | str] | None = None) -> None:
        """Make `code`, `data` and `output`, and write files by their paths in the workspace.

        Raises:
            PathTraversalError, PathAccessDenied: a path leads out, or a rule forbids it.
        """
        for name in WORKSPACE_DIRECTORIES:
            await self.sandbox.files.mkdir(name, exist_ok=True)
        for path, data in (files or {}).items():
            await self.sandbox.files.write(path, data, parents=True)
            self._given[posixpath.normpath(path)] = data.encode() if isinstance(data, str) else data

    async def execute(
        self,
        *,
        code: str | None = None,
        language: str = "python",
        command: str | None = None,
        timeout: float | None = None,
    ) -> Result:
        """Run a piece of code, or a command line; raises as `ringfence.SandboxManager.execute`."""
        request = ExecutionRequest(code=code, language=language, command=command, timeout=timeout, collect=True)
        if (code is None) == (command is None):
            raise InvalidArgument("an execution has either code or a command", hint="set one of them")
        result = await run_in(self.sandbox, request, is_fresh=True)
        # A file that was given just before may look as new as one that was made: file times are coarse.
        made = tuple(file for file in result.files if file.data is None or self._given.get(file.path) != file.data)
        self._result = replace(result, files=made)
        return self._result

    def collect_results(self) -> Result:
        """What the last execution said, and in `files` what it made.

        Raises:
            InvalidArgument: nothing was executed yet.
        """
        if self._result is None:
            raise InvalidArgument("there is no result before an execution", hint="await sandbox.execute(...) first")
        return self._result


class PoolManager:
    """Boxes that wait, handed out once each.

    Args:
        pool: a pool of ours, such as a manager's; it is started and stopped by its owner.
    """

    def __init__(self, pool: SandboxPool) -> None:
        self.pool = pool

    async def acquire_sandbox(self, tool: str = CODE_TOOL) -> Sandbox:
        """One that waits, or a new one if none does.

        Raises:
            PoolExhausted: all are taken, and waiting did not help.
        """
        return Sandbox(await self.pool.take(tool))

    def release_sandbox(self, sandbox: Sandbox) -> None:
        """Give it back. It is thrown away with its workspace, and a new one is made in its place."""
        self.pool.discard(sandbox.sandbox)


class AuditLogger:
    """Writes records of ones own into the journal, which is chained, and reads it. Executions are recorded without it.

    with AuditLogger() as audit:
        audit.log(event_type="deployment", agent_id="agent_456", result="success")
    """

    def __init__(self) -> None:
        home = home_directory(os.environ)
        self._state = state_directory(os.environ, home)
        self._journal = open_journal(os.environ, home)
        self._journal.prepare()
        self._redact = Redactor(self._journal.settings.redact, ())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def log(self, event_type: str = "agent_event", **fields: Any) -> None:
        """Append one record; secrets in its texts are taken out.

        Raises:
            PermissionDenied: the journal cannot be written.
        """
        if event_type == "sandbox_execution":
            raise InvalidArgument(
                "executions are recorded by who runs them, and by nobody else", hint="give another event_type"
            )
        known = {name: self._redact.text(value) if isinstance(value, str) else value for name, value in fields.items()}
        entry = self._journal.open(os.urandom(8).hex(), {"event_type": event_type, **known})
        entry.close({})

    def records(self) -> list[dict[str, Any]]:
        """All that the journal holds, the oldest first."""
        return list(records(self._state))

    def close(self) -> None:
        self._journal.close()
