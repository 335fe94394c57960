"""Actions that look: text, snapshot, logs, cookies, pictures. What they give was written by the page."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, Final

from ringfence.browser import scripts, snapshot
from ringfence.browser.base import PageFile
from ringfence.browser.cdp import Answer
from ringfence.browser.elements import by_ref, find, is_addressed
from ringfence.browser.tab import Tab, value_of
from ringfence.browser.work import Done, Work
from ringfence.errors import BrowserError, InvalidArgument

MOST_CHARACTERS: Final = 200_000
USUAL_CHARACTERS: Final = 20_000
_FORMS: Final = {
    "text": (scripts.TEXT, scripts.OWN_TEXT),
    "markdown": (scripts.MARKDOWN, scripts.OWN_MARKDOWN),
    "html": (scripts.HTML, scripts.OWN_HTML),
}
_LISTS: Final = {"links": scripts.LINKS, "forms": scripts.FORMS}
_LIST_ITEMS: Final = 200
_TALLEST: Final = 16_384
"""Pixels: what the browser's picture formats take."""
_LABELS: Final = 150


async def read(work: Work) -> Done:
    form = work.given.get("form", "markdown")
    offset = work.number("offset", 0, 1_000_000_000)
    if form in _LISTS:
        found, total = await work.tab.run(_LISTS[form], offset, _LIST_ITEMS)
        said = _rest(offset, len(found), total, "of them")
        return Done(said, json.dumps(found, ensure_ascii=False, indent=1), {form: found, "total": total})
    if form not in _FORMS:
        raise InvalidArgument(f"there is no form {form!r}", hint=f"one of {', '.join((*_FORMS, *_LISTS))}")
    most = work.number("max_chars", USUAL_CHARACTERS, MOST_CHARACTERS)
    whole, own = _FORMS[form]
    if is_addressed(work.given):
        found, total = await work.tab.on(await find(work.tab, work.given), own, offset, most)
    else:
        found, total = await work.tab.run(whole, offset, most)
    text = str(found)[:most]
    more = {"next_offset": offset + len(text)} if offset + len(text) < total else {}
    return Done(_rest(offset, len(text), total, "characters"), text, {"length": total, **more})


def _rest(offset: int, count: int, total: int, unit: str) -> str:
    end = offset + count
    return f"{end} of {total} {unit}: go on with offset {end}." if end < total else ""


async def take_snapshot(work: Work) -> Done:
    tab, ref = work.tab, work.given.get("within")
    found = await snapshot.take(
        tab,
        interactive=bool(work.given.get("interactive", False)),
        within=by_ref(tab, ref) if ref else None,
        most=work.number("max_chars", snapshot.DEFAULT_CHARACTERS, MOST_CHARACTERS),
        diff=bool(work.given.get("diff", False)),
    )
    said = ""
    if found.shown < found.lines:
        said = (
            f"{found.shown} of {found.lines} lines: ask for more with max_chars, for less with within or interactive."
        )
    elif not found.lines and work.given.get("diff"):
        said = "Nothing has changed since the last snapshot."
    return Done(said, found.text, {"lines": found.lines, "shown": found.shown})


async def evaluate(work: Work) -> Done:
    """In the page's own world: what the page has changed is what the script sees."""
    tab = work.tab
    asked = {
        "expression": work.text("script"),
        "returnByValue": True,
        "awaitPromise": True,
        "userGesture": False,
        "timeout": int(work.seconds * 1000),
    }
    value = value_of(await tab.call("Runtime.evaluate", asked, seconds=work.seconds))
    text = json.dumps(value, ensure_ascii=False, indent=1)
    most = work.number("max_chars", USUAL_CHARACTERS, MOST_CHARACTERS)
    if len(text) > most:
        return Done(f"{most} of {len(text)} characters.", text[:most], {"length": len(text)})
    return Done("", text, {"value": value})


# --- pictures ---------------------------------------------------------------------------------------------------------


async def screenshot(work: Work) -> Done:
    tab, kind = work.tab, work.given.get("kind", "png")
    if kind not in ("png", "jpeg"):
        raise InvalidArgument(f"there is no picture of kind {kind!r}", hint="png or jpeg")
    asked: Answer = {"format": kind, **({"quality": 80} if kind == "jpeg" else {})}
    if is_addressed(work.given):
        x, y, width, height = await tab.on(await find(tab, work.given), scripts.PAGE_BOX)
        asked |= {"clip": _clip(x, y, width, height), "captureBeyondViewport": True}
    elif work.given.get("full"):
        size = (await tab.call("Page.getLayoutMetrics"))["cssContentSize"]
        asked |= {"clip": _clip(0, 0, size["width"], size["height"]), "captureBeyondViewport": True}
    labels = await _label(work) if work.given.get("annotate") else 0
    try:
        found = await tab.call("Page.captureScreenshot", asked, seconds=work.seconds)
    finally:
        if labels:
            await tab.run(scripts.UNLABEL)
    said = f"{labels} elements are marked with their refs." if labels else ""
    picture = PageFile(f"screenshot.{kind}", f"image/{kind}", decoded(found["data"]))
    return await _kept(work, Done(said, files=(picture,)), picture)


def _clip(x: float, y: float, width: float, height: float) -> dict[str, float]:
    if width < 1 or height < 1:
        raise BrowserError("there is nothing to be seen of it", hint="take a picture of the page")
    return {"x": x, "y": y, "width": min(width, _TALLEST), "height": min(height, _TALLEST), "scale": 1}


async def _label(work: Work) -> int:
    """Write refs over what can be clicked, as far as it is in the window and in the page itself."""
    tab = work.tab
    await snapshot.take(tab, interactive=True)
    main = tab.main
    shown: list[list[Any]] = []
    for ref, element in tab.refs.items():
        if main is None or element.frame != main.id or element.loader != main.loader or len(shown) >= _LABELS:
            continue
        if any(f"[ref={ref}]" in line for line in tab.snapshot):
            x, y, width, height = await tab.on(element, scripts.BOX)
            if width and height and x + width > 0 and y + height > 0:
                shown.append([ref, x, y, width, height])
    await tab.run(scripts.LABELS, shown)
    return len(shown)


async def pdf(work: Work) -> Done:
    found = await work.tab.call("Page.printToPDF", {"printBackground": True}, seconds=work.seconds)
    return await _kept(work, Done(""), PageFile("page.pdf", "application/pdf", decoded(found["data"])), always=True)


async def _kept(work: Work, done: Done, made: PageFile, *, always: bool = False) -> Done:
    """Into the workspace, if that is asked for; a PDF, which no model is shown, is given out otherwise."""
    path = work.given.get("save_to")
    if path is None:
        return Done(done.said, files=(made,)) if always else done
    await work.workspace().write(work.text("save_to"), made.data)
    return Done(f"{done.said} Saved as {path}.".strip(), values={"saved": path}, files=done.files)


def decoded(data: Any) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise BrowserError("what the browser sent is no picture") from None


# --- logs, cookies, storage, settings ---------------------------------------------------------------------------------


async def console(work: Work) -> Done:
    tab = work.browser.tab(work.given.get("tab", ""))
    lines = list(tab.console)
    if work.given.get("clear"):
        tab.console.clear()
    return Done("", "\n".join(f"[{one['level']}] {one['text']}" for one in lines), {"console": lines})


async def network(work: Work) -> Done:
    tab = work.browser.tab(work.given.get("tab", ""))
    lines = list(tab.requests)
    if work.given.get("clear"):
        tab.requests.clear()
    text = "\n".join(f"{one['method']} {one['url']} {one['status'] or one['error'] or 'open'}" for one in lines)
    return Done((await work.network_refusals()).strip(" ()"), text, {"requests": lines})


async def cookies(work: Work) -> Done:
    tab = work.tab
    if work.given.get("clear"):
        await tab.call("Network.clearBrowserCookies")
    for cookie in work.given.get("set", ()):
        allowed = ("name", "value", "url", "domain", "path", "secure", "httpOnly", "sameSite", "expires")
        asked = {key: cookie[key] for key in allowed if key in cookie}
        if "url" not in asked and "domain" not in asked:
            asked["url"] = tab.url
        answer = await tab.call("Network.setCookie", asked)
        if answer.get("success") is False:
            raise BrowserError("the browser does not take this cookie", hint="give name, value and url")
    found = (await tab.call("Network.getCookies")).get("cookies", [])
    kept = [{key: one.get(key) for key in ("name", "value", "domain", "path", "expires")} for one in found[:300]]
    return Done("", "\n".join(f"{one['name']}={one['value']} ({one['domain']})" for one in kept), {"cookies": kept})


async def storage(work: Work) -> Done:
    kind = work.given.get("kind", "local")
    if kind not in ("local", "session"):
        raise InvalidArgument(f"there is no storage {kind!r}", hint="local or session")
    values = work.given.get("set") or {}
    found = await work.tab.run(scripts.STORAGE, kind, dict(values), bool(work.given.get("clear", False)))
    return Done("", json.dumps(found, ensure_ascii=False, indent=1), {"storage": found})


async def settings(work: Work) -> Done:
    """Viewport, user agent, language, time zone: for this tab and those that are opened later."""
    given = work.given
    changed: dict[str, Answer] = {}
    if "width" in given or "height" in given:
        size = {"width": work.number("width", 1280, 8000), "height": work.number("height", 720, 8000)}
        changed["Emulation.setDeviceMetricsOverride"] = size | {
            "deviceScaleFactor": float(given.get("scale", 1)),
            "mobile": bool(given.get("mobile", False)),
        }
    if "user_agent" in given or "locale" in given:
        agent = given.get("user_agent") or (await work.browser.connection.call("Browser.getVersion"))["userAgent"]
        override = {"userAgent": agent}
        if "locale" in given:
            override["acceptLanguage"] = work.text("locale")
            changed["Emulation.setLocaleOverride"] = {"locale": work.text("locale")}
        changed["Emulation.setUserAgentOverride"] = override
    if "timezone" in given:
        changed["Emulation.setTimezoneOverride"] = {"timezoneId": work.text("timezone")}
    for method, params in changed.items():
        await work.tab.call(method, params)
    work.browser.emulation.update(changed)
    return Done("Set." if changed else "Nothing was given to set.")


def title_of(tab: Tab) -> str:
    return tab.title or tab.url
