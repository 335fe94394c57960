"""Actions that change something: where a tab is, what is clicked, typed, chosen, handed over."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, Final
from urllib.parse import urlsplit

from ringfence.browser import scripts
from ringfence.browser.cdp import CallRefused
from ringfence.browser.elements import Point, find, is_addressed, point_of, ready_point
from ringfence.browser.keys import key_events
from ringfence.browser.tab import DialogOpened, Tab
from ringfence.browser.work import Done, Work
from ringfence.errors import BrowserError, BrowserTimeout, ElementBlocked, InvalidArgument, NavigationFailed

_READY_SECONDS: Final = 5.0
_SETTLE_SECONDS: Final = 5.0
_NOTICE_SECONDS: Final = 0.06
"""How soon after a click a navigation is known to have begun."""
_QUIET_SECONDS: Final = 0.5
_SCHEMES: Final = ("http", "https")
_TYPED: Final = 100_000
_SAFE_NAME: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._- ()+,=@")


# --- where it is ------------------------------------------------------------------------------------------------------


async def navigate(work: Work) -> Done:
    if work.given.get("path"):
        url = await _hand_over(work, work.text("path"))
    else:
        url = checked_url(work.text("url"))
    tab = work.tab
    tab.is_crashed = False  # another page is another process
    main = tab.main
    if main is not None:
        main.is_loading = True
    try:
        answer = await tab.call("Page.navigate", {"url": url}, seconds=work.seconds)
    except CallRefused as fault:
        raise NavigationFailed(url, fault.said) from None
    if why := str(answer.get("errorText", "")):
        if why == "net::ERR_ABORTED" and await _became_download(work):
            return Done("It is a download; see the action downloads.")
        raise NavigationFailed(url, f"{why}{await work.network_refusals()}", hint=_hint(url, why))
    await _wait_loaded(tab, work.seconds)
    return Done("")


async def _became_download(work: Work) -> bool:
    await asyncio.sleep(_NOTICE_SECONDS)
    return bool(work.browser.downloads)


async def _hand_over(work: Work, path: str) -> str:
    """A file of the workspace, for the browser to show."""
    data = await work.workspace().read(path)
    inside = await work.browser.running.store.put(clean_name(os.path.basename(path)), data)
    work.browser.readable.add(inside)
    return f"file://{inside}"


def checked_url(url: str) -> str:
    """
    Raises:
        NavigationFailed: it is no address of the web.
    """
    if url == "about:blank":
        return url
    if "://" not in url and not url.startswith(("data:", "javascript:", "blob:", "view-source:", "about:")):
        url = f"http://{url}" if url.startswith(("localhost", "127.0.0.1")) else f"https://{url}"
    parts = urlsplit(url)
    if parts.scheme.lower() not in _SCHEMES or not parts.netloc:
        raise NavigationFailed(
            url[:200],
            f"the scheme {parts.scheme[:40]!r} is not opened: http, https and about:blank are",
            hint="a file of the workspace is shown with path",
        )
    return url


def _hint(url: str, why: str) -> str:
    host = urlsplit(url).hostname or ""
    if host in ("localhost", "::1") or host.endswith(".localhost") or host.startswith("127."):
        return "nobody listens at this port of the session's box; is the server started?"
    if "TUNNEL" in why or "PROXY" in why or "SOCKS" in why:
        return "the network refused it: only hosts that are granted can be reached"
    if "INTERNET_DISCONNECTED" in why or "NAME_NOT_RESOLVED" in why or "ADDRESS_UNREACHABLE" in why:
        return "the browser has no network, or not this host: it can be granted with network="
    return ""


async def _wait_loaded(tab: Tab, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            while (main := tab.main) is not None and main.is_loading:
                await tab.wait_changed()
                tab.check()
    except TimeoutError:
        raise BrowserTimeout(f"the page {tab.url[:100]} has not loaded", seconds, hint="read it as it is") from None


async def history(work: Work, step: int) -> Done:
    tab = work.tab
    found = await tab.call("Page.getNavigationHistory")
    index = int(found["currentIndex"]) + step
    entries = found["entries"]
    if not 0 <= index < len(entries):
        raise NavigationFailed(tab.url, "there is no page further on" if step > 0 else "there is no page before it")
    if main := tab.main:
        main.is_loading = True
    await tab.call("Page.navigateToHistoryEntry", {"entryId": entries[index]["id"]})
    await _loaded_or_shown(tab, work.seconds)
    return Done("")


async def _loaded_or_shown(tab: Tab, seconds: float) -> None:
    """A page from the cache for going back tells of no loading."""
    before, until = tab.document_count, time.monotonic() + min(seconds, 1.0)
    while tab.document_count == before and time.monotonic() < until:
        await asyncio.sleep(0.02)
    if tab.document_count == before and (main := tab.main):
        main.is_loading = False
    await _wait_loaded(tab, seconds)


async def back(work: Work) -> Done:
    return await history(work, -1)


async def forward(work: Work) -> Done:
    return await history(work, 1)


async def reload(work: Work) -> Done:
    tab = work.tab
    if main := tab.main:
        main.is_loading = True
    await tab.call("Page.reload", {"ignoreCache": bool(work.given.get("ignore_cache", False))})
    await _wait_loaded(tab, work.seconds)
    return Done("")


# --- mouse and keys ---------------------------------------------------------------------------------------------------


async def _at(work: Work, given: Any = None) -> Point:
    given = work.given if given is None else given
    point = point_of(given)
    if point is not None:
        return point
    return await ready_point(work.tab, await find(work.tab, given), min(work.seconds, _READY_SECONDS))


async def mouse(tab: Tab, kind: str, point: Point, **more: Any) -> None:
    await tab.call("Input.dispatchMouseEvent", {"type": kind, "x": point.x, "y": point.y, **more})


async def click(work: Work) -> Done:
    tab, point = work.tab, await _at(work)
    button, count = work.given.get("button", "left"), 2 if work.given.get("double") else 1
    held = {"button": button, "clickCount": count}
    await mouse(tab, "mouseMoved", point)
    for number in range(1, count + 1):
        await mouse(tab, "mousePressed", point, **(held | {"clickCount": number}))
        await mouse(tab, "mouseReleased", point, **(held | {"clickCount": number}))
    return await _settled(work)


async def hover(work: Work) -> Done:
    await mouse(work.tab, "mouseMoved", await _at(work))
    return Done("")


async def drag(work: Work) -> Done:
    tab, begin = work.tab, await _at(work)
    end = await _at(work, {key.removeprefix("to_"): one for key, one in work.given.items() if key.startswith("to_")})
    await mouse(tab, "mouseMoved", begin)
    await mouse(tab, "mousePressed", begin, button="left", clickCount=1)
    for part in (0.1, 0.5, 0.9, 1.0):
        between = Point(begin.x + (end.x - begin.x) * part, begin.y + (end.y - begin.y) * part)
        await mouse(tab, "mouseMoved", between, button="left", buttons=1)
    await mouse(tab, "mouseReleased", end, button="left", clickCount=1)
    return await _settled(work)


async def scroll(work: Work) -> Done:
    tab = work.tab
    if is_addressed(work.given) and "dx" not in work.given and "dy" not in work.given:
        await _at(work)
        return Done("")
    dx, dy = float(work.given.get("dx", 0)), float(work.given.get("dy", 600))
    if not is_addressed(work.given) and await tab.run(scripts.SCROLL, dx, dy):
        return Done("")
    point = await _at(work) if is_addressed(work.given) else Point(200, 200)
    await mouse(tab, "mouseWheel", point, deltaX=dx, deltaY=dy)
    return Done("")


async def type_text(work: Work) -> Done:
    text, tab = work.text("text", may_be_empty=True), work.tab
    if len(text) > _TYPED:
        raise InvalidArgument(f"more than {_TYPED} characters", argument="text", hint="hand it over as a file")
    if is_addressed(work.given):
        point = point_of(work.given)
        if point is not None:
            await click(work)
        else:
            element = await find(tab, work.given)
            await ready_point(tab, element, min(work.seconds, _READY_SECONDS))
            if work.given.get("append"):
                await tab.on(element, scripts.FOCUS)
            elif not await tab.on(element, scripts.CLEAR):
                raise ElementBlocked("nothing can be typed into this element", hint="choose a text box")
            elif not text:
                await _press(tab, "Delete")
    if text:
        await tab.call("Input.insertText", {"text": text})
    if work.given.get("submit"):
        await _press(tab, "Enter")
    return await _settled(work)


async def press(work: Work) -> Done:
    if is_addressed(work.given):
        await work.tab.on(await find(work.tab, work.given), scripts.FOCUS)
    await _press(work.tab, work.text("key"))
    return await _settled(work)


async def _press(tab: Tab, key: str) -> None:
    for event in key_events(key):
        await tab.call("Input.dispatchKeyEvent", event)


async def select(work: Work) -> Done:
    wanted = work.given.get("values")
    if not isinstance(wanted, list | tuple) or not wanted:
        raise InvalidArgument("no choice is named", argument="values", hint="give a list of labels or values")
    element = await find(work.tab, work.given)
    found = await work.tab.on(element, scripts.SELECT, list(map(str, wanted)))
    if "error" in found:
        choices = ", ".join(map(str, found.get("choices", [])))
        raise ElementBlocked(str(found["error"]), hint=f"it has {choices}"[:500] if choices else "")
    settled = await _settled(work)
    return Done(settled.said, values={"chosen": found["chosen"]})


async def _settled(work: Work) -> Done:
    """Where what was done leads to another page, wait for that; not for long, since the action itself is done."""
    tab = work.tab
    await asyncio.sleep(_NOTICE_SECONDS)
    tab.check()
    main = tab.main
    if main is not None and main.is_loading:
        try:
            await _wait_loaded(tab, min(work.seconds, _SETTLE_SECONDS))
        except BrowserTimeout:
            return Done("The page that follows is still loading.")
    return Done("")


# --- waiting, dialogs, files ------------------------------------------------------------------------------------------


async def wait(work: Work) -> Done:
    """Raises BrowserTimeout if it does not come."""
    given, tab = work.given, work.tab
    what = next((name for name in ("text", "gone_text", "network_quiet", "seconds") if given.get(name)), "")
    if not what and not is_addressed(given):
        raise InvalidArgument(
            "nothing to wait for is named", hint="text, gone_text, an element, network_quiet, seconds"
        )
    if what == "seconds":
        await asyncio.sleep(min(float(given["seconds"]), work.seconds))
        return Done("")
    until = time.monotonic() + work.seconds
    while not await _has_come(work, what):
        if time.monotonic() + 0.1 > until:
            raise BrowserTimeout(f"what was waited for has not come on {tab.url[:100]}", work.seconds)
        await asyncio.sleep(0.1)
    return Done("")


async def _has_come(work: Work, what: str) -> bool:
    tab = work.tab
    try:
        if what in ("text", "gone_text"):
            found = [
                await tab.run(scripts.HAS_TEXT, work.text(what), frame=frame) for frame in tuple(tab.frames.values())
            ]
            return any(found) is (what == "text")
        if what == "network_quiet":
            return not tab.in_flight and time.monotonic() - tab.last_traffic > _QUIET_SECONDS
        await find(tab, work.given)
    except DialogOpened:
        raise
    except (LookupError, BrowserError):
        return False
    return True


async def dialog(work: Work) -> Done:
    tab = work.browser.tab(work.given.get("tab", ""))
    if tab.dialog is None:
        raise BrowserError("no dialog is open")
    answer: dict[str, Any] = {"accept": bool(work.given.get("accept", True))}
    if work.given.get("text") is not None:
        answer["promptText"] = work.text("text", may_be_empty=True)
    tab.dialog = None
    await work.browser.connection.call("Page.handleJavaScriptDialog", answer, session=tab.session)
    return await _settled(work)


async def upload(work: Work) -> Done:
    paths = work.given.get("paths")
    if not isinstance(paths, list | tuple) or not paths or not all(isinstance(path, str) for path in paths):
        raise InvalidArgument("no file is named", argument="paths", hint="give a list of paths in the workspace")
    element = await find(work.tab, work.given)
    store, inside = work.browser.running.store, []
    for path in paths:
        data = await work.workspace().read(path)
        inside.append(await store.put(clean_name(os.path.basename(path)), data))
    try:
        await work.tab.call(
            "DOM.setFileInputFiles", {"files": inside, "backendNodeId": element.backend}, session=element.session
        )
    except CallRefused as fault:
        raise ElementBlocked(f"no file can be given to this element: {fault.said}") from None
    return Done(f"Handed over: {', '.join(map(clean_name, map(os.path.basename, paths)))}.")


def clean_name(name: str) -> str:
    """A name for a file that leads nowhere and hides nothing, whoever proposed it."""
    base = name.replace("\\", "/").rpartition("/")[2]
    kept = "".join(each if each in _SAFE_NAME or (each.isalnum() and each.isprintable()) else "_" for each in base)
    kept = kept.lstrip(". ").rstrip(". ")
    while len(kept.encode()) > 120:
        stem, dot, end = kept.rpartition(".")
        kept = f"{stem[:-1]}.{end}" if dot and stem and len(end) < 10 else kept[:-1]
    return kept or "file"
