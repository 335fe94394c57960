"""Metrics: the requirement's names and labels, and never more series than are bounded."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from ringfence.audit import metrics
from ringfence.audit.events import (
    ApprovalAsked,
    ApprovalEnded,
    BoxMade,
    ExecutionEnded,
    Outcome,
    PoolSeen,
    SandboxClosed,
    SandboxOpened,
)
from ringfence.audit.metrics import MetricsObserver
from ringfence.errors import NotInstalled
from ringfence.pool.state import Phase, PoolState
from ringfence.values.outcome import Exited, Refused, Result, Usage
from ringfence.values.violation import Severity, Violation, ViolationType

pytestmark = pytest.mark.req("B10")

ROOT = Path(__file__).parents[3]


class Bench:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.observe = MetricsObserver(self.registry)

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)

    def samples(self, name: str) -> list[dict[str, str]]:
        families = text_string_to_metric_families(generate_latest(self.registry).decode())
        return [sample.labels for family in families for sample in family.samples if sample.name == name]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def an_execution(result: Result | None = None, **changes: Any) -> ExecutionEnded:
    parts: dict[str, Any] = {
        "run_id": "r",
        "session": "s",
        "sandbox_id": "b",
        "tool": "code_run",
        "language": "python",
        "verdict": "allow",
        "rule": "default",
        "started_at": 0.0,
        "seconds": 0.5,
        "result": result or Result(ending=Exited(0)),
    }
    return ExecutionEnded(**(parts | changes))


def a_state(**changes: int) -> PoolState:
    counts = dict.fromkeys(PoolState.__dataclass_fields__, 0) | {"phase": Phase.OPEN, "last_fault": ""}
    return PoolState(**(counts | changes))  # type: ignore[arg-type]


def test_the_requirements_names_and_labels_are_exact(bench: Bench) -> None:
    violation = Violation(ViolationType.COMMAND, Severity.HIGH, "x", "r", count=2)
    bench.observe(an_execution())
    bench.observe(an_execution(Result(ending=Refused("x", "r"), violations=(violation,))))
    bench.observe(SandboxOpened(sandbox_id="b", session="s", usage=lambda: Usage(0.0, 1.5, 4096)))
    bench.observe(PoolSeen(pool_id="p", counts=(a_state(idle=2, busy=1),)))

    assert bench.value("sandbox_executions_total", tool="code_run", language="python", status="success") == 1
    assert bench.value("sandbox_executions_total", tool="code_run", language="python", status="refused") == 1
    assert bench.value("sandbox_execution_duration_seconds_sum", tool="code_run") == 0.5
    assert bench.value("sandbox_execution_duration_seconds_count", tool="code_run") == 1, "a refusal takes no time"
    assert bench.value("sandbox_memory_usage_bytes", sandbox_id="b") == 4096
    assert bench.value("sandbox_cpu_usage_seconds", sandbox_id="b") == 1.5
    assert bench.value("sandbox_pool_size", status="idle") == 2
    assert bench.value("sandbox_policy_violations_total", tool="code_run", reason="command_blocked") == 2


def test_the_list_of_names_is_what_is_exposed(bench: Bench) -> None:
    text = generate_latest(bench.registry).decode()
    exposed = {name for name in re.findall(r"^# TYPE (\S+)", text, re.MULTILINE) if not name.endswith("_created")}

    assert exposed == metrics.NAMES.keys()


def test_a_sandbox_has_series_only_while_it_lives(bench: Bench) -> None:
    bench.observe(SandboxOpened(sandbox_id="b", session="s", usage=Usage))
    assert bench.samples("sandbox_memory_usage_bytes") == [{"sandbox_id": "b"}]

    bench.observe(SandboxClosed(sandbox_id="b"))
    bench.observe(SandboxClosed(sandbox_id="b"))
    assert bench.samples("sandbox_memory_usage_bytes") == []


def test_a_sandbox_that_is_just_being_closed_is_left_out(bench: Bench) -> None:
    def gone() -> Usage:
        raise OSError("no such group")

    bench.observe(SandboxOpened(sandbox_id="b", session="s", usage=gone))

    assert bench.samples("sandbox_cpu_usage_seconds") == []


def test_the_number_of_series_is_bounded_whoever_feeds_it(bench: Bench) -> None:
    for number in range(2000):
        name = f"x{number}\n" if number % 2 else f"x{number}"
        bench.observe(an_execution(tool=name, language=name))
        bench.observe(SandboxOpened(sandbox_id=name, session=name, usage=Usage))
        bench.observe(ApprovalAsked(run_id=name, tool=name))
        bench.observe(PoolSeen(pool_id=name, counts=(a_state(idle=1),)))
        bench.observe(PoolSeen(pool_id=name, counts=()))

    most = metrics.MOST_TOOLS + 1
    assert len(bench.samples("sandbox_execution_duration_seconds_count")) == most
    assert len(bench.samples("sandbox_executions_total")) <= most * (metrics.MOST_LANGUAGES + 1)
    assert len(bench.samples("sandbox_approvals_asked_total")) == most
    assert len(bench.samples("sandbox_memory_usage_bytes")) == metrics.MOST_SANDBOXES
    assert {"tool": "other"} in bench.samples("sandbox_approvals_asked_total")


def test_pools_are_added_up_and_what_grew_stays_when_they_are_gone(bench: Bench) -> None:
    bench.observe(
        PoolSeen(pool_id="one", counts=(a_state(idle=1, hits=5, waiting=2, max_instances=4), a_state(idle=2)))
    )
    bench.observe(PoolSeen(pool_id="two", counts=(a_state(idle=4, hits=10, misses=1),)))
    bench.observe(PoolSeen(pool_id="one", counts=(a_state(idle=1, hits=7, crashed=1, max_instances=4),)))

    assert bench.value("sandbox_pool_size", status="idle") == 5
    assert bench.value("sandbox_pool_hits_total") == 17
    assert bench.value("sandbox_pool_misses_total") == 1
    assert bench.value("sandbox_pool_crashed_total") == 1
    assert bench.value("sandbox_pool_max_size") == 4

    for pool in ("one", "two"):
        bench.observe(PoolSeen(pool_id=pool, counts=()))
    assert bench.value("sandbox_pool_size", status="idle") == 0
    assert bench.value("sandbox_pool_hits_total") == 17


def test_approvals_and_boxes_are_counted_and_timed(bench: Bench) -> None:
    bench.observe(ApprovalAsked(run_id="a", tool="t"))
    bench.observe(ApprovalAsked(run_id="b", tool="t"))
    bench.observe(ApprovalEnded(run_id="a", tool="t", outcome=Outcome.TIMED_OUT, seconds=60.0))
    bench.observe(BoxMade(seconds=0.05))

    assert bench.value("sandbox_approvals_asked_total", tool="t") == 2
    assert bench.value("sandbox_approvals_total", tool="t", outcome="timed_out") == 1
    assert bench.value("sandbox_approvals_pending") == 1
    assert bench.value("sandbox_approval_seconds_sum", outcome="timed_out") == 60.0
    assert bench.value("sandbox_pool_creation_seconds_count") == 1


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)

    with pytest.raises(NotInstalled, match=r"ringfence\[metrics\]"):
        MetricsObserver()


def test_the_dashboard_asks_for_metrics_that_exist_by_labels_that_they_have() -> None:
    attach = json.loads((ROOT / "deploy" / "grafana" / "ringfence.json").read_text())
    queries = [target["expr"] for panel in attach["panels"] for target in panel["targets"]]
    asked = set()
    for query in queries:
        for name in re.findall(r"sandbox_\w+", query):
            if name == "sandbox_id":
                continue
            base = name if name in metrics.NAMES else re.sub(r"_(bucket|sum|count)$", "", name)
            assert base in metrics.NAMES, query
            asked.add(base)
            labels = {"le", *metrics.NAMES[base]}
            for group in re.findall(r"by \(([^)]*)\)", query):
                assert set(group.replace(" ", "").split(",")) <= labels, query

    assert asked == metrics.NAMES.keys(), "every metric is shown"
    assert len({panel["id"] for panel in attach["panels"]}) == len(attach["panels"])
