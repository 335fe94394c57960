"""A tab as a person sees it: pictures as they change, and a person's mouse and keys. For consoles, not for models.

async for frame in frames(browser):
    send(frame.data)
await act(browser, PersonInput("mousePressed", x=10, y=20))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from ringfence.browser.browser import Browser
from ringfence.browser.cdp import Answer
from ringfence.browser.keys import key_events
from ringfence.browser.reading import decoded
from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument

_MOUSE: Final = ("mousePressed", "mouseReleased", "mouseMoved", "mouseWheel")
_FRAME_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LiveFrame:
    """One picture of the tab."""

    tab: str
    url: str
    data: bytes = field(repr=False)
    """JPEG."""
    width: float = 0
    height: float = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonInput:
    """What a person did. `kind` is an event of the mouse, `key` or `text`."""

    kind: str
    x: float = 0
    y: float = 0
    button: str = "none"
    clicks: int = 0
    dx: float = 0
    dy: float = 0
    key: str = ""
    text: str = ""


async def frames(browser: Browser, tab: str = "", *, quality: int = 60, width: int = 1280) -> AsyncIterator[LiveFrame]:
    """Pictures of a tab as it changes, until the caller stops; the newest only, where they come faster than they are
    taken.

    Raises:
        BrowserGone: it has ended.
    """
    chosen = browser.tab(tab)
    latest: asyncio.Queue[Answer] = asyncio.Queue(maxsize=1)

    def listen(params: Answer) -> None:
        number = params["sessionId"]
        browser.connection.post("Page.screencastFrameAck", {"sessionId": number}, session=chosen.session)
        if latest.full():
            latest.get_nowait()
        latest.put_nowait(params)

    browser.screencasts[chosen.session] = listen
    try:
        asked: dict[str, Any] = {"format": "jpeg", "quality": quality, "maxWidth": width, "maxHeight": 4 * width}
        await chosen.call("Page.startScreencast", asked)
        while True:
            waiting = asyncio.ensure_future(latest.get())
            changed = asyncio.ensure_future(chosen.wait_changed())
            done, _ = await asyncio.wait((waiting, changed), return_when=asyncio.FIRST_COMPLETED)
            changed.cancel()
            if waiting not in done:
                waiting.cancel()
                browser.tab(chosen.id)  # raises when it is gone
                continue
            params = waiting.result()
            if len(params["data"]) > _FRAME_BYTES:
                continue
            size = params.get("metadata", {})
            shown = float(size.get("deviceWidth", 0)), float(size.get("deviceHeight", 0))
            yield LiveFrame(chosen.id, chosen.url, decoded(params["data"]), *shown)
    finally:
        browser.screencasts.pop(chosen.session, None)
        browser.connection.post("Page.stopScreencast", session=chosen.session)


async def act(browser: Browser, given: PersonInput, tab: str = "") -> None:
    """Do what a person did.

    Raises:
        InvalidArgument: there is no such input.
        BrowserError: it cannot be done.
    """
    chosen = browser.tab(tab)
    if given.kind in _MOUSE:
        event: Answer = {"type": given.kind, "x": given.x, "y": given.y, "button": given.button}
        if given.kind == "mouseWheel":
            event |= {"deltaX": given.dx, "deltaY": given.dy}
        elif given.kind != "mouseMoved":
            event["clickCount"] = max(1, given.clicks)
        await chosen.call("Input.dispatchMouseEvent", event)
    elif given.kind == "key":
        for each in key_events(given.key):
            await chosen.call("Input.dispatchKeyEvent", each)
    elif given.kind == "text":
        await chosen.call("Input.insertText", {"text": given.text})
    else:
        raise InvalidArgument(f"there is no input {given.kind!r}", hint=", ".join((*_MOUSE, "key", "text")))
