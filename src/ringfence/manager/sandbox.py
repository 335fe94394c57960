"""`Sandbox`: one box, many commands and pieces of code in turn, and the checks and files that go with it."""

import asyncio
import os
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from ringfence.approvals.base import ConfirmationService
from ringfence.audit.events import Observer
from ringfence.audit.violations import ViolationStore
from ringfence.engines.base import Box, Process
from ringfence.errors import Internal, InvalidConfig, PermissionDenied, RingfenceError
from ringfence.languages.registry import find as find_language
from ringfence.manager.assemble import Assembly, Docker, Judged, assemble, warn_of
from ringfence.manager.configuring import home_directory
from ringfence.manager.granting import REQUIRED, Wish
from ringfence.manager.pipeline import Collect, Judge, Pipeline, check_form
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.reporting import Reporting
from ringfence.manager.routing import explaining
from ringfence.manager.shadowing import close_box, shadowed
from ringfence.policy import judging
from ringfence.policy.globs import compiled
from ringfence.policy.isolation import isolated, isolation_of
from ringfence.values.facts import PathFact, Span, Touch
from ringfence.values.grant import Explain, Grant
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limits
from ringfence.values.outcome import Result, Usage
from ringfence.values.request import OnOutput, Overflow, Request, Stream
from ringfence.values.risk import Routed, SecurityMode
from ringfence.values.verdict import Reason, Verdict
from ringfence.values.who import Who
from ringfence.workspace.agent import AgentWorkspace
from ringfence.workspace.shadow import Shadow

StrPath = str | os.PathLike[str]
Open = Callable[[], Awaitable[Box]]


@dataclass(frozen=True, slots=True)
class Output:
    """A piece of a command's output, as it came."""

    stream: Stream
    data: bytes


class Sandbox:
    """A walled-in place for an agent's commands.

    Use it as an async context manager: the box is made at the first command and gone, with everything in it, at the
    end.

        async with Sandbox(workspace="project") as box:
            done = await box.shell("pytest -q", timeout=60)
            await box.python("import csv; rows = list(csv.reader(open('a.csv')))")
            shown = await box.python("len(rows)")  # the interpreter keeps its state
            server = await box.start("python3 -m http.server")

    Args:
        workspace: the directory that commands work in and may write; the current one if not given.
        read: further files and directories that commands may read.
        write: further directories that commands may write.
        deny: further rows for the blacklist, such as `**/*.pem`.
        env: variables for every command; the caller's own are not passed on.
        limits: instead of the configured ones.
        config: a configuration file, instead of the one that the environment names.
        requires: what the wall has to guarantee.
        policy: a policy file, or a `PolicyEngine`; the one that RINGFENCE_POLICY names is in force in any case. No file
            is looked for in the workspace, where the agent could have written it.
        role: the role that the agent has in the policy.
        tool: as which of the policy's tools commands are judged.
        security_mode: which code is isolated, where the policy isolates (docs/policy.md); of this and the policy's own
            mode the stricter counts.
        confirmation: who is asked where the policy says so; without one, what would be asked is refused.
        python: the interpreter that runs Python code; the first one on PATH if not given.
        preload: modules that it imports before it is asked for anything.
        explain: how much is looked at while commands run, so that a refusal has its exact reason: `off`, `changes`
            (opens for writing, programs, connections, names and modes) or `full` (every open).
        strict: hold the blacklist at the moment of opening too, against hard links and files that come later.
        shadow: what commands change instead of the workspace (`Workspaces.new`); nothing of it reaches the host's files
            before it is committed.
        shadow_bytes: if not 0, how much may be changed in it: kept in memory while the box stands, on disk afterwards.
        observers: who is told what happens: metrics, traces (docs/metrics.md).
        agent_id, org_id: who the journal says asks for what runs.
        docker: run in a container (docs/docker.md), whatever engine the environment names.
        once: it is for one call, so that its wall follows from that call alone, also under strict.

    Raises:
        InvalidConfig, PathAccessDenied: what was asked for makes no sense or cannot be granted.
        InitializationFailed: this machine cannot build the wall.
    """

    def __init__(
        self,
        workspace: StrPath | None = None,
        *,
        read: Sequence[StrPath] = (),
        write: Sequence[StrPath] = (),
        deny: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        config: StrPath | None = None,
        requires: frozenset[Guarantee] = REQUIRED,
        policy: PolicyEngine | StrPath | None = None,
        role: str | None = None,
        tool: str = "shell_exec",
        security_mode: SecurityMode | None = None,
        confirmation: ConfirmationService | None = None,
        python: StrPath | None = None,
        preload: Sequence[str] = (),
        explain: Explain | str = Explain.CHANGES,
        strict: bool = False,
        shadow: Shadow | None = None,
        shadow_bytes: int = 0,
        observers: Sequence[Observer] = (),
        agent_id: str | None = None,
        org_id: str | None = None,
        docker: Docker | None = None,
        once: bool = False,
    ) -> None:
        wish = Wish(
            workspace=workspace,
            read=tuple(read),
            write=tuple(write),
            deny=tuple(deny),
            env=tuple((env or {}).items()),
            limits=limits,
            requires=requires,
            python=python,
            preload=tuple(preload),
            explain=_explain(explain),
            strict=strict,
        )
        mode = SecurityMode(security_mode) if security_mode is not None else None
        judged = Judged(policy=policy, role=role, tool=tool, security_mode=mode)
        name = os.urandom(8).hex()
        who = Who(session_id=name, agent_id=agent_id, org_id=org_id, sandbox_id=name, tool=tool)
        reporting = Reporting(who=who, observers=tuple(observers))
        assembly = assemble(wish, config_path=config, judged=judged, docker=docker)
        if shadow is not None:
            assembly = replace(assembly, grant=shadowed(assembly.grant, shadow, shadow_bytes))
        self._set_up(assembly, confirmation, reporting, tuple(env or ()) if once else ())
        self._once = once

    def _set_up(
        self,
        assembly: Assembly,
        confirmation: ConfirmationService | None,
        reporting: Reporting,
        variables: tuple[str, ...] = (),
    ) -> None:
        who = reporting.who
        self._assembly = assembly
        self._grant = assembly.grant
        self._open: Callable[[Grant], Awaitable[Box]] = assembly.engine.open
        self._isolation = isolation_of(assembly.terms)
        self._once = False
        self._wall_is_chosen = False
        self._journal_is_shared = False
        home = home_directory(os.environ)
        judge = Judge(terms=assembly.terms, confirmation=confirmation, who=who, home=home, variables=variables)
        self._pipeline = Pipeline(self._grant, assembly.journal, self._acquire, judge, reporting, self._standing)
        self._reporting = reporting
        self._box: Box | None = None
        self._opening = asyncio.Lock()
        self._closed = False
        self._used = time.monotonic()
        self.who = who
        """What the journal says about whose it is."""
        self.origin: object = None
        """The pool's own record of it, if it came from one."""

    @classmethod
    def over(
        cls,
        assembly: Assembly,
        box: Box | None,
        *,
        open: Open,
        reporting: Reporting,
        confirmation: ConfirmationService | None = None,
        origin: object = None,
    ) -> Self:
        """A sandbox over a box that is there already, such as one of a pool; its journal is left open at the end.

        Args:
            open: how a new one is made if this one is lost, behind the same wall.
            reporting: to whom it is told what happens in it, and as whose.
        """
        sandbox = cls.__new__(cls)
        sandbox._set_up(assembly, confirmation, reporting)
        sandbox._open = lambda _: open()
        sandbox._box = box
        sandbox._wall_is_chosen = True
        sandbox._journal_is_shared = True
        sandbox.origin = origin
        if box is not None:
            reporting.opened(sandbox.current_usage)
        return sandbox

    async def lend(self) -> Box:
        """Its box, for a second sandbox over the same one, which must not close it."""
        return await self._acquire(None)

    # --- life ---------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        try:
            self._assembly.journal.recover()
            warn_of(self._assembly.journal.take_notes())
            if self._isolation is None or (self._isolation.mode is SecurityMode.STRICT and not self._once):
                await self._acquire(None)  # else the first call chooses the wall
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End everything that runs in it; returns when nothing of it is left."""
        self._closed = True
        try:
            if self._box is not None:
                await close_box(self._box, self._grant)
            await self._pipeline.finish()
        finally:
            self._reporting.closed()
            if not self._journal_is_shared:
                self._assembly.journal.close()

    async def warm(self) -> None:
        """Start a shell and an interpreter ahead of time, so that the first call of each costs a message and no start.

        Where the first call would choose the wall, this does: the ordinary one.

        Raises:
            InitializationFailed, Internal: the box could not be made, or was lost.
        """
        await (await self._acquire(None)).warm()

    def _is_closed(self) -> Exception:
        """Whoever closes their own sandbox and goes on made a mistake; a pool's may be ended by somebody else."""
        if self._journal_is_shared:
            return Internal("the session was ended while this call waited", hint="acquire it again")
        return RuntimeError("the sandbox is closed")

    def _standing(self) -> Wall | None:
        """The wall that every call has to do with, once a box was made."""
        return self.wall if self._wall_is_chosen else None

    async def _acquire(self, routed: Routed | None) -> Box:
        """The box; a new one if there is none yet, or if the last one was lost.

        Args:
            routed: where the call goes that it is for; chooses the wall of the first box, and so of all.
        """
        async with self._opening:
            if self._closed:
                raise self._is_closed()
            if self._box is not None and not self._box.alive:
                lost, self._box = self._box, None
                await close_box(lost, self._grant)
            if self._box is None:
                self._assembly.journal.prepare()
                box = await self._open_for(routed)
                if self._closed:
                    await box.close()
                    raise self._is_closed()
                self._box = box
                self._reporting.opened(self.current_usage)
            self._used = time.monotonic()
            return self._box

    async def _open_for(self, routed: Routed | None) -> Box:
        """A box: isolated, if the call, or that others may follow, asks for it."""
        why = ""
        if self._isolation is not None and not self._wall_is_chosen:
            why = self._isolation.why_from_the_start(routed, once=self._once)
        grant = isolated(self._grant, self._isolation.needs) if self._isolation is not None and why else self._grant
        with explaining(why):
            box = await self._open(grant)
        self._grant, self._wall_is_chosen = grant, True
        if why and not self._once:
            box.note(f"the session is {why}")
        return box

    # --- commands -----------------------------------------------------------------------------------------------------

    async def shell(
        self,
        command: str,
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | AsyncIterable[bytes] | None = None,
        timeout: float | None = None,
        overflow: Overflow = Overflow.STOP,
        on_output: OnOutput | None = None,
        context: str | None = None,
        collect: Collect | None = None,
    ) -> Result:
        """Run a command line with the shell.

        What it leaves running is ended with it. Files in the workspace, in HOME and in /tmp stay for the next command.
        With `context`, a shell of that name runs it that keeps its directory, variables and functions from call to
        call; it takes neither `cwd` nor `env` nor `stdin`, which it has of its own. `collect` may add to the result
        which files were written, before it is recorded.

        Raises:
            CommandNotAllowed, PathAccessDenied, InvalidConfig: the request makes no sense.
            PermissionDenied: the journal cannot be written.
            InitializationFailed, SpawnFailed, Internal: the wall or the program could not be started, or the box was
            lost.
        """
        if context is not None and any(given is not None for given in (cwd, env, stdin)):
            raise InvalidConfig("a shell that keeps its state takes no cwd, env or stdin", hint="cd and export in it")
        request = _request(command, None, cwd, env, stdin, timeout, overflow, on_output)
        return await self._pipeline.run(request if context is None else replace(request, context=context), collect)

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes | AsyncIterable[bytes] | None = None,
        timeout: float | None = None,
        overflow: Overflow = Overflow.STOP,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run a program with its arguments, without a shell. Otherwise as `shell`."""
        request = _request(None, argv, cwd, env, stdin, timeout, overflow, on_output)
        return await self._pipeline.run(request)

    async def python(
        self,
        code: str,
        *,
        context: str | None = None,
        timeout: float | None = None,
        overflow: Overflow = Overflow.STOP,
        on_output: OnOutput | None = None,
    ) -> Result:
        """Run Python in an interpreter that lives on: names stay for the next call.

        The value of the last expression, figures and tables are in `results`, an exception is in `error`, and the exit
        code is what a script would exit with. With `context`, an interpreter of that name, beside the others. When the
        time is up the code is interrupted; only if it does not heed that, the interpreter is ended with its state
        (`state_kept`).

        Raises:
            SpawnFailed: there is no interpreter in the box; otherwise as `shell`.
        """
        return await self.code("python", code, context=context, timeout=timeout, overflow=overflow, on_output=on_output)

    async def code(
        self,
        language: str,
        code: str,
        *,
        context: str | None = None,
        stdin: bytes | None = None,
        timeout: float | None = None,
        overflow: Overflow = Overflow.STOP,
        on_output: OnOutput | None = None,
        collect: Collect | None = None,
    ) -> Result:
        """Run a piece of code in one of the languages of the registry. Only Python keeps a state.

        Raises:
            InvalidConfig: there is no such language, or the code makes no sense in it.
            SpawnFailed: its interpreter is not there; says how to get it. Otherwise as `shell`.
        """
        name = find_language(language).name
        is_bash = name == "bash"
        request = Request(
            command=code if is_bash else None,
            code=None if is_bash else code,
            language=name,
            context=context,
            stdin=stdin,
            timeout=timeout,
            overflow=overflow,
            on_output=on_output,
        )
        return await self._pipeline.run(request, collect)

    async def start(
        self,
        command: str | Sequence[str],
        *,
        cwd: StrPath | None = None,
        env: Mapping[str, str] | None = None,
        terminal: tuple[int, int] | None = None,
        on_output: OnOutput | None = None,
    ) -> Process:
        """Start a command that goes on while others run: a server, a watcher, a shell on a terminal.

        A string goes to the shell, a sequence is a program with its arguments. With `terminal`, it has one of that many
        rows and columns. It ends at the latest with the sandbox.

        Raises:
            CommandNotAllowed: the policy refuses it. Otherwise as `shell`.
        """
        shell, argv = (command, None) if isinstance(command, str) else (None, command)
        request = _request(shell, argv, cwd, env, None, None, Overflow.KEEP_ENDS, on_output)
        return await self._pipeline.start(request, terminal)

    def processes(self) -> tuple[Process, ...]:
        """What `start` started, whether it still runs or has ended since."""
        return self._box.processes() if self._box is not None else ()

    def contexts(self) -> tuple[tuple[str, str], ...]:
        """(language, name) of the interpreters and shells that keep a state."""
        return self._box.contexts() if self._box is not None else ()

    def interrupt(self, context: str = "main", *, language: str = "python") -> bool:
        """Interrupt what runs in an interpreter; its state lives on. False if nothing runs."""
        return self._box is not None and self._box.interrupt(context, language)

    async def restart(self, context: str = "main", *, language: str = "python") -> None:
        """End an interpreter with its state; the next call starts a new one."""
        if self._box is not None:
            await self._box.restart(context, language)

    @property
    def idle_seconds(self) -> float:
        """How long ago the last call of it ended; 0 while one runs."""
        return 0.0 if self._pipeline.running else time.monotonic() - max(self._used, self._pipeline.ended_at)

    async def stream(self, command: str, **options: object) -> AsyncIterator[Output | Result]:
        """Run a command line and yield its output as it comes, then its result. Takes what `shell` takes."""
        pieces: asyncio.Queue[Output] = asyncio.Queue()
        options["on_output"] = lambda stream, data: pieces.put_nowait(Output(stream, data))
        run: asyncio.Task[Result] = asyncio.ensure_future(self.shell(command, **options))  # type: ignore[arg-type]  # checked by shell itself
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
        return self._grant.workspace

    @property
    def violations(self) -> ViolationStore:
        """What was refused in it; of a pool, in all its sandboxes."""
        return self._reporting.violations

    @property
    def notes(self) -> tuple[str, ...]:
        """What the configuration said that was not taken as written."""
        return self._assembly.notes

    @property
    def wall(self) -> Wall | None:
        """The wall that stands; None before the first command."""
        return self._box.wall if self._box is not None else None

    @property
    def resource_limits(self) -> Limits:
        return self._grant.limits

    @property
    def is_active(self) -> bool:
        """Whether a box is standing and takes commands."""
        return self._box is not None and self._box.alive

    def current_usage(self) -> Usage:
        """What everything in the box has used so far."""
        return self._box.usage() if self._box is not None else Usage()

    def check_path(self, path: StrPath, *, write: bool = False) -> Reason:
        """What the grant says about a path; the kernel has the last word."""
        text = os.path.normpath(os.path.join(self._grant.workspace, _inside(os.fspath(path), self._grant.workspace)))
        real = os.path.realpath(text)
        for vote in self._votes_on_path(text, write=write):
            if vote.verdict is not Verdict.ALLOW:
                return vote
        rules = compiled(self._grant.denied)
        row = rules.matches(text) or rules.matches(real)
        if row is not None:
            return Reason(Verdict.DENY, f"filesystem.blacklist {row}", f"{text} is blacklisted")
        roots = self._grant.writable_roots
        root = next((root for root in roots if _is_below(real, os.fspath(root))), None)
        if root is not None:
            relative = os.path.relpath(real, root)
            guard = next((row for row in self._grant.protected if _is_below(relative, row)), None)
            if write and guard is not None:
                return Reason(Verdict.DENY, f"protected {guard}", f"{text} may be read, not written")
            return Reason(Verdict.ALLOW, "filesystem.whitelist", f"{text} is below {root}")
        if not write and (self._grant.read_outside or any(_is_below(real, os.fspath(p)) for p in self._grant.readable)):
            return Reason(Verdict.ALLOW, "readable", f"{text} may be read")
        return Reason(
            Verdict.DENY,
            "filesystem.whitelist",
            f"{text} is not in what is granted",
            f"grant its directory with {'write' if write else 'read'}=",
        )

    def _votes_on_path(self, path: str, *, write: bool) -> tuple[Reason, ...]:
        terms = self._assembly.terms
        if terms is None:
            return ()
        fact = PathFact(Touch.WRITE if write else Touch.READ, path, Span(0, 0))
        where = judging.Where(self._grant.workspace, self._grant.workspace)
        return tuple(judging.on_path(terms, fact, where))

    def check_command(self, command: str) -> Reason:
        """Whether a command line would be run at all."""
        request = Request(command=command)
        try:
            check_form(request)
        except RingfenceError as fault:
            return Reason(Verdict.DENY, fault.code, fault.message, fault.hint)
        return self._pipeline.decide(request, self._pipeline.place(request)).deciding

    def check_network(self, host: str, port: int | None = None) -> Reason:
        """Whether a command may reach a host: never, from inside a box."""
        target = host if port is None else f"{host}:{port}"
        return Reason(
            Verdict.DENY,
            "network.allowNetwork false",
            f"{target}: there is no network inside",
            "fetch it outside the box, and hand the result in as a file",
        )

    # --- files --------------------------------------------------------------------------------------------------------

    def read_file(self, path: StrPath) -> bytes:
        """A file of the workspace, by its path inside.

        Raises:
            PathTraversalError, PathAccessDenied: it leads out, is blacklisted, or is not a plain file.
        """
        with self.files() as files:
            return files.read(os.fspath(path))

    def write_file(self, path: StrPath, data: bytes | str) -> None:
        """Write a file of the workspace; missing directories are made.

        Raises:
            PathTraversalError, PathAccessDenied: it leads out, is blacklisted or protected.
        """
        with self.files() as files:
            files.write(os.fspath(path), data)

    def files(self) -> AgentWorkspace:
        """The workspace's file API, by the paths that commands see and under the rules of the grant; close it."""
        return AgentWorkspace(
            self.who.session_id or "",
            root=self._root_of_files(),
            denied=compiled(self._grant.denied).matches,
            protected=self._grant.protected,
            limit_bytes=self._grant.limits.file_bytes,
        )

    def _root_of_files(self) -> Path:
        """Where the workspace's files lie as commands see them.

        Raises:
            PermissionDenied: they are a shadow that only a box can see, and there is none.
        """
        shadow = self._grant.shadow
        if shadow is None:
            return self._grant.workspace
        if shadow.is_copy:
            return shadow.upper
        if self._box is None or not self._box.alive or self._box.window < 0:
            raise PermissionDenied("a shadow's files are seen while its box stands", hint="run a command first")
        return Path(f"/proc/self/fd/{self._box.window}")

    def __repr__(self) -> str:
        state = "closed" if self._closed else "active" if self.is_active else "idle"
        return f"<Sandbox {self._grant.workspace} {self.name} {state}>"


def _explain(given: Explain | str) -> Explain:
    try:
        return Explain(given)
    except ValueError:
        known = ", ".join(Explain)
        raise InvalidConfig(f"explain is {given!r}", hint=f"one of {known}") from None


def _request(
    command: str | None,
    argv: Sequence[str] | None,
    cwd: StrPath | None,
    env: Mapping[str, str] | None,
    stdin: bytes | AsyncIterable[bytes] | None,
    timeout: float | None,
    overflow: Overflow,
    on_output: Callable[[Stream, bytes], None] | None,
) -> Request:
    return Request(
        command=command,
        argv=None if argv is None else tuple(argv),
        cwd=None if cwd is None else Path(cwd),
        env=tuple((env or {}).items()),
        stdin=stdin,
        timeout=timeout,
        overflow=overflow,
        on_output=on_output,
    )


def _inside(path: str, workspace: Path) -> str:
    if _is_below(path, "/workspace") and not _is_below(os.fspath(workspace), "/workspace"):
        return os.fspath(workspace) + path[len("/workspace") :]
    return path


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(directory.rstrip("/") + "/")
