"""Asks, and takes everything but a clear yes in time as a refusal.

A time-out, a service that fails, that is cancelled, that answers another question or with something that is no
answer: all refusals, with the reason in the approval's `how`. Only a yes for the session is remembered, only in memory,
and only for exactly the request that was approved.
"""

import asyncio
import time
from collections import OrderedDict
from typing import Final

from ringfence.approvals.base import Answer, Approval, Choice, ConfirmationService, Question
from ringfence.dataclass import replace

NOBODY: Final = "nobody"
_GRACE_SECONDS = 1.0
"""How long a service that is told to stop may take, before it is left alone."""
_MOST_REMEMBERED = 10_000
"""Answers that are kept; the oldest goes first, and is asked again."""


class SessionMemory:
    """What was approved for the rest of a session. Never written down: it is gone with the process."""

    def __init__(self) -> None:
        self._approved: OrderedDict[tuple[str, str], Approval] = OrderedDict()

    def __bool__(self) -> bool:
        """Whether anything was approved for longer than once."""
        return bool(self._approved)

    def recall(self, question: Question) -> Approval | None:
        """The approval of exactly this request in this session, if there is one."""
        if not question.may_remember or not question.session:
            return None
        return self._approved.get((question.session, question.request_hash))

    def keep(self, question: Question, approval: Approval) -> None:
        if question.may_remember and question.session and approval.covers(question.request_hash):
            self._approved[question.session, question.request_hash] = approval
            while len(self._approved) > _MOST_REMEMBERED:
                self._approved.popitem(last=False)

    def rename(self, session: str, old: str, new: str) -> None:
        """What was approved is now known by another hash: it was asked before there was a box, and so a workspace."""
        approval = self._approved.pop((session, old), None)
        if approval is not None:
            self._approved[session, new] = replace(approval, request_hash=new)

    def forget(self, session: str) -> None:
        """The session is over, or its policy has changed."""
        for key in [key for key in self._approved if key[0] == session]:
            del self._approved[key]


async def ask(
    service: ConfirmationService, question: Question, timeout: float, *, memory: SessionMemory | None = None
) -> Approval:
    """Ask, for at most `timeout` seconds and not beyond the question's own time. Never raises for want of an answer.

    Before running, check `approval.covers(hash_request(...))` on what is about to run.
    """
    if memory is not None and (earlier := memory.recall(question)) is not None:
        return _approval(question, granted=True, by=earlier.by, how=f"earlier: {earlier.how}", remembered=True)
    seconds = min(timeout, question.expires_at - time.time())
    if not seconds > 0:
        return _refusal(question, "the question had expired before it was asked")
    answer = await _answer_in_time(service, question, seconds)
    if isinstance(answer, str):
        return _refusal(question, answer)
    approval = _approval(question, granted=answer.choice is not Choice.NO, by=answer.by, how=answer.how)
    if memory is not None and answer.choice is Choice.YES_FOR_SESSION:
        memory.keep(question, approval)
    return approval


async def _answer_in_time(service: ConfirmationService, question: Question, seconds: float) -> Answer | str:
    """An answer to this very question, or why there is none."""
    task = asyncio.ensure_future(service.confirm(question))
    try:
        await asyncio.wait({task}, timeout=seconds)
        if not task.done():
            return f"no answer within {seconds:.3g} s"
        if task.cancelled():
            return "the one who asks went away"
        if (fault := task.exception()) is not None:
            return f"asking failed: {type(fault).__name__}"
        return _checked(task.result(), question)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it once more


def _checked(answer: object, question: Question) -> Answer | str:
    """What a service gave, if it is an answer to this question: it may be anybody's code."""
    if not isinstance(answer, Answer) or not isinstance(answer.choice, Choice):
        return "what came back was no answer"
    if answer.request_hash != question.request_hash:
        return "the answer was to another question"
    if not answer.by:
        return "the answer does not say whose it is"
    return answer


def _approval(question: Question, *, granted: bool, by: str, how: str, remembered: bool = False) -> Approval:
    return Approval(
        granted=granted,
        by=by,
        how=how,
        remembered=remembered,
        at=time.time(),
        request_hash=question.request_hash,
        question_id=question.id,
    )


def _refusal(question: Question, why: str) -> Approval:
    return _approval(question, granted=False, by=NOBODY, how=why)
