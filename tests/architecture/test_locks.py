"""The two lock files say the same, and nothing about the machine that made them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
UV_LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PIP_LOCK = (ROOT / "requirements-dev.lock").read_text()


def test_pip_installs_the_versions_that_uv_locked() -> None:
    locked = {(package["name"], package["version"]) for package in UV_LOCK["package"] if package["name"] != "ringfence"}

    assert set(re.findall(r"^([\w.-]+)==([^ ;]+)", PIP_LOCK, re.MULTILINE)) == locked


def test_locks_name_no_index_but_the_public_one() -> None:
    files = [file for package in UV_LOCK["package"] for file in (*package.get("wheels", ()), package.get("sdist"))]
    hosts = {urlsplit(file["url"]).hostname for file in files if file is not None}

    assert hosts == {"files.pythonhosted.org"}
    assert "://" not in PIP_LOCK
