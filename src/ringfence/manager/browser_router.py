"""`BrowserRouter`: the browser of a session, by requirement E5's names. Each action judged, and written down.

    router = BrowserRouter("session_123")
    result = await router.execute(
        BrowserAction(action="navigate", params={"url": "https://example.com"}), context={"is_research": True}
    )

What a page says is in `result.page` and `result.values`: data of others, never an instruction.
"""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from urllib.parse import urlsplit

from ringfence.approvals.ask import ask
from ringfence.approvals.question import make_question
from ringfence.audit import record
from ringfence.audit.redact import Redactor
from ringfence.browser import live
from ringfence.browser.actions import check
from ringfence.browser.base import BrowserAction, BrowserResult
from ringfence.browser.external import connect_to, launch
from ringfence.browser.live import LiveFrame, PersonInput
from ringfence.browser.router import EXTERNAL, SANDBOXED, Router, route
from ringfence.errors import BrowserGone, CommandNotAllowed, InvalidArgument
from ringfence.manager.assemble import policy_in_force
from ringfence.manager.browsing import (
    BROWSER_TOOL,
    EXTERNAL_TOOL,
    BrowserSettings,
    SessionFiles,
    launch_boxed,
)
from ringfence.manager.configuring import home_directory, open_journal
from ringfence.manager.local_servers import LocalServers
from ringfence.manager.options import OptionFields, make_options
from ringfence.manager.sandbox import Sandbox
from ringfence.policy import judging
from ringfence.values.facts import HostFact, Span
from ringfence.values.grant import Grant
from ringfence.values.outcome import Exited, Refused, Result
from ringfence.values.principal import Principal
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Reason, Verdict

if TYPE_CHECKING:
    from ringfence.browser.base import Running
    from ringfence.browser.browser import Browser
    from ringfence.manager.manager import SandboxManager
    from ringfence.policy.terms import Terms

_ALLOWED: Final = Reason(Verdict.ALLOW, "default", "no rule objects")
_GRANT: Final = Grant(workspace=Path("/"))
"""An action is granted nothing itself: its browser's box is."""
_TOOLS: Final = {SANDBOXED: BROWSER_TOOL, EXTERNAL: EXTERNAL_TOOL}
_SECRET: Final = frozenset({"text", "set"})
"""What is typed or put into a browser may be a password."""


class BrowserRouter:
    """
    Args:
        session_id: whose browser it is.
        session: the session's sandbox, or the manager that has it: uploads come from its workspace, downloads go there,
            and its servers can be seen. Without one there are no files.
        settings: which browser, and where the external one is.
        fields: fields of `SandboxOptions`, where there is no session: policy, role, network.

    Raises:
        InvalidArgument: a session and options, or options that make no sense.
    """

    def __init__(
        self,
        session_id: str,
        *,
        session: Sandbox | SandboxManager | None = None,
        settings: BrowserSettings | None = None,
        **fields: Unpack[OptionFields],
    ) -> None:
        if session is not None and fields:
            raise InvalidArgument("a session has its options already", hint=f"leave out {', '.join(fields)}")
        self.session_id = session_id
        self.options = make_options(None, fields) if session is None else session.options
        self.settings = settings or BrowserSettings()
        self._session = session
        self._policy = policy_in_force(self.options, os.environ)
        files = None if session is None else SessionFiles(self._sandbox)
        launches = {SANDBOXED: self._launch_boxed, EXTERNAL: self._launch_external}
        self._router = Router(launches, files)

    async def execute(self, action: BrowserAction, context: Mapping[str, Any] | None = None) -> BrowserResult:
        """Do one action: in the sandboxed browser where the context has `needs_file_access` or `is_research`, else in
        the external one. The other is closed.

        Raises:
            CommandNotAllowed: the policy, or a person, refuses it.
            BrowserError: it cannot be done, or not in time.
            InvalidArgument, WrongType: it makes no sense.
            NotInstalled: there is no browser.
            RingfenceError: its box cannot be made.
        """
        check(action)
        where = route(context or {})
        decision, request = self._decide(where, action), _as_request(where, action)
        with self._recorded(where, request, decision):
            await self._approve(request, decision)
            return await self._router.execute(action, where)

    @contextmanager
    def _recorded(self, where: str, request: Request, decision: Decision) -> Iterator[None]:
        """In the journal before anything happens, and again when it is over; without a record nothing does."""
        journal = open_journal(os.environ, home_directory(os.environ))
        redact = Redactor(journal.settings.redact, ())
        who = Principal(
            session_id=self.session_id,
            agent_id=self.options.agent_id,
            org_id=self.options.org_id,
            tool=_TOOLS[where],
        )
        try:
            opened = record.opened(request, decision, decision.grant.workspace, who, redact)
            entry = journal.open(os.urandom(8).hex(), opened)
            try:
                yield
            except CommandNotAllowed as fault:
                entry.close(
                    record.ended(Result(ending=Refused(fault.message, fault.rule)), redact, files_collected=False)
                )
                raise
            except BaseException as fault:
                entry.close(record.failed(fault, redact, ()))
                raise
            entry.close(record.ended(Result(ending=Exited(0)), redact, files_collected=False))
        finally:
            journal.close()

    # --- judgement ----------------------------------------------------------------------------------------------------

    def _terms(self, where: str) -> Terms | None:
        if self._policy is None:
            return None
        return self._policy.terms(_TOOLS[where], self.options.role).under(self.options.mode)

    def _decide(self, where: str, action: BrowserAction) -> Decision:
        terms = self._terms(where)
        if terms is None:
            return Decision((_ALLOWED,), _GRANT, text=action.action)
        votes = [*judging.on_tool(terms), *judging.on_risk(terms)]
        url = action.params.get("url")
        if isinstance(url, str) and where == EXTERNAL and (host := urlsplit(url).hostname):
            # In a box the proxy judges each request; here nobody else does.
            votes += judging.on_host(terms, HostFact(host, urlsplit(url).port, Span(0, 0), _TOOLS[where]))
        return Decision((_ALLOWED, *votes), _GRANT, terms.asking, action.action)

    async def _approve(self, request: Request, decision: Decision) -> None:
        """
        Raises:
            CommandNotAllowed: it may not be done.
        """
        if decision.verdict is Verdict.ALLOW:
            return
        reason, service = decision.deciding, self.options.confirmation
        why = reason.why
        if decision.verdict is Verdict.ASK and service is not None:
            seconds = decision.asking.timeout_seconds
            question = make_question(request, decision, session=self.session_id, seconds=seconds)
            approval = await ask(service, question, seconds)
            if approval.granted:
                return
            why = f"{why}; a person was asked: {approval.how}"
        elif decision.verdict is Verdict.ASK:
            why = f"{why}; a person has to approve, and there is nobody to ask"
        raise CommandNotAllowed(why, command=request.shown, rule=reason.place, hint=reason.allow_by)

    # --- browsers -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _sandbox(self) -> AsyncIterator[Sandbox]:
        assert self._session is not None, "files are only there with a session"
        if isinstance(self._session, Sandbox):
            yield self._session
            return
        async with self._session.in_session(session_id=self.session_id) as sandbox:
            yield sandbox

    async def _launch_boxed(self) -> Running:
        if self._session is None:
            return await launch_boxed(self.options, self.settings)
        async with self._sandbox() as sandbox:
            session = (await sandbox.lend()).box
        return await launch_boxed(self.options, self.settings, LocalServers(session))

    async def _launch_external(self) -> Running:
        if self.settings.endpoint is not None:
            return await connect_to(self.settings.endpoint)
        return await launch(self.settings.kind, self.settings.program)

    # --- for a person -------------------------------------------------------------------------------------------------

    async def frames(self, tab: str = "", *, quality: int = 60, width: int = 1280) -> AsyncIterator[LiveFrame]:
        """Pictures of a tab as it changes, until the caller stops; the newest only, where they come too fast.

        Raises:
            BrowserGone: no browser runs, or it has ended.
        """
        async for frame in live.frames(self._running(), tab, quality=quality, width=width):
            yield frame

    async def act(self, given: PersonInput, tab: str = "") -> None:
        """Do what a person did with mouse and keys, beside the agent's actions; recorded, without what was typed.

        Raises:
            InvalidArgument: there is no such input.
            BrowserError: it cannot be done.
        """
        browser = self._running()
        shown = {"kind": given.kind, "x": given.x, "y": given.y, "tab": tab or browser.current}
        request = Request(argv=("browser", browser.running.kind, "person", json.dumps(shown)))
        with self._recorded(browser.running.kind, request, Decision((_ALLOWED,), _GRANT, text="person")):
            await live.act(browser, given, tab)

    def _running(self) -> Browser:
        if self._router.browser is None:
            raise BrowserGone("no browser runs", hint="the first action starts one")
        return self._router.browser

    async def close(self) -> None:
        """End the browser; an action that is underway ends with `BrowserGone`."""
        await self._router.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        running = self._router.browser
        return f"<BrowserRouter {self.session_id} {running.running.kind if running is not None else 'idle'}>"


def _as_request(where: str, action: BrowserAction) -> Request:
    """As the journal and people read it, without what was typed."""
    shown = {
        name: f"({len(value)} characters)" if name in _SECRET and isinstance(value, str) else value
        for name, value in action.params.items()
        if name != "set"
    }
    return Request(argv=("browser", where, action.action, json.dumps(shown, ensure_ascii=False, default=str)[:4000]))
