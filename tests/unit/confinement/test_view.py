"""The view: what a box sees, from its grant and from the caller's home."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.confinement.base import How, Prepared, View
from ringfence.confinement.linux import view as module
from ringfence.confinement.linux.host import ETC, synthetic_etc
from ringfence.confinement.linux.view import build_view
from ringfence.values.grant import Grant


class Place:
    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.work = self.home / "project"
        self.work.mkdir(parents=True)
        self._open: list[Prepared] = []

    def view(self, *, home: str | None = None, path: str = "/usr/bin", **grant: Any) -> View:
        made = build_view(
            Grant(workspace=grant.pop("workspace", self.work), **grant),
            home=home or str(self.home),
            host_path=path,
            uid=1000,
            gid=1000,
        )
        self._open.append(made)
        return made.view

    def close(self) -> None:
        for made in self._open:
            made.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.close()


def below(path: str, top: str) -> bool:
    return path == top or path.startswith(top.rstrip("/") + "/")


@pytest.mark.req("A4")
def test_by_default_nothing_but_the_system_and_the_workspace_is_seen(place: Place) -> None:
    view = place.view()

    assert view.readable == ()
    assert view.writable == (str(place.work),)
    assert view.home == str(place.home)
    assert not any(below(str(place.home), path) or below(path, str(place.home)) for path in view.system)


@pytest.mark.req("A3")
@pytest.mark.parametrize(
    "name", ["passwd", "shadow", "gshadow", "sudoers", "ssh", "ssl/private", "machine-id", "krb5.keytab"]
)
def test_no_secret_of_etc_is_on_its_list(place: Place, name: str) -> None:
    assert not any(below(f"/etc/{name}", f"/etc/{shown}") for shown in ETC)
    assert not any(below(name, shown) for shown, _ in place.view().etc)


@pytest.mark.req("A3")
def test_the_user_database_inside_is_made_up(place: Place) -> None:
    texts = dict(place.view().texts)

    assert [line.split(":")[0] for line in texts["passwd"].splitlines()] == ["root", "agent", "nobody"]
    assert dict(synthetic_etc(7, 8, "/h", ()))["passwd"].splitlines()[1].startswith("agent:x:7:8:agent:/h:")


@pytest.mark.req("A3")
def test_denied_beats_readable_and_without_the_rule_it_is_shown(place: Place) -> None:
    keys = place.home / "keys"
    keys.mkdir()

    assert str(keys) in place.view(readable=(keys,)).readable
    assert str(keys) not in place.view(readable=(keys,), denied=(str(keys),)).readable


@pytest.mark.req("A3")
def test_what_is_denied_inside_something_readable_is_hidden_at_any_depth(place: Place) -> None:
    shared = place.home / "shared"
    (shared / "a" / "b").mkdir(parents=True)
    for name in ("a/.env", "a/b/id.pem", "a/open", "vault"):
        (shared / name).touch()
    denied = ("**/.env", "**/*.pem", str(shared / "vault"), "/not/there")

    view = place.view(readable=(shared,), denied=denied)

    assert {os.path.relpath(path, shared) for path in view.hidden} == {"a/.env", "a/b/id.pem", "vault"}


def test_what_lies_below_something_hidden_is_not_hidden_once_more(place: Place) -> None:
    """It could not be found there any more, and the box would not start."""
    shared = place.home / "shared"
    (shared / "a" / "b").mkdir(parents=True)

    view = place.view(readable=(shared,), denied=(str(shared / "a" / "b"), str(shared / "a")))

    assert view.hidden == (str(shared / "a"),)


def test_a_denied_link_in_something_readable_is_left_to_the_row_of_its_target(place: Place) -> None:
    shared = place.home / "shared"
    (shared / "real").mkdir(parents=True)
    (shared / "link").symlink_to("real")

    view = place.view(readable=(shared,), denied=(str(shared / "link"), str(shared / "real")))

    assert view.hidden == (str(shared / "real"),)


def test_what_is_denied_in_the_workspace_is_a_cover_and_not_hidden_twice(place: Place) -> None:
    (place.work / ".env").touch()

    view = place.view(denied=("**/.env",), readable=(place.home,))

    assert [(cover.below, cover.how) for cover in view.covers] == [(".env", How.HIDE)]
    assert view.hidden == ()


def test_the_workspace_has_a_stable_second_name(place: Place) -> None:
    assert ("/workspace", str(place.work)) in place.view().links
    assert ("/var/tmp", "/tmp") in place.view().links


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("/workspace", ("/workspace",)),
        ("/workspace", ("/workspace/project",)),
        ("/var/tmp", ("/var/tmp/project",)),
        ("/var/tmp", ("/srv/x", "/var/tmp/cache")),
    ],
)
def test_a_second_name_gives_way_to_what_really_lies_there(name: str, paths: tuple[str, ...]) -> None:
    """A link there would lead the mount to a directory of the host."""
    grant = Grant(workspace=Path(paths[0]))

    assert name not in dict(module._aliases(grant, paths))
    assert name in dict(module._aliases(grant, ("/srv/other", f"{name}2")))


@pytest.mark.parametrize("home", ["/", "/tmp", "/usr/sbin", "/bin", "/dev", "/proc", "/etc"])
def test_a_home_that_would_cover_the_system_becomes_a_plain_one(place: Place, home: str) -> None:
    view = place.view(home=home)

    assert view.home == "/home/agent"
    assert "agent:/home/agent:" in dict(view.texts)["passwd"]


@pytest.mark.parametrize("home", ["/nonexistent", "/var/www", "/root", "/tmp/x", "/usr2"])
def test_any_other_home_keeps_its_place(place: Place, home: str) -> None:
    assert place.view(home=home).home == home


@pytest.mark.req("A4")
def test_reading_outside_shows_the_host_but_not_its_sockets_devices_and_etc(place: Place) -> None:
    view = place.view(read_outside=True, denied=())

    assert "/var" in view.readable
    assert not {"/proc", "/sys", "/dev", "/run", "/tmp", "/etc", "/boot", "/"} & set(view.readable)
    assert place.view().readable == ()
