"""Asking: only a clear yes to this very question, in time, lets something run."""

import asyncio
import time
from typing import Any

import pytest

from ringfence.approvals.ask import SessionMemory, ask
from ringfence.approvals.base import Answer, Approval, Choice, Question
from tests.support.questions import HASH, FakeConfirmationService, a_question

pytestmark = pytest.mark.req("E6")


class Odd:
    """A service whose answer is whatever a function of the question gives."""

    def __init__(self, gives: Any) -> None:
        self._gives = gives

    async def confirm(self, question: Question) -> Answer:
        given = self._gives(question)
        return given if not asyncio.iscoroutine(given) else await given  # type: ignore[no-any-return]


def asked(service: Any, question: Question | None = None, timeout: float = 5, **more: Any) -> Approval:
    return asyncio.run(ask(service, question or a_question(), timeout, **more))


def test_a_yes_is_an_approval_of_exactly_this_request() -> None:
    approval = asked(FakeConfirmationService())

    assert approval.granted and not approval.remembered
    assert (approval.by, approval.how, approval.question_id) == ("a test", "fake", "q1")
    assert approval.covers(HASH)
    assert not approval.covers("b" * 64)
    assert not approval.covers("")


def test_a_no_is_a_refusal() -> None:
    approval = asked(FakeConfirmationService(Choice.NO))

    assert not approval.granted
    assert not approval.covers(HASH)


def test_a_time_out_is_a_refusal_and_a_late_yes_changes_nothing() -> None:
    begun = time.monotonic()

    approval = asked(FakeConfirmationService(after_seconds=30), timeout=0.05)

    assert not approval.granted
    assert "no answer within" in approval.how
    assert time.monotonic() - begun < 5


def test_the_questions_own_time_bounds_the_asking() -> None:
    approval = asked(FakeConfirmationService(after_seconds=30), a_question(expires_at=time.time() + 0.05), timeout=60)

    assert not approval.granted


def test_an_expired_question_is_not_even_asked() -> None:
    service = FakeConfirmationService()

    assert not asked(service, a_question(expires_at=time.time() - 1)).granted
    assert service.asked == []


async def stubborn(question: Question) -> Answer:
    while True:
        try:
            await asyncio.sleep(3)
            return Answer(choice=Choice.YES, by="late", how="late", request_hash=question.request_hash)
        except asyncio.CancelledError:
            continue


def test_a_service_that_will_not_stop_is_a_refusal_in_bounded_time() -> None:
    async def bounded() -> tuple[Approval, float]:
        begun = time.monotonic()
        approval = await ask(Odd(stubborn), a_question(), 0.05)
        return approval, time.monotonic() - begun

    approval, seconds = asyncio.run(bounded())

    assert not approval.granted
    assert seconds < 2.5


def crash(question: Question) -> Answer:
    raise RuntimeError("the console is gone")


def give_up(question: Question) -> Answer:
    raise asyncio.CancelledError


@pytest.mark.parametrize(
    "gives",
    [
        crash,
        give_up,
        lambda question: True,
        lambda question: "yes",
        lambda question: None,
        lambda question: Answer(choice=Choice.YES, by="x", how="x", request_hash="b" * 64),
        lambda question: Answer(choice=Choice.YES, by="", how="x", request_hash=question.request_hash),
        lambda question: Answer(choice=True, by="x", how="x", request_hash=question.request_hash),  # type: ignore[arg-type]
        lambda question: Answer(choice="yes", by="x", how="x", request_hash=question.request_hash),  # type: ignore[arg-type]
    ],
    ids=["crash", "gone", "true", "text", "nothing", "other question", "unsigned", "true choice", "text choice"],
)
def test_whatever_is_no_clear_yes_to_this_question_is_a_refusal(gives: Any) -> None:
    approval = asked(Odd(gives))

    assert not approval.granted
    assert approval.by == "nobody"
    assert approval.how


def test_cancelling_the_asker_cancels_the_question() -> None:
    closed = []

    async def confirm(question: Question) -> Answer:
        try:
            await asyncio.sleep(30)
        finally:
            closed.append(question.id)
        raise AssertionError

    async def cancelled() -> None:
        task = asyncio.create_task(ask(Odd(confirm), a_question(), 30))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())

    assert closed == ["q1"]


def test_yes_for_the_session_is_asked_once_and_says_so_afterwards() -> None:
    service, memory = FakeConfirmationService(Choice.YES_FOR_SESSION), SessionMemory()

    first = asked(service, memory=memory)
    second = asked(service, a_question(id="q2"), memory=memory)

    assert (first.remembered, second.remembered) == (False, True)
    assert second.granted and second.by == "a test" and second.question_id == "q2"
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "changes",
    [{"request_hash": "b" * 64}, {"session": "s2"}, {"may_remember": False}, {"session": ""}],
    ids=["another request", "another session", "not to be remembered", "no session"],
)
def test_an_answer_for_the_session_covers_nothing_else(changes: dict[str, Any]) -> None:
    service, memory = FakeConfirmationService(Choice.YES_FOR_SESSION), SessionMemory()
    asked(service, memory=memory)

    asked(service, a_question(**changes), memory=memory)

    assert len(service.asked) == 2


@pytest.mark.parametrize("choice", [Choice.YES, Choice.NO])
def test_a_plain_yes_and_a_no_are_not_remembered(choice: Choice) -> None:
    service, memory = FakeConfirmationService(choice), SessionMemory()

    asked(service, memory=memory)
    asked(service, memory=memory)

    assert len(service.asked) == 2


def test_a_session_that_is_over_is_forgotten() -> None:
    service, memory = FakeConfirmationService(Choice.YES_FOR_SESSION), SessionMemory()
    asked(service, memory=memory)

    memory.forget("s1")
    asked(service, memory=memory)

    assert len(service.asked) == 2
