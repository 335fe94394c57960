"""Keeps questions until somebody answers them from elsewhere: a server's console, another program.

Each question waits for one answer, for as long as it is open. Whoever answers first has answered; the second is told
so. When the one who asked goes away, the question goes with it. Answers may come from any thread.
"""

import asyncio
import threading
import time

from ringfence.approvals.base import Answer, Choice, Question, refuse
from ringfence.approvals.show import why_too_long
from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, QuestionNotOpen, WrongType

MOST_PENDING = 1000
"""Questions that can wait at once; a person answers fewer, and memory is bounded."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    question: Question
    deadline: float
    """On the monotonic clock, so that setting the clock opens nothing again."""
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Answer]


class QueueConfirmationService:
    """Keeps questions until somebody answers them, or they expire; for whoever shows them elsewhere."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._watchers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def __repr__(self) -> str:
        return f"<QueueConfirmationService: {len(self._waiting)} waiting>"

    async def confirm(self, question: Question) -> Answer:
        """Put the question up, and wait until it is answered or its time is over."""
        waiting = self._put(question)
        if isinstance(waiting, str):
            return refuse(question, by="nobody", how=waiting)
        try:
            async with asyncio.timeout(waiting.deadline - time.monotonic()):
                return await waiting.answer
        except TimeoutError:
            return refuse(question, by="nobody", how="nobody answered in time")
        finally:
            with self._lock:
                self._waiting.pop(question.id, None)

    def pending(self) -> tuple[Question, ...]:
        """The questions that can be answered now, the oldest first."""
        now = time.monotonic()
        with self._lock:
            return tuple(waiting.question for waiting in self._waiting.values() if waiting.deadline > now)

    async def wait_for_questions(self) -> tuple[Question, ...]:
        """Wait until there is a question to answer; returns all of them."""
        watcher = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._watchers.add(watcher)
        try:
            while not (pending := self.pending()):
                await watcher[1].wait()
                watcher[1].clear()
            return pending
        finally:
            with self._lock:
                self._watchers.discard(watcher)

    def answer(self, question_id: str, choice: Choice, by: str) -> None:
        """Answer a question that waits. The first answer counts.

        Raises:
            QuestionNotOpen: no such question waits: it was never asked, is answered, has expired, or its asker is gone.
            WrongType: the answer is none.
            InvalidArgument: it does not say whose it is, or is one that this question does not offer.
        """
        if not by.strip():
            raise InvalidArgument("an answer has to say whose it is", hint="give `by`")
        if not isinstance(choice, Choice):  # a truthy something must not become a yes
            raise WrongType("choice", choice, "a Choice")
        with self._lock:
            waiting = self._waiting.get(question_id)
            if waiting is None or waiting.deadline <= time.monotonic():
                raise QuestionNotOpen(question_id)
            if choice is Choice.YES_FOR_SESSION and not waiting.question.may_remember:
                raise InvalidArgument("this question cannot be answered for the whole session", hint="answer yes or no")
            del self._waiting[question_id]
        answer = Answer(choice=choice, by=by, how="queue", request_hash=waiting.question.request_hash)
        try:
            waiting.loop.call_soon_threadsafe(_settle, waiting.answer, answer)
        except RuntimeError as fault:  # the asker's loop is closed
            raise QuestionNotOpen(question_id) from fault

    def _put(self, question: Question) -> _Waiting | str:
        """Enter a question, or say why it cannot be."""
        seconds = question.expires_at - time.time()
        if not seconds > 0:
            return "the question had expired before it was asked"
        if why := why_too_long(question):
            return f"too long to be judged: {why}"
        loop = asyncio.get_running_loop()
        waiting = _Waiting(question, time.monotonic() + seconds, loop, loop.create_future())
        with self._lock:
            if len(self._waiting) >= MOST_PENDING:
                return "too many questions are waiting already"
            if question.id in self._waiting:
                return "a question with the same id is waiting already"
            self._waiting[question.id] = waiting
            watchers = tuple(self._watchers)
        for watching, event in watchers:
            if not watching.is_closed():
                watching.call_soon_threadsafe(event.set)
        return waiting


def _settle(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)
