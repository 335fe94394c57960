"""A workspace that can only be read: nothing in it changes, what is hidden stays hidden, and the rest works."""

from __future__ import annotations

import os

import pytest

import ringfence
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A4", "X3")


def test_nothing_in_a_read_only_workspace_can_be_changed(place: Place) -> None:
    (place.workspace / "file").write_text("as it was\n")
    (place.workspace / "file").chmod(0o600)
    (place.workspace / "out").mkdir()
    attempt = (
        "echo x > new; echo x > file; rm -f file; mv file other; mkdir dir; ln -s file link; chmod 777 file; "
        "python3 -c \"open('file', 'a').write('x')\"; touch out/x; cat file"
    )

    done = place.run(attempt, read_only=True)

    assert done.stdout == "as it was\n"
    assert place.names() == {"file", "out"} and (place.workspace / "file").read_text() == "as it was\n"
    assert os.listdir(place.workspace / "out") == []
    assert place.run("echo x > new", read_only=False).ok, "the same without it works"


def test_home_and_tmp_and_what_is_granted_below_it_can_be_written(place: Place) -> None:
    (place.workspace / "out").mkdir()

    done = place.run("touch ~/x /tmp/x out/x && echo fine; touch y", read_only=True, write=[place.workspace / "out"])

    assert done.stdout == "fine\n" and place.names() == {"out", "out/x"}
    assert os.listdir(place.workspace / "out") == ["x"]


@pytest.mark.req("A3")
def test_the_blacklist_hides_in_it_too(place: Place) -> None:
    (place.workspace / ".env").write_text("SECRET=hunter2\n")

    assert "hunter2" not in place.run("cat .env; grep -r hunter2 .", read_only=True).stdout


def test_code_runs_in_it(place: Place) -> None:
    (place.workspace / "data.txt").write_text("1\n2\n")

    done = place.run("sum(int(line) for line in open('data.txt'))", language="python", read_only=True)

    assert done.results[0].text == "3"


def test_what_contradicts_itself_is_refused(place: Place) -> None:
    with pytest.raises(ringfence.InvalidArgument, match="only to be read"):
        place.run("true", read_only=True, write=[place.workspace])
