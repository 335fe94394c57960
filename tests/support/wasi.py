"""The WASI engine for tests: one cache for all of them, made by set-up, because CPython takes a while to be built."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from ringfence.confinement.choose import confiners
from ringfence.engines.native.engine import NativeEngine
from ringfence.engines.wasi.engine import WasiEngine, engine_environ
from ringfence.engines.wasi.facts import wasi_fact
from ringfence.engines.wasi.places import CACHE, DIRECTORY, WasiPlaces

SHARED = Path(sys.prefix) / "wasi"
"""Of the virtual environment that tests run in: `scripts/setup.sh` fills it."""


@cache
def _why_not() -> str:
    """Looks, and builds nothing: that would be some test's time."""
    found = wasi_fact({DIRECTORY: os.fspath(SHARED)}, os.fspath(SHARED))
    if found.missing or "python" not in found.languages:
        return found.missing or "CPython was not built for it: scripts/setup.sh does"
    if "tools" not in found.languages:
        return "the small tools were not built: apt-get install clang lld wasi-libc libclang-rt-14-dev-wasm32"
    return "" if "javascript" in found.languages else "the package qjs-wasi-reactor.wasm is not installed"


def needed() -> None:
    """Skips a test where modules cannot be run."""
    if why := _why_not():
        pytest.skip(f"no WASI here: {why}")


def places(bundles: Path) -> WasiPlaces:
    """Bundles and trust of one test, with everybody's compiled code."""
    needed()
    return WasiPlaces(bundles, SHARED / "cache")


def environ(bundles: Path) -> Mapping[str, str]:
    """The same as a process takes it."""
    needed()
    return {DIRECTORY: os.fspath(bundles), CACHE: os.fspath(SHARED / "cache")}


def engine(bundles: Path, home: Path, only: str | None = None) -> WasiEngine:
    native = NativeEngine(confiners(), engine_environ({}), os.fspath(home), only=only)
    return WasiEngine(native, places(bundles))
