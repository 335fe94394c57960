"""What commands that run side by side use, one by one."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ringfence.engines.boxes.overlap import Measured, Running
from ringfence.errors import Internal


class Control:
    """Answers every question in the same way."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer

    def measure(self, job: object) -> asyncio.Future[Any]:
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if isinstance(self._answer, Exception):
            answered.set_exception(self._answer)
        else:
            answered.set_result(self._answer)
        return answered


def measured(answer: Any) -> Measured | None:
    async def measure() -> Measured | None:
        member = cast("Any", SimpleNamespace(job=None, met=0, killed_for=None))
        return await Running(cast("Any", Control(answer))).measure(member)

    return asyncio.run(measure())


def test_what_a_command_uses_is_not_known_where_its_box_was_lost_meanwhile() -> None:
    assert measured(SimpleNamespace(numbers=(2_000_000, 3, 4))) == Measured(2.0, 3 * 1024, 4 * 1024)
    assert measured(Internal("the box is gone", hint="open a new one")) is None
