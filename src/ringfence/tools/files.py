"""The file tools of an agent over the files of a session or sandbox: `file_read` and `file_write`, and what all share.

How much care a call gets follows from the policy's terms for its tool (requirement B3):

- low risk with `sandbox_enabled: false`, and without a policy: directly. Our own code opens the file, resolved by the
  kernel below the workspace, and no program runs. Not where a sandbox was given: its files may be a shadow's;
- everything else: in the session's box, as its user and behind its wall;
- critical risk: only after a person's approval; without somebody to ask, it is refused.

Whatever the way, the policy's rules on tools and paths, sensitive files, the blacklist and protected names hold, and
the call is written into the journal. What a call comes to is a `Result`: what was refused, or could not be done, is
returned and not raised.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import ClassVar, Final, Protocol

from ringfence.approvals.ask import ask
from ringfence.approvals.question import make_question
from ringfence.audit import record
from ringfence.audit.redact import Redactor
from ringfence.errors import PathAccessDenied, RingfenceError
from ringfence.manager.configuring import home_directory, open_journal
from ringfence.manager.manager import SandboxManager
from ringfence.manager.sandbox import Sandbox
from ringfence.policy import judging
from ringfence.policy.decide import on_file
from ringfence.policy.schema import RiskLevel
from ringfence.policy.terms import Terms
from ringfence.policy.violating import violation_of
from ringfence.tools.file_places import place_of
from ringfence.values.files import FileKind
from ringfence.values.grant import Grant
from ringfence.values.outcome import Exited, Refused, Result
from ringfence.values.principal import Principal
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Reason, Verdict
from ringfence.workspace.agent import AgentWorkspace
from ringfence.workspace.reading import NodeType

_ALLOWED: Final = Reason(Verdict.ALLOW, "default", "no rule objects")


class Files(Protocol):
    """How a tool reaches files: directly, or in the box."""

    async def read(self, path: str) -> bytes: ...

    async def read_for_search(self, path: str) -> bytes:
        """The same, without a record of its own: a call has one, however many files it goes through."""
        ...

    async def write(self, path: str, data: bytes) -> None: ...

    async def names(self, path: str) -> list[str]:
        """Every plain file at or below a path; not what git keeps for itself, unless the path leads there."""
        ...


class _Direct:
    def __init__(self, workspace: AgentWorkspace, terms: Terms | None, grant: Grant) -> None:
        self._workspace = workspace
        self._terms = terms
        self._grant = grant

    async def read(self, path: str) -> bytes:
        _check(path, self._terms, self._grant)
        return await asyncio.to_thread(self._workspace.read, path)

    async def read_for_search(self, path: str) -> bytes:
        return await self.read(path)  # what is read directly has no record of its own anyway

    async def write(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(self._workspace.write, path, data)

    async def names(self, path: str) -> list[str]:
        if (await asyncio.to_thread(self._workspace.stat, path)).kind is NodeType.FILE:
            return [path]
        pattern = "**/*" if path in (".", "/workspace") else f"{path.rstrip('/')}/**/*"
        found = await asyncio.to_thread(self._workspace.glob, pattern)
        kinds = [(each, (await asyncio.to_thread(self._workspace.stat, each)).kind) for each in found]
        return [each for each, kind in kinds if kind is NodeType.FILE and not _is_left_out(each, path)]


class _InBox:
    def __init__(self, sandbox: Sandbox, terms: Terms | None) -> None:
        self._files = sandbox.files
        self._terms = terms
        self._grant = sandbox.grant

    async def read(self, path: str) -> bytes:
        _check(path, self._terms, self._grant)
        return await self._files.read(path)

    async def read_for_search(self, path: str) -> bytes:
        _check(path, self._terms, self._grant)
        return await self._files.read_for_search(path)

    async def write(self, path: str, data: bytes) -> None:
        await self._files.write(path, data, parents=True)

    async def names(self, path: str) -> list[str]:
        found: list[str] = []
        waiting = [await self._files.stat(path, follow=False)]
        while waiting:
            here = waiting.pop()
            if here.kind is FileKind.FILE:
                found.append(here.path)
            elif here.kind is FileKind.DIRECTORY and not _is_left_out(here.path, path):
                with suppress(PathAccessDenied):  # hidden, and that it is there is not said
                    waiting += await self._files.list(here.path)
        return sorted(os.path.normpath(each) for each in found)


class FileTool:
    """What every file tool does around its own work: judge, ask, record."""

    name: ClassVar[str]
    changes: ClassVar[bool] = False

    def __init__(self, manager: SandboxManager | Sandbox, session_id: str | None = None) -> None:
        """
        Args:
            manager: whose session; or a sandbox, whose files are read and changed in its box.
            session_id: whose files; the manager's own session if not given.

        Raises:
            InvalidArgument: there is no session.
        """
        self._place = place_of(manager, session_id, self.name)

    async def _run(self, path: str, work: Callable[[Files], Awaitable[str | bytes]]) -> Result:
        """One call: judged, approved where that is needed, recorded, done."""
        sandbox = await self._place.sandbox()
        terms = self._place.terms(self.name)
        request = Request(argv=(self.name, path))
        decision = _decide(path, terms, sandbox.grant, changes=self.changes)
        journal = open_journal(os.environ, home_directory(os.environ))
        redact = Redactor(journal.settings.redact, sandbox.grant.env)
        who = Principal(session_id=self._place.session, sandbox_id=sandbox.who.sandbox_id, tool=self.name)
        try:
            entry = journal.open(os.urandom(8).hex(), record.opened(request, decision, sandbox.workspace, who, redact))
            refused = await self._refusal(request, decision)
            result = refused or await self._done(path, work, sandbox, terms, decision)
            entry.close(record.ended(result, redact, files_collected=False))
        finally:
            journal.close()
        if result.violations:
            self._place.violations.record(result.violations, session=self._place.session, tool=self.name)
        return result

    async def _refusal(self, request: Request, decision: Decision) -> Result | None:
        reason = decision.deciding
        if decision.verdict is Verdict.ALLOW:
            return None
        service = self._place.confirmation
        if decision.verdict is Verdict.ASK and service is not None:
            seconds = decision.asking.timeout_seconds
            question = make_question(request, decision, session=self._place.session, seconds=seconds)
            approval = await ask(service, question, seconds)
            if approval.granted:
                return None
            return _refused(decision, reason, f"{reason.why}; a person was asked: {approval.how}")
        nobody = "; a person has to approve, and there is nobody to ask" if decision.verdict is Verdict.ASK else ""
        return _refused(decision, reason, reason.why + nobody)

    async def _done(
        self,
        path: str,
        work: Callable[[Files], Awaitable[str | bytes]],
        sandbox: Sandbox,
        terms: Terms | None,
        decision: Decision,
    ) -> Result:
        is_direct = self._place.may_be_direct and _is_direct(terms)
        try:
            async with self._place.turn():
                if is_direct:
                    with sandbox.host_files() as workspace:
                        said = await work(_Direct(workspace, terms, sandbox.grant))
                else:
                    said = await work(_InBox(sandbox, terms))
        except PathAccessDenied as refusal:
            reason = Reason(Verdict.DENY, refusal.rule or "workspace", refusal.message, refusal.hint)
            return _refused(decision, reason, f"{refusal.path}: {refusal.strerror}")  # the rule is said once
        except RingfenceError as fault:
            return Result(ending=Exited(1), stderr_bytes=f"{self.name}: {fault}\n".encode())
        data = said.encode() if isinstance(said, str) else said
        return Result(ending=Exited(0), stdout_bytes=data, wall=None if is_direct else sandbox.wall)


class FileReadTool(FileTool):
    """`file_read`: the content of one file."""

    name = "file_read"

    async def execute(self, path: str) -> Result:
        """The file is in `stdout_bytes`."""
        return await self._run(path, lambda files: files.read(path))


class FileWriteTool(FileTool):
    """`file_write`: makes or replaces one file; missing directories are made."""

    name = "file_write"
    changes = True

    async def execute(self, path: str, content: str | bytes) -> Result:
        data = content.encode() if isinstance(content, str) else content

        async def work(files: Files) -> str:
            await files.write(path, data)
            return f"{len(data)} bytes written to {path}\n"

        return await self._run(path, work)


def _is_direct(terms: Terms | None) -> bool:
    """Whether our own code does it without a box."""
    return terms is None or (terms.risk is RiskLevel.LOW and terms.value("sandbox_enabled") is False)


def _is_left_out(path: str, asked: str) -> bool:
    """Thousands of objects that no program but git reads, and no agent means."""
    return ".git" in path.split("/") and ".git" not in asked.split("/")


def _check(path: str, terms: Terms | None, grant: Grant) -> None:
    """A file that a search came to: the tool's rules hold for each.

    Raises:
        PathAccessDenied: a rule objects.
    """
    for vote in on_file(path, terms, grant, home_directory(os.environ), write=False) if terms is not None else ():
        if vote.verdict is not Verdict.ALLOW:
            raise PathAccessDenied(path, vote.why, rule=vote.place, hint=vote.allow_by)


def _decide(path: str, terms: Terms | None, grant: Grant, *, changes: bool) -> Decision:
    if terms is None:
        return Decision((_ALLOWED,), grant, text=path)
    votes = (
        *judging.on_tool(terms),
        *judging.on_risk(terms),
        *on_file(path, terms, grant, home_directory(os.environ), write=changes),
    )
    return Decision((_ALLOWED, *votes), grant, terms.asking, path)


def _refused(decision: Decision, reason: Reason, why: str) -> Result:
    violation = violation_of(decision, reason, why, 0.0)
    return Result(ending=Refused(why, reason.place, reason.allow_by), violations=(violation,))
