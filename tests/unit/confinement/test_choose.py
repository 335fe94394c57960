"""The choice of a wall: the first that gives everything, or an error that says what each lacks; no quiet way down."""

import os
import sys
from pathlib import Path

import pytest

from ringfence.confinement.choose import choose, confiners
from ringfence.confinement.linux import bwrap
from ringfence.confinement.linux.bwrap import find_bwrap
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee
from tests.support.fakes import FakeConfiner

STRONG = FakeConfiner("strong")
WEAK = FakeConfiner("weak", frozenset({Guarantee.NETWORK_OFF}), hint="buy a kernel")
BROKEN = FakeConfiner("broken", missing="there is no bwrap", hint="install it")
NEEDED = frozenset({Guarantee.NETWORK_OFF, Guarantee.TREE_DIES})


@pytest.mark.req("D8", "A9")
def test_the_first_that_gives_everything_is_taken() -> None:
    assert choose((BROKEN, WEAK, STRONG), NEEDED) is STRONG
    assert choose((STRONG, WEAK), NEEDED) is STRONG
    assert choose((WEAK, STRONG), frozenset({Guarantee.NETWORK_OFF})) is WEAK


@pytest.mark.req("D8", "A9")
def test_a_weaker_wall_is_never_taken_quietly() -> None:
    with pytest.raises(InitializationFailed) as caught:
        choose((BROKEN, WEAK), NEEDED)

    assert "broken: there is no bwrap" in caught.value.message
    assert "weak: lacks process tree dies" in caught.value.message
    assert caught.value.hint == "install it; buy a kernel"


def test_an_unusable_wall_is_not_taken_even_if_nothing_is_required() -> None:
    with pytest.raises(InitializationFailed):
        choose((BROKEN,), frozenset())


@pytest.mark.req("D8")
def test_only_the_one_that_was_asked_for_is_considered() -> None:
    assert choose((STRONG, WEAK), frozenset(), only="weak") is WEAK
    with pytest.raises(InitializationFailed, match="weak: lacks"):
        choose((STRONG, WEAK), NEEDED, only="weak")
    with pytest.raises(InitializationFailed, match="no adapter called 'firejail'"):
        choose((STRONG,), frozenset(), only="firejail")
    with pytest.raises(InitializationFailed, match="sandbox-exec is not available: it is for macOS"):
        choose((STRONG,), frozenset(), only="sandbox-exec")


@pytest.mark.req("A9")
@pytest.mark.parametrize("platform", ["win32", "darwin", "freebsd14"])
def test_another_platform_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)

    with pytest.raises(InitializationFailed) as caught:
        confiners()

    assert caught.value.hint


@pytest.mark.req("A9", "D4")
def test_the_quickest_that_gives_everything_comes_first_and_the_weakest_last() -> None:
    assert [confiner.name for confiner in confiners()] == ["unshare", "bwrap", "gvisor", "landlock"]


@pytest.mark.req("A9", "D4")
def test_who_names_a_bubblewrap_has_it_first() -> None:
    assert [confiner.name for confiner in confiners(bwrap_path="bwrap")][:2] == ["bwrap", "unshare"]


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program called bwrap in the working directory, as an agent might leave it there."""
    (tmp_path / "bwrap").touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bwrap, "_SYSTEM_PATH", "/nowhere")
    find_bwrap.cache_clear()
    return tmp_path / "bwrap"


@pytest.mark.req("D8")
@pytest.mark.parametrize("path", ["", ".", "relative", ":/nowhere:"])
def test_a_bare_name_is_never_looked_up_in_the_working_directory(
    planted: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("PATH", path)

    assert find_bwrap("bwrap") is None
    find_bwrap.cache_clear()


@pytest.mark.req("D8")
def test_a_bare_name_is_found_on_the_path_and_a_whole_one_where_it_is(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.fspath(planted.parent))

    assert find_bwrap("bwrap") == os.fspath(planted)
    assert find_bwrap(os.fspath(planted)) == os.fspath(planted)
    assert find_bwrap("/no/bwrap") is None
    find_bwrap.cache_clear()


@pytest.mark.req("D8")
def test_a_bwrap_that_is_not_there_is_named() -> None:
    probe = bwrap.Bubblewrap("/no/bwrap").probe()

    assert (probe.usable, "/no/bwrap" in probe.missing, bool(probe.hint)) == (False, True, True)
