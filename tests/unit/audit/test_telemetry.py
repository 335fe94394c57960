"""OpenTelemetry: one span for each execution, one record for each violation, and no text of what ran."""

import json
import sys
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from ringfence.audit.events import BoxMade, ExecutionEnded
from ringfence.audit.telemetry import OpenTelemetryObserver
from ringfence.errors import NotInstalled
from ringfence.values.guarantee import Wall
from ringfence.values.outcome import Exited, Refused, Result, Usage
from ringfence.values.violation import Operation, Severity, Violation, ViolationType

CODE = "print('the code itself')"


class Bench:
    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.records = InMemoryLogRecordExporter()
        loggers = LoggerProvider()
        loggers.add_log_record_processor(SimpleLogRecordProcessor(self.records))
        self.observe = OpenTelemetryObserver(self.tracers, loggers)


def an_execution(result: Result | None, **changes: Any) -> ExecutionEnded:
    parts: dict[str, Any] = {
        "run_id": "r1",
        "session": "s",
        "sandbox_id": "b",
        "tool": "code_run",
        "language": "python",
        "verdict": "allow",
        "rule": "default",
        "started_at": 1000.0,
        "seconds": 0.5,
        "result": result,
    }
    return ExecutionEnded(**(parts | changes))


def test_an_execution_is_a_span_with_what_is_known_about_it() -> None:
    bench = Bench()
    bench.observe(an_execution(Result(ending=Exited(0), usage=Usage(0.4, 0.3, 4096), wall=Wall("bwrap", frozenset()))))
    bench.observe(BoxMade(seconds=1.0))

    (span,) = bench.spans.get_finished_spans()
    assert span.name == "sandbox.execution"
    assert (span.start_time, span.end_time) == (1_000_000_000_000, 1_000_500_000_000)
    assert span.status.status_code is StatusCode.UNSET
    assert dict(span.attributes or {}) == {
        "ringfence.run_id": "r1",
        "ringfence.session": "s",
        "ringfence.sandbox_id": "b",
        "ringfence.tool": "code_run",
        "ringfence.language": "python",
        "ringfence.verdict": "allow",
        "ringfence.rule": "default",
        "ringfence.status": "success",
        "ringfence.ending": "Exited",
        "ringfence.wall": "bwrap",
        "process.exit.code": 0,
        "ringfence.usage.wall_seconds": 0.4,
        "ringfence.usage.cpu_seconds": 0.3,
        "ringfence.usage.peak_memory_bytes": 4096,
        "ringfence.violations": 0,
    }


def test_a_span_hangs_below_the_one_that_is_current() -> None:
    bench = Bench()
    with bench.tracers.get_tracer("agent").start_as_current_span("task") as task:
        bench.observe(an_execution(Result(ending=Exited(0))))

    span = bench.spans.get_finished_spans()[0]
    assert span.parent is not None and span.parent.span_id == task.get_span_context().span_id


@pytest.mark.parametrize(
    ("result", "fault", "said"),
    [
        (Result(ending=Exited(3)), "", "failed"),
        (None, "spawn_failed", "spawn_failed"),
        (None, "abandoned", "abandoned"),
    ],
)
def test_what_did_not_succeed_is_an_error(result: Result | None, fault: str, said: str) -> None:
    bench = Bench()
    bench.observe(an_execution(result, fault=fault))

    (span,) = bench.spans.get_finished_spans()
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, said)


def test_a_violation_is_a_record_in_the_span_of_its_execution() -> None:
    bench = Bench()
    violation = Violation(
        ViolationType.PATH,
        Severity.CRITICAL,
        "x",
        "filesystem.deny",
        operation=Operation.READ,
        target="/etc/shadow",
        place="policy.yaml:3",
        at=1000.25,
        pid=7,
        count=2,
    )
    bench.observe(an_execution(Result(ending=Exited(1), violations=(violation,))))

    (span,) = bench.spans.get_finished_spans()
    (data,) = bench.records.get_finished_logs()
    record = data.log_record
    assert span.context is not None
    assert (record.trace_id, record.span_id) == (span.context.trace_id, span.context.span_id)
    assert (record.timestamp, record.severity_number) == (1_000_250_000_000, SeverityNumber.FATAL)
    assert record.body == "refused: path_access_denied"
    attributes = dict(record.attributes or {})
    assert attributes["ringfence.violation.target"] == "/etc/shadow"
    assert attributes["ringfence.violation.place"] == "policy.yaml:3"
    assert (attributes["process.pid"], attributes["ringfence.violation.count"]) == (7, 2)


def test_the_text_of_what_ran_is_nowhere() -> None:
    bench = Bench()
    violation = Violation(ViolationType.COMMAND, Severity.HIGH, f"`{CODE}` is denied", "denied_commands", target=CODE)
    done = Result(
        ending=Refused(f"`{CODE}` is denied", "denied_commands"),
        stdout_bytes=CODE.encode(),
        stderr_bytes=CODE.encode(),
        violations=(violation,),
    )
    bench.observe(an_execution(done, verdict="deny", rule="denied_commands"))

    (span,) = bench.spans.get_finished_spans()
    (data,) = bench.records.get_finished_logs()
    assert "the code itself" not in span.to_json() + str(data.log_record.body) + json.dumps(
        dict(data.log_record.attributes or {})
    )


def test_without_the_extra_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(NotInstalled, match=r"ringfence\[otel\]"):
        OpenTelemetryObserver()
