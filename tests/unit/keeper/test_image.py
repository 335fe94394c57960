"""What a keeper and its callers must have in common, and what it has loaded ahead."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.keeper.image import VARIABLES, image_variables, surroundings
from ringfence.keeper.installed import stamp
from ringfence.keeper.wire import open_directory

ROOT = Path(__file__).parents[3]


def test_the_front_and_the_keeper_have_the_same_list_of_variables() -> None:
    source = (ROOT / "native" / "front" / "place.c").read_text()
    listed = re.findall(r'"([^"]+)"', source.partition("/* begin image */")[2].partition("/* end image */")[0])

    assert [name.removesuffix("=") for name in listed] == list(VARIABLES)


def test_only_variables_that_are_read_once_count() -> None:
    given = {b"PYTHONPATH": b"x", b"LC_ALL": b"C", b"LANGUAGE": b"de", b"LANGUAGES": b"?", b"PATH": b"y", b"HOME": b"z"}

    assert image_variables(given.items()).keys() == {b"PYTHONPATH", b"LC_ALL", b"LANGUAGE"}


def test_a_process_has_the_surroundings_of_its_parent_and_others_with_other_limits() -> None:
    look = "from ringfence.keeper.image import surroundings; print(repr(surroundings('self')))"
    same = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True).stdout.strip()
    line = ["sh", "-c", 'ulimit -n 300; exec "$0" -c "$1"', sys.executable, look]
    other = subprocess.run(line, capture_output=True, text=True, check=True).stdout.strip()

    assert same == repr(surroundings("self")) != other


def test_a_file_that_is_replaced_touched_or_gone_is_noticed(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("1")
    before = stamp((str(file), str(tmp_path)))
    assert stamp((str(file), str(tmp_path))) == before

    (tmp_path / "new").write_text("2")
    (tmp_path / "new").replace(file)
    assert stamp((str(file),)) != {str(file): before[str(file)]}
    file.unlink()
    assert stamp((str(file),)) == {str(file): None}


@pytest.mark.parametrize(("mode", "is_safe"), [(0o700, True), (0o750, False), (0o701, False)])
def test_a_directory_that_others_may_enter_is_not_used(tmp_path: Path, mode: int, is_safe: bool) -> None:
    (tmp_path / "ringfence").mkdir()
    (tmp_path / "ringfence").chmod(0o700)
    tmp_path.chmod(mode)
    directory = open_directory(str(tmp_path))
    tmp_path.chmod(0o700)

    assert (directory is not None) == is_safe
    if directory is not None:
        os.close(directory)


LOADED = """
import json, sys
from ringfence.keeper.preload import load_ahead
import ringfence.cli.app as app
load_ahead()
before = set(sys.modules)
sys.argv = ["ringfence", "run", "true"]
try:
    app.main()
except SystemExit as end:
    assert end.code == 0, end.code
print(json.dumps(sorted(name for name in set(sys.modules) - before if name.startswith("ringfence"))))
print(json.dumps("typer.rich_utils" in before))
"""


def test_a_call_loads_nothing_of_ours_that_was_not_loaded_ahead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=tmp_path / "project",
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    missing, has_looked_around = map(json.loads, done.stdout.splitlines())

    assert missing == [], done.stderr
    assert not has_looked_around
