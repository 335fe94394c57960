"""One suite for every way to ask a person, and for the fake."""

from __future__ import annotations

import asyncio
import io
import json
import os
import pty
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pytest

from ringfence.approvals.ask import ask
from ringfence.approvals.automatic import AutoApproveConfirmationService
from ringfence.approvals.base import Answer, Choice, ConfirmationService
from ringfence.approvals.deny_all import DenyAllConfirmationService
from ringfence.approvals.queue import QueueConfirmationService
from ringfence.approvals.terminal import TerminalConfirmationService
from ringfence.approvals.websocket import WebSocketConfirmationService
from ringfence.errors import InvalidArgument, QuestionNotOpen, WrongType
from tests.support.questions import HASH, FakeConfirmationService, a_question

pytestmark = pytest.mark.req("E6")


@dataclass(frozen=True, slots=True)
class Asked:
    """A service, and how somebody answers what it asks."""

    service: ConfirmationService
    say: Callable[[Choice], None]


@contextmanager
def fake() -> Iterator[Asked]:
    service = FakeConfirmationService(after_seconds=0.01)
    yield Asked(service, lambda choice: setattr(service, "_choice", choice))


@contextmanager
def silent_fake() -> Iterator[Asked]:
    yield Asked(FakeConfirmationService(after_seconds=60), lambda choice: None)


@contextmanager
def deny_all() -> Iterator[Asked]:
    yield Asked(DenyAllConfirmationService(), lambda choice: None)


@contextmanager
def automatic() -> Iterator[Asked]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield Asked(AutoApproveConfirmationService(), lambda choice: None)


@contextmanager
def queue() -> Iterator[Asked]:
    service = QueueConfirmationService()

    def say(choice: Choice) -> None:
        for question in service.pending():
            service.answer(question.id, choice, "ada")

    yield Asked(service, say)


@contextmanager
def websocket() -> Iterator[Asked]:
    sent: list[dict[str, Any]] = []

    class Connections:
        async def broadcast(self, message: dict[str, Any]) -> None:
            sent.append(message)

    service = WebSocketConfirmationService(Connections())

    def say(choice: Choice) -> None:
        """As a page would: from the messages that came."""
        resolved = {message["id"] for message in sent if message["type"] == "confirmation_resolved"}
        for message in [each for each in sent if each["type"] == "confirmation_request"]:
            if message["id"] not in resolved:
                response = {"type": "confirmation_response", "choice": choice.value}
                with suppress(QuestionNotOpen):
                    service.receive(
                        json.dumps({**response, "id": message["id"], "request_hash": message["request_hash"]}), by="ada"
                    )

    yield Asked(service, say)


@contextmanager
def terminal() -> Iterator[Asked]:
    ours, theirs = pty.openpty()
    words = {Choice.YES: b"y\n", Choice.NO: b"n\n", Choice.YES_FOR_SESSION: b"s\n"}
    with ExitStack() as undo:
        undo.callback(os.close, ours)
        stream = undo.enter_context(os.fdopen(theirs, "r"))

        def say(choice: Choice) -> None:
            os.write(ours, words[choice])

        yield Asked(TerminalConfirmationService(stream, io.StringIO()), say)


Opener = Callable[[], AbstractContextManager[Asked]]
ALL: list[Opener] = [fake, deny_all, automatic, queue, websocket, terminal]
ANSWERABLE: list[Opener] = [fake, queue, websocket, terminal]
SILENT: list[Opener] = [silent_fake, queue, websocket, terminal]


async def answered(asked: Asked, choice: Choice, **changes: object) -> Answer:
    task = asyncio.ensure_future(asked.service.confirm(a_question(**changes)))
    await asyncio.sleep(0.005)
    asked.say(choice)
    return await asyncio.wait_for(task, 10)


@pytest.mark.parametrize("opened", ALL)
@pytest.mark.parametrize("choice", Choice)
def test_an_answer_names_its_question_and_its_giver(opened: Opener, choice: Choice) -> None:
    with opened() as asked:
        answer = asyncio.run(answered(asked, choice))

    assert answer.request_hash == HASH
    assert answer.by and answer.how


@pytest.mark.parametrize("opened", ANSWERABLE)
@pytest.mark.parametrize("choice", Choice)
def test_what_a_person_says_is_what_comes_back(opened: Opener, choice: Choice) -> None:
    with opened() as asked:
        assert asyncio.run(answered(asked, choice)).choice is choice


@pytest.mark.parametrize("opened", SILENT)
def test_silence_is_a_refusal(opened: Opener) -> None:
    begun = time.monotonic()

    with opened() as asked:
        approval = asyncio.run(ask(asked.service, a_question(), 0.05))

    assert not approval.granted
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize("opened", SILENT)
def test_a_service_can_be_asked_again_after_a_question_was_given_up(opened: Opener) -> None:
    async def twice(asked: Asked) -> None:
        await ask(asked.service, a_question(), 0.05)
        task = asyncio.ensure_future(asked.service.confirm(a_question(id="q2")))
        await asyncio.sleep(0.005)
        asked.say(Choice.NO)
        task.cancel()
        await asyncio.wait({task}, timeout=5)
        assert task.done()

    with opened() as asked:
        asyncio.run(twice(asked))


@pytest.mark.parametrize("opened", ALL)
def test_two_questions_at_once_get_an_answer_each_to_their_own(opened: Opener) -> None:
    async def both(asked: Asked) -> list[Answer]:
        questions = [a_question(id=f"q{number}", request_hash=f"{number}" * 64) for number in (1, 2)]
        tasks = [asyncio.ensure_future(asked.service.confirm(question)) for question in questions]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0.02)
            asked.say(Choice.NO)
        return [task.result() for task in tasks]

    with opened() as asked:
        answers = asyncio.run(both(asked))

    assert [answer.request_hash for answer in answers] == ["1" * 64, "2" * 64]


def test_an_answer_that_nobody_waits_for_is_an_error_at_the_queue() -> None:
    with pytest.raises(QuestionNotOpen):
        QueueConfirmationService().answer("q1", Choice.YES, "ada")


def test_over_websockets_an_answer_to_another_request_counts_for_nothing() -> None:
    class Connections:
        async def broadcast(self, message: dict[str, Any]) -> None:
            return

    async def scenario() -> Answer:
        service = WebSocketConfirmationService(Connections())
        asking = asyncio.ensure_future(service.confirm(a_question()))
        await asyncio.sleep(0.01)
        (question,) = service.open_message()["questions"]
        message = {"type": "confirmation_response", "id": question["id"], "approved": True}
        with pytest.raises(InvalidArgument, match="another request"):
            service.receive({**message, "request_hash": "0" * 64}, by="ada")
        assert not service.receive("no json", by="ada") and not service.receive({"type": "chat"}, by="ada")
        assert service.receive({**message, "request_hash": question["request_hash"]}, by="ada")
        return await asking

    assert asyncio.run(scenario()).choice is Choice.YES
    with pytest.raises(WrongType, match="broadcast"):
        WebSocketConfirmationService(object())  # type: ignore[arg-type]
