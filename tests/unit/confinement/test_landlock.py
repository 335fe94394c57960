"""Landlock's words: only rights that the kernel's version knows, and no rule wider than it says."""

import pytest

from ringfence.confinement.linux.inside import landlock_words
from ringfence.confinement.linux.landlock import ON_FILES, READ, WRITE, Right, handled, words
from tests.support.fakes import a_view


def rules(said: tuple[str, ...]) -> dict[str, Right]:
    found = {}
    for at, word in enumerate(said):
        if word == "beneath":
            found[said[at + 2]] = Right(int(said[at + 1]))
    return found


@pytest.mark.parametrize("version", range(1, 9))
def test_no_rule_holds_a_right_that_the_version_does_not_know(version: int) -> None:
    said = words([("/w", WRITE), ("/r", READ)], version=version, tcp=True, scoped=True)

    assert int(said[2]) == int(handled(version))
    for access in rules(said).values():
        assert access & ~handled(version) == 0


@pytest.mark.parametrize(
    ("version", "size", "net", "scopes"), [(1, 8, 0, 0), (3, 8, 0, 0), (4, 16, 3, 0), (6, 24, 3, 3)]
)
def test_network_and_scopes_are_asked_for_where_the_version_has_them(
    version: int, size: int, net: int, scopes: int
) -> None:
    said = words([], version=version, tcp=True, scoped=True)

    apart = ("apart", str(int(Right.REFER))) if version > 1 else ()  # moving between directories came with version 2
    assert said == ("landlock", str(size), str(int(handled(version))), str(net), str(scopes), *apart, "restrict")
    assert words([], version=version, tcp=False, scoped=False)[3:5] == ("0", "0")


def test_a_kernel_without_landlock_is_told_nothing() -> None:
    assert words([("/", READ)], version=0, tcp=True, scoped=True) == ()


def test_reading_cannot_change_anything() -> None:
    assert READ & (WRITE & ~READ) == 0
    assert READ == Right.EXECUTE | Right.READ_FILE | Right.READ_DIR


def test_no_rule_lets_devices_be_made() -> None:
    assert not WRITE & (Right.MAKE_CHAR | Right.MAKE_BLOCK)
    assert not ON_FILES & (Right.MAKE_REG | Right.READ_DIR)


@pytest.mark.req("A4")
def test_inside_writing_is_allowed_where_the_grant_says_and_nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.confinement.linux.landlock.abi", lambda: 6)
    view = a_view(readable=("/data",), writable=("/w", "/not/on/the/host"), home="/nor/this")

    found = rules(landlock_words(view))

    writable = {path for path, access in found.items() if access & Right.MAKE_REG}
    assert writable == {"/w", "/not/on/the/host", "/nor/this", "/tmp", "/dev/shm", "/dev/mqueue"}
    assert found["/proc"] == READ | Right.WRITE_FILE | Right.TRUNCATE
    assert found["/"] == READ
