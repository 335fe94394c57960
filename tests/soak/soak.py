"""The soak: calls of all kinds side by side, with processes killed under them, and what is asked of every one.

Each call carries a token that nobody else has. It has to be answered, by a result or by an error of the family, within
its time and a margin; what it says has to be its own. An ending that is not the expected one counts as "hit by a kill"
only if something was killed while it ran or shortly before; otherwise it is a fault.

Between rounds nothing runs, and then there may be no more processes, descriptors, threads, control groups and files
than after the round before. Kills are of processes that we started, by the pid that our own objects hold: PID 1 of a
box, its launcher, an interpreter.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
import traceback
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ringfence import (
    Exited,
    Limit,
    LimitHit,
    Limits,
    PoolConfig,
    Result,
    RingfenceError,
    Sandbox,
    SandboxManager,
    SandboxPool,
    Signalled,
    TimedOut,
)
from ringfence.manager.pooling import SHELL_TOOL
from tests.soak.watch import Footprint

ROUND = 500
DEADLINE_SECONDS = 20.0
MARGIN_SECONDS = 30.0
"""On top of a call's own time: for waiting in the queue behind others, on a machine that does other things."""
KILL_SHARE = 0.03
KILL_SECONDS = 2.0
"""How long after a kill it may still be noticed by somebody: a dying box takes calls until it is dead."""
SESSIONS = 5
LIMITS = Limits(memory_bytes=160 * 1024 * 1024, output_bytes=200_000, wall_seconds=DEADLINE_SECONDS, processes=60)


KEPT = "sessions"
"""Files of named sessions stay."""


@dataclass(slots=True)
class Kind:
    calls: int = 0
    expected: int = 0
    hit: int = 0
    seconds: list[float] = field(default_factory=list)
    """Of calls that went as expected, in order."""


@dataclass(slots=True)
class Report:
    executions: int
    kinds: dict[str, Kind] = field(default_factory=lambda: defaultdict(Kind))
    footprints: list[tuple[int, Footprint]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    kills: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    manager_cpu: list[tuple[int, float]] = field(default_factory=list)
    """CPU seconds of our own process for each execution, by round."""
    wall_seconds: float = 0.0
    pools: str = ""

    def cost_ratio(self) -> float:
        """Our own CPU time for a call, the last tenth of the rounds against the first."""
        costs = [cost for _, cost in self.manager_cpu[1:]] or [cost for _, cost in self.manager_cpu]
        some = max(1, len(costs) // 10)
        return median(costs[-some:]) / median(costs[:some])

    def latency_ratio(self) -> float:
        """The median of single Python and shell calls, the last tenth against the first."""
        ratios = []
        for name in ("python", "shell"):
            seconds = self.kinds[name].seconds
            some = max(1, len(seconds) // 10)
            if seconds:
                ratios.append(median(seconds[-some:]) / median(seconds[:some]))
        return sum(ratios) / len(ratios) if ratios else 1.0

    def memory_growth_bytes(self) -> int:
        """From the end of the second round on: the first ones fill what is kept for good."""
        if len(self.footprints) < 3:
            return 0
        return self.footprints[-1][1].resident_bytes - self.footprints[1][1].resident_bytes

    def lines(self) -> list[str]:
        return [
            f"{self.executions} executions in {self.wall_seconds:.1f} s; kills: {dict(self.kills)}",
            f"our own CPU time for a call, last tenth against first: {self.cost_ratio():.2f}",
            f"latency of single calls, last tenth against first: {self.latency_ratio():.2f}",
            f"memory since the second round: {self.memory_growth_bytes() / 2**20:+.1f} MiB",
            f"pools: {self.pools}",
        ]


@dataclass(slots=True)
class Session:
    """What a session should know."""

    name: str
    tokens: set[str] = field(default_factory=set)
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    last: str | None = None
    may_forget: bool = True
    """Something happened to it since its last token was set."""


class Unexpected(Exception):
    """A call went otherwise than it should have."""


class Soak:
    def __init__(
        self,
        executions: int,
        directory: Path,
        *,
        seed: int = 1,
        workers: int = 6,
        victims: tuple[str, ...] = ("PID 1", "launcher", "interpreter"),
    ) -> None:
        self.executions = executions
        self.done = 0
        self.on_step: Callable[[str], None] = lambda note: None
        self._random = random.Random(seed)
        self._workers = workers
        self._victims = victims
        self._workspaces = directory / "workspaces"
        self._state = directory / "home" / ".ringfence" / "state"
        self._home = directory / "home"
        self._report = Report(executions)
        self._sessions = [Session(f"s{n}") for n in range(SESSIONS)]
        self._killed_at = float("-inf")
        self._manager: SandboxManager
        self._pool: SandboxPool
        self._kinds: list[tuple[str, int, Callable[[str], Awaitable[None]]]] = [
            ("python", 20, self._python),
            ("shell", 20, self._shell),
            ("files", 5, self._files),
            ("session python", 16, self._session_python),
            ("session context", 8, self._session_context),
            ("session shell", 8, self._session_shell),
            ("background", 6, self._background),
            ("terminal", 3, self._terminal),
            ("exit code", 4, self._exit_code),
            ("time-out", 3, self._time_out),
            ("time-out in a session", 2, self._session_time_out),
            ("cancel", 5, self._cancel),
            ("crash", 4, self._crash),
            ("memory", 1, self._memory),
            ("flood", 2, self._flood),
            ("swarm", 1, self._swarm),
            ("release", 2, self._release),
        ]
        if shutil.which("node", path="/usr/bin:/bin"):
            self._kinds.append(("javascript", 2, self._javascript))

    async def run(self) -> Report:
        self._home.mkdir(parents=True, exist_ok=True)
        changed = {"HOME": str(self._home), "RINGFENCE_WORKSPACES_DIR": str(self._workspaces)}
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        asyncio.get_running_loop().set_exception_handler(self._on_loop_fault)
        begin = time.monotonic()
        try:
            config = PoolConfig(min_instances=3, max_instances=14, starts_at_once=2)
            async with SandboxPool(size=config, limits=LIMITS) as self._pool:
                self._manager = SandboxManager(aio_pool=self._pool)
                await self._rounds()
                self._report.pools = repr(self._pool)
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
        self._report.wall_seconds = time.monotonic() - begin
        if left := [str(path) for path in self._workspaces.glob("*") if path.name != KEPT]:
            self._report.faults.append(f"left in the directory of workspaces: {left}")
        return self._report

    async def _rounds(self) -> None:
        size = min(ROUND, max(50, self.executions // 4))
        while self.done < self.executions:
            cpu, begin = time.process_time(), self.done
            until = min(self.executions, self.done + size)
            started = iter(range(self.done, until))
            await asyncio.gather(*(self._work(started) for _ in range(self._workers)))
            self._report.manager_cpu.append((self.done, (time.process_time() - cpu) / (self.done - begin)))
            await self._settle()
            footprint = Footprint.take(self._workspaces, self._state / "pending")
            if self._report.footprints:
                before = self._report.footprints[-1][1]
                self._report.faults += [
                    f"after {self.done} executions there is more: {what}" for what in footprint.grown_since(before)
                ]
            self._report.footprints.append((self.done, footprint))

    async def _settle(self) -> None:
        """Until nothing runs and as many boxes wait as should."""
        for session in self._sessions:
            session.may_forget = True
            await self._manager.cleanup(session.name)
        try:
            async with asyncio.timeout(MARGIN_SECONDS):
                while any(
                    state.idle < 3 or state.closing or state.busy or state.acquiring or state.starting
                    for state in self._pool.state().values()
                ):
                    await asyncio.sleep(0.05)
                while any(state.idle > 3 for state in self._pool.state().values()):  # made for who went away
                    self._pool.discard(await self._pool.take())
                while any(state.closing for state in self._pool.state().values()):
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.3)  # what a kill ended is reaped by then
        except TimeoutError:
            self._report.faults.append(f"the pool does not come to rest: {self._pool!r}")

    async def _work(self, started: Any) -> None:
        names, weights, calls = zip(*self._kinds, strict=True)
        for _ in started:
            index = self._random.choices(range(len(names)), weights)[0]
            if self._random.random() < KILL_SHARE:
                delay = self._random.choice((0.0, 0.001, 0.005, 0.02, 0.05))
                asyncio.get_running_loop().call_later(delay, self._kill_something)
            await self._one(names[index], calls[index])
            self.done += 1
            self.on_step(f"{names[index]}; {len(self._report.faults)} faults")

    async def _one(self, name: str, call: Callable[[str], Awaitable[None]]) -> None:
        kind = self._report.kinds[name]
        kind.calls += 1
        token = f"{self._random.getrandbits(64):016x}"
        begin = time.monotonic()
        task = asyncio.ensure_future(call(token))
        await asyncio.wait((task,), timeout=DEADLINE_SECONDS + MARGIN_SECONDS)
        seconds = time.monotonic() - begin
        if not task.done():
            stack = "".join(traceback.format_list([f for s in task.get_stack() for f in traceback.extract_stack(s)]))
            self._report.faults.append(f"{name}: no answer after {seconds:.1f} s; it is at\n{stack[-1500:]}")
            task.cancel()
            await asyncio.wait((task,), timeout=10)
            return
        fault = None if task.cancelled() else task.exception()
        if fault is None and not task.cancelled():
            kind.expected += 1
            kind.seconds.append(seconds)
        elif self._killed_at > begin - KILL_SECONDS and isinstance(fault, RingfenceError | Unexpected):
            kind.hit += 1
        else:
            self._report.faults.append(f"{name} after {seconds:.2f} s: {type(fault).__name__}: {fault}"[:800])

    def _on_loop_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        fault = context.get("exception")
        self._report.faults.append(f"the event loop says: {context['message']}: {type(fault).__name__}: {fault}"[:800])

    # --- kills --------------------------------------------------------------------------------------------------------

    def _kill_something(self) -> None:
        boxes = [
            box
            for pool in self._pool._supply.ordinary
            for slot in (*pool._idle, *pool._held.values())
            for box in {slot.member.box, *_box_of(slot.member.sandbox)}
            if box.alive
        ]
        if not boxes:
            return
        box: Any = self._random.choice(boxes)
        contexts = box._interpreters._contexts.values()
        interpreters = [context.pid for context in contexts if context.alive and context.pid]
        victims = {"PID 1": box._inside.control.first_pid, "launcher": box._inside.around.launcher.pid}
        if interpreters:
            victims["interpreter"] = self._random.choice(interpreters)
        what = self._random.choice([name for name in self._victims if name in victims])
        for session in self._sessions:
            session.may_forget = True
        self._killed_at = time.monotonic()
        self._report.kills[what] += 1
        if victims[what] > 1:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(victims[what], signal.SIGKILL)

    # --- single calls -------------------------------------------------------------------------------------------------

    async def _python(self, token: str) -> None:
        done = await self._manager.execute_code("python", f"print('{token}'); 6 * 7", timeout=DEADLINE_SECONDS)
        _expect(done, Exited(0), f"{token}\n")
        if done.results[0].text != "42":
            raise Unexpected(f"showed {done.results}")

    async def _shell(self, token: str) -> None:
        done = await self._manager.execute_shell(f"echo {token}", timeout=DEADLINE_SECONDS)
        _expect(done, Exited(0), f"{token}\n")

    async def _javascript(self, token: str) -> None:
        done = await self._manager.execute_code("javascript", f"console.log('{token}')", timeout=DEADLINE_SECONDS)
        _expect(done, Exited(0), f"{token}\n")

    async def _files(self, token: str) -> None:
        done = await self._manager.execute_shell("mkdir d; cat in > d/out; ls", files={"in": token})
        _expect(done, Exited(0), "d\nin\n")
        if [(file.path, file.data) for file in done.files] != [("d/out", token.encode())]:
            raise Unexpected(f"made {done.files}")

    async def _exit_code(self, token: str) -> None:
        code = int(token[:2], 16)
        done = await self._manager.execute_shell(f"echo {token} >&2; exit {code}")
        if done.ending != Exited(code) or done.stderr != f"{token}\n":
            raise Unexpected(f"{done.ending}, {done.stderr!r}")

    async def _time_out(self, token: str) -> None:
        command = self._random.choice(
            ("sleep 60", "trap '' TERM INT; while :; do :; done", "cat /dev/zero > /dev/null")
        )
        done = await self._manager.execute_shell(f"echo {token}; {command}", timeout=0.2)
        if not isinstance(done.ending, TimedOut) or done.stdout not in (f"{token}\n", ""):
            raise Unexpected(f"{done.ending}, {done.stdout!r}")

    async def _crash(self, token: str) -> None:
        code, ending = self._random.choice(
            (
                ("import os; os._exit(7)", Exited(7)),
                ("import ctypes; ctypes.string_at(0)", Signalled(signal.SIGSEGV)),
                ("import os; os.kill(os.getpid(), 9)", Signalled(signal.SIGKILL)),
            )
        )
        done = await self._manager.execute_code("python", f"print('{token}', flush=True)\n{code}")
        _expect(done, ending, f"{token}\n")

    async def _memory(self, token: str) -> None:
        done = await self._manager.execute_code("python", "x = []\nwhile True: x.append(bytearray(8_000_000))")
        is_limit = isinstance(done.ending, LimitHit) and done.ending.limit is Limit.MEMORY
        if not is_limit and "MemoryError" not in str(done.error):
            raise Unexpected(f"{done.ending}, {done.error}")

    async def _flood(self, token: str) -> None:
        done = await self._manager.execute_shell(f"yes {token}")
        if done.ending != LimitHit(Limit.OUTPUT, LIMITS.output_bytes) or not done.stdout.startswith(token):
            raise Unexpected(f"{done.ending}, {done.stdout[:100]!r}")

    async def _swarm(self, token: str) -> None:
        done = await self._manager.execute_shell(f"for n in {{1..20}}; do setsid sleep 60 & done; echo {token}")
        _expect(done, Exited(0), f"{token}\n")

    async def _cancel(self, token: str) -> None:
        session = self._random.choice((None, *(session.name for session in self._sessions)))
        call = (
            self._manager.execute_shell(f"echo {token}; sleep 60", session_id=session)
            if self._random.random() < 0.5
            else self._manager.execute_code("python", f"import time; time.sleep(60) # {token}", session_id=session)
        )
        if session is not None:
            self._session(session).may_forget = True
        task = asyncio.ensure_future(call)
        await asyncio.wait((task,), timeout=self._random.choice((0.0, 0.001, 0.01, 0.05, 0.2)))
        task.cancel()
        await asyncio.wait((task,))
        if session is not None:
            self._session(session).may_forget = True
        if not task.cancelled():
            fault = task.exception()
            raise fault if fault is not None else Unexpected(f"it ended: {task.result()}")

    # --- sessions -----------------------------------------------------------------------------------------------------

    def _session(self, name: str) -> Session:
        return next(session for session in self._sessions if session.name == name)

    async def _session_python(self, token: str) -> None:
        session = self._random.choice(self._sessions)
        code = f"print(globals().get('token'), '{token}'); token = '{token}'"
        async with session.turn:
            session.tokens.add(token)
            last, session.may_forget, forgot = session.last, False, session.may_forget
            done = await self._manager.execute_code("python", code, session_id=session.name)
            session.last = token
            before, _, now = done.stdout.strip().partition(" ")
            if not done.success or now != token:
                session.may_forget = True
                raise Unexpected(f"{done.ending}, {done.stdout!r}, {done.stderr[-300:]!r}")
            if before == "None":
                if not (forgot or session.may_forget):
                    raise Unexpected(f"the session {session.name} forgot what it knew")
            elif before not in session.tokens:
                raise Unexpected(f"the session {session.name} knows a token of another: {before}")
            elif before != last and not (forgot or session.may_forget):
                raise Unexpected(f"the session {session.name} knows an older token")

    async def _session_context(self, token: str) -> None:
        session = self._random.choice(self._sessions)
        context = self._random.choice(("a", "b"))
        code = f"mine = globals().get('mine', '{session.name}{context}'); print(mine, '{token}')"
        done = await self._manager.execute_code("python", code, session_id=session.name, context=context)
        _expect(done, Exited(0), f"{session.name}{context} {token}\n")

    async def _session_shell(self, token: str) -> None:
        session = self._random.choice(self._sessions)
        command = f"mine=${{mine-{session.name}}}; echo $mine {token}"
        done = await self._manager.execute_shell(command, session_id=session.name, context="sh")
        _expect(done, Exited(0), f"{session.name} {token}\n")

    async def _session_time_out(self, token: str) -> None:
        session = self._random.choice(self._sessions)
        code = self._random.choice(("while True: pass", "import time; time.sleep(60)"))
        done = await self._manager.execute_code("python", code, 0.2, session_id=session.name)
        session.may_forget = True
        if not isinstance(done.ending, TimedOut):
            raise Unexpected(f"{done.ending}, {done.stderr[-300:]!r}")

    async def _release(self, token: str) -> None:
        session = self._random.choice(self._sessions)
        async with session.turn:
            session.may_forget = True
            self._killed_at = time.monotonic()  # other calls of this session are ended with it
            self._report.kills["release"] += 1
            await self._manager.cleanup(session.name)
            session.may_forget = True

    async def _background(self, token: str) -> None:
        sandbox = await self._acquire()
        process = await sandbox.start('while read line; do echo "<$line>"; done; exit 3')
        await self._talk(process, token, f"<{token}>")
        if self._random.random() < 0.5:
            process.close_input()
            expected: object = Exited(3)
        else:
            process.kill()
            expected = Signalled(signal.SIGKILL)
        ended = await process.wait(DEADLINE_SECONDS)
        if ended is None or ended.ending != expected:
            raise Unexpected(f"{ended.ending if ended else 'still running'}")

    async def _terminal(self, token: str) -> None:
        sandbox = await self._acquire()
        process = await sandbox.start(["cat"], terminal=(24, 80))
        await self._talk(process, token, token)
        process.close_input()
        ended = await process.wait(DEADLINE_SECONDS)
        if ended is None or ended.ending != Exited(0):
            raise Unexpected(f"{ended.ending if ended else 'still running'}")

    async def _acquire(self) -> Sandbox:
        return await self._pool.acquire(self._random.choice(self._sessions).name, SHELL_TOOL)

    async def _talk(self, process: Any, token: str, wanted: str) -> None:
        if not await process.write(f"{token}\n".encode()):
            raise Unexpected("it does not listen")
        said, deadline = b"", time.monotonic() + DEADLINE_SECONDS
        while wanted.encode() not in said:
            if time.monotonic() > deadline or not process.alive:
                raise Unexpected(f"it said {said!r}")
            await asyncio.sleep(0.002)
            said += process.read()[0]


def _expect(result: Result, ending: object, stdout: str) -> None:
    if result.ending != ending or result.stdout != stdout:
        raise Unexpected(f"{result.ending}, {result.stdout[:200]!r}, {result.stderr[-300:]!r}")


def _box_of(sandbox: Sandbox | None) -> tuple[Any, ...]:
    return (sandbox._box,) if sandbox is not None and sandbox._box is not None else ()
