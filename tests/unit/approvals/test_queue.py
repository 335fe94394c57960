"""The queue: one answer for each question, the first one, and only while somebody waits for it."""

import asyncio
import threading
import time
from typing import Any

import pytest

from ringfence.approvals import queue as module
from ringfence.approvals.base import Answer, Choice, Question
from ringfence.approvals.queue import QueueConfirmationService
from ringfence.errors import InvalidArgument, QuestionNotOpen, WrongType
from tests.support.questions import HASH, a_question

pytestmark = pytest.mark.req("E6")


async def waiting(queue: QueueConfirmationService, **changes: Any) -> "asyncio.Task[Answer]":
    task = asyncio.create_task(queue.confirm(a_question(**changes)))
    await asyncio.sleep(0)
    return task


def test_a_question_waits_until_it_is_answered() -> None:
    async def body() -> tuple[tuple[Question, ...], Answer, tuple[Question, ...]]:
        queue = QueueConfirmationService()
        task = await waiting(queue)
        before = queue.pending()
        queue.answer("q1", Choice.YES, "ada")
        return before, await task, queue.pending()

    before, answer, after = asyncio.run(body())

    assert [question.id for question in before] == ["q1"]
    assert (answer.choice, answer.by, answer.request_hash) == (Choice.YES, "ada", HASH)
    assert after == ()


def test_the_first_answer_wins_and_the_second_is_told_so() -> None:
    async def body() -> Answer:
        queue = QueueConfirmationService()
        task = await waiting(queue)
        queue.answer("q1", Choice.NO, "ada")
        with pytest.raises(QuestionNotOpen):
            queue.answer("q1", Choice.YES, "bob")
        return await task

    answer = asyncio.run(body())

    assert (answer.choice, answer.by) == (Choice.NO, "ada")


def test_of_many_threads_that_answer_at_once_exactly_one_has_answered() -> None:
    winners: list[str] = []

    async def body() -> Answer:
        queue = QueueConfirmationService()
        task = await waiting(queue)
        gate = threading.Barrier(8)

        def answer(name: str) -> None:
            gate.wait()
            try:
                queue.answer("q1", Choice.YES, name)
                winners.append(name)
            except QuestionNotOpen:
                pass

        threads = [threading.Thread(target=answer, args=(f"t{number}",)) for number in range(8)]
        for thread in threads:
            thread.start()
        given = await task
        for thread in threads:
            thread.join()
        return given

    answer = asyncio.run(body())

    assert winners == [answer.by]


def test_an_unknown_question_cannot_be_answered() -> None:
    with pytest.raises(QuestionNotOpen):
        QueueConfirmationService().answer("q9", Choice.YES, "ada")


def test_a_question_that_nobody_answers_expires_as_a_no() -> None:
    async def body() -> Answer:
        queue = QueueConfirmationService()
        task = await waiting(queue, expires_at=time.time() + 0.05)
        answer = await task
        with pytest.raises(QuestionNotOpen):
            queue.answer("q1", Choice.YES, "ada")
        return answer

    answer = asyncio.run(body())

    assert (answer.choice, answer.by) == (Choice.NO, "nobody")


def test_an_expired_question_is_not_listed_and_not_answered_even_before_its_asker_notices() -> None:
    async def body() -> None:
        queue = QueueConfirmationService()
        task = await waiting(queue, expires_at=time.time() + 0.02)
        time.sleep(0.05)  # the loop has had no chance to run the time-out
        assert queue.pending() == ()
        with pytest.raises(QuestionNotOpen):
            queue.answer("q1", Choice.YES, "ada")
        assert (await task).choice is Choice.NO

    asyncio.run(body())


def test_a_question_goes_with_the_one_who_asked_it() -> None:
    async def body() -> None:
        queue = QueueConfirmationService()
        task = await waiting(queue)
        task.cancel()
        await asyncio.wait({task})
        assert queue.pending() == ()
        with pytest.raises(QuestionNotOpen):
            queue.answer("q1", Choice.YES, "ada")

    asyncio.run(body())


@pytest.mark.parametrize("choice", [True, 1, "yes", None])
def test_only_a_choice_is_an_answer(choice: Any) -> None:
    async def body() -> None:
        queue = QueueConfirmationService()
        task = await waiting(queue)
        with pytest.raises(WrongType):
            queue.answer("q1", choice, "ada")
        assert len(queue.pending()) == 1
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(body())


def test_an_answer_has_to_say_whose_it_is() -> None:
    with pytest.raises(InvalidArgument):
        QueueConfirmationService().answer("q1", Choice.YES, " ")


def test_yes_for_the_session_is_refused_where_it_is_not_offered() -> None:
    async def body() -> Answer:
        queue = QueueConfirmationService()
        task = await waiting(queue, may_remember=False)
        with pytest.raises(InvalidArgument):
            queue.answer("q1", Choice.YES_FOR_SESSION, "ada")
        queue.answer("q1", Choice.YES, "ada")
        return await task

    assert asyncio.run(body()).choice is Choice.YES


def test_a_second_question_with_the_same_id_does_not_take_the_firsts_answer() -> None:
    async def body() -> tuple[Answer, Answer]:
        queue = QueueConfirmationService()
        first = await waiting(queue)
        second = await waiting(queue, request_hash="b" * 64)
        queue.answer("q1", Choice.YES, "ada")
        return await first, await second

    first, second = asyncio.run(body())

    assert (first.choice, second.choice) == (Choice.YES, Choice.NO)


def test_too_many_questions_are_refused_and_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_PENDING", 2)

    async def body() -> Answer:
        queue = QueueConfirmationService()
        tasks = [await waiting(queue, id=f"q{number}") for number in range(3)]
        for number in range(2):
            queue.answer(f"q{number}", Choice.YES, "ada")
        return (await asyncio.gather(*tasks))[2]

    assert asyncio.run(body()).choice is Choice.NO


def test_who_watches_is_told_of_a_new_question() -> None:
    async def body() -> tuple[Question, ...]:
        queue = QueueConfirmationService()
        watcher = asyncio.create_task(queue.wait_for_questions())
        await asyncio.sleep(0.01)
        assert not watcher.done()
        task = await waiting(queue)
        seen = await asyncio.wait_for(watcher, 5)
        queue.answer("q1", Choice.YES, "ada")
        await task
        return seen

    assert [question.id for question in asyncio.run(body())] == ["q1"]
