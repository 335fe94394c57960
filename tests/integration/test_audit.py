"""The record of real runs: measured values, who asked, what was written, no secrets, and a chain that holds."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import Sandbox, SandboxManager
from ringfence.audit.verify import verify
from tests.integration.stage import Place

pytestmark = pytest.mark.req("B9")

TOKEN = "ghp_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"


def records(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place.state / "journal.jsonl").read_text().splitlines()]


def test_a_run_is_recorded_with_measured_values_and_who_asked(place: Place) -> None:
    async def work() -> str:
        async with Sandbox(place.workspace, agent_id="agent_456", org_id="org_789") as box:
            return (await box.shell("echo hi; exit 3")).run_id

    run = asyncio.run(work())

    (record,) = records(place)
    assert (record["run"], record["agent_id"], record["org_id"], record["tool"]) == (
        run, "agent_456", "org_789", "shell_exec",
    )  # fmt: skip
    assert (record["result"], record["exit_code"], record["language"]) == ("failure", 3, "bash")
    assert record["execution_time_ms"] > 0 and record["memory_used_mb"] > 0 and record["measured_by"]
    assert (record["network_bytes_sent"], record["network_bytes_recv"]) == (0, 0)
    assert record["files_read"] is None and "files_read" in record["not_observed"]
    assert record["sandbox_id"] and record["session_id"] and record["timestamp"].endswith("Z")
    assert str(place.home) not in record["wrapped"]
    assert verify(place.state).ok


def test_a_manager_records_the_files_that_were_written(place: Place) -> None:
    async def work() -> None:
        async with SandboxManager(pool_size=1, agent_id="a1") as manager:
            await manager.execute_code("python", "open('out.txt', 'w').write('x')")
            await manager.execute_code("python", "1", session_id="s9")

    asyncio.run(work())

    first, second = records(place)
    assert (first["files_written"], first["files_written_count"]) == (["/workspace/out.txt"], 1)
    assert (first["agent_id"], first["tool"], first["language"]) == ("a1", "code_run", "python")
    assert (second["session_id"], second["files_written"]) == ("s9", [])
    assert first["sandbox_id"] != second["sandbox_id"]


def test_no_secret_of_a_command_or_a_variable_is_in_the_state(place: Place) -> None:
    async def work() -> None:
        async with Sandbox(place.workspace, env={"DB_PASSWORD": "blue-horse-9"}) as box:
            await box.shell(f"echo {TOKEN} blue-horse-9 green-dog-77; false", env={"API_KEY": "green-dog-77"})
            await box.python(f"raise ValueError('{TOKEN}')")

    asyncio.run(work())

    found = b"".join(path.read_bytes() for path in place.state.rglob("*") if path.is_file())
    for secret in (TOKEN, "blue-horse-9", "green-dog-77"):
        assert secret.encode() not in found
    assert len(records(place)) == 2


def test_the_command_line_finds_verifies_and_notices_an_edit(place: Place) -> None:
    place.run("echo needle")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "ringfence.cli.app", "audit", *words]
        return subprocess.run(argv, env=environ, capture_output=True, text=True, timeout=60, check=False)

    assert json.loads(call("search", "needle", "--json").stdout)["command"] == "echo needle"
    assert call("verify").returncode == 0
    path = place.state / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"needle", b"noodle"))

    broken = call("verify")

    assert broken.returncode == 1 and "journal.jsonl:1: record 1: was edited" in broken.stdout
    assert call("search", "--result", "nonsense").returncode == 125


def test_a_torn_line_is_mended_by_the_next_run_and_said(place: Place) -> None:
    place.run("true")
    with open(place.state / "journal.jsonl", "ab") as file:
        file.write(b'{"seq":2,"prev":"')

    with pytest.warns(ringfence.RingfenceWarning, match="moved aside"):
        place.run("true")

    assert [record["event_type"] for record in records(place)][1] == "repaired"
    assert verify(Path(place.state)).ok
