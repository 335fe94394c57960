"""What can be seen of real runs: metrics and their scrape, violations for agents and people, the checklists."""

import asyncio
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from typer.testing import CliRunner

from ringfence import BashTool, MetricsObserver, Sandbox, SandboxExecutor, SandboxManager, ViolationType
from ringfence.cli.app import app
from ringfence.cli.exits import Finished
from ringfence.manager import checklist
from ringfence.manager.checklist import check_all, passes
from ringfence.manager.claims import ClaimItem, ClaimState
from tests.integration.stage import Place

POLICY = """policies:
  default:
    denied_commands:
      - command: dig
        matches: [dig example.com]
"""


def command(*words: str) -> tuple[int, str]:
    """A command of ours in this process: its exit code, and what it printed."""
    done = CliRunner().invoke(app, list(words))
    if isinstance(done.exception, Finished):
        return done.exception.code, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.req("B10")
def test_real_runs_are_in_the_metrics_and_can_be_scraped(place: Place) -> None:
    registry = CollectorRegistry()
    observer = MetricsObserver(registry)
    server, thread = start_http_server(0, addr="127.0.0.1", registry=registry)

    def scrape() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=10) as page:
            return str(page.read().decode())

    async def work() -> tuple[str, str]:
        async with SandboxManager(pool_size=1, observers=[observer]) as manager:
            await manager.execute_code("python", "print(6 * 7)")
            await manager.execute_shell("exit 3", session_id="a")
            await manager.execute_shell("tail /dev/zero", session_id="a", timeout=0.05)
            (session,) = manager.sessions()
            sandbox = await manager.pool.acquire(session.id, "shell_exec")
            return await asyncio.to_thread(scrape), sandbox.id

    try:
        text, sandbox_id = asyncio.run(work())
        after = scrape()
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    for line in (
        'sandbox_executions_total{language="python",status="success",tool="code_run"} 1.0',
        'sandbox_executions_total{language="bash",status="failed",tool="shell_exec"} 1.0',
        'sandbox_executions_total{language="bash",status="timed_out",tool="shell_exec"} 1.0',
        'sandbox_execution_duration_seconds_count{tool="shell_exec"} 2.0',
        'sandbox_pool_size{status="busy"}',
        f'sandbox_memory_usage_bytes{{sandbox_id="{sandbox_id}"}}',
        f'sandbox_cpu_usage_seconds{{sandbox_id="{sandbox_id}"}}',
        "sandbox_pool_creation_seconds_count",
    ):
        assert line in text
    assert "sandbox_id=" not in after, "series of sandboxes that are gone"
    assert 'sandbox_pool_size{status="busy"} 0.0' in after
    assert "sandbox_pool_hits_total 0.0" not in after


@pytest.mark.req("B10", "C7")
def test_a_refusal_is_in_the_result_the_store_and_the_metrics(place: Place) -> None:
    registry = CollectorRegistry()
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)

    async def work(box: Sandbox) -> Any:
        done = await box.shell("dig example.com")
        return done, box.violations

    done, store = place.in_box(work, policy=policy, observers=[MetricsObserver(registry)])

    (violation,) = done.violations
    assert (violation.kind, violation.place) == (ViolationType.COMMAND_BLOCKED, f"{policy}:4")
    assert store.count_by_type(ViolationType.COMMAND_BLOCKED) == 1
    assert store.recent()[0].run_id == done.run_id
    text = generate_latest(registry).decode()
    assert 'sandbox_policy_violations_total{reason="command_blocked",tool="shell_exec"} 1.0' in text


@pytest.mark.req("C7")
def test_an_agents_shell_says_what_was_refused_and_a_plain_executor_does_not(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)
    monkeypatch.setenv("RINGFENCE_POLICY", str(policy))

    told = asyncio.run(BashTool().execute("dig example.com", place.workspace))
    plain = asyncio.run(SandboxExecutor().run("dig example.com", place.workspace))
    benign = asyncio.run(BashTool().execute("echo 'sandbox: Permission denied' >&2", place.workspace))

    assert told.exit_code == plain.exit_code == 122
    assert f"rule: denied_commands dig at {policy}:4; instead: find another way; only the operator" in told.stderr
    assert plain.stderr == ""
    assert benign.stderr == "sandbox: Permission denied\n"


@pytest.mark.req("C7")
def test_the_command_line_shows_what_was_refused(place: Place) -> None:
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)
    assert command("violations") == (0, "Nothing was refused.\n")
    place.run("dig example.com", policy=policy)
    place.run("dig '\x1b[31m[red]'", policy=policy)
    place.run("true", policy=policy)

    code, text = command("violations", "--json")
    found = json.loads(text)
    assert (code, found["total"]) == (0, 2)
    assert found["by_type"] == {"command_blocked": 2}
    assert found["by_severity"] == {"medium": 2}
    assert found["recent"][-1]["place"] == f"{policy}:4"
    assert json.loads(command("violations", "--json", "--severity", "high")[1])["total"] == 0
    assert json.loads(command("violations", "--json", "--text", "EXAMPLE.com")[1])["total"] == 1
    assert json.loads(command("violations", "--json", "--since", "1h", "-n", "1")[1])["recent"] != []
    code, table = command("violations")
    assert code == 0 and "command_blocked" in table and "\x1b[31m[" not in table


@pytest.mark.req("B11")
def test_the_checklists_hold_here_and_each_claim_has_its_evidence(place: Place) -> None:
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)

    lists = check_all(policy)

    assert [(each.name, len(each.items)) for each in lists] == [
        ("before deployment", 7),
        ("at run time", 5),
        ("periodic", 5),
    ]
    amiss = [
        item
        for each in lists
        for item in each.items
        if item.found is ClaimState.NO and "pip-audit" not in item.evidence
    ]
    assert amiss == []
    assert all(item.evidence for each in lists for item in each.items)
    unknown = {item.claim for each in lists for item in each.items if item.found is ClaimState.UNKNOWN}
    assert unknown - {"dependencies are free of known faults"} == {
        "the image is built and scanned",
        "the audit log is analysed",
        "the image is up to date",
        "intrusion was tested",
    }


@pytest.mark.req("B11")
def test_the_checklists_fail_without_a_policy_and_say_so(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checklist, "_dependencies", lambda: ClaimItem("x", ClaimState.UNKNOWN, "not asked"))

    code, text = command("doctor", "--checklist", "--json")

    found = json.loads(text)
    amiss = [item["claim"] for each in found["lists"] for item in each["items"] if item["found"] == "no"]
    assert (code, found["passes"], amiss) == (1, False, ["a policy is configured"])


@pytest.mark.req("B11")
def test_a_machine_where_no_box_can_be_opened_passes_nothing_that_needs_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "seatbelt")
    monkeypatch.setattr(checklist, "_dependencies", lambda: ClaimItem("x", ClaimState.UNKNOWN, "not asked"))

    lists = check_all()

    first = {item.claim: item.found for item in lists[0].items}
    assert first["seccomp is applied"] is first["nothing runs as root"] is first["limits are set"] is ClaimState.NO
    assert lists[1].items[0].found is ClaimState.NO
    assert not passes(lists)


def test_a_policy_that_is_wrong_is_named(place: Place) -> None:
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY.replace("dig example.com", "dog example.com"))

    engine = checklist._policy(policy, {})

    assert isinstance(engine, str) and "does not match its example" in engine
    assert checklist._policy_loaded(engine).found is ClaimState.NO
    assert checklist._review(engine).found is ClaimState.UNKNOWN


@pytest.mark.parametrize(
    ("program", "found"),
    [
        ('echo \'{"dependencies": [{"name": "a", "vulns": []}]}\'', ClaimState.YES),
        ('echo \'{"dependencies": [{"name": "a", "vulns": [{"id": "x"}]}]}\'; exit 1', ClaimState.NO),
        ("echo no network >&2; exit 1", ClaimState.UNKNOWN),
    ],
)
@pytest.mark.req("B11")
def test_the_dependency_audit_counts_only_if_it_gave_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, found: ClaimState
) -> None:
    tool = tmp_path / "pip-audit"
    tool.write_text(f"#!/bin/sh\n{program}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    assert checklist._dependencies().found is found
