"""Questions to people: put up, kept, told to everybody who may answer, answered once.

The first answer counts. It names the hash of what would run, and the one whose token asked cannot give it: an agent
does not approve itself. Silence until the question's time is over is a refusal; so is a restart of the server, which
the next run writes down. Nothing that runs in a box reaches any of this.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import msgspec

from ringfence.approvals.base import Answer, Choice, Question, refuse
from ringfence.approvals.queue import QueueConfirmationService
from ringfence.approvals.websocket import plain_question
from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, NotFound, NotPermitted, QuestionNotOpen
from ringfence.server import wire
from ringfence.server.tenants import Scope

if TYPE_CHECKING:
    import sqlite3

    from ringfence.server.bus import Bus
    from ringfence.server.store import Store
    from ringfence.server.tenants import Caller
    from ringfence.server.webhooks import Webhooks

_KEPT_SECONDS: Final = 30 * 86400.0
_RESTARTED: Final = "the server was restarted before anybody answered"
ASKED: Final = "question.asked"
ANSWERED: Final = "question.answered"


@dataclass(frozen=True, slots=True)
class _Open:
    question: Question
    tenant: str
    askers: set[str]
    """The ids of the tokens that have run something in its session."""
    asked_at: float


class Questions:
    def __init__(self, store: Store, bus: Bus, webhooks: Webhooks) -> None:
        self._store = store
        self._bus = bus
        self._webhooks = webhooks
        self._queue = QueueConfirmationService()
        self._open: dict[str, _Open] = {}
        self._comments: dict[str, str] = {}

    def start(self) -> None:
        """What an earlier run left open is refused; what is old is forgotten."""
        now = time.time()
        self._store.do(
            "UPDATE questions SET answered_at = ?, choice = 'no', by = 'nobody', how = ? WHERE answered_at IS NULL",
            now,
            _RESTARTED,
        )
        self._store.do("DELETE FROM questions WHERE asked_at < ?", now - _KEPT_SECONDS)

    def asker(self, tenant: str, askers: set[str]) -> Asker:
        """Who asks for a session.

        Args:
            askers: the tokens that run something in it, as they come.
        """
        return Asker(self, tenant, askers)

    async def ask(self, question: Question, tenant: str, askers: set[str]) -> Answer:
        """Put it up, and wait for the answer; no answer is a refusal."""
        asked = _Open(question, tenant, askers, time.time())
        self._store.do(
            "INSERT INTO questions (id, tenant, session_id, asked_at, expires_at, asked) VALUES (?, ?, ?, ?, ?, ?)",
            question.id,
            tenant,
            question.session,
            asked.asked_at,
            question.expires_at,
            msgspec.json.encode(plain_question(question)).decode(),
        )
        self._open[question.id] = asked
        answer = refuse(question, by="nobody", how="the one who asks went away")
        try:
            waiting = asyncio.ensure_future(self._queue.confirm(question))
            await asyncio.sleep(0)  # it is open before anybody hears of it
            self._bus.tell(tenant, ASKED, lambda: self._told(asked))
            self._webhooks.tell(tenant, question)
            try:
                answer = await waiting
            finally:
                waiting.cancel()
                await asyncio.wait((waiting,))
            comment = self._comments.pop(question.id, "")
            if comment:
                answer = Answer(
                    choice=answer.choice,
                    by=answer.by,
                    how=f"over the server: {comment}",
                    request_hash=answer.request_hash,
                )
            return answer
        finally:
            del self._open[question.id]
            self._note(question.id, answer)
            self._bus.tell(tenant, ANSWERED, lambda: self.get(tenant, question.id))

    def _note(self, ident: str, answer: Answer) -> None:
        self._store.do(
            "UPDATE questions SET answered_at = ?, choice = ?, by = ?, how = ? WHERE id = ?",
            time.time(),
            answer.choice.value,
            answer.by,
            answer.how,
            ident,
        )

    def answer(self, caller: Caller, ident: str, given: wire.QuestionAnswer) -> wire.Question:
        """
        Raises:
            NotFound: the tenant has no such question.
            QuestionNotOpen: it is answered, its time is over, or its asker has gone.
            NotPermitted: the caller's token is the one that asks.
            InvalidArgument: the answer is to another request, or one that the question does not offer.
        """
        asked = self._open.get(ident)
        if asked is None or asked.tenant != caller.tenant.name:
            self.get(caller.tenant.name, ident)  # raises if there is none
            raise QuestionNotOpen(ident)
        if caller.token_id in asked.askers and not caller.is_person:
            raise NotPermitted(
                "the token that asks cannot answer",
                scope=Scope.APPROVE,
                hint="answer with another token, on the server's socket, or by the address that it printed",
            )
        if given.request_hash != asked.question.request_hash:
            raise InvalidArgument(
                "the answer is to another request", argument="request_hash", hint="look at the question again"
            )
        choice = _CHOICES[given.choice]
        if given.comment:
            self._comments[ident] = given.comment
        self._store.do("UPDATE questions SET comment = ? WHERE id = ?", _comment(given), ident)
        try:
            self._queue.answer(ident, choice, caller.name)
        except BaseException:
            self._comments.pop(ident, None)
            raise
        return self.get(caller.tenant.name, ident)

    def get(self, tenant: str, ident: str) -> wire.Question:
        """
        Raises:
            NotFound: the tenant has no such question.
        """
        row = self._store.one("SELECT * FROM questions WHERE id = ? AND tenant = ?", ident, tenant)
        if row is None:
            raise NotFound(f"there is no question {ident!r}", hint="list them again")
        return self._of_row(row)

    def list(self, tenant: str, *, only_open: bool) -> list[wire.Question]:
        """The oldest first."""
        if only_open:
            return [self._told(asked) for asked in self._open.values() if asked.tenant == tenant]
        rows = self._store.all("SELECT * FROM questions WHERE tenant = ? ORDER BY asked_at, id", tenant)
        return [self._of_row(row) for row in rows]

    def _told(self, asked: _Open) -> wire.Question:
        return self.get(asked.tenant, asked.question.id)

    def _of_row(self, row: sqlite3.Row) -> wire.Question:
        asked = msgspec.json.decode(row["asked"])
        is_open = row["id"] in self._open
        return wire.Question(
            id=row["id"],
            session_id=row["session_id"],
            state="open" if is_open else "answered",
            asked_at=row["asked_at"],
            expires_at=row["expires_at"],
            request_hash=asked["request_hash"],
            command=asked["command"],
            reasons=asked["reasons"],
            spans=asked["spans"],
            risk=asked["risk"],
            may_remember=asked["may_remember"],
            details=asked["details"],
            policy_lines=[reason["allow_by"] for reason in asked["reasons"] if reason["allow_by"]],
            answered_at=None if is_open else row["answered_at"],
            choice=None if is_open else row["choice"],
            by=None if is_open else row["by"],
            how=None if is_open else row["how"],
            comment=row["comment"],
        )


class Asker:
    """The confirmation service of one session."""

    def __init__(self, questions: Questions, tenant: str, askers: set[str]) -> None:
        self._questions = questions
        self._tenant = tenant
        self._askers = askers

    async def confirm(self, question: Question) -> Answer:
        return await self._questions.ask(question, self._tenant, self._askers)


_CHOICES: Final = {
    "no": Choice.NO,
    "yes": Choice.YES,
    "yes_for_session": Choice.YES_FOR_SESSION,
    "yes_as_policy": Choice.YES,
}
"""`yes_as_policy` is a yes for once, with a note that the policy should say so: nothing here writes one."""


def _comment(given: wire.QuestionAnswer) -> str:
    return f"[as a line of the policy] {given.comment}".strip() if given.choice == "yes_as_policy" else given.comment
