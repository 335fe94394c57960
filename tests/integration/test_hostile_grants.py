"""Grants that an agent bends: links in place of granted directories, sockets in readable ones, our own code."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import PathAccessDenied
from ringfence.confinement.linux import view
from tests.integration.stage import SECRET, Place

pytestmark = pytest.mark.req("A3")


@pytest.fixture(params=["bwrap", "unshare"], autouse=True)
def adapter(request: pytest.FixtureRequest, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", request.param)


@pytest.fixture
def listener(place: Place) -> Iterator[Path]:
    """A socket of the host in a directory of its own, which anybody may connect to."""
    path = place.home / "services" / "control"
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        with contextlib.chdir(path.parent):  # the whole path may be too long for an address
            listening.bind(path.name)
        path.chmod(0o777)
        listening.listen()
        yield path


def connect(path: Path) -> str:
    there = f"import os, socket; os.chdir('{path.parent}'); socket.socket(socket.AF_UNIX).connect('{path.name}')"
    return f"python3 -c \"{there}; print('connected')\""


@pytest.mark.parametrize("kind", ["write", "read"])
def test_a_granted_directory_that_the_agent_made_a_link_is_refused(place: Place, kind: str) -> None:
    (place.home / "other").mkdir()
    out = place.workspace / "out"
    place.run(f"ln -s {place.home}/other out")

    with pytest.raises(PathAccessDenied, match="link"):
        place.run("ls out/", **{kind: [out]})


def test_a_granted_link_that_no_agent_could_make_is_followed(place: Place) -> None:
    (place.home / "other").mkdir()
    (place.home / "other" / "file").write_text("shown")
    (place.home / "link").symlink_to("other")

    assert place.run(f"cat {place.home}/other/file", read=[place.home / "link"]).stdout == "shown"


def test_a_socket_in_a_readable_directory_cannot_be_connected_to(place: Place, listener: Path) -> None:
    assert place.host(connect(listener)).stdout == "connected\n"

    assert "connected" not in place.run(connect(listener), read=[listener.parent]).stdout


def test_a_link_of_a_hidden_name_in_a_readable_directory_hides_its_target(place: Place) -> None:
    shown = place.home / "shown"
    shown.mkdir()
    (shown / "production").write_text(SECRET)
    (shown / ".env").symlink_to("production")

    assert SECRET not in place.run(f"cat {shown}/.env {shown}/production", read=[shown]).stdout


def test_with_the_rest_of_the_host_readable_its_sockets_are_out_of_reach(place: Place, listener: Path) -> None:
    config = place.home / "config.json"
    config.write_text(json.dumps({"filesystem": {"allowReadOutside": True}}))
    try_it = (
        "python3 -c \"import socket; socket.socketpair(); print('pair'); socket.socket(socket.AF_UNIX); print('made')\""
    )

    assert place.run(try_it).stdout == "pair\nmade\n"
    assert place.run(try_it, config=config).stdout == "pair\n"


def test_what_runs_us_cannot_be_written_from_a_workspace_that_holds_it(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = place.workspace / "tools" / "venv" / "lib"
    library.mkdir(parents=True)
    attempt = "echo evil > tools/venv/lib/ringfence.py; mv tools old; mkdir -p tools/venv/lib"
    monkeypatch.setattr(view, "own_code", lambda: (str(place.workspace / "tools" / "venv"),))

    place.run(attempt)

    assert place.names() == {"tools", "tools/venv", "tools/venv/lib"}


def test_another_directory_of_that_shape_can_be_written(place: Place) -> None:
    (place.workspace / "tools" / "venv" / "lib").mkdir(parents=True)

    place.run("echo mine > tools/venv/lib/module.py; mv tools old")

    assert "old/venv/lib/module.py" in place.names()
