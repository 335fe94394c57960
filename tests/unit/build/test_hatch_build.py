"""The build hooks: for which systems a wheel is, which machine is built for, and a readme that an index can show."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

HOOK = Path(__file__).parents[3] / "hatch_build.py"


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build_of_the_tests", HOOK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_wheel_is_for_both_c_libraries_where_our_filters_know_the_machine(hook: ModuleType) -> None:
    assert hook.wheel_tag("aarch64") == ("py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_2_aarch64")
    assert hook.wheel_tag("mips64") == "py3-none-linux_mips64"


def test_another_machine_is_built_for_by_zig_only(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hook.MACHINE, "aarch64")
    monkeypatch.setattr(hook.importlib.util, "find_spec", lambda name: object())

    assert hook.machine_asked_for() == "aarch64"
    assert hook.toolchain_from_pypi("aarch64").command[-2:] == ("-target", "aarch64-linux-musl")


def test_a_machine_that_nobody_knows_is_no_machine(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hook.MACHINE, "arm64")

    with pytest.raises(hook.CompileError, match="x86_64, aarch64"):
        hook.machine_asked_for()


def test_too_few_open_files_for_zig_are_said_in_one_line(hook: ModuleType, tmp_path: Path) -> None:
    compiler = tmp_path / "zig"
    compiler.write_text("#!/bin/sh\necho 'failed to spawn zig clang: ProcessFdQuotaExceeded' >&2; exit 1\n")
    compiler.chmod(0o755)

    with pytest.raises(hook.CompileError) as caught:
        hook.Toolchain((str(compiler),)).build([], tmp_path / "helper")

    assert "ulimit -n 2048" in str(caught.value) and "\n" not in str(caught.value)


README = "See [the guide](docs/a.md), [others](https://example.org/x), [below](#here) ![chart](docs/b.png)."


def test_links_to_files_lead_to_the_sources_or_are_words(hook: ModuleType) -> None:
    assert hook.readme_for_an_index(README, None) == (
        "See the guide, [others](https://example.org/x), [below](#here) ."
    )
    assert hook.readme_for_an_index(README, "https://example.org/r/") == (
        "See [the guide](https://example.org/r/blob/main/docs/a.md), [others](https://example.org/x), [below](#here) "
        "![chart](https://example.org/r/raw/main/docs/b.png)."
    )
