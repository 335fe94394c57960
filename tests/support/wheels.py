"""The wheel of this tree, as somebody who installs it gets it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir")
_NOT_SOURCES = (".venv*", ".git", "__pycache__", ".*_cache", ".docker-engine", ".hypothesis", "node_modules", "dist")


def a_wheel(top: Path) -> Path:
    """Built from a copy of the tree below `top`; or the one that RINGFENCE_WHEEL names (`make dist`)."""
    if given := os.environ.get("RINGFENCE_WHEEL"):
        return Path(shutil.copy(given, top))
    source = top / "source"
    shutil.copytree(PROJECT, source, ignore=shutil.ignore_patterns(*_NOT_SOURCES))
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(top), str(source)]
    subprocess.run(build, check=True, timeout=100)
    shutil.rmtree(source)
    (wheel,) = top.glob("*.whl")
    return wheel
