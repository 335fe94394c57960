"""Packages from the registries that this machine's own clients use, installed in a box by the unmodified clients.

The only test that speaks to anybody outside, and only by those clients; skipped where they get nothing without a box.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from ringfence import Result, Sandbox

BARE: Final = "env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp"
VENV: Final = Path(sys.prefix)
NO_PROXY: Final = "env " + " ".join(
    f"-u {name} -u {name.upper()}" for name in ("http_proxy", "https_proxy", "all_proxy")
)


@dataclass(frozen=True)
class Registry:
    name: str
    preset: str
    program: str
    command: str
    made: str
    """What is there afterwards."""


REGISTRIES: Final = (
    Registry(
        "pip", "pip", sys.executable, f"{sys.executable} -m pip install -q --no-deps --no-cache-dir -t p idna", "p/idna"
    ),
    Registry("uv", "pip", str(VENV / "bin/uv"), f"{VENV}/bin/uv pip install -q --no-cache -t u idna", "u/idna"),
    Registry(
        "npm",
        "npm",
        "/usr/bin/npm",
        "/usr/bin/npm install --no-audit --no-fund --cache .c is-number",
        "node_modules/is-number",
    ),
)


@cache
def is_reached(registry: Registry) -> bool:
    """Whether the client gets it without any box."""
    with tempfile.TemporaryDirectory() as place:
        try:
            done = subprocess.run(
                ["sh", "-c", registry.command], cwd=place, capture_output=True, timeout=60, check=False
            )
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == 0


@pytest.fixture(params=REGISTRIES, ids=lambda registry: registry.name)
def registry(request: pytest.FixtureRequest) -> Registry:
    found: Registry = request.param
    if shutil.which(found.program) is None:
        pytest.skip(f"{found.name} is not installed")
    if not is_reached(found):
        pytest.skip(f"{found.name} gets nothing from its registry on this machine")
    return found


def run(registry: Registry, workspace: Path, before: str, *, network: list[str]) -> Result:
    async def main() -> Result:
        async with asyncio.timeout(90), Sandbox(workspace, network=network, read=[VENV]) as box:
            return await box.shell(f"{before} sh -c {shlex.quote(registry.command)}")

    return asyncio.run(main())


def records(state: Path, *, dns: bool = False) -> list[dict[str, Any]]:
    found = map(json.loads, (state / "journal.jsonl").read_text().splitlines())
    return [each for each in found if each["event_type"] == "network_request" and (dns or each["door"] != "dns")]


@pytest.mark.parametrize(
    ("before", "door"), [("", "connect"), (NO_PROXY, "transparent")], ids=["variables", "no proxy"]
)
def test_a_package_is_installed(
    registry: Registry, before: str, door: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    workspace = tmp_path / "work"
    workspace.mkdir()

    done = run(registry, workspace, before, network=[registry.preset])

    assert done.ok, done.stderr
    assert (workspace / registry.made).exists()
    made = records(tmp_path / "state")
    assert {each["door"] for each in made} == {door}
    assert all(each["inspected"] and each["verdict"] == "allow" for each in made)
    assert {each["method"] for each in made} <= {"GET", "HEAD"}


def test_without_the_preset_nothing_is(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    workspace = tmp_path / "work"
    workspace.mkdir()

    done = run(registry, workspace, "env PIP_RETRIES=0 UV_HTTP_RETRIES=0 timeout 20", network=["unrelated.example"])

    assert not (workspace / registry.made).exists()
    assert not done.ok
    made = records(tmp_path / "state", dns=True)
    assert made
    assert all(each["result"] == "refused" for each in made)


def test_without_any_variable_pip_trusts_us_by_the_mounts_and_uv_does_not(registry: Registry, tmp_path: Path) -> None:
    if registry.name == "npm":
        pytest.skip("npm trusts whom the machine's own npmrc says")
    workspace = tmp_path / "work"
    workspace.mkdir()

    done = run(registry, workspace, f"timeout 40 {BARE} UV_HTTP_RETRIES=0", network=[registry.preset])

    assert (workspace / registry.made).exists() == (registry.name == "pip"), done.stderr
    assert registry.name == "pip" or "certificate" in done.stderr
