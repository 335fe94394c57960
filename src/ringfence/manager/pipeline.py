"""One request, start to end. Read this file first.

request -> decide -> approve -> acquire -> execute -> collect -> audit -> result

Left of `acquire` is judgement: it looks at values and says yes or no, or has a person asked. Right of it is
enforcement: it obeys the grant and never judges. A box is acquired for the route that the decision has; what its wall
gives is compared with what the route needs before anything runs in it, whoever made it and when. The journal opens
before anything runs, with the decision, and closes after it, with the result; if it cannot be written, nothing runs.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from ringfence.approvals.ask import SessionMemory, ask
from ringfence.approvals.base import Approval, ConfirmationService
from ringfence.approvals.question import hash_request, make_question
from ringfence.audit import record
from ringfence.audit.journal import Entry, Journal
from ringfence.audit.redact import Redactor
from ringfence.engines.base import Box, Process
from ringfence.errors import CommandNotAllowed, InvalidConfig, PathAccessDenied, RingfenceError, SpawnFailed
from ringfence.languages.registry import find as find_language
from ringfence.languages.registry import invocation
from ringfence.manager.environment import check_variables
from ringfence.manager.leavings import begin_ns, find_leavings, may_have_left
from ringfence.manager.placing import place_of
from ringfence.manager.reporting import ABANDONED, Reporting, Watch
from ringfence.policy.config import is_encodable
from ringfence.policy.decide import Place, command_text, decide
from ringfence.policy.isolation import isolation_of, on_wall
from ringfence.policy.risk.assess import assess
from ringfence.policy.terms import Terms
from ringfence.policy.violating import violation_of
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.outcome import Refused, Result
from ringfence.values.request import Request
from ringfence.values.risk import Routed
from ringfence.values.verdict import Decision, Reason, Verdict
from ringfence.values.who import Who

_ALLOWED_KEPT = 256
_ALLOWED_LENGTH = 1000
"""How many decisions are remembered, and of texts of which length."""
Collect = Callable[[Result], Awaitable[Result]]
"""Adds to a result, before it is recorded, which files the run has written."""
T = TypeVar("T")
_READ_AT_ONCE = 4000
"""Characters that are read in a few milliseconds; the longest that are read at all take a second or so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What a request is judged by besides its grant, and who is asked."""

    terms: Terms | None = None
    confirmation: ConfirmationService | None = None
    who: Who = field(default_factory=Who)
    home: str = ""
    variables: tuple[str, ...] = ()
    """Names of those that whoever asks has set for all requests, and that count for their risk."""


class Pipeline:
    """The way of every request through one sandbox.

    Args:
        acquire: gives the box; a new one, if there is none yet, for where the request goes.
        standing: the wall that stands already, which a request cannot change.
    """

    def __init__(
        self,
        grant: Grant,
        journal: Journal,
        acquire: Callable[[Routed | None], Awaitable[Box]],
        judge: Judge | None = None,
        reporting: Reporting | None = None,
        standing: Callable[[], Wall | None] = lambda: None,
    ) -> None:
        self._grant = grant
        self._journal = journal
        self._acquire = acquire
        self._standing = standing
        self._judge = judge or Judge()
        self._reporting = reporting or Reporting(who=self._judge.who)
        self._workspace = os.fspath(grant.workspace)
        self._redact = Redactor(journal.settings.redact, grant.env)
        self._who = record.without_secrets(self._judge.who, self._redact)
        self._memory = SessionMemory()
        self._allowed: dict[tuple[str, Place, str | None], Decision] = {}
        """Decisions to allow, by text, place and language; the oldest first."""
        self._isolates = self._judge.terms is not None and isolation_of(self._judge.terms) is not None
        self.running = 0
        """Calls that are not over."""
        self.ended_at = 0.0
        """When the last one was, by the monotonic clock."""
        self._watchers: set[asyncio.Task[None]] = set()

    async def run(self, request: Request, collect: Collect | None = None) -> Result:
        """Run one request, or say why not; see `_run`, which is the whole way."""
        self.running += 1
        try:
            return await self._run(request, collect)
        finally:
            self.running -= 1
            self.ended_at = time.monotonic()

    async def _run(self, request: Request, collect: Collect | None) -> Result:
        """Run one request, or say why not.

        Raises:
            CommandNotAllowed, PathAccessDenied, InvalidConfig: the request itself makes no sense.
            PermissionDenied: the journal cannot be written.
            InitializationFailed, SpawnFailed, Internal: from the engine.
        """
        check_form(request)
        run_id = os.urandom(8).hex()
        place = self.place(request)
        decision = await self._decided(request, place)
        if request.cwd is not None:
            request = replace(request, cwd=place.cwd)
        redact = self._redact.knowing(request.env)
        opened = record.opened(request, decision, place.cwd, self._who, redact)
        entry = self._journal.open(run_id, opened | _routed(decision, redact))
        watch = self._reporting.begin(run_id, request, decision)
        approval = None
        try:
            approval = await self._approve(request, decision, watch)
            result = await self._execute(request, decision, approval)
            if collect is not None:
                result = await collect(result)
        except BaseException as fault:
            watch.failed(fault.code if isinstance(fault, RingfenceError) else ABANDONED)
            entry.close(record.failed(fault, redact) | _approved(approval, redact))
            raise
        watch.ended(result)
        ended = record.ended(result, redact, files_collected=collect is not None, workspace=self._workspace)
        entry.close(ended | _approved(approval, redact))
        return replace(result, run_id=run_id)

    def place(self, request: Request) -> Place:
        """Where a request would run.

        Raises:
            PathAccessDenied: there is no such directory, or we may not enter it.
        """
        return Place(_resolved_cwd(request, self._grant), self._judge.home)

    def decide(self, request: Request, place: Place) -> Decision:
        """All votes on a request, as things stand now."""
        terms, wall = self._judge.terms, self._standing()
        variables = self._judge.variables
        return decide(request, self._grant, place, terms, language=request.language, wall=wall, variables=variables)

    async def _decided(self, request: Request, place: Place) -> Decision:
        """Grant and terms stay as long as the sandbox, and an agent runs the same short lines again and again: what was
        allowed once is not judged anew. Where risk chooses the wall, more than the line counts, and everything is."""
        text = command_text(request)
        key = (text, place, request.language)
        decision = self._allowed.get(key)
        if decision is not None:
            return decision
        read = text if self._judge.terms is not None else ""  # without a policy, nobody reads it
        decision = await without_blocking(read, lambda: self.decide(request, place))
        if decision.verdict is Verdict.ALLOW and len(text) <= _ALLOWED_LENGTH and not self._isolates:
            if len(self._allowed) >= _ALLOWED_KEPT:
                del self._allowed[next(iter(self._allowed))]
            self._allowed[key] = decision
        return decision

    async def _approve(self, request: Request, decision: Decision, watch: Watch) -> Approval | None:
        """Ask a person where the decision is to ask, and somebody can be asked."""
        service = self._judge.confirmation
        if decision.verdict is not Verdict.ASK or service is None:
            return None
        seconds = decision.asking.timeout_seconds
        question = make_question(
            request,
            decision,
            session=self._judge.who.session_id or "",
            seconds=seconds,
            risk=assess(request.language or "bash", request.shown).risk,
            spans=tuple(reason.span for reason in decision.reasons if reason.verdict is Verdict.ASK and reason.span),
            may_remember=decision.asking.remember_session,
        )
        asked_at = watch.asked()
        approval = None
        try:
            approval = await ask(service, question, seconds, memory=self._memory)
        finally:
            watch.answered(asked_at, approval, seconds)
        return approval

    async def _execute(self, request: Request, decision: Decision, approval: Approval | None) -> Result:
        refusal = _refusal(request, decision, approval)
        if refusal is not None:
            return refusal
        box = await self._acquire(decision.routed)
        if (weak := _too_weak(decision, box)) is not None:
            return weak
        begin = begin_ns()
        result = await box.run(as_run_by(box, request))
        if may_have_left(self._grant, result):
            left = await find_leavings(self._grant, result, begin)
            if left:
                result = replace(result, violations=(*result.violations, *left))
        return _noted(self._placed(result), decision.routed)

    def _placed(self, result: Result) -> Result:
        """With the file and line of each rule that the wall refused by."""
        if not result.violations:
            return result
        found = (each if each.place else replace(each, place=place_of(each, self._grant)) for each in result.violations)
        return replace(result, violations=tuple(found))

    async def start(self, request: Request, terminal: tuple[int, int] | None) -> Process:
        """Start a command that goes on; its record is closed when it ends.

        Raises:
            CommandNotAllowed: it was refused; what `run` raises.
        """
        check_form(request)
        run_id = os.urandom(8).hex()
        place = self.place(request)
        decision = await self._decided(request, place)
        request = replace(request, cwd=place.cwd)
        redact = self._redact.knowing(request.env)
        opened = record.opened(request, decision, place.cwd, self._who, redact)
        entry = self._journal.open(run_id, opened | _routed(decision, redact) | {"background": True})
        watch = self._reporting.begin(run_id, request, decision)
        approval = None
        try:
            approval = await self._approve(request, decision, watch)
            refusal = _refusal(request, decision, approval)
            if refusal is None:
                box = await self._acquire(decision.routed)
                refusal = _too_weak(decision, box)
            if refusal is None:
                process = await box.start(request, terminal=terminal)
        except BaseException as fault:
            watch.failed(fault.code if isinstance(fault, RingfenceError) else ABANDONED)
            entry.close(record.failed(fault, redact) | _approved(approval, redact))
            raise
        if refusal is not None:
            watch.ended(refusal)
            entry.close(record.ended(refusal, redact, files_collected=False) | _approved(approval, redact))
            refusal.check()
        watcher = asyncio.get_running_loop().create_task(_record_end(process, entry, approval, redact, watch))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return process

    async def finish(self) -> None:
        """Wait until the records of all that went on are closed; called when the box is gone."""
        if self._watchers:
            await asyncio.wait(self._watchers)


async def without_blocking(text: str, judge: Callable[[], T]) -> T:
    """Judge a text; a long one in a thread, so that nobody else has to wait while it is read."""
    return judge() if len(text) <= _READ_AT_ONCE else await asyncio.to_thread(judge)


async def _record_end(
    process: Process, entry: Entry, approval: Approval | None, redact: Redactor, watch: Watch
) -> None:
    try:
        result = await process.wait()
        assert result is not None, "without a timeout it waits for the end"
        watch.ended(result)
        ended = record.ended(result, redact, files_collected=False)
    except RingfenceError as fault:
        watch.failed(fault.code)
        ended = record.failed(fault, redact)
    entry.close(ended | _approved(approval, redact))


def as_run_by(box: Box, request: Request) -> Request:
    """The request as this box takes it: code goes to an interpreter of its own, or to a program of its language.

    Raises:
        InvalidConfig: there is no such language, or the code makes no sense in it.
        SpawnFailed: its interpreter is not there; says how to get it.
    """
    if request.code is None or request.language is None or request.language in box.interprets:
        return request
    language = find_language(request.language)
    program = box.find_program(language.programs)
    if program is None:
        raise SpawnFailed(language.programs[0], f"there is no {language.name} in the box", hint=language.install)
    made = invocation(language, request.code, program)
    stdin = request.stdin if made.stdin is None else made.stdin
    return replace(request, code=None, context=None, argv=made.argv, stdin=stdin)


def _refusal(request: Request, decision: Decision, approval: Approval | None) -> Result | None:
    """Why it does not run; None if it may: because the decision says so, or because exactly this was approved."""
    reason = decision.deciding
    match decision.verdict:
        case Verdict.ALLOW:
            return None
        case Verdict.ASK if approval is not None and approval.covers(hash_request(request, decision.grant)):
            return None
        case Verdict.ASK if approval is not None:
            why = f"{reason.why}; {approval.by} did not say yes ({approval.how})"
        case Verdict.ASK:
            why = f"{reason.why}; a person has to say yes, and there is nobody to ask"
            other = "" if reason.allow_by.startswith("a person's yes") else f", or {reason.allow_by}"
            where = f"run it where somebody can be asked: at a terminal, or with Sandbox(confirmation=...){other}"
            reason = replace(reason, allow_by=where)
        case Verdict.DENY:
            why = reason.why
    return _refused(decision, reason, why)


def _too_weak(decision: Decision, box: Box) -> Result | None:
    """Why it does not run in this box: another call chose its wall while this one waited; None if it may."""
    against = on_wall(decision.routed, box.wall)
    return _refused(decision, against, against.why) if against is not None else None


def _refused(decision: Decision, reason: Reason, why: str) -> Result:
    violation = violation_of(decision, reason, why, time.time())
    return Result(ending=Refused(why, reason.place, reason.allow_by), violations=(violation,))


def _noted(result: Result, routed: Routed | None) -> Result:
    """With why it ran behind this wall, where its risk chose it."""
    if routed is None or result.wall is None:
        return result
    return replace(result, wall=replace(result.wall, notes=(*result.wall.notes, routed.why)))


def check_form(request: Request) -> None:
    """Refuse what no wall and no policy could make sense of.

    Raises:
        CommandNotAllowed: empty, or with a NUL byte, which would end it early without a word.
        InvalidConfig: a variable or a time that cannot be.
    """
    text = request.command if request.command is not None else request.code
    words = (text,) if text is not None else request.argv or ()
    if not words or not words[0].strip():
        raise CommandNotAllowed("the command is empty", hint="say what to run")
    for word in words:
        if "\0" in word:
            raise CommandNotAllowed("the command holds a NUL byte", command=word, hint="remove it")
        if not is_encodable(word):
            raise CommandNotAllowed("the command holds half a character", hint="give it as proper Unicode")
    check_variables(request.env)
    if request.timeout is not None and not request.timeout > 0:
        raise InvalidConfig(
            f"a timeout of {request.timeout!r} s is not above zero", hint="leave it out for the default"
        )


def _resolved_cwd(request: Request, grant: Grant) -> Path:
    """Where it runs, with links resolved: `/workspace` is the workspace, a relative path starts there.

    Raises:
        PathAccessDenied: there is no such directory, or we may not enter it.
    """
    if request.cwd is None:
        return grant.workspace
    given = Path(request.cwd)
    if "\0" in os.fspath(given) or not is_encodable(os.fspath(given)):
        raise PathAccessDenied(os.fspath(given), "a working directory with a NUL byte or half a character")
    if given.parts[:2] == ("/", "workspace") != grant.workspace.parts[:2]:
        given = grant.workspace.joinpath(*given.parts[2:])
    path = grant.workspace / given
    try:
        real = path.resolve(strict=True)
        if not real.is_dir():
            raise PathAccessDenied(os.fspath(given), "the working directory is not a directory")
        os.close(os.open(real, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except (OSError, RuntimeError) as fault:
        why = getattr(fault, "strerror", None) or "a loop of links"
        raise PathAccessDenied(
            os.fspath(given), f"the working directory cannot be used: {why}", hint="give an existing directory"
        ) from fault
    return real


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
