"""Load on a server: many sessions, many calls at once, and a server that is killed in the middle and started again.

Each call appends a token of its own to its session's log and says it. Nothing is lost, and nothing is done twice: who
got an answer got its own, and its token is in the log once; who got an error got one of the family, and its token is
there at most once. The loops are bounded: so many rounds of so many calls.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import ringfence
from ringfence import Busy, Internal, RingfenceError, SessionLost, Unreachable
from tests.support.serving import RunningServer

_CALL_SECONDS = 120.0
LOST = (Unreachable, SessionLost, Internal, Busy)
"""What a call may end with when the server is killed under it: never anything else, and never a wrong answer."""


@dataclass
class Report:
    """What came of it."""

    answered: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    """Calls that ended with an error, by its code."""
    remade: int = 0
    """Sessions that were begun again after the server was."""
    faults: list[str] = field(default_factory=list)


class ServerLoad:
    """
    Args:
        directory: where the sessions' workspaces are made.
        kills: how often the server is killed, in the middle of a round, and started again.
    """

    def __init__(
        self, server: RunningServer, directory: Path, *, sessions: int, at_once: int, rounds: int, kills: int = 1
    ) -> None:
        self._server = server
        self._directory = directory
        self._count = sessions
        self._rounds = rounds
        self._kills = kills
        self._slots = asyncio.Semaphore(at_once)
        self._at_work = 0
        self._boxes: dict[int, ringfence.RemoteSandbox] = {}
        self._answered: dict[str, bool] = {}
        """By token: whether its call was answered."""
        self.most_at_work = 0
        self.report = Report()

    async def run(self) -> Report:
        async with ringfence.connect(f"unix://{self._server.socket}") as there:
            self._there = there
            await asyncio.gather(*(self._begin(number) for number in range(self._count)))
            for number in range(self._rounds):
                calls = [asyncio.ensure_future(self._call(session, number)) for session in range(self._count)]
                if number < self._kills:
                    await self._kill_in_the_middle(len(calls))
                await asyncio.gather(*calls)
            await asyncio.gather(*(box.close() for box in self._boxes.values()))
        self._compare()
        return self.report

    async def _kill_in_the_middle(self, calls: int) -> None:
        before = len(self._answered)
        while len(self._answered) - before < calls // 3:
            await asyncio.sleep(0.005)
        await asyncio.to_thread(self._server.stop, signal.SIGKILL)
        await asyncio.to_thread(self._server.start)

    def _place(self, session: int) -> Path:
        return self._directory / f"session-{session}"

    async def _begin(self, session: int) -> ringfence.RemoteSandbox:
        self._place(session).mkdir(exist_ok=True)
        async with self._slots:
            box = self._there.Sandbox(self._place(session))
            self._boxes[session] = await box.__aenter__()
        return box

    async def _call(self, session: int, number: int) -> None:
        token = f"{session}.{number}"
        try:
            async with self._slots, asyncio.timeout(_CALL_SECONDS):
                self._at_work += 1
                self.most_at_work = max(self.most_at_work, self._at_work)
                try:
                    done = await self._boxes[session].shell(f"echo {token} >> log; sleep 0.05; echo {token}")
                finally:
                    self._at_work -= 1
        except LOST as fault:
            self._answered[token] = False
            self.report.lost[fault.code] += 1
            await self._again(session)
        except (RingfenceError, TimeoutError) as fault:
            self._answered[token] = False
            self.report.faults.append(f"{token}: {type(fault).__name__}: {fault}")
        else:
            self._answered[token] = True
            self.report.answered += 1
            if not done.ok or done.stdout != f"{token}\n":
                self.report.faults.append(f"{token}: answered with {done!r}")

    async def _again(self, session: int) -> None:
        """A session that is lost is ended, and begun anew in the same directory, once the server answers."""
        for _ in range(100):
            try:
                await self._boxes[session].close()
                await self._begin(session)
            except (Unreachable, Busy):
                await asyncio.sleep(0.2)
                continue
            except ringfence.NotFound:
                await self._begin(session)
            self.report.remade += 1
            return
        self.report.faults.append(f"session {session} could not be begun again")

    def _compare(self) -> None:
        done: Counter[str] = Counter()
        for session in range(self._count):
            log = self._place(session) / "log"
            done.update(log.read_text().split() if log.exists() else ())
        for token, is_answered in self._answered.items():
            if done[token] > 1 or (is_answered and done[token] != 1):
                self.report.faults.append(f"{token}: {done[token]} times in the log, answered: {is_answered}")
        unknown = set(done) - set(self._answered)
        if unknown or len(self._answered) != self._count * self._rounds:
            self.report.faults.append(f"{len(self._answered)} calls, and in the logs besides: {sorted(unknown)}")
