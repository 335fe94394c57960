"""Many sessions and calls on one server, with a kill in the middle; `make soak SERVER=ROUNDS` does more of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.soak.client_load import ServerLoad
from tests.support.serving import running_server


@pytest.mark.req("X3")
def test_calls_of_many_sessions_are_neither_lost_nor_mixed_when_the_server_is_killed(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with running_server(tmp_path / "home") as server:
        load = ServerLoad(server, tmp_path, sessions=12, at_once=8, rounds=3, kills=1)
        report = asyncio.run(load.run())

    assert report.faults == []
    assert load.most_at_work == 8
    assert report.lost, "the kill came in the middle of something"
    assert report.answered + report.lost.total() == 36
    assert report.remade >= 1


def test_without_a_kill_every_call_is_answered(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    with running_server(tmp_path / "home") as server:
        report = asyncio.run(ServerLoad(server, tmp_path, sessions=6, at_once=6, rounds=2, kills=0).run())

    assert (report.faults, report.answered, report.lost.total()) == ([], 12, 0)
