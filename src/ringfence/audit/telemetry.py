"""OpenTelemetry: one span for each execution, one log record for each violation. Needs the extra `ringfence[otel]`.

    provider = TracerProvider()  # with the exporter of your choice
    async with SandboxManager(observers=[OpenTelemetryObserver(provider)]) as manager: ...

A span hangs below the one that is current where the execution was asked for. Neither spans nor records hold the text of
what ran, nor its output: the journal has the command, under `ringfence.run_id`. A record names the path or address that
was refused, and the rule.
"""

from typing import TYPE_CHECKING, Any, Final

from ringfence.audit.events import Event, ExecutionEnded, Status
from ringfence.errors import NotInstalled
from ringfence.values.violation import Severity, Violation, ViolationType

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.context import Context
    from opentelemetry.trace import TracerProvider

_SCOPE: Final = "ringfence"
_NANOSECONDS: Final = 1_000_000_000
_LONGEST = 300
"""Characters of one attribute."""
_PATHS: Final = frozenset(
    {ViolationType.PATH_ACCESS_DENIED, ViolationType.SENSITIVE_FILE_ACCESS, ViolationType.NETWORK_VIOLATION}
)
"""Types whose target is a path or an address; that of others is a stretch of the command."""


class OpenTelemetryObserver:
    """Turns executions into spans, and violations into log records; give it to `observers=`.

    Args:
        tracer_provider, logger_provider: where they go; the global ones if not given.

    Raises:
        NotInstalled: OpenTelemetry is not installed.
    """

    def __init__(
        self, tracer_provider: "TracerProvider | None" = None, logger_provider: "LoggerProvider | None" = None
    ) -> None:
        try:
            from opentelemetry import _logs, trace
        except ImportError:
            raise NotInstalled(
                "traces need OpenTelemetry, which is not installed", hint="pip install 'ringfence[otel]'"
            ) from None
        self._trace = trace
        self._record = _logs.LogRecord
        number = _logs.SeverityNumber
        self._severity = {
            Severity.LOW: number.INFO,
            Severity.MEDIUM: number.WARN,
            Severity.HIGH: number.ERROR,
            Severity.CRITICAL: number.FATAL,
        }
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        self._logger = _logs.get_logger(_SCOPE, logger_provider=logger_provider)

    def __call__(self, event: Event, /) -> None:
        """Tell of an execution that has ended; other events are left to metrics."""
        if isinstance(event, ExecutionEnded):
            self._execution(event)

    def _execution(self, event: ExecutionEnded) -> None:
        started = int(event.started_at * _NANOSECONDS)
        ended = started + int(event.seconds * _NANOSECONDS)
        span = self._tracer.start_span("sandbox.execution", start_time=started, attributes=_attributes(event))
        if event.status in (Status.FAULT, Status.ABANDONED):
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, event.fault))
        elif event.status is not Status.SUCCESS:
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(event.status)))
        if event.result is not None:
            context = self._trace.set_span_in_context(span)
            for violation in event.result.violations:
                self._violation(violation, event, context, ended)
        span.end(end_time=ended)

    def _violation(self, violation: Violation, event: ExecutionEnded, context: "Context", ended: int) -> None:
        known: dict[str, Any] = {
            "ringfence.run_id": event.run_id,
            "ringfence.session": event.session,
            "ringfence.tool": event.tool,
            "ringfence.violation.type": str(violation.kind),
            "ringfence.violation.severity": str(violation.severity),
            "ringfence.violation.rule": violation.rule[:_LONGEST],
            "ringfence.violation.place": violation.place[:_LONGEST],
            "ringfence.violation.count": violation.count,
        }
        if violation.operation is not None:
            known["ringfence.violation.operation"] = str(violation.operation)
        if violation.operation is not None or violation.kind in _PATHS:
            known["ringfence.violation.target"] = violation.target[:_LONGEST]
        if violation.pid is not None:
            known["process.pid"] = violation.pid
        self._logger.emit(
            self._record(
                timestamp=int(violation.at * _NANOSECONDS) or ended,
                context=context,
                severity_number=self._severity[violation.severity],
                severity_text=str(violation.severity).upper(),
                body=f"refused: {violation.kind}",
                attributes=known,
                event_name="ringfence.violation",
            )
        )


def _attributes(event: ExecutionEnded) -> dict[str, str | int | float]:
    known: dict[str, str | int | float] = {
        "ringfence.run_id": event.run_id,
        "ringfence.session": event.session,
        "ringfence.sandbox_id": event.sandbox_id,
        "ringfence.tool": event.tool,
        "ringfence.language": event.language,
        "ringfence.verdict": event.verdict,
        "ringfence.rule": event.rule[:_LONGEST],
        "ringfence.status": str(event.status),
    }
    result = event.result
    if result is None:
        return known | {"error.type": event.fault}
    known |= {
        "ringfence.ending": type(result.ending).__name__,
        "process.exit.code": result.exit_code,
        "ringfence.usage.wall_seconds": result.usage.wall_seconds,
        "ringfence.usage.cpu_seconds": result.usage.cpu_seconds,
        "ringfence.usage.peak_memory_bytes": result.usage.peak_memory_bytes,
        "ringfence.violations": sum(violation.count for violation in result.violations),
    }
    if result.wall is not None:
        known["ringfence.wall"] = result.wall.name
    return known
