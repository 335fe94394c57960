"""Tests take turns as they say: side by side, or alone; and those who come later do not keep one waiting."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.turns import Turns

SOON_SECONDS = 0.2
LATE_SECONDS = 10.0


class Turn:
    """One worker's test, in a thread: it begins when it gets its turn, and goes on until it is told to end."""

    def __init__(self, directory: Path, *, alone: bool) -> None:
        self.begun, self.told_to_end = threading.Event(), threading.Event()
        self._turns = Turns(directory)
        self._thread = threading.Thread(target=self._run, args=(alone,))
        self._thread.start()

    def _run(self, alone: bool) -> None:
        with self._turns.taken(alone=alone):
            self.begun.set()
            self.told_to_end.wait(LATE_SECONDS)

    def end(self) -> None:
        self.told_to_end.set()
        self._thread.join()
        self._turns.close()


@contextmanager
def turn(directory: Path, *, alone: bool) -> Iterator[Turn]:
    one = Turn(directory, alone=alone)
    try:
        yield one
    finally:
        one.end()


def test_ordinary_tests_run_side_by_side(tmp_path: Path) -> None:
    with turn(tmp_path, alone=False) as first, turn(tmp_path, alone=False) as second:
        assert first.begun.wait(LATE_SECONDS)
        assert second.begun.wait(LATE_SECONDS)


def test_one_that_is_alone_waits_for_the_others_and_they_for_it(tmp_path: Path) -> None:
    with turn(tmp_path, alone=False) as before:
        assert before.begun.wait(LATE_SECONDS)
        with turn(tmp_path, alone=True) as alone:
            assert not alone.begun.wait(SOON_SECONDS)
            with turn(tmp_path, alone=False) as after:
                assert not after.begun.wait(SOON_SECONDS), "it overtook the one that waits to be alone"

                before.told_to_end.set()
                assert alone.begun.wait(LATE_SECONDS)
                assert not after.begun.wait(SOON_SECONDS), "it runs beside the one that is alone"

                alone.told_to_end.set()
                assert after.begun.wait(LATE_SECONDS)
