"""One execution in the journal and for observers: written down before it may run, and again when it is over."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ringfence.audit import record
from ringfence.dataclass import replace
from ringfence.errors import RingfenceError
from ringfence.manager.reporting import ABANDONED, Reporting, RunWatch

if TYPE_CHECKING:
    from ringfence.approvals.base import Approval
    from ringfence.audit.journal import Entry, Journal
    from ringfence.audit.redact import Redactor
    from ringfence.values.grant import Grant
    from ringfence.values.outcome import Result
    from ringfence.values.request import Request
    from ringfence.values.verdict import Decision
    from ringfence.values.violation import Violation


class RecordedExecution:
    """A context manager: what is raised within is written down as how it ended, unless it has ended already.

        with RecordedExecution(journal, reporting, redact, request, decision, opened) as execution:
            execution.approval = ...
            execution.end(result, files_collected=False)

    Args:
        opened: what is known before it runs.

    Raises:
        PermissionDenied: the journal cannot be written, so that nothing may run.
    """

    def __init__(
        self,
        journal: Journal,
        reporting: Reporting,
        redact: Redactor,
        request: Request,
        decision: Decision,
        opened: dict[str, Any],
    ) -> None:
        self.run_id = os.urandom(8).hex()
        self._redact = redact
        self._judged_in = decision.grant.workspace
        self._entry: Entry = journal.open(self.run_id, opened | _routed(decision, redact))
        self.watch: RunWatch = reporting.begin(self.run_id, request, decision)
        self.approval: Approval | None = None
        self.lost: list[Violation] = []
        """What was refused, and left behind, if it comes to no result."""
        self._grant: Grant | None = None
        self._is_over = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if fault is not None and not self._is_over:
            if isinstance(fault, RingfenceError):
                fault.violations = tuple(self.lost)
            self.fail(fault)

    def runs_with(self, grant: Grant) -> None:
        """A box was acquired: what it was made with."""
        self._grant = grant

    def end(self, result: Result, *, files_collected: bool) -> Result:
        """It has a result, or was refused; returns that with the name of its record."""
        self._is_over = True
        self.watch.ended(result)
        workspace = self._grant.workspace if self._grant is not None else self._judged_in
        ended = record.ended(result, self._redact, files_collected=files_collected, workspace=os.fspath(workspace))
        self._close(ended)
        return replace(result, run_id=self.run_id)

    def fail(self, fault: BaseException) -> None:
        """It came to no result."""
        self._is_over = True
        self.watch.failed(fault.code if isinstance(fault, RingfenceError) else ABANDONED, self.lost)
        self._close(record.failed(fault, self._redact, self.lost))

    def _close(self, fields: dict[str, Any]) -> None:
        if self._grant is not None and self._grant.workspace != self._judged_in:
            # It was judged before there was a box, and so a workspace.
            place = self._redact.name(os.fspath(self._grant.workspace))
            fields = fields | {"workspace": place, "cwd": place}
        self._entry.close(fields | _approved(self.approval, self._redact))


def _routed(decision: Decision, redact: Redactor) -> dict[str, Any]:
    """Where it goes and why, for the record; words of the code may be in it."""
    routed = decision.routed
    return {} if routed is None else {"route": routed.route.name.lower(), "route_why": redact.text(routed.why)}


def _approved(approval: Approval | None, redact: Redactor) -> dict[str, Any]:
    if approval is None:
        return {}
    said = {
        "granted": approval.granted,
        "by": redact.text(approval.by),
        "how": redact.text(approval.how),
        "remembered": approval.remembered,
        "request_hash": approval.request_hash,
    }
    return {"approval": said}
