"""The probe of the wall without bubblewrap: it says yes only if a wall was built and something started behind it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.confinement.linux import probe


@pytest.fixture(autouse=True)
def _asked_anew() -> Iterator[None]:
    """What is found here must not be believed by other tests: they would skip what runs behind this wall."""
    probe.can_build.cache_clear()
    yield
    probe.can_build.cache_clear()


@pytest.mark.req("A9")
def test_a_wall_that_can_be_built_is_found_by_building_it() -> None:
    assert probe.can_build() == ""


@pytest.mark.req("A9")
@pytest.mark.parametrize("step", ["show", "tmpfs"])
def test_a_step_that_the_kernel_refuses_is_named(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = probe._trial

    def spoilt(lifeline: int, program: int) -> tuple[str, ...]:
        words = list(whole(lifeline, program))
        words[words.index(step) + 1] = {"show": "9", "tmpfs": "/usr/nowhere"}[step]
        return tuple(words)

    monkeypatch.setattr(probe, "_trial", spoilt)

    assert probe.can_build() != ""


def test_a_helper_that_is_missing_or_does_nothing_is_no_wall(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(probe, "HELPER", str(tmp_path / "not-built"))
    assert "missing" in probe.can_build()

    probe.can_build.cache_clear()
    monkeypatch.setattr(probe, "HELPER", "/bin/false")
    assert probe.can_build() == "exit 1"
