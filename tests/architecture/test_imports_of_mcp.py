"""The SDK of MCP takes its time to load: nobody who does not serve MCP waits for it."""

from __future__ import annotations

import json
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


def loaded(tmp_path: Path, *words: str, stdin: bytes = b"") -> set[str]:
    """The modules that a command has loaded when it ends."""
    (tmp_path / "work").mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, *words]
    subprocess.run(command, env=env, cwd=tmp_path / "work", input=stdin, capture_output=True, timeout=60, check=True)
    return set((tmp_path / "modules").read_text().split())


@pytest.mark.parametrize(
    "words", [("--help",), ("run", "true"), ("run", "--language", "python", "1"), ("mcp", "install", "cursor")]
)
def test_other_commands_load_nothing_of_it(tmp_path: Path, words: tuple[str, ...]) -> None:
    found = loaded(tmp_path, *words)

    assert "ringfence.cli.app" in found and not found & set(SDK)
    assert not any(name.startswith("ringfence.mcp") for name in found) or words[0] == "mcp"


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}


def lines(*methods: str) -> bytes:
    return b"".join(
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": HELLO if number == 0 else {}}).encode()
        + b"\n"
        for number, method in enumerate(methods)
    )


def test_what_a_client_asks_first_is_answered_without_it(tmp_path: Path) -> None:
    assert not loaded(tmp_path, "mcp", stdin=lines("initialize", "tools/list", "ping")) & set(SDK)


def test_the_server_loads_it_for_anything_else(tmp_path: Path) -> None:
    assert {"mcp", "mcp_types"} <= loaded(tmp_path, "mcp", stdin=lines("initialize", "tools/call"))
