"""Executors: one request in, one result out, nothing kept.

`SandboxExecutor` gives each command a box of its own (A8). `SubprocessExecutor` runs harmless Python behind the
lightest wall, `DockerExecutor` runs anything in a container of its own (E7).
"""

from __future__ import annotations

import tempfile
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, Unpack

from ringfence.dataclass import replace
from ringfence.errors import CommandNotAllowed, InvalidArgument
from ringfence.languages.registry import find as find_language
from ringfence.manager.executing import run_in, type_of
from ringfence.manager.options import (
    LIGHT,
    REQUIRED,
    Docker,
    OptionFields,
    SandboxOptions,
    StrPath,
    make_options,
)
from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.manager.pooling import SandboxPool
from ringfence.manager.sandbox import Sandbox
from ringfence.policy.risk.assess import assess
from ringfence.pool.plan import PoolConfig
from ringfence.values.grant import Trace
from ringfence.values.risk import Assessment, Risk
from ringfence.values.sandbox_type import SandboxType

if TYPE_CHECKING:
    from ringfence.audit.violations import ViolationStore
    from ringfence.values.execution import ExecutionRequest
    from ringfence.values.outcome import Result
    from ringfence.values.principal import Principal
    from ringfence.values.sizes import Duration

_LIGHT_BOXES: Final = 10
"""At once; more callers wait in order. As many as a manager has by default."""


class SandboxExecutor:
    """Each command in a box of its own; the working directory is its workspace.

    Args:
        options: for every command; its workspace is that of commands that name no directory.
        annotate: stderr ends with what was refused, by which rule, and what would allow it, for an agent to read.
        fields: single fields of `SandboxOptions`.
    """

    def __init__(
        self, options: SandboxOptions | None = None, *, annotate: bool = False, **fields: Unpack[OptionFields]
    ) -> None:
        self._options = make_options(options, fields)
        self._annotate = annotate

    async def run(self, command: str, cwd: StrPath | None = None, *, timeout: Duration | None = None) -> Result:
        """Run a command in a directory.

        Raises:
            RingfenceError: the request makes no sense, or the wall cannot be built; never runs bare.
        """
        options = self._options if cwd is None else replace(self._options, workspace=cwd)
        async with Sandbox.for_one_call(options) as sandbox:
            result = await sandbox.shell(command, timeout=timeout)
        return replace(result, stderr_bytes=result.annotated_stderr.encode()) if self._annotate else result


class SubprocessExecutor:
    """Runs Python that static analysis finds SAFE, behind the lightest wall. Anything else is refused. Close it.

    Static analysis is advice: whoever wrote the code can mislead it. So the wall holds whatever the code does: each
    piece has a box that nobody used before it nor will after it, with an empty workspace, without the host's files and
    without network, never as root; all that it started ends with it. Lighter than the others is that nobody looks at
    single calls and that nothing of yours is in the workspace. One box waits, so that a call costs a message and no
    start.

    Args:
        options: as for `SandboxPool`; unless they say otherwise, nothing is watched while it runs (`trace`), and the
            lightest wall is enough (`requires`).
        who: who the journal says asks for what runs.
        violations: where refusals are noted.
        fields: single fields of `SandboxOptions`.
    """

    def __init__(
        self,
        options: SandboxOptions | None = None,
        *,
        who: Principal | None = None,
        violations: ViolationStore | None = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        chosen = make_options(options, fields)
        light = LIGHT if chosen.requires == REQUIRED else chosen.requires
        self._who = who
        self._pool = SandboxPool(
            replace(chosen, requires=light, trace=chosen.level_of_trace(Trace.OFF)),
            size=PoolConfig(min_instances=1, max_instances=_LIGHT_BOXES),
            tools=(CODE_TOOL,),
        )
        if violations is not None:
            self._pool.violations = violations

    @property
    def violations(self) -> ViolationStore:
        """What was refused in it."""
        return self._pool.violations

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Make the first box ready; the first execution does so otherwise.

        Raises:
            InitializationFailed: this machine cannot build the wall; otherwise as `SandboxPool.start`.
        """
        await self._pool.start()

    async def execute(self, request: ExecutionRequest, assessment: Assessment | None = None) -> Result:
        """Run it, if it is harmless.

        Args:
            assessment: of this very code, if somebody has made it already.

        Raises:
            CommandNotAllowed: it is not known to be; names what was found.
            InvalidArgument: it is to keep a state, or has files, and such a box has neither.
            InitializationFailed, PoolExhausted, SpawnFailed, Internal, PermissionDenied: as `SandboxManager.execute`.
        """
        code = request.code or ""
        assessment = assessment or assess(request.language, code)
        if assessment.risk is not Risk.SAFE or find_language(request.language).name != "python":
            found = ", ".join(assessment.patterns) or f"code in {request.language}"
            raise CommandNotAllowed(
                f"not known to be harmless ({found}), so the lightest wall is not for it",
                rule="SubprocessExecutor",
                hint="run it with SandboxManager or Sandbox, behind the whole wall",
            )
        if request.session_id is not None or request.context is not None or request.files or request.collect:
            raise InvalidArgument(
                "a light box keeps no state and takes no files", hint="use SandboxManager for sessions and files"
            )
        await self._pool.start()
        sandbox = self._pool.for_one_call(CODE_TOOL, who=self._who)
        try:
            result = await sandbox.code(
                "python", code, stdin=request.stdin, timeout=request.timeout, on_output=request.on_output
            )
        finally:
            self._pool.discard(sandbox)
        kind = type_of(sandbox)
        return replace(result, sandbox_type=SandboxType.SUBPROCESS if kind is SandboxType.NATIVE else kind)

    async def close(self) -> None:
        """End everything that runs in it; returns when nothing is left."""
        await self._pool.stop()


class DockerExecutor:
    """Each piece of code, and each command, in a container of its own, which is gone afterwards: no network, limits on
    memory, processes and time, the workspace as its only writable directory.

    For many executions a pool is quicker: `SandboxManager(docker_url=...)`.

    Args:
        options: what is asked of each; or a workspace. With a workspace, all executions work in it; without one, each
            has an empty one, and the files that it makes are in its result. `engine=Docker(...)` says which daemon and
            image, if not those that the environment names.
        fields: single fields of `SandboxOptions`.
    """

    def __init__(self, options: SandboxOptions | StrPath | None = None, **fields: Unpack[OptionFields]) -> None:
        chosen = make_options(options, fields)
        if chosen.engine == "native":
            raise InvalidArgument('a DockerExecutor with engine="native"', hint="use Sandbox, or leave it out")
        self._options = replace(chosen, engine=chosen.engine or Docker())

    async def execute(self, request: ExecutionRequest) -> Result:
        """Run it.

        Raises:
            InvalidArgument: the request asks for both code and a command, for neither, or for a state to be kept.
            InitializationFailed: no daemon answers, there is no such image, or the container cannot be made.
            SpawnFailed, Internal, PermissionDenied: as `Sandbox.shell`.
        """
        if not request.is_one_thing:
            raise InvalidArgument("a request has code, a command, or argv", hint="set one of them")
        if request.session_id is not None or request.context is not None:
            raise InvalidArgument(
                "nothing is kept from one container to the next", hint="use SandboxManager for sessions"
            )
        if self._options.workspace is not None:
            return await self._execute(request, self._options.workspace, is_fresh=False)
        with tempfile.TemporaryDirectory(prefix="ringfence-execution-", ignore_cleanup_errors=True) as fresh:
            return await self._execute(request, fresh, is_fresh=True)

    async def _execute(self, request: ExecutionRequest, workspace: StrPath, *, is_fresh: bool) -> Result:
        tool = self._options.tool or (SHELL_TOOL if request.code is None else CODE_TOOL)
        options = replace(self._options, workspace=workspace, tool=tool)
        # Nobody reads the files that come along, and harmless code may load one.
        async with Sandbox(options) if request.files else Sandbox.for_one_call(options) as sandbox:
            result = await run_in(sandbox, request, is_fresh=is_fresh)
        return replace(result, sandbox_type=SandboxType.DOCKER)
