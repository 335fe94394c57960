"""Who a box runs as: never uid 0, never somebody's."""

import os
from pathlib import Path

import pytest

from ringfence.confinement.base import StandIn
from ringfence.engines.boxes import identity
from ringfence.engines.boxes.identity import _spare_id, stand_in
from ringfence.errors import InitializationFailed

ALL = [(0, 2**32 - 1)]


def test_an_ordinary_user_needs_no_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)

    assert stand_in((str(tmp_path),)) is None


@pytest.mark.req("B6")
def test_root_gets_an_id_far_above_everybody_s_and_the_owner_of_each_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_ranges", lambda path: ALL)

    found = stand_in((str(tmp_path),))

    assert found is not None
    assert found.uid == found.gid >= 0x7000_0000
    info = tmp_path.stat()
    assert found.owners == ((str(tmp_path), info.st_uid, info.st_gid),)


def test_two_boxes_of_root_do_not_share_an_id() -> None:
    assert len({_spare_id(ALL, ALL) for _ in range(20)}) > 15


@pytest.mark.parametrize("ids", [[(0, 65_536)], [(0, 1), (100_000, 65_536)]])
def test_in_a_container_the_id_lies_in_its_range(ids: list[tuple[int, int]]) -> None:
    first, count = ids[-1]

    for _ in range(50):
        assert first < _spare_id(ids, ids) < first + count - 1


@pytest.mark.req("B6")
def test_without_an_id_to_spare_root_is_refused_and_not_run_as_root() -> None:
    with pytest.raises(InitializationFailed, match="no uid to drop to") as caught:
        _spare_id([(0, 1)], [(0, 1)])

    assert "ordinary user" in caught.value.hint


@pytest.mark.parametrize(("owner", "root"), [((0, 5), True), ((5, 0), True), ((5, 6), False)])
def test_a_stand_in_knows_whether_it_writes_for_root(owner: tuple[int, int], root: bool) -> None:
    assert StandIn(9, 9, (("/w", *owner),)).for_root is root
