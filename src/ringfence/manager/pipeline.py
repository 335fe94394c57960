"""One request, start to end. Read this file first.

request -> decide -> approve -> acquire -> execute -> collect -> audit -> result

Left of `acquire` is judgement: it looks at values and says yes or no, or has a person asked. Right of it is
enforcement: it obeys the grant and never judges. A box is acquired for the route that the decision has; what its wall
gives is compared with what the route needs before anything runs in it, whoever made it and when. The journal opens
before anything runs, with the decision, and closes after it, with the result; if it cannot be written, nothing runs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.approvals.ask import SessionMemory, ask
from ringfence.audit import record
from ringfence.audit.redact import Redactor, redactor
from ringfence.dataclass import dataclass, field, replace
from ringfence.deferred import deferred
from ringfence.engines.room import descriptor_room
from ringfence.errors import RingfenceError, SpawnFailed
from ringfence.manager.allowed import Allowed
from ringfence.manager.forming import as_run_by, check_form
from ringfence.manager.placing import place_of
from ringfence.manager.recording import RecordedExecution
from ringfence.manager.refusing import refusal, too_weak
from ringfence.manager.reporting import Reporting, RunWatch
from ringfence.manager.working_directory import Look, find_place, likely_place, no_box
from ringfence.policy.decide import Place, command_text, decide
from ringfence.policy.given import NOTHING_GIVEN, Given, given_to
from ringfence.policy.isolation import assess_given, isolation_of
from ringfence.values.outcome import Result, Signalled, TimedOut
from ringfence.values.principal import Principal
from ringfence.values.verdict import Decision, Verdict

if TYPE_CHECKING:
    from ringfence.approvals.base import Approval, ConfirmationService
    from ringfence.approvals.question import hash_request, make_question
    from ringfence.audit.journal import Journal
    from ringfence.engines.base import Process
    from ringfence.manager.leases import Lease, Open
    from ringfence.manager.leftovers import Call
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Wall
    from ringfence.values.request import Request
    from ringfence.values.risk import RouteDecision
    from ringfence.values.violation import Violation
else:
    hash_request = deferred("ringfence.approvals.question", "hash_request")
    make_question = deferred("ringfence.approvals.question", "make_question")

_ALLOWED_LENGTH = 1000
"""Of texts of which length decisions are remembered."""
Collect = Callable[[Result], Awaitable[Result]]
"""Adds to a result, before it is recorded, which files the run has written."""
Prepare = Callable[[], Awaitable[None]]
"""Called when a request may run and has its box, before it runs: files are put in."""
T = TypeVar("T")
_READ_AT_ONCE = 4000
"""Characters that are read in a few milliseconds; the longest that are read at all take a second or so."""
_HASHED_AT_ONCE = 1024 * 1024
"""Bytes that are hashed in a few milliseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What a request is judged by besides its grant, and who is asked."""

    terms: Terms | None = None
    confirmation: ConfirmationService | None = None
    who: Principal = field(default_factory=Principal)
    home: str = ""
    variables: tuple[tuple[str, str], ...] = ()
    """Those that whoever asks has set for all requests, and that are judged with each."""


class Pipeline:
    """The way of every request through one sandbox.

    Args:
        acquire: leases the box; a new one, if there is none yet, for where the request goes.
        standing: the wall that stands already, which a request cannot change.
        look: the box that stands already, to look for a directory that only it has; None if there is none.
        allowed: decisions of others, used and added to if they follow from the same.
    """

    def __init__(
        self,
        grant: Grant,
        journal: Journal,
        acquire: Open,
        judge: Judge | None = None,
        reporting: Reporting | None = None,
        standing: Callable[[], Wall | None] = lambda: None,
        look: Look = no_box,
        allowed: Allowed | None = None,
    ) -> None:
        self._grant = grant
        self._journal = journal
        self._acquire = acquire
        self._standing = standing
        self._look = look
        self._judge = judge or Judge()
        self._reporting = reporting or Reporting(who=self._judge.who)
        self._redact = redactor(tuple(journal.settings.redact), grant.env)
        self._who = record.without_secrets(self._judge.who, self._redact)
        self._memory = SessionMemory()
        terms, asks = self._judge.terms, self._judge.confirmation is not None
        fits = allowed is not None and allowed.holds_for(grant, terms, asks=asks)
        self._allowed = allowed if allowed is not None and fits else Allowed(grant, terms, asks=asks)
        self._isolates = self._judge.terms is not None and isolation_of(self._judge.terms) is not None
        self._reads = self._judge.terms is not None or self._judge.confirmation is not None
        """Whether anybody reads what runs before it does."""
        self.running = 0
        """Calls that are not over."""
        self.ended_at = 0.0
        """When the last one was, by the monotonic clock."""
        self._watchers: set[asyncio.Task[None]] = set()

    async def run(self, request: Request, collect: Collect | None = None, prepare: Prepare | None = None) -> Result:
        """Run one request, or say why not.

        Args:
            collect: adds to the result, before it is recorded.
            prepare: called when it may run and has its box, before it does.

        Raises:
            CommandNotAllowed, PathAccessDenied, InvalidArgument: the request itself makes no sense.
            PermissionDenied: the journal cannot be written.
            InitializationFailed, SpawnFailed, Internal: from the engine.
        """
        self.running += 1
        room = descriptor_room()
        room.call_begins()
        try:
            request, execution, decision = await self._begin(request)
            with execution:
                result = await self._approve(request, decision, execution)
                if result is None:
                    result = await self._execute(request, decision, execution, prepare)
                if collect is not None:
                    result = await collect(result)
                return execution.end(result, files_collected=collect is not None)
        finally:
            room.call_ends()
            self.running -= 1
            self.ended_at = time.monotonic()

    async def start(self, request: Request, terminal: tuple[int, int] | None) -> Process:
        """Start a command that goes on; its record is closed when it ends.

        Raises:
            CommandNotAllowed: it was refused; what `run` raises.
        """
        request, execution, decision = await self._begin(request, {"background": True})
        with execution:
            refused = await self._approve(request, decision, execution)
            if refused is None:
                lease = await self._lease(request, decision, execution)
                refused = too_weak(decision, lease.box)
            if refused is not None:
                execution.end(refused, files_collected=False)
                refused.check()
            lease.leftovers.started(lease.box)
            process = await lease.box.start(request, terminal=terminal)
        watcher = asyncio.get_running_loop().create_task(_record_end(process, execution))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return process

    async def _begin(
        self, request: Request, more: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[Request, RecordedExecution, Decision]:
        """Decide, and write the decision down. Returns the request with its directory resolved."""
        check_form(request)
        place = await find_place(request.cwd, self._grant, self._judge.home, self._look)
        decision = await self._decided(request, place)
        if request.cwd is not None:
            request = replace(request, cwd=place.cwd)
        redact = self._redact.knowing(request.env)
        opened = await self._opened(request, decision, place, redact)
        execution = RecordedExecution(self._journal, self._reporting, redact, request, decision, opened | dict(more))
        return request, execution, decision

    def place(self, request: Request) -> Place:
        """Where a request would run, as far as the host knows.

        Raises:
            FileError: there is no such directory, or it cannot be entered.
        """
        return likely_place(request.cwd, self._grant, self._judge.home)

    def decide(self, request: Request, place: Place) -> Decision:
        """All votes on a request, as things stand now."""
        return self._decide(request, place, self._given(request))

    def _given(self, request: Request) -> Given:
        """Its input and variables, where somebody reads them."""
        return given_to(request, self._judge.variables) if self._reads else NOTHING_GIVEN

    def _decide(self, request: Request, place: Place, given: Given) -> Decision:
        return decide(
            request,
            self._grant,
            place,
            self._judge.terms,
            language=request.language,
            wall=self._standing(),
            given=given,
            asks_for_critical=self._judge.confirmation is not None,
        )

    async def _decided(self, request: Request, place: Place) -> Decision:
        """Grant and terms stay as long as the sandbox, and an agent runs the same short lines again and again: what was
        allowed once is not judged anew. Where risk chooses the wall, more than the line counts, and everything is."""
        text, given = command_text(request), self._given(request)
        key = (text, place, request.language, given)
        decision = self._allowed.get(key)
        if decision is not None:
            return decision
        length = len(text) + given.length
        decision = await without_blocking(length if self._reads else 0, lambda: self._decide(request, place, given))
        if decision.verdict is Verdict.ALLOW and length <= _ALLOWED_LENGTH and not self._isolates:
            self._allowed.keep(key, decision)
        return decision

    async def _approve(self, request: Request, decision: Decision, execution: RecordedExecution) -> Result | None:
        """Ask a person where the decision is to ask, and somebody can be asked; why it does not run, if it does not."""
        service = self._judge.confirmation
        if decision.verdict is Verdict.ASK and service is not None:
            execution.approval = await self._ask(service, request, decision, execution.watch)
        return refusal(request, decision, execution.approval)

    async def _ask(
        self, service: ConfirmationService, request: Request, decision: Decision, watch: RunWatch
    ) -> Approval | None:
        seconds = decision.asking.timeout_seconds
        assessment = decision.assessment or assess_given(
            request.language or "bash", decision.text, self._given(request)
        )
        question = make_question(
            request,
            decision,
            session=self._judge.who.session_id or "",
            seconds=seconds,
            risk=assessment.risk,
            spans=tuple(reason.span for reason in decision.reasons if reason.verdict is Verdict.ASK and reason.span),
            may_remember=decision.asking.remember_session,
            variables=self._judge.variables,
        )
        asked_at = watch.asked()
        approval = None
        try:
            approval = await ask(service, question, seconds, memory=self._memory)
        finally:
            watch.answered(asked_at, approval, seconds)
        return approval

    async def _execute(
        self,
        request: Request,
        decision: Decision,
        execution: RecordedExecution,
        prepare: Prepare | None,
    ) -> Result:
        """Run it. If it comes to no result, what it was refused and what it left behind is kept in the record."""
        lease = await self._lease(request, decision, execution)
        box = lease.box
        if (weak := too_weak(decision, box)) is not None:
            return weak
        if prepare is not None:
            await prepare()
        asked = as_run_by(box, request)
        call = lease.leftovers.begin(box, request)
        try:
            result = await box.run(asked)
        except BaseException as fault:
            execution.lost += await self._salvaged(lease, asked, call, fault)
            raise
        found = await lease.leftovers.look(box, call, result.observed)
        if found:
            result = replace(result, violations=(*result.violations, *found))
        return _noted(_placed(result, lease.grant), decision.routed, request, lease.grant)

    async def _lease(self, request: Request, decision: Decision, execution: RecordedExecution) -> Lease:
        """The box, for where the request goes."""
        lease = await self._acquire(decision.routed)
        execution.runs_with(lease.grant)
        if lease.grant.workspace != self._grant.workspace:  # judged before there was one
            if self._memory:  # hashing all that is granted takes longer than many a call
                old, new = hash_request(request, self._grant), hash_request(request, lease.grant)
                self._memory.rename(self._judge.who.session_id or "", old, new)
            self._grant = lease.grant
            self._allowed = Allowed(lease.grant, self._judge.terms, asks=self._judge.confirmation is not None)
        return lease

    async def _salvaged(
        self, lease: Lease, request: Request, call: Call, fault: BaseException
    ) -> tuple[Violation, ...]:
        """A command that ends its box, or whose caller gives up, is looked at like any other."""
        refused, seen = lease.box.last_seen(request)
        found = await lease.leftovers.look(lease.box, call, seen if isinstance(fault, SpawnFailed) else None)
        result = Result(ending=Signalled(signal.SIGKILL), violations=(*refused, *found))
        return _placed(result, lease.grant).violations

    async def look_last(self, lease: Lease) -> None:
        """A box is gone: look at what was left in it after the last call, and write down what is found."""
        found = await lease.leftovers.look_last(lease.box)
        if not found:
            return
        run_id = os.urandom(8).hex()
        about = self._reporting
        about.violations.record(found, session=about.session, tool=about.tool, run_id=run_id)
        workspace = os.fspath(lease.grant.workspace)
        entry = self._journal.open(run_id, record.closing(workspace, self._who, self._redact))
        entry.close(record.left_behind(found, self._redact))

    async def _opened(self, request: Request, decision: Decision, place: Place, redact: Redactor) -> dict[str, Any]:
        """What is recorded before it runs; a long input is hashed in a thread."""
        length = len(request.stdin) if isinstance(request.stdin, bytes) else 0
        words = (request, decision, place.cwd, self._who, redact, self._judge.variables)
        return record.opened(*words) if length <= _HASHED_AT_ONCE else await asyncio.to_thread(record.opened, *words)

    async def finish(self) -> None:
        """Wait until the records of all that went on are closed; called when the box is gone, from whatever loop."""
        here = asyncio.get_running_loop()
        for watcher in tuple(self._watchers):
            loop = watcher.get_loop()
            if loop is here:
                await asyncio.wait((watcher,))
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_until_done(watcher), loop))


async def without_blocking(length: int, judge: Callable[[], T]) -> T:
    """Judge a text; a long one in a thread, so that nobody else has to wait while it is read."""
    return judge() if length <= _READ_AT_ONCE else await asyncio.to_thread(judge)


async def _until_done(task: asyncio.Task[None]) -> None:
    await asyncio.wait((task,))


async def _record_end(process: Process, execution: RecordedExecution) -> None:
    try:
        execution.end(await process.wait_end(), files_collected=False)
    except RingfenceError as fault:
        execution.fail(fault)
    except asyncio.CancelledError as fault:  # the loop is being closed before the sandbox is
        execution.fail(fault)
        raise


def _placed(result: Result, grant: Grant) -> Result:
    """With the file and line of each rule that the wall refused by."""
    if not result.violations:
        return result
    found = (each if each.place else replace(each, place=place_of(each, grant)) for each in result.violations)
    return replace(result, violations=tuple(found))


def _noted(result: Result, routed: RouteDecision | None, request: Request, grant: Grant) -> Result:
    """With why it ran behind this wall, where its risk chose it; and with what allowed it no more time."""
    if isinstance(result.ending, TimedOut) and (request.timeout or float("inf")) > grant.limits.wall_seconds:
        result = replace(result, ending=replace(result.ending, capped_by=grant.wall_capped_by))
    if routed is None or result.wall is None:
        return result
    return replace(result, wall=replace(result.wall, notes=(*result.wall.notes, routed.why)))
