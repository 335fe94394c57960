"""Executors: one request in, one result out, nothing kept.

`SandboxExecutor` gives each command a box of its own (A8). `SubprocessExecutor` runs harmless Python without a wall,
`DockerExecutor` runs anything in a container of its own (E7).
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ringfence.audit.events import Observer
from ringfence.audit.violations import ViolationStore
from ringfence.engines.base import Box
from ringfence.errors import CommandNotAllowed, InvalidConfig
from ringfence.languages.registry import find as find_language
from ringfence.manager.assemble import Docker, bare_engine
from ringfence.manager.configuring import home_directory, open_journal
from ringfence.manager.executing import run_in
from ringfence.manager.pipeline import Judge, Pipeline
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.reporting import Reporting
from ringfence.manager.sandbox import Sandbox, StrPath
from ringfence.policy.risk.assess import assess
from ringfence.values.execution import ExecutionRequest, ExecutionResult, SandboxType
from ringfence.values.grant import Grant
from ringfence.values.limits import Limits
from ringfence.values.outcome import Result
from ringfence.values.request import Request
from ringfence.values.risk import Risk, Routed
from ringfence.values.who import Who


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
    """Each command in a box of its own; the working directory is its workspace.

    Args:
        config: a configuration file, instead of the one that the environment names.
        annotate: stderr ends with what was refused, by which rule, and what would allow it, for an agent to read.
        observers: who is told what happens (docs/metrics.md).
    """

    def __init__(
        self, config: StrPath | None = None, *, annotate: bool = False, observers: Sequence[Observer] = ()
    ) -> None:
        self._config = config
        self._annotate = annotate
        self._observers = tuple(observers)

    async def run(self, command: str, cwd: StrPath | None = None, *, timeout: float | None = None) -> SandboxResult:
        """Run a command in a directory.

        Raises:
            RingfenceError: the request makes no sense, or the wall cannot be built; never runs bare.
        """
        workspace = os.fspath(cwd) if cwd is not None else None
        async with Sandbox(workspace, config=self._config, observers=self._observers, once=True) as sandbox:
            result = await sandbox.shell(command, timeout=timeout)
        stderr = result.annotated_stderr if self._annotate else result.stderr
        return SandboxResult(result.stdout, stderr, result.exit_code, result.blocked, result.blocked_reason, result)


class SubprocessExecutor:
    """Runs Python that static analysis finds SAFE as a bare process. Anything else is refused. Close it.

    The process has limits, an empty environment and directory, and no modules but the interpreter's own.

    Static analysis is advice and no wall. This is for development, where somebody has asked for it.
    """

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        who: Who | None = None,
        observers: Sequence[Observer] = (),
        violations: ViolationStore | None = None,
    ) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="ringfence-bare-")
        self._grant = Grant(workspace=Path(os.path.realpath(self._directory.name)), limits=limits or Limits())
        self._journal = open_journal(os.environ, home_directory(os.environ))
        self._engine = bare_engine()
        self.violations = ViolationStore() if violations is None else violations
        """What was refused in it."""
        who = who or Who(tool="code_run")
        reporting = Reporting(who=who, violations=self.violations, observers=tuple(observers))
        self._pipeline = Pipeline(self._grant, self._journal, self._open, Judge(who=who), reporting)

    async def _open(self, _: Routed | None = None) -> Box:
        return await self._engine.open(self._grant)

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run it, if it is harmless.

        Raises:
            CommandNotAllowed: it is not known to be; names what was found.
        """
        code = request.code or ""
        assessment = assess(request.language, code)
        if assessment.risk is not Risk.SAFE or find_language(request.language).name != "python":
            found = ", ".join(assessment.patterns) or f"code in {request.language}"
            raise CommandNotAllowed(
                f"not known to be harmless ({found}), so it does not run without a wall",
                rule="SubprocessExecutor",
                hint="run it with SandboxManager or Sandbox, behind the wall",
            )
        program = (await self._open()).find_program(("python3", "python")) or "python3"
        argv = (program, "-I", "-c", code)
        result = await self._pipeline.run(
            Request(argv=argv, stdin=request.stdin, timeout=request.timeout, on_output=request.on_output)
        )
        return ExecutionResult(result, SandboxType.SUBPROCESS)

    def close(self) -> None:
        self._journal.close()
        self._directory.cleanup()


class DockerExecutor:
    """Each piece of code, and each command, in a container of its own, which is gone afterwards: no network, limits on
    memory, processes and time, the workspace as its only writable directory.

    For many executions a pool is quicker: `SandboxManager(docker_url=...)`.

    Args:
        workspace: the directory that all executions work in; without one, each has an empty one, and the files that it
            makes are in its result.
        docker: which daemon and image, if not those that the environment names.
        The others are those of `Sandbox`.
    """

    def __init__(
        self,
        workspace: StrPath | None = None,
        docker: Docker | None = None,
        *,
        limits: Limits | None = None,
        policy: PolicyEngine | StrPath | None = None,
        role: str | None = None,
        observers: Sequence[Observer] = (),
    ) -> None:
        self._workspace = workspace
        self._docker = docker or Docker()
        self._limits = limits
        self._policy = policy
        self._role = role
        self._observers = tuple(observers)

    async def execute(self, request: ExecutionRequest) -> ExecutionResult:
        """Run it.

        Raises:
            InvalidConfig: the request asks for both code and a command, for neither, or for a state to be kept.
            InitializationFailed: no daemon answers, there is no such image, or the container cannot be made.
            SpawnFailed, Internal, PermissionDenied: as `Sandbox.shell`.
        """
        if (request.code is None) == (request.command is None):
            raise InvalidConfig("a request has either code or a command", hint="set one of them")
        if request.session_id is not None or request.context is not None:
            raise InvalidConfig(
                "nothing is kept from one container to the next", hint="use SandboxManager for sessions"
            )
        if self._workspace is not None:
            return await self._execute(request, self._workspace, is_fresh=False)
        with tempfile.TemporaryDirectory(prefix="ringfence-execution-", ignore_cleanup_errors=True) as fresh:
            return await self._execute(request, fresh, is_fresh=True)

    async def _execute(self, request: ExecutionRequest, workspace: StrPath, *, is_fresh: bool) -> ExecutionResult:
        sandbox = Sandbox(
            workspace,
            limits=self._limits,
            policy=self._policy,
            role=self._role,
            tool="shell_exec" if request.code is None else "code_run",
            observers=self._observers,
            docker=self._docker,
            once=not request.files,  # nobody reads those, and harmless code may load one
        )
        async with sandbox:
            return ExecutionResult(await run_in(sandbox, request, is_fresh=is_fresh), SandboxType.DOCKER)
