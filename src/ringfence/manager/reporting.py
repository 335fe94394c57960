"""Tells what happens: to the store of violations always, to observers if there are any.

Without observers an execution costs some tests of empty tuples here, and nothing else.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ringfence.approvals.ask import NOBODY
from ringfence.audit.violations import ViolationStore
from ringfence.dataclass import dataclass, field
from ringfence.deferred import deferred_module
from ringfence.values.principal import Principal

if TYPE_CHECKING:
    from ringfence.approvals.base import Approval
    from ringfence.audit import events
    from ringfence.audit.events import (
        Event,
        Observer,
        Outcome,
    )
    from ringfence.values.outcome import Result, Usage
    from ringfence.values.request import Request
    from ringfence.values.verdict import Decision
    from ringfence.values.violation import Violation
else:
    events = deferred_module("ringfence.audit.events")

_NEARLY = 0.98
"""Share of the time that a person was given, from which on no answer is for want of time; clocks are not exact."""
ABANDONED: Final = "abandoned"
_log = logging.getLogger("ringfence")


def tell(observers: tuple[Observer, ...], event: Event) -> None:
    """Call each of them; one that fails is logged."""
    for observer in observers:
        try:
            observer(event)
        except Exception:  # anybody's code; what was executed has been, whatever they make of it
            _log.exception("an observer failed on %s", type(event).__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """To whom a sandbox's executions are told, and on whose behalf they are done."""

    who: Principal = field(default_factory=lambda: Principal(sandbox_id=os.urandom(8).hex()))
    violations: ViolationStore = field(default_factory=ViolationStore)
    observers: tuple[Observer, ...] = ()

    @property
    def tool(self) -> str:
        return self.who.tool

    @property
    def session(self) -> str:
        return self.who.session_id or ""

    @property
    def sandbox_id(self) -> str:
        return self.who.sandbox_id or ""

    def begin(self, run_id: str, request: Request, decision: Decision) -> RunWatch:
        """Watch one execution; call `ended` or `failed` on what is returned."""
        return RunWatch(self, run_id, request, decision)

    def opened(self, usage: Callable[[], Usage]) -> None:
        if self.observers:
            tell(self.observers, events.SandboxOpened(sandbox_id=self.sandbox_id, session=self.session, usage=usage))

    def closed(self) -> None:
        if self.observers:
            tell(self.observers, events.SandboxClosed(sandbox_id=self.sandbox_id))


class RunWatch:
    """One execution, from its decision to its end."""

    __slots__ = ("_asked_seconds", "_began", "_decision", "_reporting", "_request", "_run_id", "_started_at")

    def __init__(self, reporting: Reporting, run_id: str, request: Request, decision: Decision) -> None:
        self._reporting = reporting
        self._run_id = run_id
        self._request = request
        self._decision = decision
        self._asked_seconds = 0.0
        self._began = time.monotonic()
        self._started_at = time.time()

    def ended(self, result: Result) -> None:
        about = self._reporting
        if result.violations:
            about.violations.record(result.violations, session=about.session, tool=about.tool, run_id=self._run_id)
        if about.observers:
            self._tell(result, "")

    def failed(self, code: str, violations: Sequence[Violation] = ()) -> None:
        about = self._reporting
        if violations:
            about.violations.record(tuple(violations), session=about.session, tool=about.tool, run_id=self._run_id)
        if self._reporting.observers:
            self._tell(None, code)

    def asked(self) -> float:
        """A person is asked from now on; returns the time, for `answered`."""
        if self._reporting.observers:
            tell(self._reporting.observers, events.ApprovalAsked(run_id=self._run_id, tool=self._reporting.tool))
        return time.monotonic()

    def answered(self, asked_at: float, approval: Approval | None, given_seconds: float) -> None:
        """There is an answer; None if nobody waits for one any more."""
        seconds = time.monotonic() - asked_at
        self._asked_seconds += seconds
        about = self._reporting
        if about.observers:
            outcome = outcome_of(approval, seconds, given_seconds)
            tell(
                about.observers,
                events.ApprovalEnded(run_id=self._run_id, tool=about.tool, outcome=outcome, seconds=seconds),
            )

    def _tell(self, result: Result | None, fault: str) -> None:
        about, request = self._reporting, self._request
        event = events.ExecutionEnded(
            run_id=self._run_id,
            session=about.session,
            sandbox_id=about.sandbox_id,
            tool=about.tool,
            language=request.language or ("program" if request.argv is not None else "bash"),
            verdict=self._decision.verdict.name.lower(),
            rule=self._decision.deciding.rule,
            started_at=self._started_at,
            seconds=time.monotonic() - self._began - self._asked_seconds,
            result=result,
            fault=fault,
        )
        tell(about.observers, event)


def outcome_of(approval: Approval | None, seconds: float, given_seconds: float) -> Outcome:
    """How questions were answered. Nobody's refusal is a time-out if the time was up, else nobody could be asked."""
    if approval is None:
        return events.Outcome.ABANDONED
    if approval.granted:
        return events.Outcome.REMEMBERED if approval.remembered else events.Outcome.GRANTED
    if approval.by != NOBODY:
        return events.Outcome.REFUSED
    return events.Outcome.TIMED_OUT if seconds >= given_seconds * _NEARLY else events.Outcome.FAILED
