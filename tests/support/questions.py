"""Questions for tests, with everything that a test does not care about filled in."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ringfence.approvals.base import Answer, Choice, Question

HASH = "a" * 64


def a_question(**changes: Any) -> Question:
    given: dict[str, Any] = {
        "id": "q1",
        "request_hash": HASH,
        "command": "rm -rf build",
        "session": "s1",
        "expires_at": time.time() + 60,
    }
    return Question(**given | changes)


class FakeConfirmationService:
    """Gives what it is told to, after a while; remembers what it was asked."""

    def __init__(self, choice: Choice = Choice.YES, *, after_seconds: float = 0.0) -> None:
        self.asked: list[Question] = []
        self._choice = choice
        self._after_seconds = after_seconds

    async def confirm(self, question: Question) -> Answer:
        self.asked.append(question)
        await asyncio.sleep(self._after_seconds)
        return Answer(choice=self._choice, by="a test", how="fake", request_hash=question.request_hash)
