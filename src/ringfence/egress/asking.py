"""Puts a request to a person while it waits, and lets the retry pass if the answer comes late.

Clients give up after ten seconds, so that a request is held for eight; then it is refused with the question's number,
and the question stays open. One question for a request, however often it is sent meanwhile; a yes is for what was
shown, so that another method or path is another question. Only a yes for the session to a host that no rule names is
for all of the same kind, reading or changing, there.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.egress.base import NetworkAnswer, NetworkQuestion, Refusal
from ringfence.policy.reach import READING

HOLD_SECONDS: Final = 8.0
_RETRY_SECONDS: Final = 600.0  # how long a late yes waits for the retry
_NO_SECONDS: Final = 30.0  # how long a no counts without asking again: clients try three times
_MOST_OPEN: Final = 64  # questions of one box at the same time; nobody reads more

_MOST_TOLD: Final = 4096  # answers of one box; the oldest is asked for again

Key = tuple[str, int, str, str]
"""Host, port, method, path; no path is every one."""


@dataclass(frozen=True, slots=True)
class _Told:
    answer: NetworkAnswer
    until: float


class Questions:
    """The open questions and the answers of one box."""

    def __init__(
        self, ask: Callable[[NetworkQuestion], Awaitable[NetworkAnswer]], *, hold_seconds: float = HOLD_SECONDS
    ) -> None:
        self._ask = ask
        self._hold = hold_seconds
        self._open: dict[Key, tuple[int, asyncio.Task[NetworkAnswer]]] = {}
        self._told: dict[Key, _Told] = {}
        self._numbers = itertools.count(1)

    async def put(self, question: NetworkQuestion, *, is_unlisted: bool = False) -> NetworkAnswer | Refusal:
        """The answer; a refusal if there is none yet, or it is no.

        Args:
            is_unlisted: whether it is about a host that no rule names.
        """
        key = (question.host, question.port, question.method, question.path)
        if is_unlisted and (whole := self._told.get(_whole(key))) is not None and whole.answer.granted:
            return whole.answer
        told = self._told.get(key)
        if told is not None:
            if told.until >= time.monotonic():
                if told.answer.granted and not told.answer.remembered:
                    del self._told[key]  # a yes for once is for one retry
                return told.answer if told.answer.granted else _no(told.answer)
            del self._told[key]
        number, task = self._open.get(key) or self._new(key, question, is_unlisted)
        if task is None:
            return Refusal(429, "too many questions are open already")
        try:
            async with asyncio.timeout(self._hold):
                answer = await asyncio.shield(task)
        except TimeoutError:
            return Refusal(403, f"a person is being asked (question {number}): try again later", event_id=str(number))
        if answer.granted:
            kept = self._told.get(key)
            if kept is not None and kept.answer is answer and not answer.remembered:
                del self._told[key]  # who waited has it now
            return answer
        return _no(answer)

    def close(self) -> None:
        for _, task in self._open.values():
            task.cancel()
        self._open.clear()

    def _new(
        self, key: Key, question: NetworkQuestion, is_unlisted: bool
    ) -> tuple[int, asyncio.Task[NetworkAnswer] | None]:
        if len(self._open) >= _MOST_OPEN:
            return 0, None
        task = asyncio.ensure_future(self._ask(question))
        number = next(self._numbers)
        self._open[key] = (number, task)
        task.add_done_callback(lambda done: self._answered(key, done, is_unlisted))
        return number, task

    def _answered(self, key: Key, done: asyncio.Task[NetworkAnswer], is_unlisted: bool) -> None:
        self._open.pop(key, None)
        if done.cancelled() or done.exception() is not None:
            return
        answer = done.result()
        if answer.granted:
            until = float("inf") if answer.remembered else time.monotonic() + _RETRY_SECONDS
        else:
            until = float("inf") if answer.remembered else time.monotonic() + _NO_SECONDS
        kept = _whole(key) if is_unlisted and answer.granted and answer.remembered else key
        if len(self._told) >= _MOST_TOLD:
            self._told.pop(next(iter(self._told)))
        self._told[kept] = _Told(answer, until)


def _no(answer: NetworkAnswer) -> Refusal:
    return Refusal(403, f"refused ({answer.by or 'nobody said yes'})")


def _whole(key: Key) -> Key:
    host, port, method, _ = key
    return host, port, _method_class(method), ""


def _method_class(method: str) -> str:
    return "" if not method else "read" if method in READING else "change"
