"""`Sandbox`: one box, many commands and pieces of code in turn, and the checks and files that go with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from ringfence.dataclass import dataclass, replace
from ringfence.deferred import deferred, deferred_module
from ringfence.engines.loops import run_there, runs_elsewhere
from ringfence.engines.room import TO_MAKE_A_BOX, descriptor_room
from ringfence.errors import Closed, Internal, InvalidArgument, PermissionDenied, RingfenceError
from ringfence.manager.arguments import Duration, Size, Stdin, StreamArguments, make_request
from ringfence.manager.assemble import warn_of
from ringfence.manager.by_tool import ToolRunner, ToolRunners
from ringfence.manager.forming import check_form
from ringfence.manager.options import OptionFields, SandboxOptions, StrPath, make_options
from ringfence.manager.parts import SandboxParts
from ringfence.policy.globs import compiled
from ringfence.policy.isolation import isolation_of
from ringfence.values.outcome import Result, Usage
from ringfence.values.request import OnOutput, Overflow, Request, Stream
from ringfence.values.risk import Route, RouteDecision
from ringfence.values.verdict import Decision, Reason, Verdict

if TYPE_CHECKING:
    from ringfence.approvals.base import ConfirmationService
    from ringfence.audit.violations import ViolationStore
    from ringfence.engines.base import Box
    from ringfence.engines.base import Process as Process
    from ringfence.languages.registry import find as find_language
    from ringfence.manager import checks
    from ringfence.manager.browser_router import BrowserRouter
    from ringfence.manager.executing import run_in, type_of
    from ringfence.manager.file_rules import FileRules
    from ringfence.manager.files import BoxFiles
    from ringfence.manager.leases import Lease
    from ringfence.manager.pipeline import Collect, Prepare
    from ringfence.policy.terms import Terms
    from ringfence.values.execution import ExecutionRequest
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Wall
    from ringfence.values.limits import Limits
    from ringfence.values.violation import Violation
    from ringfence.workspace.agent import AgentWorkspace
else:
    find_language = deferred("ringfence.languages.registry", "find")
    BrowserRouter = deferred("ringfence.manager.browser_router", "BrowserRouter")
    run_in = deferred("ringfence.manager.executing", "run_in")
    type_of = deferred("ringfence.manager.executing", "type_of")
    FileRules = deferred("ringfence.manager.file_rules", "FileRules")
    BoxFiles = deferred("ringfence.manager.files", "BoxFiles")
    AgentWorkspace = deferred("ringfence.workspace.agent", "AgentWorkspace")
    checks = deferred_module("ringfence.manager.checks")


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a command's output, as it came."""

    stream: Stream
    data: bytes


class Sandbox:
    """A walled-in place for an agent's commands.

    Use it as an async context manager: the box is made at the first command that may run, and gone, with everything in
    it, at the end.

        async with Sandbox(workspace="project") as box:
            done = await box.shell("pytest -q", timeout=60)
            await box.python("import csv; rows = list(csv.reader(open('a.csv')))")
            shown = await box.python("len(rows)")  # the interpreter keeps its state
            server = await box.start("python3 -m http.server")

    Where a policy treats code and commands differently (other paths, limits or guarantees), each has a box of its own
    over the one workspace.

    Args:
        options: what is asked of it; or a workspace, for `SandboxOptions(workspace=...)`.
        fields: single fields of `SandboxOptions`, instead of those in `options`.

    Raises:
        InvalidConfig, InvalidArgument, PathAccessDenied: what was asked for makes no sense or cannot be granted.
        InitializationFailed: this machine cannot build the wall.
    """

    def __init__(
        self, options: SandboxOptions | SandboxParts | StrPath | None = None, **fields: Unpack[OptionFields]
    ) -> None:
        parts = options if isinstance(options, SandboxParts) else SandboxParts.of(make_options(options, fields))
        self._parts = parts
        self._assembly = parts.assembly
        self._reporting = parts.reporting
        self._is_closed = False
        self._runners = ToolRunners(parts, self._refusal)
        self._files: BoxFiles | None = None
        self._browser: BrowserRouter | None = None
        self.who = parts.reporting.who
        """What the journal says about whose it is."""
        self.origin = parts.origin
        """The pool's own record of it, if it came from one."""
        if parts.lease is not None:
            self._reporting.opened(self.current_usage)

    @classmethod
    def for_one_call(cls, options: SandboxOptions | StrPath | None = None, **fields: Unpack[OptionFields]) -> Self:
        """A sandbox for a single call, so that its wall follows from that call alone, also under strict."""
        return cls(SandboxParts.of(make_options(options, fields), once=True))

    async def lend(self) -> Lease:
        """Its box, for a second sandbox over the same one, which does not close it."""
        return (await self._runners.first.holder.acquire(None)).lent()

    def give_away(self, box: Box) -> bool:
        """Whether it is the box of this sandbox, which somebody else closes from now on."""
        return self._runners.first.holder.give_away(box)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            if not self._parts.is_pooled and self._runners.hold is None:
                self._runners.hold = await descriptor_room().take(TO_MAKE_A_BOX, "another sandbox")
            self._assembly.journal.recover()
            warn_of(self._assembly.journal.take_notes())
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that runs in it; returns when nothing of it is left. From any loop or thread."""
        loop = self._runners.loop
        if loop is not None and runs_elsewhere(loop):
            await run_there(loop, self._close())
        else:
            await self._close()

    async def _close(self) -> None:
        self._is_closed = True
        try:
            if self._browser is not None:
                await self._browser.close()
            await self._runners.close()
        finally:
            self._reporting.closed()
            if not self._parts.is_pooled:
                self._assembly.journal.close()
            if self._runners.hold is not None:
                self._runners.hold.give_back()

    async def open(self) -> None:
        """Make the box now, instead of at the first call that may run; the ordinary one, where that would choose.

        Raises:
            InitializationFailed, Internal: it could not be made, or was lost.
        """
        await self._runners.first.holder.acquire(None)

    async def warm(self) -> None:
        """Make the box, with a shell and an interpreter, so that the first call of each costs a message and no start.

        Raises:
            InitializationFailed, Internal: as `open`.
        """
        await (await self._runners.first.holder.acquire(None)).box.warm()

    def _refusal(self) -> Exception:
        """Whoever closes their own sandbox and goes on made a mistake; a pool's may be ended by somebody else."""
        if self._parts.is_pooled:
            return Internal("the session was ended while this call waited", hint="acquire it again")
        return Closed("the sandbox is closed", hint="make a new one")

    @property
    def _box(self) -> Box | None:
        return self._runners.box

    @property
    def grant(self) -> Grant:
        """What its commands are granted; of a pool's, before it has a box, in a workspace that is none."""
        return self._runners.first.grant

    def _runner(self, request: Request) -> ToolRunner:
        return self._runners.of(self._parts.tool_for(request))

    # --- commands -----------------------------------------------------------------------------------------------------

    async def shell(
        self,
        command: str,
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stdin | None = None,
        timeout: Duration | None = None,
        overflow: Overflow = Overflow.STOP,
        output_limit: Size | None = None,
        on_output: OnOutput | None = None,
        context: str | None = None,
        keep_background: bool = False,
        collect: Collect | None = None,
        prepare: Prepare | None = None,
    ) -> Result:
        """Run a command line with the shell. Calls of one sandbox run side by side.

        What it leaves running is ended with it; with `keep_background`, it lives on as one of `processes()`, until the
        sandbox is closed. Files in the workspace, in HOME and in /tmp stay for the next command. With `context`, a
        shell of that name runs it that keeps its directory, variables and functions from call to call, one call at a
        time: `cwd`, `env` and `stdin` are for this call, and what it leaves running lives on anyway. `output_limit` is
        how many bytes of each stream are kept, if less than the sandbox's limit. `prepare` is called when it may run
        and has its box; `collect` may add to the result, before it is recorded, which files were written.

        Raises:
            CommandNotAllowed, PathAccessDenied, InvalidArgument: the request makes no sense.
            PermissionDenied: the journal cannot be written.
            InitializationFailed, SpawnFailed, Internal: the wall or the program could not be started, or the box was
            lost.
        """
        request = make_request(
            command=command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            overflow=overflow,
            output_limit=output_limit,
            on_output=on_output,
            context=context,
            keep_background=keep_background,
        )
        return await self._run(request, collect, prepare)

    async def _run(self, request: Request, collect: Collect | None = None, prepare: Prepare | None = None) -> Result:
        return await self._runner(request).pipeline.run(request, collect, prepare)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stdin | None = None,
        timeout: Duration | None = None,
        overflow: Overflow = Overflow.STOP,
        output_limit: Size | None = None,
        on_output: OnOutput | None = None,
        keep_background: bool = False,
        collect: Collect | None = None,
        prepare: Prepare | None = None,
    ) -> Result:
        """Run a program with its arguments, without a shell: `exec(["ls", "-l"])`, one sequence, as `subprocess.run`
        takes it, so that a list passes as it is and a single text is never taken for a program. Otherwise as `shell`.
        """
        request = make_request(
            argv=argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            overflow=overflow,
            output_limit=output_limit,
            on_output=on_output,
            keep_background=keep_background,
        )
        return await self._run(request, collect, prepare)

    async def python(
        self,
        code: str,
        *,
        context: str | None = None,
        cwd: StrPath | None = None,
        timeout: Duration | None = None,
        overflow: Overflow = Overflow.STOP,
        output_limit: Size | None = None,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run Python in an interpreter that lives on: names stay for the next call.

        The value of the last expression, figures and tables are in `results`, an exception is in `exception`, and the
        exit code is what a script would exit with. With `context`, an interpreter of that name, beside the others. When
        the time is up the code is interrupted; only if it does not heed that, the interpreter is ended with its state
        (`state_kept`).

        Raises:
            SpawnFailed: there is no interpreter in the box; otherwise as `shell`.
        """
        return await self.code(
            "python",
            code,
            context=context,
            cwd=cwd,
            timeout=timeout,
            overflow=overflow,
            output_limit=output_limit,
            on_output=on_output,
        )

    async def code(
        self,
        language: str,
        code: str,
        *,
        context: str | None = None,
        stdin: Stdin | None = None,
        timeout: Duration | None = None,
        overflow: Overflow = Overflow.STOP,
        output_limit: Size | None = None,
        on_output: OnOutput | None = None,
        cwd: StrPath | None = None,
        collect: Collect | None = None,
        prepare: Prepare | None = None,
    ) -> Result:
        """Run a piece of code in one of the languages of the registry. Only Python keeps a state.

        With `cwd`, it runs there; an interpreter that keeps its state goes back afterwards.

        Raises:
            InvalidArgument: there is no such language, or the code makes no sense in it.
            SpawnFailed: its interpreter is not there; says how to get it. Otherwise as `shell`.
        """
        name = find_language(language).name
        is_bash = name == "bash"
        request = make_request(
            command=code if is_bash else None,
            code=None if is_bash else code,
            language=name,
            context=context,
            cwd=cwd,
            stdin=stdin,
            timeout=timeout,
            overflow=overflow,
            output_limit=output_limit,
            on_output=on_output,
        )
        return await self._run(request, collect, prepare)

    async def execute(self, request: ExecutionRequest) -> Result:
        """Run a request as `SandboxManager.execute` does, in this sandbox; raises as `code` and `shell`."""
        if not request.is_one_thing:
            raise InvalidArgument("a request has code, a command, or argv", hint="set one of them")
        result = await run_in(self, request, is_fresh=False)
        return replace(result, sandbox_type=type_of(self), session_id=self.who.session_id)

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stdin | None = None,
        timeout: Duration | None = None,
        output_limit: Size | None = None,
        terminal: tuple[int, int] | None = None,
        on_output: OnOutput | None = None,
        typed_by_person: bool = False,
    ) -> Process:
        """Start a command that goes on while others run: a server, a watcher, a shell on a terminal.

        A string goes to the shell, a sequence is a program with its arguments. With `terminal`, it has one of that many
        rows and columns. It ends at the latest with the sandbox, or when its `timeout` is over. `Process.wait` gives
        its result with what it said, up to `output_limit` bytes of each stream (the middle of more is dropped);
        `Process.read` gives the same as it comes. With `stdin`, that is all its input.

        What is written to it later cannot be judged before: where a policy is in force, a shell or an interpreter that
        would run its input needs a person's approval, unless `typed_by_person` says that only a person writes to it.

        Raises:
            CommandNotAllowed: the policy refuses it. Otherwise as `shell`.
        """
        shell, argv = (command, None) if isinstance(command, str) else (None, command)
        if stdin is not None and terminal is not None:
            raise InvalidArgument("a process on a terminal takes no stdin", hint="write to it: `Process.write`")
        request = make_request(
            command=shell,
            argv=argv,
            cwd=cwd,
            env=env,
            stdin=stdin,
            timeout=timeout,
            overflow=Overflow.KEEP_ENDS,
            output_limit=output_limit,
            on_output=on_output,
        )
        is_live = stdin is None and not typed_by_person
        request = replace(request, live_input=is_live)
        return await self._runner(request).pipeline.start(request, terminal)

    def processes(self) -> tuple[Process, ...]:
        """What `start` started, and what calls with `keep_background` have left, that still runs, or that has ended and
        nobody has waited for yet."""
        return tuple(process for box in self._runners.boxes for process in box.processes())

    def contexts(self) -> tuple[tuple[str, str], ...]:
        """(language, name) of the interpreters and shells that keep a state."""
        return tuple(context for box in self._runners.boxes for context in box.contexts())

    def interrupt(self, context: str = "main", *, language: str = "python") -> bool:
        """Interrupt what runs in an interpreter; its state lives on. False if nothing runs."""
        return any([box.interrupt(context, language) for box in self._runners.boxes])

    async def restart(self, context: str = "main", *, language: str = "python") -> None:
        """End an interpreter with its state; the next call starts a new one."""
        for box in self._runners.boxes:
            await box.restart(context, language)

    @property
    def idle_seconds(self) -> float:
        """How long ago the last call of it ended; 0 while one runs."""
        return self._runners.idle_seconds

    async def stream(self, command: str, **call: Unpack[StreamArguments]) -> AsyncIterator[Output | Result]:
        """Run a command line and yield its output as it comes, then its result. Takes what `shell` takes."""
        pieces: asyncio.Queue[Output] = asyncio.Queue()

        def listen(stream: Stream, data: bytes) -> None:
            pieces.put_nowait(Output(stream, data))

        run = asyncio.ensure_future(self.shell(command, on_output=listen, **call))
        try:
            while not run.done() or not pieces.empty():
                waiting = asyncio.ensure_future(pieces.get())
                await asyncio.wait((run, waiting), return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    yield waiting.result()
                else:
                    waiting.cancel()
            yield await run
        finally:
            run.cancel()
            await asyncio.wait((run,))

    execute_command = shell

    # --- checks -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Which engine the commands run in."""
        return self._assembly.engine.name

    @property
    def id(self) -> str:
        """What metrics call it; never used twice."""
        return self._reporting.sandbox_id

    @property
    def workspace(self) -> Path:
        return self.grant.workspace

    @property
    def options(self) -> SandboxOptions:
        """What was asked of it.

        Raises:
            InvalidArgument: it is one of a pool, which was asked.
        """
        if self._parts.options is None:
            raise InvalidArgument("a sandbox of a pool has no options of its own", hint="use those of the pool")
        return self._parts.options

    @property
    def violations(self) -> ViolationStore:
        """What was refused in it; of a pool, in all its sandboxes."""
        return self._reporting.violations

    @property
    def notes(self) -> tuple[str, ...]:
        """What the configuration said that was not taken as written."""
        return self._assembly.notes

    @property
    def terms(self) -> Terms | None:
        """What the policy says about its tool and role, or about commands; None without a policy."""
        return self._assembly.terms

    def terms_of(self, tool: str) -> Terms | None:
        """The same about another of the policy's tools.

        Raises:
            InvalidConfig: no policy knows it.
        """
        return self._assembly.for_tool(tool).terms

    @property
    def confirmation(self) -> ConfirmationService | None:
        """Who is asked where the policy says so."""
        return self._parts.confirmation

    @property
    def wall(self) -> Wall | None:
        """The wall that stands; None before the first command."""
        return self._box.wall if self._box is not None else None

    @property
    def published(self) -> dict[int, str]:
        """Where the host reaches servers inside, by their port there: `{5173: "http://127.0.0.1:40123"}`. Of boxes that
        stand: `open` makes one before the first command does."""
        ports = (pair for box in self._runners.boxes for pair in box.published)
        return {inside: f"http://127.0.0.1:{outside}" for inside, outside in ports}

    async def network_authority(self) -> bytes:
        """In PEM, who signs for hosts whose connections the proxy looks into; empty where it looks into none."""
        network, blueprint = self.grant.network, self._assembly.blueprint
        if network is None or not network.inspects or blueprint is None:
            return b""
        return await blueprint.networks.authority()

    async def network_refusals(self) -> tuple[Violation, ...]:
        """What the network refused to what goes on in it, since the last look, and is in no result."""
        blueprint = self._assembly.blueprint
        if blueprint is None or self._box is None or not self._box.network_name:
            return ()
        return await blueprint.networks.refused(self._box.network_name)

    @property
    def resource_limits(self) -> Limits:
        return self.grant.limits

    @property
    def is_active(self) -> bool:
        """Whether a box is standing and takes commands."""
        return self._box is not None and self._box.alive

    def current_usage(self) -> Usage:
        """What everything in the box has used so far."""
        return self._box.usage() if self._box is not None else Usage()

    def check_path(self, path: StrPath, *, write: bool = False) -> Reason:
        """What the grant says about a path; the kernel has the last word."""
        return checks.check_path(self.grant, self._assembly.terms, os.fspath(path), write=write)

    def check_command(self, command: str) -> Reason:
        """Whether a command line would be run at all."""
        try:
            return self.decide(Request(command=command)).deciding
        except RingfenceError as fault:
            return Reason(Verdict.DENY, fault.code, fault.message, fault.hint)

    def decide(self, request: Request) -> Decision:
        """What would be decided about a request, with every vote, on the same way as where it is run.

        Raises:
            CommandNotAllowed, PathAccessDenied, InvalidArgument: the request makes no sense.
        """
        check_form(request)
        pipeline = self._runner(request).pipeline
        return pipeline.decide(request, pipeline.place(request))

    def refused_inside(self, request: Request) -> tuple[Reason, ...]:
        """What the wall would refuse of the paths that a command line names, if it ran: hidden and protected ones."""
        runner = self._runner(request)
        return checks.refused_inside(runner.grant, runner.terms, request, runner.pipeline.place(request).cwd)

    def check_network(self, host: str, port: int | None = None) -> Reason:
        """Whether the box reaches a host, by the proxy outside; without a port, by https."""
        return checks.check_network(self._assembly.grant.network, self._assembly.terms, host, port)

    # --- browser ------------------------------------------------------------------------------------------------------

    @property
    def browser(self) -> BrowserRouter:
        """Its browser, in a box beside its own; started with the first action, gone with the sandbox (docs/browser.md).

        Raises:
            InvalidArgument: it is one of a pool: `SandboxManager.browser_of` has the session's.
        """
        if self._browser is None:
            if self._is_closed:
                raise self._refusal()
            self._browser = BrowserRouter(self.who.session_id or self.id, session=self)
        return self._browser

    # --- files --------------------------------------------------------------------------------------------------------

    @property
    def files(self) -> BoxFiles:
        """The files that commands see, wherever they lie, read and changed as a command would."""
        if self._files is None or self._files.workspace != self.grant.workspace:
            rules = FileRules(self.grant, self._assembly.terms)
            self._files = BoxFiles(self._first_box, rules, self._assembly.journal, self._reporting)
        return self._files

    async def _first_box(self) -> Box:
        """Where the first call would choose the wall, this does: the stronger, since nobody knows what comes."""
        isolation = isolation_of(self._assembly.terms)
        why = "isolated: files came before the first call, and what will use them is not known"
        routed = None if isolation is None else RouteDecision(Route.ISOLATED, why, isolation.needs)
        return (await self._runners.first.holder.acquire(routed)).box

    async def read_file(self, path: StrPath) -> bytes:
        """A file that commands see, by its path inside: `files.read`."""
        return await self.files.read(path)

    async def write_file(self, path: StrPath, data: bytes | str) -> None:
        """Write a file that commands see; missing directories are made. See `files.write`."""
        await self.files.write(path, data, parents=True)

    def host_files(self) -> AgentWorkspace:
        """The workspace's files from outside, under the rules of the grant, with archives; close it.

        It needs no box. What commands see besides the workspace it does not, and it follows no link that leads out.
        """
        return AgentWorkspace(
            self.who.session_id or "",
            root=self._root_of_files(),
            denied=compiled(self.grant.denied).matches,
            protected=self.grant.protected_in(self.grant.workspace),
            limit_bytes=self.grant.limits.file_bytes,
        )

    def _root_of_files(self) -> Path:
        """Where the workspace's files lie as commands see them.

        Raises:
            PermissionDenied: they are a shadow that only a box can see, and there is none.
        """
        shadow = self.grant.shadow
        if shadow is None:
            return self.grant.workspace
        if shadow.is_copy:
            return shadow.upper
        if self._box is None or not self._box.alive or self._box.window < 0:
            raise PermissionDenied("a shadow's files are seen while its box stands", hint="run a command first")
        return Path(f"/proc/self/fd/{self._box.window}")

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "active" if self.is_active else "idle"
        return f"<Sandbox {self.grant.workspace} {self.name} {state}>"
