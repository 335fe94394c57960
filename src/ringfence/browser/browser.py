"""A browser that runs: its tabs, its downloads, and what pages may open.

Tabs are attached to before their first script runs, so that no page is ever without our rules: a file is only read if
it was handed over, and of many popups a few are kept.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ringfence.browser.base import Running
from ringfence.browser.cdp import NONSENSE, Answer, Connection
from ringfence.browser.tab import Tab
from ringfence.dataclass import dataclass
from ringfence.errors import BrowserError, BrowserGone, BrowserTimeout, Busy, ElementNotFound

MOST_TABS: Final = 16
WINDOW: Final = {"width": 1280, "height": 720, "deviceScaleFactor": 1, "mobile": False}
DOWNLOAD_BYTES: Final = 64 * 1024 * 1024
_DOWNLOADS: Final = 100
_ATTACH: Final = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
_CLOSE_SECONDS: Final = 2.0


@dataclass(slots=True)
class Download:
    guid: str
    name: str
    url: str
    state: str = "inProgress"
    size: int = 0
    why: str = ""
    path: str = ""
    """Where it lies in the workspace."""


class Browser:
    """Made by `open_browser`."""

    def __init__(self, running: Running) -> None:
        self.running = running
        self.connection = Connection(running.wire, self._happened, self._lost)
        self.tabs: dict[str, Tab] = {}
        self.current = ""
        self.downloads: deque[Download] = deque(maxlen=_DOWNLOADS)
        self.closed_popups = 0
        self.readable: set[str] = set()
        """Files that were handed over, as the browser names them."""
        # One that somebody else runs has a window that somebody else looks at.
        is_ours = running.store.downloads is not None
        self.emulation: dict[str, Answer] = {"Emulation.setDeviceMetricsOverride": WINDOW} if is_ours else {}
        """What every tab is told when it opens: method -> parameters."""
        self.screencasts: dict[str, Callable[[Answer], None]] = {}
        """Who is told of pictures, by session (`live.py`)."""
        self._by_session: dict[str, Tab] = {}
        self._opening: set[str] = set()
        """Tabs that are not yet set up."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._count = 0
        self._opened = asyncio.Event()
        self._is_closing = False

    # --- life ---------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """
        Raises:
            BrowserGone, BrowserTimeout: it does not come up.
        """
        call = self.connection.call
        await call("Browser.getVersion", seconds=self.running.start_seconds)
        downloads = self.running.store.downloads
        behavior: Answer = {"behavior": "deny"}
        if downloads is not None:
            behavior = {"behavior": "allowAndName", "downloadPath": downloads, "eventsEnabled": True}
        await call("Browser.setDownloadBehavior", behavior, seconds=self.running.start_seconds)
        await call("Target.setAutoAttach", _ATTACH, seconds=self.running.start_seconds)
        await call("Target.setDiscoverTargets", {"discover": True}, seconds=self.running.start_seconds)
        targets = (await call("Target.getTargets", seconds=self.running.start_seconds)).get("targetInfos", [])
        if any(isinstance(each, dict) and each.get("type") == "page" for each in targets):
            await self._wait_tab(lambda: next(iter(self.tabs.values()), None))
        else:
            await self.new_tab()

    async def close(self) -> None:
        """End it; returns when nothing of it is left."""
        self._is_closing = True
        if self.connection.lost is None and self.running.kind == "sandboxed":
            with suppress(BrowserError, Busy):
                await self.connection.call("Browser.close", seconds=_CLOSE_SECONDS)
        await self.connection.close()
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))
        await self.running.close()

    @property
    def alive(self) -> bool:
        return self.connection.lost is None

    def _lost(self, fault: BrowserGone) -> None:
        self._opened.set()
        for tab in self.tabs.values():
            tab.wake()

    # --- tabs ---------------------------------------------------------------------------------------------------------

    def tab(self, wanted: str = "") -> Tab:
        """The one that is meant.

        Raises:
            ElementNotFound: there is no such tab.
        """
        if self.connection.lost is not None:
            raise BrowserGone(self.connection.lost.message, hint=self.connection.lost.hint or "open it anew")
        name = wanted or self.current
        if name not in self.tabs:
            raise ElementNotFound(f"there is no tab {name!r}", hint=f"there are {', '.join(self.tabs) or 'none'}")
        return self.tabs[name]

    async def new_tab(self, url: str = "about:blank") -> Tab:
        """
        Raises:
            Busy: there are too many.
            BrowserTimeout: it does not come.
        """
        if len(self.tabs) >= MOST_TABS:
            raise Busy(f"{MOST_TABS} tabs are open", hint="close one")
        made = await self.connection.call("Target.createTarget", {"url": url})
        target = str(made.get("targetId", ""))
        tab = await self._wait_tab(lambda: self._by_target(target))
        self.current = tab.id
        return tab

    async def _wait_tab(self, find: Callable[[], Tab | None]) -> Tab:
        try:
            async with asyncio.timeout(self.running.start_seconds):
                while (tab := find()) is None:
                    self._opened.clear()
                    if self.connection.lost is not None:
                        raise BrowserGone(self.connection.lost.message)
                    await self._opened.wait()
        except TimeoutError:
            raise BrowserTimeout("the browser opens no tab", self.running.start_seconds) from None
        return tab

    async def close_tab(self, tab: Tab) -> None:
        await self.connection.call("Target.closeTarget", {"targetId": tab.target})
        self._forget(tab)

    def _by_target(self, target: str) -> Tab | None:
        return next((tab for tab in self.tabs.values() if tab.target == target), None)

    def _forget(self, tab: Tab) -> None:
        tab.is_crashed = True
        tab.wake()
        self.tabs.pop(tab.id, None)
        self._by_session = {session: other for session, other in self._by_session.items() if other is not tab}
        if self.current == tab.id:
            self.current = tab.opener if tab.opener in self.tabs else next(reversed(self.tabs), "")

    # --- what happens -------------------------------------------------------------------------------------------------

    def _happened(self, session: str, method: str, params: Answer) -> None:
        if method == "Target.attachedToTarget":
            self._attached(session, params)
        elif method == "Target.detachedFromTarget":
            self._detached(str(params["sessionId"]))
        elif method == "Target.targetInfoChanged":
            self._renamed(params["targetInfo"])
        elif method == "Browser.downloadWillBegin":
            self._download(params)
        elif method == "Browser.downloadProgress":
            self._progress(params)
        elif method == "Page.screencastFrame":
            if (listen := self.screencasts.get(session)) is not None:
                listen(params)
        elif method == "Fetch.requestPaused":
            self._paused(session, params)
        elif (tab := self._by_session.get(session)) is not None:
            tab.happened(session, method, params)

    def _attached(self, parent: str, params: Answer) -> None:
        session, info = str(params["sessionId"]), params["targetInfo"]
        kind, target = str(info.get("type", "")), str(info.get("targetId", ""))
        if kind == "page" and not parent:
            if len(self.tabs.keys() | self._opening) >= MOST_TABS or self._is_closing:
                self.closed_popups += 1
                # It shares a process with its opener, which stands still as long as it waits for us.
                self.connection.post("Runtime.runIfWaitingForDebugger", session=session)
                self.connection.post("Target.closeTarget", {"targetId": target})
                return
            self._count += 1
            opener = self._by_target(str(info.get("openerId", "")))
            tab = Tab(self.connection, f"t{self._count}", target, session, opener.id if opener else "")
            self._by_session[session] = tab
            self._opening.add(tab.id)
            self._do(self._set_up(tab, session, is_new=True))
        elif kind == "iframe" and (owner := self._by_session.get(parent)) is not None:
            owner.sessions.add(session)
            self._by_session[session] = owner
            self._do(self._set_up(owner, session, is_new=False))
        else:  # workers: none of ours, but they must not wait for us
            self.connection.post("Runtime.runIfWaitingForDebugger", session=session)

    async def _set_up(self, tab: Tab, session: str, *, is_new: bool) -> None:
        """Put our rules in force, then let it run."""

        async def call(method: str, params: Answer | None = None) -> Answer:
            return await self.connection.call(method, params, session=session)

        with suppress(BrowserError, Busy, *NONSENSE):
            await asyncio.gather(
                call("Fetch.enable", {"patterns": [{"urlPattern": "file://*"}]}),
                call("Target.setAutoAttach", _ATTACH),
                call("Page.enable"),
                call("Runtime.enable"),
                call("Network.enable", {"maxTotalBufferSize": 4 * 1024 * 1024}),
                call("Log.enable"),
                *(call(method, params) for method, params in self.emulation.items() if is_new),
            )
            await call("Runtime.runIfWaitingForDebugger")
            tree = await call("Page.getFrameTree")
            tab.take_tree(session, tree["frameTree"])
            if is_new:
                main = tab.main
                tab.url = main.url if main is not None else ""
                self.tabs[tab.id] = tab
                self.current = self.current or tab.id
        self._opening.discard(tab.id)
        self._opened.set()
        tab.wake()

    def _detached(self, session: str) -> None:
        tab = self._by_session.pop(session, None)
        if tab is None:
            return
        if session == tab.session:
            self._forget(tab)
        else:
            tab.sessions.discard(session)
            tab.frames = {id: frame for id, frame in tab.frames.items() if frame.session != session}

    def _renamed(self, info: Answer) -> None:
        tab = self._by_target(str(info.get("targetId", "")))
        if tab is not None:
            tab.title = str(info.get("title", ""))[:500]

    def _paused(self, session: str, params: Answer) -> None:
        """A page, or we, want to read a file."""
        path = unquote(urlsplit(str(params["request"]["url"])).path)
        request = {"requestId": str(params["requestId"])}
        if path in self.readable:
            self.connection.post("Fetch.continueRequest", request, session=session)
        else:
            self.connection.post("Fetch.failRequest", request | {"errorReason": "AccessDenied"}, session=session)

    # --- downloads ----------------------------------------------------------------------------------------------------

    def _download(self, params: Answer) -> None:
        name, url = str(params.get("suggestedFilename", "")), str(params.get("url", ""))
        self.downloads.append(Download(str(params["guid"]), name[:300], url[:2000]))

    def _progress(self, params: Answer) -> None:
        found = next((each for each in self.downloads if each.guid == params["guid"]), None)
        if found is None or found.state != "inProgress":
            return
        found.size = int(params.get("receivedBytes", 0))
        total = int(params.get("totalBytes", 0))
        if max(found.size, total) > DOWNLOAD_BYTES:
            found.state, found.why = "canceled", f"larger than {DOWNLOAD_BYTES} bytes"
            self.connection.post("Browser.cancelDownload", {"guid": found.guid})
        elif params.get("state") in ("completed", "canceled"):
            found.state = str(params["state"])
        for tab in self.tabs.values():
            tab.wake()

    def _do(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def open_browser(running: Running) -> Browser:
    """Take a browser that was just started into use; what fails ends it.

    Raises:
        BrowserGone, BrowserTimeout: it does not come up.
    """
    browser = Browser(running)
    try:
        await browser.start()
    except BaseException as fault:
        await browser.close()
        if isinstance(fault, NONSENSE) and not isinstance(fault, BrowserError):
            raise BrowserGone("what was started answers, but not as a browser does") from None
        raise
    return browser
