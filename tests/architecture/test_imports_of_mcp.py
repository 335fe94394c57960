"""The SDK of MCP takes its time to load: nobody who does not serve MCP waits for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
from ringfence.cli.app import main
try:
    main()
except SystemExit:
    pass
with open("../modules", "w") as file:
    print(*sorted(sys.modules), file=file)
"""
SDK = ("mcp", "mcp_types", "pydantic", "starlette", "anyio", "jsonschema")


def loaded(tmp_path: Path, *words: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    (tmp_path / "work").mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, *words]
    subprocess.run(command, env=env, cwd=tmp_path / "work", input=b"", capture_output=True, timeout=60, check=True)
    return set((tmp_path / "modules").read_text().split())


@pytest.mark.parametrize(
    "words", [("--help",), ("run", "true"), ("run", "--language", "python", "1"), ("mcp", "install", "cursor")]
)
def test_other_commands_load_nothing_of_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = loaded(tmp_path, *words)

    assert "ringfence.cli.app" in found and not found & set(SDK)
    assert not any(name.startswith("ringfence.mcp") for name in found) or words[0] == "mcp"


def test_the_server_loads_it(tmp_path: Path) -> None:
    assert {"mcp", "mcp_types"} <= loaded(tmp_path, "mcp")
