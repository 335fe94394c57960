"""One request, start to end. Read this file first.

request -> decide -> acquire -> execute -> collect -> audit -> result

Left of `acquire` is judgement: it looks at values and says yes or no. Right of it is enforcement: it obeys the grant
and never judges. The journal opens before anything runs, with the decision, and closes after it, with the result; if
it cannot be written, nothing runs.
"""

import hashlib
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringfence.audit.journal import Journal
from ringfence.engines.base import Box
from ringfence.errors import CommandNotAllowed, InvalidConfig, PathAccessDenied, RingfenceError
from ringfence.manager.environment import check_variables
from ringfence.policy.config import is_encodable
from ringfence.policy.decide import Place, decide
from ringfence.values.grant import Grant
from ringfence.values.outcome import Refused, Result
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Verdict
from ringfence.values.violation import Severity, Violation, ViolationKind

_COMMAND_SHOWN = 4096
"""Characters of a command that the journal keeps as text; its hash covers all of it."""


class Pipeline:
    def __init__(self, grant: Grant, journal: Journal, acquire: Callable[[], Awaitable[Box]]) -> None:
        self._grant = grant
        self._journal = journal
        self._acquire = acquire

    async def run(self, request: Request) -> Result:
        """Run one request, or say why not.

        Raises:
            CommandNotAllowed, PathAccessDenied, InvalidConfig: the request itself makes no sense.
            PermissionDenied: the journal cannot be written.
            InitializationFailed, SpawnFailed, Internal: from the engine.
        """
        check_form(request)
        run_id = os.urandom(8).hex()
        place = Place(_resolved_cwd(request, self._grant))
        decision = decide(request, self._grant, place)
        entry = self._journal.open(run_id, _opened(request, decision, place))
        try:
            result = await self._execute(replace(request, cwd=place.cwd), decision)
        except RingfenceError as fault:
            entry.close({"ending": "fault", "code": fault.code, "message": fault.message})
            raise
        except BaseException as fault:
            entry.close({"ending": "abandoned", "message": type(fault).__name__})
            raise
        entry.close(_ended(result))
        return replace(result, run_id=run_id)

    async def _execute(self, request: Request, decision: Decision) -> Result:
        if decision.verdict is not Verdict.ALLOW:
            return _refusal(decision)
        box = await self._acquire()
        return await box.run(request)


def _refusal(decision: Decision) -> Result:
    reason = decision.deciding
    violation = Violation(ViolationKind.PATH, Severity.HIGH, reason.why, reason.rule, reason.allow_by)
    return Result(ending=Refused(reason.why, reason.rule, reason.allow_by), violations=(violation,))


def check_form(request: Request) -> None:
    """Refuse what no wall and no policy could make sense of.

    Raises:
        CommandNotAllowed: empty, or with a NUL byte, which would end it early without a word.
        InvalidConfig: a variable or a time that cannot be.
    """
    words = (request.command,) if request.command is not None else request.argv or ()
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
        "cwd": os.fspath(place.cwd),
        "workspace": os.fspath(decision.grant.workspace),
        "verdict": decision.verdict.name.lower(),
        "rule": decision.deciding.rule,
        "why": decision.deciding.why,
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
        "violations": [str(violation) for violation in result.violations],
    }
