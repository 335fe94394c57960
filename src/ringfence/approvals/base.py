"""The port through which a person is asked, and the values that pass through it.

A question names exactly one request, by a hash over everything that would run. An answer names the same hash; so does
the approval that it becomes. Nothing else than that request may run on it.

What is sandboxed cannot reach any of this: no implementation keeps a file, a socket or a descriptor below the
workspace, and boxes are never given the caller's terminal.
"""

from enum import StrEnum
from typing import Protocol

from ringfence.dataclass import dataclass, field
from ringfence.values.facts import Span
from ringfence.values.risk import Risk
from ringfence.values.verdict import Reason


class Choice(StrEnum):
    """What a person can answer."""

    NO = "no"
    YES = "yes"
    YES_FOR_SESSION = "yes for this session"
    """Yes, and do not ask again for exactly this request as long as the session lasts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May this run? Everything that a person needs in order to answer."""

    id: str
    """Random and hard to guess: whoever knows it may answer, if a server lets them."""
    request_hash: str
    """sha256 over everything that would run, in hexadecimal (`question.hash_request`)."""
    command: str
    """The command as a person would read it."""
    reasons: tuple[Reason, ...] = ()
    """The votes that led to asking."""
    spans: tuple[Span, ...] = ()
    """The stretches of the command that they are about."""
    risk: Risk = Risk.HIGH
    session: str = ""
    expires_at: float
    """Seconds since the epoch; an answer after that counts for nothing."""
    may_remember: bool = True
    """Whether yes for the session may be offered."""
    details: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    """What else would run or be seen, whole: working directory, variables with their values, standard input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What somebody said to one question."""

    choice: Choice
    by: str
    """Who said it: a person's name, or what stood in for one."""
    how: str
    """By what way: at the terminal, over the queue, by itself."""
    request_hash: str
    """The hash of the question that was answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What came of asking, for the record and for whoever runs the request."""

    granted: bool
    by: str
    how: str
    remembered: bool
    """Whether an earlier answer of this session was used, and nobody was asked now."""
    at: float
    """Seconds since the epoch."""
    request_hash: str
    question_id: str

    def covers(self, request_hash: str) -> bool:
        """Whether exactly this request may run. A changed request has another hash."""
        return self.granted and bool(request_hash) and request_hash == self.request_hash


class ConfirmationService(Protocol):
    """A way to ask a person."""

    async def confirm(self, question: Question) -> Answer:
        """Ask, and wait for the answer.

        Call it through `ask`, which bounds the time and takes everything but a clear yes as a refusal. Can be
        cancelled at any moment, and then leaves no question open.

        Raises:
            Exception: nobody could be asked; counts as a refusal.
        """
        ...


def refuse(question: Question, *, by: str, how: str) -> Answer:
    """No, to this question."""
    return Answer(choice=Choice.NO, by=by, how=how, request_hash=question.request_hash)
