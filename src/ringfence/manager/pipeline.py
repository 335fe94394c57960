"""One request, start to end. Read this file first.

request -> decide -> approve -> acquire -> execute -> collect -> audit -> result

Left of `acquire` is judgement: it looks at values and says yes or no, or has a person asked. Right of it is
enforcement: it obeys the grant and never judges. The journal opens before anything runs, with the decision, and closes
after it, with the result; if it cannot be written, nothing runs.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringfence.approvals.ask import SessionMemory, ask
from ringfence.approvals.base import Approval, ConfirmationService
from ringfence.approvals.question import hash_request, make_question
from ringfence.audit.journal import Entry, Journal
from ringfence.engines.base import Box, Process
from ringfence.errors import CommandNotAllowed, InvalidConfig, PathAccessDenied, RingfenceError, SpawnFailed
from ringfence.languages.registry import find as find_language
from ringfence.languages.registry import invocation
from ringfence.manager.environment import check_variables
from ringfence.manager.reporting import ABANDONED, Reporting, Watch
from ringfence.policy.config import is_encodable
from ringfence.policy.decide import Place, decide
from ringfence.policy.risk.assess import assess
from ringfence.policy.terms import Terms
from ringfence.policy.violating import violation_of
from ringfence.values.grant import Grant
from ringfence.values.outcome import Refused, Result
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Verdict

_COMMAND_SHOWN = 4096
"""Characters of a command that the journal keeps as text; its hash covers all of it."""

_VOTES_KEPT = 20
"""Votes that the journal keeps; a command of thousands of parts must not fill the disk."""

_VIOLATIONS_KEPT = 100
"""Violations that the journal keeps of one run; `violations_dropped` counts the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """What a request is judged by besides its grant, and who is asked."""

    terms: Terms | None = None
    confirmation: ConfirmationService | None = None
    session: str = ""
    home: str = ""


class Pipeline:
    def __init__(
        self,
        grant: Grant,
        journal: Journal,
        acquire: Callable[[], Awaitable[Box]],
        judge: Judge | None = None,
        reporting: Reporting | None = None,
    ) -> None:
        self._grant = grant
        self._journal = journal
        self._acquire = acquire
        self._judge = judge or Judge()
        self._reporting = reporting or Reporting()
        self._memory = SessionMemory()
        self.running = 0
        """Calls that are not over."""
        self.ended_at = 0.0
        """When the last one was, by the monotonic clock."""
        self._watchers: set[asyncio.Task[None]] = set()

    async def run(self, request: Request) -> Result:
        """Run one request, or say why not; see `_run`, which is the whole way."""
        self.running += 1
        try:
            return await self._run(request)
        finally:
            self.running -= 1
            self.ended_at = time.monotonic()

    async def _run(self, request: Request) -> Result:
        """Run one request, or say why not.

        Raises:
            CommandNotAllowed, PathAccessDenied, InvalidConfig: the request itself makes no sense.
            PermissionDenied: the journal cannot be written.
            InitializationFailed, SpawnFailed, Internal: from the engine.
        """
        check_form(request)
        run_id = os.urandom(8).hex()
        place = self.place(request)
        decision = decide(request, self._grant, place, self._judge.terms, language=request.language)
        if request.cwd is not None:
            request = replace(request, cwd=place.cwd)
        entry = self._journal.open(run_id, _opened(request, decision, place))
        watch = self._reporting.begin(run_id, request, decision)
        try:
            approval = await self._approve(request, decision, watch)
            result = await self._execute(request, decision, approval)
        except RingfenceError as fault:
            watch.failed(fault.code)
            entry.close({"ending": "fault", "code": fault.code, "message": fault.message})
            raise
        except BaseException as fault:
            watch.failed(ABANDONED)
            entry.close({"ending": "abandoned", "message": type(fault).__name__})
            raise
        watch.ended(result)
        entry.close(_ended(result) | _approved(approval))
        return replace(result, run_id=run_id)

    def place(self, request: Request) -> Place:
        """Where a request would run.

        Raises:
            PathAccessDenied: there is no such directory, or we may not enter it.
        """
        return Place(_resolved_cwd(request, self._grant), self._judge.home)

    async def _approve(self, request: Request, decision: Decision, watch: Watch) -> Approval | None:
        """Ask a person where the decision is to ask, and somebody can be asked."""
        service = self._judge.confirmation
        if decision.verdict is not Verdict.ASK or service is None:
            return None
        seconds = decision.asking.timeout_seconds
        question = make_question(
            request,
            decision,
            session=self._judge.session,
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
        box = await self._acquire()
        return await box.run(as_run_by(box, request))

    async def start(self, request: Request, terminal: tuple[int, int] | None) -> Process:
        """Start a command that goes on; its record is closed when it ends.

        Raises:
            CommandNotAllowed: it was refused; what `run` raises.
        """
        check_form(request)
        run_id = os.urandom(8).hex()
        place = self.place(request)
        decision = decide(request, self._grant, place, self._judge.terms)
        request = replace(request, cwd=place.cwd)
        entry = self._journal.open(run_id, _opened(request, decision, place) | {"background": True})
        watch = self._reporting.begin(run_id, request, decision)
        refusal: Result | None = None
        try:
            approval = await self._approve(request, decision, watch)
            refusal = _refusal(request, decision, approval)
            if refusal is not None:
                refusal.check()
            box = await self._acquire()
            process = await box.start(request, terminal=terminal)
        except RingfenceError as fault:
            if refusal is not None:
                watch.ended(refusal)
                entry.close(_ended(refusal) | _approved(approval))
            else:
                watch.failed(fault.code)
                entry.close({"ending": "fault", "code": fault.code, "message": fault.message})
            raise
        except BaseException as fault:
            watch.failed(ABANDONED)
            entry.close({"ending": "abandoned", "message": type(fault).__name__})
            raise
        watcher = asyncio.get_running_loop().create_task(_record_end(process, entry, approval, watch))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)
        return process

    async def finish(self) -> None:
        """Wait until the records of all that went on are closed; called when the box is gone."""
        if self._watchers:
            await asyncio.wait(self._watchers)


async def _record_end(process: Process, entry: Entry, approval: Approval | None, watch: Watch) -> None:
    try:
        result = await process.wait()
        if result is not None:
            watch.ended(result)
        entry.close((_ended(result) if result is not None else {}) | _approved(approval))
    except RingfenceError as fault:
        watch.failed(fault.code)
        entry.close({"ending": "fault", "code": fault.code, "message": fault.message} | _approved(approval))


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
    violation = violation_of(decision, reason, why, time.time())
    return Result(ending=Refused(why, reason.place, reason.allow_by), violations=(violation,))


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


def _opened(request: Request, decision: Decision, place: Place) -> dict[str, Any]:
    shown = request.shown
    return {
        "command": shown[:_COMMAND_SHOWN],
        "command_sha256": hashlib.sha256(os.fsencode(shown)).hexdigest(),
        "language": request.language,
        "cwd": os.fspath(place.cwd),
        "workspace": os.fspath(decision.grant.workspace),
        "verdict": decision.verdict.name.lower(),
        "rule": decision.deciding.rule,
        "why": decision.deciding.why,
        "votes": [str(vote) for vote in decision.reasons if vote.verdict is not Verdict.ALLOW][:_VOTES_KEPT],
    }


def _approved(approval: Approval | None) -> dict[str, Any]:
    if approval is None:
        return {}
    return {
        "approval": {
            "granted": approval.granted,
            "by": approval.by,
            "how": approval.how,
            "remembered": approval.remembered,
            "request_hash": approval.request_hash,
        }
    }


def _ended(result: Result) -> dict[str, Any]:
    wall, usage = result.wall, result.usage
    return {
        "ending": str(result.ending),
        "exit_code": result.exit_code,
        "wall": wall.name if wall else None,
        "limits_by": list(wall.limits_by) if wall else [],
        "wall_seconds": round(usage.wall_seconds, 6),
        "cpu_seconds": round(usage.cpu_seconds, 6),
        "peak_memory_bytes": usage.peak_memory_bytes,
        "stdout_bytes": len(result.stdout_bytes) + result.stdout_dropped,
        "stderr_bytes": len(result.stderr_bytes) + result.stderr_dropped,
        "error": str(result.error)[:_COMMAND_SHOWN] if result.error is not None else None,
        "violations": [violation.as_record() for violation in result.violations[:_VIOLATIONS_KEPT]],
        "violations_dropped": max(0, len(result.violations) - _VIOLATIONS_KEPT),
    }
