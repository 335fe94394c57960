"""What a pool lets other processes see: whole whenever it is read, and gone with its writer."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading
import time
from pathlib import Path

import pytest

from ringfence.manager import pool_notice
from ringfence.manager.pool_notice import PoolNotice, read_notices
from ringfence.pool.state import Phase, PoolState


def a_state(**changes: object) -> PoolState:
    given: dict[str, object] = dict.fromkeys(PoolState.__dataclass_fields__, 0)
    return PoolState(**given | {"phase": Phase.OPEN, "max_instances": 9, "last_fault": ""} | changes)  # type: ignore[arg-type]


def test_it_says_where_the_boxes_are_and_is_gone_when_it_is_closed(tmp_path: Path) -> None:
    async def work() -> None:
        notice = PoolNotice(tmp_path, lambda: {"code_run": a_state(idle=2)})
        (seen,) = read_notices(tmp_path)
        assert seen["pid"] == os.getpid() and seen["age_seconds"] >= 0
        assert seen["pools"]["code_run"]["idle"] == 2 and seen["pools"]["code_run"]["phase"] == "open"
        notice.close()
        notice.close()
        assert read_notices(tmp_path) == [] and os.listdir(tmp_path / "pools") == []

    asyncio.run(work())


def test_it_is_renewed_while_the_pool_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_notice, "_RENEW_SECONDS", 0.005)
    state = {"some tools": a_state(idle=1, last_fault="x" * 500)}

    async def work() -> None:
        notice = PoolNotice(tmp_path, lambda: state)
        state["some tools"] = a_state(idle=7)  # shorter than before: nothing of the old may be left behind it
        async with asyncio.timeout(20):
            while read_notices(tmp_path)[0]["pools"]["some tools"]["idle"] != 7:
                await asyncio.sleep(0.005)
        notice.close()

    asyncio.run(work())


def test_whoever_reads_while_it_changes_sees_a_whole_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_notice, "_RENEW_SECONDS", 0.0)
    counts = {"n": 0}

    def state() -> dict[str, PoolState]:
        counts["n"] += 1
        return {"t": a_state(last_fault="x" * (counts["n"] * 37 % 400))}

    reads: list[int] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            reads.append(len(read_notices(tmp_path)))

    async def work() -> None:
        notice = PoolNotice(tmp_path, state)
        reader = threading.Thread(target=read)
        reader.start()
        while len(reads) < 300:
            await asyncio.sleep(0)
        stop.set()
        await asyncio.to_thread(reader.join)
        notice.close()

    asyncio.run(work())
    assert set(reads) == {1}


def test_what_a_dead_writer_left_is_removed_by_who_looks(tmp_path: Path) -> None:
    (tmp_path / "pools").mkdir()
    left = tmp_path / "pools" / "123-abcd.json"
    left.write_text(json.dumps({"t": {}}))

    assert read_notices(tmp_path) == []
    assert not left.exists()


def test_one_that_was_made_but_not_locked_yet_is_not_taken_for_a_dead_ones(tmp_path: Path) -> None:
    (tmp_path / "pools").mkdir()
    young = tmp_path / "pools" / "123-abcd.json"
    young.touch()
    assert read_notices(tmp_path) == [] and young.exists()

    long_ago = time.time() - 3600
    os.utime(young, (long_ago, long_ago))
    assert read_notices(tmp_path) == [] and not young.exists()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"7", b"[" * 70_000])
def test_one_that_cannot_be_read_is_passed_over(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "pools").mkdir()
    broken = tmp_path / "pools" / "123-abcd.json"
    broken.write_bytes(content)
    held = os.open(broken, os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    try:
        assert read_notices(tmp_path) == []
    finally:
        os.close(held)


def test_without_a_directory_to_write_to_a_pool_does_without(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    async def work() -> None:
        notice = PoolNotice(tmp_path / "file", dict)
        notice.close()

    asyncio.run(work())
    assert read_notices(tmp_path / "nowhere") == []
