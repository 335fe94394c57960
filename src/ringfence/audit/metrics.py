"""Prometheus metrics, fed by events (requirement B10). Needs the extra `ringfence[metrics]`.

    observer = MetricsObserver()
    prometheus_client.start_http_server(9464, addr="127.0.0.1")
    async with SandboxManager(observers=[observer]) as manager: ...

The number of series is bounded, whoever feeds it. Values of labels come from closed sets, or are among the first so
many of a kind that were seen; the rest is `other`. A sandbox's own series exist while it lives, for so many at a time.
What sandboxes use is asked when somebody scrapes, not before.

Counters that are kept elsewhere (a pool's hits) are taken over by what they have grown since the last time, so that
they never go back, and stay when the pool is gone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, assert_never

from ringfence.audit.events import (
    ApprovalAsked,
    ApprovalEnded,
    BoxMade,
    Event,
    ExecutionEnded,
    PoolCounts,
    PoolSeen,
    SandboxClosed,
    SandboxOpened,
    Status,
)
from ringfence.errors import NotInstalled

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.metrics_core import Metric

    from ringfence.values.outcome import Usage

OTHER: Final = "other"
MOST_TOOLS: Final = 50
"""Tools of a policy have names of their own; nobody looks at more than these in a graph."""
MOST_LANGUAGES: Final = 30
MOST_SANDBOXES: Final = 500
"""Sandboxes with series of their own at one time; two each."""

_EXECUTION_BUCKETS: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""From a call to an interpreter that waits (some 0.3 ms) to the usual limit of a command, and beyond it."""
_APPROVAL_BUCKETS: Final = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
"""People take seconds to minutes."""
_CREATION_BUCKETS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)
"""A box takes some tens of milliseconds on a quiet machine."""

_PLACES: Final = ("idle", "starting", "acquiring", "busy", "closing")
_GROWING: Final = ("hits", "misses", "made", "crashed", "replaced_for_age", "failures")

NAMES: Final = {
    "sandbox_executions_total": ("tool", "language", "status"),
    "sandbox_execution_duration_seconds": ("tool",),
    "sandbox_memory_usage_bytes": ("sandbox_id",),
    "sandbox_cpu_usage_seconds": ("sandbox_id",),
    "sandbox_pool_size": ("status",),
    "sandbox_policy_violations_total": ("tool", "reason"),
    "sandbox_pool_max_size": (),
    "sandbox_pool_waiting": (),
    "sandbox_pool_hits_total": (),
    "sandbox_pool_misses_total": (),
    "sandbox_pool_made_total": (),
    "sandbox_pool_crashed_total": (),
    "sandbox_pool_replaced_for_age_total": (),
    "sandbox_pool_failures_total": (),
    "sandbox_pool_creation_seconds": (),
    "sandbox_approvals_asked_total": ("tool",),
    "sandbox_approvals_total": ("tool", "outcome"),
    "sandbox_approvals_pending": (),
    "sandbox_approval_seconds": ("outcome",),
}
"""Every metric with its labels; the first six are the requirement's."""


class MetricsObserver:
    """Turns events into Prometheus metrics; give it to `observers=`. One may serve many managers and pools.

    Args:
        registry: where the metrics are registered; prometheus-client's own if not given.

    Raises:
        NotInstalled: prometheus-client is not installed.
    """

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        try:
            import prometheus_client
        except ImportError:
            raise NotInstalled(
                "metrics need prometheus-client, which is not installed", hint="pip install 'ringfence[metrics]'"
            ) from None
        self.registry = prometheus_client.REGISTRY if registry is None else registry
        self._tools = _Capped(MOST_TOOLS)
        self._languages = _Capped(MOST_LANGUAGES)
        self._sandboxes = _Sandboxes()
        self._pools: dict[str, dict[str, int]] = {}

        def counter(name: str, help: str) -> Any:
            return prometheus_client.Counter(name.removesuffix("_total"), help, NAMES[name], registry=self.registry)

        def gauge(name: str, help: str) -> Any:
            return prometheus_client.Gauge(name, help, NAMES[name], registry=self.registry)

        def histogram(name: str, help: str, buckets: tuple[float, ...]) -> Any:
            return prometheus_client.Histogram(name, help, NAMES[name], registry=self.registry, buckets=buckets)

        self._executions = counter("sandbox_executions_total", "Executions, by how they went.")
        self._durations = histogram(
            "sandbox_execution_duration_seconds",
            "From a request to its result, without waiting for a person; what was refused is left out.",
            _EXECUTION_BUCKETS,
        )
        self._violations = counter("sandbox_policy_violations_total", "What was refused, by its type.")
        self._pool_size = gauge("sandbox_pool_size", "Boxes of all pools, by where they are.")
        self._pool_max = gauge("sandbox_pool_max_size", "Boxes that all pools may have.")
        self._pool_waiting = gauge("sandbox_pool_waiting", "Callers for whom there is no room to make a box.")
        self._pool_growing = {
            "hits": counter("sandbox_pool_hits_total", "Calls that found a box ready."),
            "misses": counter("sandbox_pool_misses_total", "Calls that found none ready."),
            "made": counter("sandbox_pool_made_total", "Boxes made."),
            "crashed": counter("sandbox_pool_crashed_total", "Boxes lost before anybody had them."),
            "replaced_for_age": counter("sandbox_pool_replaced_for_age_total", "Boxes that grew too old."),
            "failures": counter("sandbox_pool_failures_total", "Times that no box could be made."),
        }
        self._creation = histogram(
            "sandbox_pool_creation_seconds", "How long it took to make a box ready.", _CREATION_BUCKETS
        )
        self._asked = counter("sandbox_approvals_asked_total", "Times that a person's approval was needed.")
        self._answered = counter("sandbox_approvals_total", "How the questions were answered.")
        self._pending = gauge("sandbox_approvals_pending", "Questions that wait for an answer.")
        self._approval_seconds = histogram("sandbox_approval_seconds", "How long an answer took.", _APPROVAL_BUCKETS)
        self.registry.register(self._sandboxes)

    def __call__(self, event: Event, /) -> None:
        """Count one event."""
        match event:
            case ExecutionEnded():
                self._execution(event)
            case SandboxOpened():
                self._sandboxes.opened(event.sandbox_id, event.usage)
            case SandboxClosed():
                self._sandboxes.closed(event.sandbox_id)
            case ApprovalAsked():
                self._asked.labels(self._tools.of(event.tool)).inc()
                self._pending.inc()
            case ApprovalEnded():
                self._answered.labels(self._tools.of(event.tool), str(event.outcome)).inc()
                self._pending.dec()
                self._approval_seconds.labels(str(event.outcome)).observe(event.seconds)
            case BoxMade():
                self._creation.observe(event.seconds)
            case PoolSeen():
                self._pool(event)
            case _:
                assert_never(event)

    def _execution(self, event: ExecutionEnded) -> None:
        tool = self._tools.of(event.tool)
        status = event.status
        self._executions.labels(tool, self._languages.of(event.language), str(status)).inc()
        if status is not Status.REFUSED:
            self._durations.labels(tool).observe(event.seconds)
        if event.result is not None:
            for violation in event.result.violations:
                self._violations.labels(tool, str(violation.kind)).inc(violation.count)

    def _pool(self, event: PoolSeen) -> None:
        now = {name: _sum(event.counts, name) for name in (*_PLACES, *_GROWING, "waiting", "max_instances")}
        before = self._pools.get(event.pool_id, {})
        if event.counts:
            self._pools[event.pool_id] = now
            for name in _GROWING:
                self._pool_growing[name].inc(max(0, now[name] - before.get(name, 0)))
        else:
            self._pools.pop(event.pool_id, None)
        pools = tuple(self._pools.values())
        for place in _PLACES:
            self._pool_size.labels(place).set(sum(pool[place] for pool in pools))
        self._pool_waiting.set(sum(pool["waiting"] for pool in pools))
        self._pool_max.set(sum(pool["max_instances"] for pool in pools))


def _sum(counts: tuple[PoolCounts, ...], name: str) -> int:
    return sum(getattr(count, name) for count in counts)


class _Capped:
    """The first so many values of a label that were seen; all others are one."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def of(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._most or not value.isprintable():
            return OTHER
        self._known.add(value)
        return value


class _Sandboxes:
    """The sandboxes that live now: a collector that asks each, when somebody scrapes, what it uses."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._usages: dict[str, Callable[[], Usage]] = {}

    def opened(self, sandbox_id: str, usage: Callable[[], Usage]) -> None:
        with self._lock:
            if len(self._usages) < MOST_SANDBOXES or sandbox_id in self._usages:
                self._usages[sandbox_id] = usage

    def closed(self, sandbox_id: str) -> None:
        with self._lock:
            self._usages.pop(sandbox_id, None)

    def describe(self) -> Iterator[Metric]:
        """What there will be; without it, registering would ask all sandboxes."""
        yield from self._families()

    def collect(self) -> Iterator[Metric]:
        memory, cpu = self._families()
        with self._lock:
            usages = dict(self._usages)
        for sandbox_id, ask in usages.items():
            try:
                usage = ask()
            except (OSError, RuntimeError):  # it is being closed, in another thread
                continue
            memory.add_metric((sandbox_id,), usage.peak_memory_bytes)
            cpu.add_metric((sandbox_id,), usage.cpu_seconds)
        yield memory
        yield cpu

    def _families(self) -> Any:
        from prometheus_client.core import GaugeMetricFamily

        return (
            GaugeMetricFamily(
                "sandbox_memory_usage_bytes",
                "The most that the sandbox's current or last command has used.",
                labels=NAMES["sandbox_memory_usage_bytes"],
            ),
            GaugeMetricFamily(
                "sandbox_cpu_usage_seconds",
                "CPU time that everything in the sandbox has used.",
                labels=NAMES["sandbox_cpu_usage_seconds"],
            ),
        )
