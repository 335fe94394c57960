"""One tab: its frames, its logs, its dialog, and calls to it.

A page on other sites may lie in processes of its own; each of these has a session of the protocol beside the tab's.
Whatever a dialog of the page blocks does not wait for the person who would close it: a call that finds one open ends
with `DialogOpened`, and the next action has to deal with it.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Any, Final

from ringfence.browser.cdp import CALL_SECONDS, Answer, CallRefused, Connection, Params
from ringfence.dataclass import dataclass, field
from ringfence.errors import BrowserError, BrowserGone, StaleRef

_LOG: Final = 300
_REQUESTS: Final = 500
_FRAMES: Final = 500
_IN_FLIGHT: Final = 2000
_WORDS: Final = 2000
_QUIET_PER_SECOND: Final = 400
"""Lines of a log per second from which on nobody would read it: it is switched off for the rest of the document."""


class DialogOpened(BrowserError):
    """A dialog of the page has opened, and nothing goes on before it is closed."""


@dataclass(frozen=True, slots=True)
class Dialog:
    kind: str
    message: str
    default: str
    url: str


@dataclass(slots=True)
class Frame:
    id: str
    parent: str
    session: str
    loader: str = ""
    url: str = ""
    is_loading: bool = False


@dataclass(frozen=True, slots=True)
class Element:
    """An element of a page, as the browser names it."""

    session: str
    frame: str
    loader: str
    backend: int
    ref: str = ""


@dataclass(slots=True, eq=False)
class Tab:
    connection: Connection
    id: str
    """What we call it: `t1`."""
    target: str
    session: str
    opener: str = ""
    url: str = ""
    title: str = ""
    frames: dict[str, Frame] = field(default_factory=dict)
    sessions: set[str] = field(default_factory=set)
    """Those of frames in other processes."""
    dialog: Dialog | None = None
    is_crashed: bool = False
    console: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_LOG))
    requests: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_REQUESTS))
    in_flight: dict[str, dict[str, Any]] = field(default_factory=dict)
    last_traffic: float = 0.0
    refs: dict[str, Element] = field(default_factory=dict)
    known: dict[tuple[str, str, int], str] = field(default_factory=dict)
    """(session, loader, node) -> ref"""
    ref_count: int = 0
    snapshot: list[str] = field(default_factory=list)
    """The lines of the last one."""
    document_count: int = 0
    _worlds: dict[tuple[str, str], int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _window: int = 0
    _lines: int = 0

    # --- calls --------------------------------------------------------------------------------------------------------

    async def call(
        self, method: str, params: Params | None = None, *, session: str = "", seconds: float = CALL_SECONDS
    ) -> Answer:
        """
        Raises:
            DialogOpened: a dialog is open, or opened meanwhile.
            BrowserGone: the tab has crashed; otherwise as `Connection.call`.
        """
        self.check()
        call = asyncio.ensure_future(
            self.connection.call(method, params, session=session or self.session, seconds=seconds)
        )
        try:
            while not call.done():
                self._changed.clear()
                changed = asyncio.ensure_future(self._changed.wait())
                await asyncio.wait((call, changed), return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not call.done():
                    self.check()
            return call.result()
        finally:
            if not call.done():
                call.cancel()
            elif not call.cancelled():
                call.exception()

    def check(self) -> None:
        """
        Raises:
            DialogOpened: a dialog is open.
            BrowserGone: the tab has crashed.
        """
        if self.is_crashed:
            raise BrowserGone("the tab has crashed", hint="navigate, or open another tab")
        if self.dialog is not None:
            raise DialogOpened(
                f"a dialog of the page is open ({self.dialog.kind})", hint="accept or dismiss it with the action dialog"
            )

    async def wait_changed(self) -> None:
        """Until something happens to it."""
        self._changed.clear()
        await self._changed.wait()

    @property
    def main(self) -> Frame | None:
        return next((frame for frame in self.frames.values() if not frame.parent), None)

    async def world(self, frame: Frame) -> int:
        """A world of our own in a frame, beside the page's."""
        key = (frame.id, frame.loader)
        if key not in self._worlds:
            made = await self.call(
                "Page.createIsolatedWorld", {"frameId": frame.id, "worldName": "ringfence"}, session=frame.session
            )
            self._worlds[key] = int(made["executionContextId"])
        return self._worlds[key]

    async def run(self, script: str, *arguments: Any, frame: Frame | None = None, seconds: float = CALL_SECONDS) -> Any:
        """What a function of ours gives, in our own world of a frame.

        Raises:
            BrowserError: it threw; otherwise as `call`.
        """
        frame = frame or self.main
        if frame is None:
            raise BrowserError("the tab has no page yet", hint="navigate first")
        for is_last in (False, True):
            try:
                found = await self.call(
                    "Runtime.callFunctionOn",
                    {
                        "functionDeclaration": script,
                        "executionContextId": await self.world(frame),
                        "arguments": [{"value": one} for one in arguments],
                        "returnByValue": True,
                        "awaitPromise": True,
                    },
                    session=frame.session,
                    seconds=seconds,
                )
                return value_of(found)
            except CallRefused:
                # The document was replaced between the two calls.
                self._worlds.pop((frame.id, frame.loader), None)
                if is_last:
                    raise
        return None

    async def on(self, element: Element, script: str, *arguments: Any, by_value: bool = True) -> Any:
        """The same for a function of an element (`this`).

        Raises:
            StaleRef: the element is gone.
        """
        frame = self.frame_of(element)
        try:
            node = await self.call(
                "DOM.resolveNode",
                {"backendNodeId": element.backend, "executionContextId": await self.world(frame)},
                session=element.session,
            )
            handle = node["object"]["objectId"]
        except (CallRefused, KeyError):
            raise StaleRef(element.ref or "(element)", "its element is not on the page any more") from None
        try:
            found = await self.call(
                "Runtime.callFunctionOn",
                {
                    "functionDeclaration": script,
                    "objectId": handle,
                    "arguments": [{"value": one} for one in arguments],
                    "returnByValue": by_value,
                    "awaitPromise": True,
                },
                session=element.session,
            )
        except CallRefused:
            raise StaleRef(element.ref or "(element)", "the page has changed under it") from None
        finally:
            if self.dialog is None:
                self.connection.post("Runtime.releaseObject", {"objectId": handle}, session=element.session)
        return value_of(found)

    def frame_of(self, element: Element) -> Frame:
        frame = self.frames.get(element.frame)
        if frame is None or frame.loader != element.loader or frame.session != element.session:
            raise StaleRef(element.ref or "(element)", "the page, or the frame, was left since")
        return frame

    # --- what happens to it -------------------------------------------------------------------------------------------

    def happened(self, session: str, method: str, params: Answer) -> None:
        """An event of one of its sessions."""
        handler = _EVENTS.get(method)
        if handler is not None:
            handler(self, session, params)
            self._changed.set()

    def wake(self) -> None:
        self._changed.set()

    def _frame_attached(self, session: str, params: Answer) -> None:
        if len(self.frames) < _FRAMES:
            id, parent = str(params["frameId"]), str(params.get("parentFrameId", ""))
            self.frames.setdefault(id, Frame(id, parent, session))

    def _frame_navigated(self, session: str, params: Answer) -> None:
        given = params["frame"]
        self.take_frame(session, given)
        if not given.get("parentId") and session == self.session:
            self.document_count += 1
            self.url = str(given.get("url", ""))[:_WORDS]
            self.is_crashed = False
            if self._lines > _QUIET_PER_SECOND:
                self._lines = 0
                for method in ("Runtime.enable", "Log.enable"):
                    self.connection.post(method, session=session)

    def take_frame(self, session: str, given: Answer) -> None:
        """A frame as the browser describes it."""
        id = str(given["id"])
        before = self.frames.get(id)
        if before is None and len(self.frames) >= _FRAMES:
            return
        parent = str(given.get("parentId", "")) or (before.parent if before is not None else "")
        loader = str(given.get("loaderId", ""))
        is_loading = before.is_loading if before is not None else False
        self.frames[id] = Frame(id, parent, session, loader, str(given.get("url", ""))[:_WORDS], is_loading)
        self._worlds = {key: world for key, world in self._worlds.items() if key[0] != id or key[1] == loader}

    def take_tree(self, session: str, tree: Answer) -> None:
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            self.take_frame(session, node["frame"])
            waiting += node.get("childFrames", [])

    def _frame_detached(self, session: str, params: Answer) -> None:
        # A frame that moves into a process of its own is detached from the old one, and lives on.
        frame = self.frames.get(str(params["frameId"]))
        if frame is not None and params.get("reason") != "swap" and frame.session == session:
            del self.frames[frame.id]

    def _loading(self, session: str, params: Answer) -> None:
        if (frame := self.frames.get(str(params["frameId"]))) is not None:
            frame.is_loading = True

    def _loaded(self, session: str, params: Answer) -> None:
        if (frame := self.frames.get(str(params["frameId"]))) is not None:
            frame.is_loading = False

    def _within_document(self, session: str, params: Answer) -> None:
        frame = self.frames.get(str(params["frameId"]))
        if frame is not None:
            frame.url = str(params.get("url", ""))[:_WORDS]
            if not frame.parent:
                self.url = frame.url

    def _dialog_opened(self, session: str, params: Answer) -> None:
        self.dialog = Dialog(
            str(params.get("type", ""))[:20],
            str(params.get("message", ""))[:_WORDS],
            str(params.get("defaultPrompt", ""))[:_WORDS],
            str(params.get("url", ""))[:_WORDS],
        )

    def _dialog_closed(self, session: str, params: Answer) -> None:
        self.dialog = None

    def _crashed(self, session: str, params: Answer) -> None:
        if session == self.session:
            self.is_crashed = True

    def _console(self, session: str, params: Answer) -> None:
        words = [_shown(each) for each in params.get("args", [])[:20]]
        self._log(session, str(params.get("type", "log")), " ".join(words))

    def _thrown(self, session: str, params: Answer) -> None:
        details = params.get("exceptionDetails", {})
        said = details.get("exception", {}).get("description") or details.get("text", "")
        self._log(session, "exception", str(said))

    def _logged(self, session: str, params: Answer) -> None:
        entry = params["entry"]
        self._log(session, str(entry.get("level", "info")), f"{entry.get('text', '')} {entry.get('url', '')}".strip())

    def _log(self, session: str, level: str, text: str) -> None:
        now = int(time.monotonic())
        if now != self._window and self._lines <= _QUIET_PER_SECOND:
            self._window, self._lines = now, 0
        self._lines += 1
        if self._lines == _QUIET_PER_SECOND + 1:
            for method in ("Runtime.disable", "Log.disable"):
                self.connection.post(method, session=session)
            text = "(the page writes too much: no more is kept until it is left)"
        if self._lines <= _QUIET_PER_SECOND + 1:
            self.console.append({"level": level[:20], "text": text[:_WORDS]})

    def _request(self, session: str, params: Answer) -> None:
        request = params["request"]
        entry = {
            "method": str(request.get("method", ""))[:20],
            "url": str(request.get("url", ""))[:_WORDS],
            "kind": str(params.get("type", ""))[:20],
            "status": None,
            "error": "",
        }
        self.requests.append(entry)
        if len(self.in_flight) < _IN_FLIGHT and params.get("type") not in ("EventSource", "WebSocket"):
            self.in_flight[str(params["requestId"])] = entry
        self.last_traffic = time.monotonic()

    def _response(self, session: str, params: Answer) -> None:
        entry = self.in_flight.get(str(params["requestId"]))
        if entry is not None:
            status = params["response"].get("status")
            entry["status"] = status if isinstance(status, int) else None
        self.last_traffic = time.monotonic()

    def _finished(self, session: str, params: Answer) -> None:
        self.in_flight.pop(str(params["requestId"]), None)
        self.last_traffic = time.monotonic()

    def _failed(self, session: str, params: Answer) -> None:
        entry = self.in_flight.pop(str(params["requestId"]), None)
        if entry is not None:
            entry["error"] = str(params.get("errorText", "failed"))[:200]
        self.last_traffic = time.monotonic()


_EVENTS: Final = {
    "Page.frameAttached": Tab._frame_attached,
    "Page.frameNavigated": Tab._frame_navigated,
    "Page.frameDetached": Tab._frame_detached,
    "Page.frameStartedLoading": Tab._loading,
    "Page.frameStoppedLoading": Tab._loaded,
    "Page.navigatedWithinDocument": Tab._within_document,
    "Page.javascriptDialogOpening": Tab._dialog_opened,
    "Page.javascriptDialogClosed": Tab._dialog_closed,
    "Inspector.targetCrashed": Tab._crashed,
    "Runtime.consoleAPICalled": Tab._console,
    "Runtime.exceptionThrown": Tab._thrown,
    "Log.entryAdded": Tab._logged,
    "Network.requestWillBeSent": Tab._request,
    "Network.responseReceived": Tab._response,
    "Network.loadingFinished": Tab._finished,
    "Network.loadingFailed": Tab._failed,
}


def value_of(found: Answer) -> Any:
    """The value of a call of the page's engine.

    Raises:
        BrowserError: it threw.
    """
    thrown = found.get("exceptionDetails")
    if isinstance(thrown, dict):
        exception = thrown.get("exception", {})
        said = (exception.get("description") if isinstance(exception, dict) else "") or thrown.get("text", "")
        raise BrowserError(f"the script threw: {str(said)[:_WORDS]}")
    result = found.get("result")
    return result.get("value") if isinstance(result, dict) else None


def _shown(each: Any) -> str:
    if not isinstance(each, dict):
        return ""
    value = each.get("value", each.get("description", each.get("type", "")))
    return (value if isinstance(value, str) else str(value))[:_WORDS]
