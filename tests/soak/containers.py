"""Sessions in containers, while those are killed, removed and paused, and their daemon is killed, hangs or is cut off.

Each session has a shell that keeps a token and a file with the session's name. Every call tells what it finds of both,
and leaves a new token. What is asked:

- Every call is answered within its own time and `GRACE_SECONDS`, by a result or by an error of the family.
- An answer is the call's own, and what it finds is the session's own, whatever happened.
- A session whose container nobody touched notices nothing: its answers are right, its state is there, also while the
  daemon is away. Only one that was struck since its last right answer may fail, or may have forgotten.
- When the faults are over, all sessions are served again, and as many boxes wait as should, without anybody's help.
- After the end there is no container, process, mount, file, control group or descriptor that was not there before.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringfence import Docker, Exited, PoolConfig, Result, RingfenceError, SandboxManager, SandboxPool, TimedOut
from ringfence.engines.docker.janitor import MANAGER_LABEL
from ringfence.manager.pooling import SHELL_TOOL
from tests.soak.gate import Gate
from tests.support.own_docker import OwnDaemon

SESSIONS = 50
CALL_SECONDS = 2.0
GRACE_SECONDS = 60.0
"""On top of a call's own time, for one whose container is gone: to have the old one away, and a new one made or given
up, by a daemon that hangs. A call whose container stands needs none of it."""
KILL_SECONDS = 6.0
"""On top of a call's own time, for one whose container stands: to end what does not heed, on a busy machine."""
RECOVERY_SECONDS = 60.0
IDLE = 2
STRUCK_AT_ONCE = 4
SHORT = ("kill", "remove", "pause", "cut", "hang", "daemon")
"""One of each; in the short run they come once, in any order."""


KEPT = "sessions"
"""Files of named sessions stay."""


@dataclass(slots=True)
class Session:
    """What a session should know."""

    name: str
    tokens: set[str] = field(default_factory=lambda: {""})
    last: str = ""
    under_blows: int = 0
    """What is being done to its container right now."""
    strikes: int = 0
    """How often something was done to it."""
    settled: int = 0
    """How many of them were over when the last call began that was answered rightly."""

    @property
    def was_struck(self) -> bool:
        return self.under_blows > 0 or self.strikes != self.settled

    @contextmanager
    def blow(self) -> Iterator[None]:
        self.under_blows += 1
        try:
            yield
        finally:
            self.strikes += 1
            self.under_blows -= 1


@dataclass(slots=True)
class Report:
    seed: int
    calls: int = 0
    right: int = 0
    hit: Counter[str] = field(default_factory=Counter)
    """Calls that ended otherwise because their container was struck, by how."""
    done: Counter[str] = field(default_factory=Counter)
    """What was done to containers and to the daemon."""
    faults: list[str] = field(default_factory=list)
    longest_seconds: float = 0.0
    recovered_seconds: float = 0.0
    wall_seconds: float = 0.0

    def lines(self) -> list[str]:
        return [
            f"{SESSIONS} sessions, {self.calls} calls in {self.wall_seconds:.1f} s, seed {self.seed}",
            f"done to them: {dict(self.done)}",
            f"answered rightly: {self.right}; struck: {dict(self.hit)}",
            f"longest call: {self.longest_seconds:.1f} s; all served again after {self.recovered_seconds:.1f} s",
            *self.faults,
        ]


class ContainerSoak:
    def __init__(self, daemon: OwnDaemon, directory: Path, *, seed: int, long_seconds: float | None = None) -> None:
        """Without `long_seconds` each fault comes once; with it they come until the time is over, and last longer."""
        self._daemon = daemon
        self._directory = directory
        self._long_seconds = long_seconds
        self._random = random.Random(seed)
        self._report = Report(seed)
        self._sessions = [Session(f"s{n}") for n in range(SESSIONS)]
        self._disturbed_at = float("-inf")
        self._is_over = False
        self._containers: set[str] = set()
        self._gate: Gate
        self._pool: SandboxPool
        self._manager: SandboxManager
        self.on_step: Callable[[str], None] = lambda note: None

    async def run(self) -> Report:
        begin = time.monotonic()
        asyncio.get_running_loop().set_exception_handler(self._on_loop_fault)
        config = PoolConfig(min_instances=IDLE, max_instances=SESSIONS + 14, starts_at_once=2)
        with self._environment():
            async with Gate(self._directory / "gate", self._daemon.settings.url) as self._gate:
                async with SandboxPool(size=config, engine=Docker(url=self._gate.url)) as self._pool:
                    self._manager = SandboxManager(aio_pool=self._pool)
                    await self._work_and_disturb()
                    await self._recover()
                await self._wait_removed()
        self._report.wall_seconds = time.monotonic() - begin
        return self._report

    @contextmanager
    def _environment(self) -> Iterator[None]:
        changed = {
            "HOME": str(self._directory / "home"),
            "RINGFENCE_STATE_DIR": str(self._directory / "state"),
            "RINGFENCE_WORKSPACES_DIR": str(self._directory / "workspaces"),
            "RINGFENCE_DOCKER_IMAGE": self._daemon.settings.image,
        }
        before = {name: os.environ.get(name) for name in changed}
        os.environ.update(changed)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _on_loop_fault(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        fault = context.get("exception")
        self._report.faults.append(f"the event loop says: {context['message']}: {type(fault).__name__}: {fault}"[:800])

    # --- calls --------------------------------------------------------------------------------------------------------

    async def _work_and_disturb(self) -> None:
        await asyncio.gather(*(self._call(session) for session in self._sessions))
        workers = [asyncio.ensure_future(self._work(session)) for session in self._sessions]
        workers.append(asyncio.ensure_future(self._work_without_session()))
        try:
            await self._disturb()
        finally:
            self._is_over = True
            self._gate.open()
            await asyncio.gather(*workers)

    async def _work(self, session: Session) -> None:
        while not self._is_over:
            await asyncio.sleep(self._random.uniform(0.1, 0.6))
            await self._call(session)

    async def _call(self, session: Session) -> None:
        """One call of a session, and what is to be said about its answer."""
        token = f"{self._random.getrandbits(64):016x}"
        session.tokens.add(token)
        strikes, was_struck = session.strikes, session.was_struck
        command = (
            f'who=; [ -e who ] && read -r who < who; echo "<$mine> <$who> {token}"; '
            f"mine={token}; [ -e who ] || echo {session.name} > who"
        )
        begin = time.monotonic()
        done = await self._answer(command, session.name, context="sh")
        seconds = time.monotonic() - begin
        may_fail = was_struck or session.was_struck
        allowed_seconds = CALL_SECONDS + (GRACE_SECONDS if may_fail or not session.last else KILL_SECONDS)
        if seconds > allowed_seconds:
            self._say(session, f"answered after {seconds:.1f} s, which is more than {allowed_seconds:g} s")
        if isinstance(done, Result) and done.ending == Exited(0):
            if self._is_right(session, done.stdout, token, may_forget=may_fail):
                self._report.right += 1
            session.last, session.settled = token, strikes
        elif may_fail:
            self._report.hit[_ending(done)] += 1
        else:
            self._say(session, f"nobody touched its container, and after {seconds:.1f} s: {_ending(done)}: {done}")

    def _is_right(self, session: Session, said: str, token: str, *, may_forget: bool) -> bool:
        words = said.split()
        if len(words) != 3 or words[2] != token:
            self._say(session, f"an answer that is not its own: {said!r}")
            return False
        known, who = (word.strip("<>") for word in words[:2])
        if who not in ("", session.name) or known not in session.tokens:
            self._say(session, f"it knows what is another's: {said!r}")
        elif known != session.last and not may_forget:
            self._say(session, f"nobody touched its container, and it knows {known!r} and not {session.last!r}")
        elif who == "" and session.last:
            self._say(session, "its files are gone")
        else:
            return True
        return False

    async def _work_without_session(self) -> None:
        """Calls that each have a container of their own; they may fail while something is being done."""
        while not self._is_over:
            begin = time.monotonic()
            token = f"{self._random.getrandbits(64):016x}"
            done = await self._answer(f'echo "$mine"; [ -e who ] || echo {token}', None)
            seconds = time.monotonic() - begin
            if seconds > CALL_SECONDS + GRACE_SECONDS:
                self._report.faults.append(f"a call without a session was answered after {seconds:.1f} s")
            if isinstance(done, Result) and done.ending == Exited(0):
                if done.stdout.split() != [token]:
                    self._report.faults.append(f"a call without a session found what is another's: {done.stdout!r}")
                self._report.right += 1
            elif self._disturbed_at > begin - CALL_SECONDS - KILL_SECONDS:
                self._report.hit[_ending(done)] += 1
            else:
                self._report.faults.append(f"a call without a session, while nothing was done: {done}")
            await asyncio.sleep(self._random.uniform(0.1, 0.6))

    async def _answer(self, command: str, session: str | None, **options: Any) -> Result | RingfenceError:
        """A result or an error of the family; anything else is a fault, and so is not an answer."""
        self._report.calls += 1
        begin = time.monotonic()
        call = asyncio.ensure_future(
            self._manager.execute_shell(command, timeout=CALL_SECONDS, session_id=session, collect=False, **options)
        )
        await asyncio.wait((call,), timeout=2 * (CALL_SECONDS + GRACE_SECONDS))
        self._report.longest_seconds = max(self._report.longest_seconds, time.monotonic() - begin)
        if not call.done():
            self._report.faults.append(f"{session}: no answer at all")
            call.cancel()
        try:
            return await call
        except RingfenceError as fault:
            if not fault.code:
                self._report.faults.append(f"{session}: an error without a code: {fault!r}")
            return fault

    def _say(self, session: Session, what: str) -> None:
        self._report.faults.append(f"{session.name}: {what}"[:600])

    # --- faults -------------------------------------------------------------------------------------------------------

    async def _disturb(self) -> None:
        ways = {
            "kill": self._kill,
            "remove": self._remove,
            "pause": self._pause,
            "cut": self._cut,
            "hang": self._hang,
            "daemon": self._kill_daemon,
        }
        for name in self._order():
            self.on_step(f"{name}; {len(self._report.faults)} faults")
            self._report.done[name] += 1
            self._disturbed_at = float("inf")
            await ways[name]()
            self._disturbed_at = time.monotonic()
            await asyncio.sleep(self._random.uniform(0.1, 1.0))

    def _order(self) -> Iterator[str]:
        if self._long_seconds is None:
            yield from self._random.sample(SHORT, len(SHORT))
            return
        end = time.monotonic() + self._long_seconds
        while time.monotonic() < end:
            yield self._random.choices(SHORT, (6, 6, 4, 3, 3, 2))[0]

    async def _kill(self) -> None:
        def blow(container: str, pid: int) -> None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

        await self._strike(blow)

    async def _remove(self) -> None:
        await self._strike(lambda container, pid: self._daemon.command("rm", "--force", container))

    async def _pause(self) -> None:
        await self._strike(lambda container, pid: self._daemon.command("pause", container), kills=False)

    async def _strike(self, blow: Callable[[str, int], object], *, kills: bool = True) -> None:
        """Do something to some containers: mostly of sessions, now and then to one that waits."""
        chosen: list[Session | None] = [*self._random.sample(self._sessions, STRUCK_AT_ONCE), None]
        for session in chosen:
            box = self._box_of(session)
            if box is None or not box.alive:
                continue
            with session.blow() if session is not None else nullcontext():
                await asyncio.to_thread(blow, box._inside.around.container, box._inside.control.first_pid)
                end = time.monotonic() + (CALL_SECONDS if kills else 0)
                while box.alive and time.monotonic() < end:  # a daemon may answer before it is done
                    await asyncio.sleep(0.02)

    def _box_of(self, session: Session | None) -> Any:
        if session is None:
            waiting = [slot.member.box for pool in self._pool._supply.ordinary for slot in pool._idle]
            return self._random.choice(waiting) if waiting else None
        known = self._pool._sessions.get(session.name)
        sandbox = known.sandboxes.get((SHELL_TOOL, None)) if known is not None else None
        return sandbox._box if sandbox is not None else None

    async def _cut(self) -> None:
        await self._meanwhile_strike(self._gate.cut, (0.5, 2.0), (0.5, 20.0))

    async def _hang(self) -> None:
        await self._meanwhile_strike(self._gate.hang, (1.0, 3.0), (5.0, 45.0))

    async def _meanwhile_strike(
        self, close: Callable[[], None], short: tuple[float, float], long: tuple[float, float]
    ) -> None:
        """Close the gate for a while in which containers are lost, also such as are just being made."""
        await self._kill()
        await asyncio.sleep(self._random.uniform(0.0, 0.3))
        close()
        await self._remove()
        await asyncio.sleep(self._random.uniform(*(short if self._long_seconds is None else long)))
        self._gate.open()

    async def _kill_daemon(self) -> None:
        """A daemon that comes back ends what the one before it left running: all sessions are struck."""
        await self._kill()
        with ExitStack() as blows:
            for session in self._sessions:
                blows.enter_context(session.blow())
            self._daemon.kill()
            await asyncio.sleep(self._random.uniform(0.2, 1.5))
            await asyncio.to_thread(self._daemon.do, "up")

    # --- afterwards ---------------------------------------------------------------------------------------------------

    async def _recover(self) -> None:
        """All sessions are served again, at the latest at the third call: the first may meet a frozen container."""
        begin = time.monotonic()
        for _ in range(3):
            await asyncio.gather(*(self._call(session) for session in self._sessions if session.was_struck))
        lost = [session.name for session in self._sessions if session.was_struck]
        if lost:
            self._report.faults.append(f"not served again: {', '.join(lost)}")
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                await self._pool.wait_ready()
        except TimeoutError:
            self._report.faults.append(f"not as many boxes wait as should: {self._pool!r}")
        self._report.recovered_seconds = time.monotonic() - begin
        self._containers.update(self._ours())

    def _ours(self) -> list[str]:
        """Containers that are there: a daemon that was killed may list some for ever that it does not know any more."""
        words = ("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={MANAGER_LABEL}")
        listed = self._daemon.command(*words).split()
        return self._daemon.command("inspect", "--format", "{{.Id}}", *listed).split() if listed else []

    async def _wait_removed(self) -> None:
        end = time.monotonic() + 10
        while (left := await asyncio.to_thread(self._ours)) and time.monotonic() < end:
            await asyncio.sleep(0.1)
        self._report.faults += [f"a container is left: {container}" for container in left]
        groups = {os.path.basename(directory) for directory, _, _ in os.walk("/sys/fs/cgroup")}
        self._report.faults += [f"a control group is left: {name}" for name in groups & self._containers]
        if workspaces := [str(path) for path in (self._directory / "workspaces").glob("*") if path.name != KEPT]:
            self._report.faults.append(f"left in the directory of workspaces: {workspaces}")


def _ending(done: Result | RingfenceError) -> str:
    if isinstance(done, RingfenceError):
        return done.code
    return "timed out" if isinstance(done.ending, TimedOut) else str(done.ending)
