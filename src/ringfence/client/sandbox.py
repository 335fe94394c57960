"""`Sandbox` on a server: the face of `ringfence.Sandbox`, whose box is elsewhere.

The session on the server is made at the first use, and ended by `close`. What the async face answers without waiting
(checks, `processes`, `current_usage`) is asked for in the caller's thread, which takes a round trip.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, Unpack

from ringfence.audit.violations import ViolationStore
from ringfence.client.calls import Calls, part
from ringfence.client.executions import Executions
from ringfence.client.files import RemoteFiles
from ringfence.client.options import session_body
from ringfence.client.processes import RemoteProcess
from ringfence.dataclass import replace
from ringfence.errors import Closed, InvalidArgument, NotFound, RingfenceError
from ringfence.languages.registry import find as find_language
from ringfence.manager.arguments import Duration, Size, Stdin, StreamArguments, make_request
from ringfence.manager.options import OptionFields, SandboxOptions, StrPath, make_options
from ringfence.manager.sandbox import Output
from ringfence.values.carried import fetched
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.limits import Limits
from ringfence.values.outcome import Result, Usage
from ringfence.values.principal import Principal
from ringfence.values.request import OnOutput, Overflow, Request
from ringfence.values.verdict import Decision, Reason, Verdict

if TYPE_CHECKING:
    from ringfence.manager.pipeline import Collect, Prepare
    from ringfence.policy.terms import Terms
    from ringfence.values.execution import ExecutionRequest
    from ringfence.workspace.agent import AgentWorkspace

_TTL_SECONDS: Final = 900.0
"""How long a session outlives its client: as long as that runs, it has the time extended."""


class RemoteSandbox:
    """A walled-in place for an agent's commands, on a server. From `Server.Sandbox`; see `ringfence.Sandbox`."""

    def __init__(
        self,
        calls: Calls,
        options: SandboxOptions | StrPath | None = None,
        /,
        *,
        once: bool = False,
        violations: ViolationStore | None = None,
        ttl_seconds: float | None = None,
        metadata: Mapping[str, str] | None = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        self._calls = calls
        self._options = make_options(options, fields)
        self._ttl_seconds = _TTL_SECONDS if ttl_seconds is None else ttl_seconds
        self._ends_idle = ttl_seconds is not None
        """Whether it ends when nobody has used it for that time; else when its client is gone."""
        self._used_at = time.monotonic()
        self._running = 0
        self._keeping: asyncio.Task[None] | None = None
        self._body = session_body(self._options, once=once) | {"ttl_seconds": self._ttl_seconds}
        if metadata:
            self._body["metadata"] = dict(metadata)
        self._made: dict[str, Any] | None = None
        self._making: asyncio.Future[None] | None = None
        self._lock = threading.Lock()
        self._is_closed = False
        self._is_ended = False
        """Whether the server knows that, too."""
        self._processes: dict[str, RemoteProcess] = {}
        self.violations = ViolationStore() if violations is None else violations
        """What was refused in it, as far as this client was told."""
        self.origin = None
        self._executions = Executions(calls, self._heard)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._session()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that runs in it; returns when nothing of it is left. From any loop or thread.

        Raises:
            Unreachable: the server does not answer; close it again later, or its time ends it there.
        """
        self._is_closed = True
        if self._keeping is not None and not self._keeping.get_loop().is_closed():
            self._keeping.get_loop().call_soon_threadsafe(self._keeping.cancel)
        for process in tuple(self._processes.values()):
            process.forget()
        if self._made is not None and not self._is_ended:
            with suppress(NotFound):  # its time was over
                await self._calls.ask("DELETE", self._path, deadline=None)
            self._is_ended = True

    async def open(self) -> None:
        """Make the box now, instead of at the first call that may run. Raises as `ringfence.Sandbox.open`."""
        await self._calls.ask("POST", await self._session() + "/open", deadline=None)

    async def warm(self) -> None:
        """Make the box, with a shell and an interpreter. Raises as `ringfence.Sandbox.warm`."""
        await self._calls.ask("POST", await self._session() + "/warm", deadline=None)

    async def lend(self) -> NoReturn:
        raise InvalidArgument("a server's box cannot be lent", hint="use the same sandbox")

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
        """Run a command line with the shell; see `ringfence.Sandbox.shell`."""
        _refuse_hooks(collect, prepare)
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
        return await self._run(request)

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
        """Run a program with its arguments, without a shell; see `ringfence.Sandbox.exec`."""
        _refuse_hooks(collect, prepare)
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
        return await self._run(request)

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
        """Run Python in an interpreter that lives on; see `ringfence.Sandbox.python`."""
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
        """Run a piece of code in one of the languages of the registry; see `ringfence.Sandbox.code`."""
        _refuse_hooks(collect, prepare)
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
        return await self._run(request)

    async def execute(self, request: ExecutionRequest) -> Result:
        """Run a request as `SandboxManager.execute` does, in this sandbox; raises as `code` and `shell`."""
        path = await self._session() + "/executions"
        with self._in_use():
            return await self._executions.execute(request, path)

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
    ) -> RemoteProcess:
        """Start a command that goes on while others run; see `ringfence.Sandbox.start`."""
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
        path = await self._session() + "/executions"
        started = await self._executions.start(
            replace(request, live_input=stdin is None), path, terminal, typed_by_person=typed_by_person
        )
        process = RemoteProcess(self._calls, started, on_output=on_output, heard=self._heard)
        self._processes[process.execution_id] = process
        return process

    def processes(self) -> tuple[RemoteProcess, ...]:
        """What was started or left running, that still runs, or that has ended and nobody has waited for yet."""
        listed = self._at_once("GET", "/processes")["items"]
        for each in listed:
            if each["id"] not in self._processes:
                self._processes[each["id"]] = RemoteProcess(self._calls, each, on_output=None, heard=self._heard)
        return tuple(found for each in listed if not (found := self._processes[each["id"]]).was_waited_for)

    def contexts(self) -> tuple[tuple[str, str], ...]:
        """(language, name) of the interpreters and shells that keep a state."""
        return tuple((language, name) for language, name in self._state()["contexts"])

    def interrupt(self, context: str = "main", *, language: str = "python") -> bool:
        """Interrupt what runs in an interpreter; its state lives on. False if nothing runs."""
        said = self._at_once("POST", "/interrupt", {"context": context, "language": language})
        return bool(said["was_running"])

    async def restart(self, context: str = "main", *, language: str = "python") -> None:
        """End an interpreter with its state; the next call starts a new one."""
        body = {"context": context, "language": language}
        await self._calls.ask("POST", await self._session() + "/restart", body)

    async def stream(self, command: str, **call: Unpack[StreamArguments]) -> AsyncIterator[Output | Result]:
        """Run a command line and yield its output as it comes, then its result. Takes what `shell` takes."""
        request = make_request(command=command, **call)
        path = await self._session() + "/executions"
        with self._in_use():
            async with aclosing(self._executions.stream(request, path)) as stream:
                async for each in stream:
                    yield Output(*each) if isinstance(each, tuple) else each

    execute_command = shell

    # --- checks -------------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Which engine the commands run in."""
        return str(self._state()["engine"])

    @property
    def id(self) -> str:
        """What metrics of the server call it; never used twice."""
        return str(self._state()["sandbox_id"])

    @property
    def server(self) -> str:
        """The URL of its server."""
        return str(self._calls.address)

    @property
    def session_id(self) -> str:
        """What the server calls the session."""
        return str(self._session_at_once()["id"])

    @property
    def who(self) -> Principal:
        """What the server's journal says about whose it is."""
        return fetched(Principal, self._state()["who"])

    @property
    def workspace(self) -> Path:
        return self.grant.workspace

    @property
    def options(self) -> SandboxOptions:
        """What was asked of it."""
        return self._options

    @property
    def notes(self) -> tuple[str, ...]:
        """What the configuration said that was not taken as written."""
        return tuple(self._state()["notes"])

    @property
    def terms(self) -> Terms | None:
        """Not known: a policy's text stays on the server. `decide` says what it comes to.

        Raises:
            InvalidArgument: always.
        """
        return self.terms_of("")

    def terms_of(self, tool: str) -> Terms | None:
        """As `terms`."""
        raise InvalidArgument("a server does not hand out its policy", hint="ask what it decides: `decide`")

    @property
    def confirmation(self) -> None:
        """Nobody of this process: the server asks those who may answer there."""
        return None

    @property
    def grant(self) -> Grant:
        """What its commands are granted."""
        return fetched(Grant, self._state()["grant"])

    @property
    def wall(self) -> Wall | None:
        """The wall that stands; None before the first command."""
        stands = self._state()["wall"]
        return None if stands is None else fetched(Wall, stands)

    @property
    def published(self) -> dict[int, str]:
        """Where the server's machine reaches servers inside, by their port there."""
        return {int(port): str(url) for port, url in self._state()["published"].items()}

    @property
    def resource_limits(self) -> Limits:
        return self.grant.limits

    @property
    def is_active(self) -> bool:
        """Whether a box is standing and takes commands."""
        return self._made is not None and not self._is_closed and bool(self._state()["is_active"])

    @property
    def idle_seconds(self) -> float:
        """How long ago the last call of it ended; 0 while one runs."""
        return float(self._state()["idle_seconds"])

    def current_usage(self) -> Usage:
        """What everything in the box has used so far."""
        return fetched(Usage, self._state()["usage"])

    def check_path(self, path: StrPath, *, write: bool = False) -> Reason:
        """What the grant says about a path; the kernel has the last word."""
        return self._checked({"path": str(path), "write": write})

    def check_command(self, command: str) -> Reason:
        """Whether a command line would be run at all."""
        try:
            return self.decide(Request(command=command)).deciding
        except RingfenceError as fault:
            return Reason(Verdict.DENY, fault.code, fault.message, fault.hint)

    def check_network(self, host: str, port: int | None = None) -> Reason:
        """Whether the box reaches a host, by the proxy outside; without a port, by https."""
        return self._checked({"host": host, "port": port})

    def decide(self, request: Request) -> Decision:
        """What would be decided about a request, with every vote; raises as `ringfence.Sandbox.decide`."""
        said = self._at_once("POST", "/decide", _asked(request))
        return fetched(Decision, said["decision"])

    def refused_inside(self, request: Request) -> tuple[Reason, ...]:
        """What the wall would refuse of the paths that a command line names, if it ran."""
        said = self._at_once("POST", "/decide", _asked(request))
        return tuple(fetched(Reason, each) for each in said["refused_inside"])

    def _checked(self, body: dict[str, Any]) -> Reason:
        return fetched(Reason, self._at_once("POST", "/check", body)["reason"])

    # --- files --------------------------------------------------------------------------------------------------------

    @property
    def files(self) -> RemoteFiles:
        """The files that commands see, wherever they lie, read and changed as a command would."""
        return RemoteFiles(self._calls, self._session, lambda: self.workspace, self._heard)

    async def read_file(self, path: StrPath) -> bytes:
        """A file that commands see, by its path inside: `files.read`."""
        return await self.files.read(path)

    async def write_file(self, path: StrPath, data: bytes | str) -> None:
        """Write a file that commands see; missing directories are made. See `files.write`."""
        await self.files.write(path, data, parents=True)

    def host_files(self) -> AgentWorkspace:
        """
        Raises:
            InvalidArgument: always: the workspace's files are on the server's machine.
        """
        raise InvalidArgument("the workspace is on the server's machine", hint="use `files`, which goes through it")

    @property
    def browser(self) -> NoReturn:
        """
        Raises:
            InvalidArgument: always: the server hands out no browser yet.
        """
        raise InvalidArgument(
            "a server hands out no browser yet", hint="use `ringfence mcp`, or a sandbox of this machine"
        )

    # --- snapshots ----------------------------------------------------------------------------------------------------

    async def save_snapshot(self, name: str) -> dict[str, Any]:
        """Save the workspace, which goes on: what the server says of it."""
        said: dict[str, Any] = await self._calls.ask(
            "POST", await self._session() + "/snapshots", {"name": name}, starts=True, deadline=None
        )
        return said

    async def restore_snapshot(self, name: str) -> None:
        """Make the workspace what it was."""
        await self._calls.ask("POST", await self._session() + "/restore", {"name": name}, deadline=None)

    # --- the session --------------------------------------------------------------------------------------------------

    @property
    def _path(self) -> str:
        assert self._made is not None
        return f"/v1/sessions/{part(self._made['id'])}"

    async def _session(self) -> str:
        """Its path; it is made if it is not there."""
        self._refuse_closed()
        self._used_at = time.monotonic()
        if self._keeping is None or self._keeping.done():
            self._keeping = asyncio.ensure_future(self._keep())
        if self._made is None:
            while self._making is not None:
                await asyncio.shield(self._making)
            if self._made is None:
                self._making = asyncio.get_running_loop().create_future()
                try:
                    self._made = await self._calls.ask("POST", "/v1/sessions", self._body, starts=True)
                finally:
                    made, self._making = self._making, None
                    made.set_result(None)
        return self._path

    async def _keep(self) -> None:
        """Have its time on the server extended again and again, for as long as this loop runs."""
        while True:
            await asyncio.sleep(self._ttl_seconds / 3)
            if self._ends_idle and not self._running and time.monotonic() - self._used_at > self._ttl_seconds:
                continue
            if self._made is not None:
                with suppress(RingfenceError):  # whoever uses it next is told
                    await self._calls.ask("POST", self._path + "/extend", {"ttl_seconds": self._ttl_seconds})

    def _session_at_once(self) -> dict[str, Any]:
        self._refuse_closed()
        with self._lock:
            if self._made is None:
                self._made = self._calls.ask_at_once("POST", "/v1/sessions", self._body)
            return self._made

    def _at_once(self, method: str, path: str, body: Any = None) -> Any:
        self._session_at_once()
        return self._calls.ask_at_once(method, self._path + path, body)

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = self._at_once("GET", "/state")
        return found

    def _refuse_closed(self) -> None:
        if self._is_closed:
            raise Closed("the sandbox is closed", hint="make a new one")

    async def _run(self, request: Request) -> Result:
        path = await self._session() + "/executions"
        with self._in_use():
            return await self._executions.run(request, path)

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
            self._used_at = time.monotonic()

    def _heard(self, told: Result | RingfenceError) -> None:
        """Keep what was refused."""
        run_id = told.run_id if isinstance(told, Result) else ""
        if told.violations:
            session = "" if self._made is None else str(self._made["id"])
            self.violations.record(told.violations, session=session, run_id=run_id)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "idle" if self._made is None else f"session {self._made['id']}"
        return f"<Sandbox at {self._calls.address} {state}>"


def _refuse_hooks(collect: Collect | None, prepare: Prepare | None) -> None:
    if collect is not None or prepare is not None:
        raise InvalidArgument(
            "collect and prepare are called where the box is, which is a server", hint="give files= to `execute`"
        )


def _asked(request: Request) -> dict[str, Any]:
    return {
        name: value
        for name, value in {
            "command": request.command,
            "argv": None if request.argv is None else list(request.argv),
            "code": request.code,
            "language": request.language,
            "context": request.context,
            "cwd": None if request.cwd is None else str(request.cwd),
            "env": dict(request.env) or None,
            "live_input": request.live_input or None,
        }.items()
        if value is not None
    }
