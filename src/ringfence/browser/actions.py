"""Every action by its name, with what it takes; and the one way in which an action is done.

An action has a deadline, does not run beside another of the same browser, and comes to a `BrowserResult` or to one of
the errors of `ringfence.errors`. What a dialog of the page interrupts is done as far as it was: the result says that a
dialog is open.
"""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ringfence.browser import acting, reading
from ringfence.browser.base import ACTION_SECONDS, BrowserAction, BrowserResult, Workspace
from ringfence.browser.browser import DOWNLOAD_BYTES, Browser, Download
from ringfence.browser.cdp import NONSENSE, CallRefused
from ringfence.browser.elements import ADDRESS
from ringfence.browser.tab import DialogOpened, Tab
from ringfence.browser.work import Done, Work
from ringfence.dataclass import dataclass
from ringfence.errors import BrowserError, BrowserGone, BrowserTimeout, InvalidArgument, WrongType

MOST_SECONDS: Final = 600.0
_COMMON: Final = ("tab", "timeout")
_DOWNLOAD_SECONDS: Final = 30.0
_BEGIN_SECONDS: Final = 0.5
_TITLE_SECONDS: Final = 0.5


async def tabs(work: Work) -> Done:
    """List, open, choose or close tabs."""
    browser, what = work.browser, work.given.get("do", "list")
    match what:
        case "list":
            pass
        case "new":
            tab = await browser.new_tab()
            if url := work.given.get("url"):
                return await acting.navigate(Work(browser, {"url": url, "tab": tab.id}, work.seconds, work.files))
        case "select":
            browser.current = browser.tab(work.text("tab")).id
        case "close":
            await browser.close_tab(browser.tab(work.given.get("tab", "")))
            if not browser.tabs:
                await browser.new_tab()
        case _:
            raise InvalidArgument(f"there is no {what!r} for tabs", hint="list, new, select, close")
    return Done("")


async def downloads(work: Work) -> Done:
    """Wait for what is underway, and carry what is complete into the workspace."""
    browser = work.browser
    try:
        if not browser.downloads:
            await asyncio.sleep(min(work.seconds, _BEGIN_SECONDS))  # what was just clicked
        async with asyncio.timeout(min(work.seconds, _DOWNLOAD_SECONDS)):
            while any(each.state == "inProgress" for each in browser.downloads):
                await asyncio.sleep(0.05)
    except TimeoutError:
        pass
    for each in browser.downloads:
        if each.state == "completed" and not each.path:
            await _carry(work, each)
    rows = [
        {
            "name": each.name,
            "url": each.url,
            "state": each.state,
            "bytes": each.size,
            "saved": each.path,
            "why": each.why,
        }
        for each in browser.downloads
    ]
    text = "\n".join(f"{row['name']} {row['state']} {row['bytes']} bytes {row['saved']} {row['why']}" for row in rows)
    return Done("" if rows else "There are no downloads.", text, {"downloads": rows})


async def _carry(work: Work, download: Download) -> None:
    data = await work.browser.running.store.take(download.guid, DOWNLOAD_BYTES)
    workspace, name = work.workspace(), acting.clean_name(download.name)
    stem, dot, end = name.rpartition(".")
    path, count = f"downloads/{name}", 1
    while await workspace.exists(path):
        count += 1
        path = f"downloads/{stem}-{count}.{end}" if dot and stem else f"downloads/{name}-{count}"
    await workspace.write(path, data)
    download.path, download.size = path, len(data)


@dataclass(frozen=True, slots=True)
class Action:
    do: Callable[[Work], Awaitable[Done]]
    takes: tuple[str, ...]
    changes: bool
    """Whether it can change the page, or the workspace."""


ACTIONS: Final[dict[str, Action]] = {
    "navigate": Action(acting.navigate, ("url", "path"), True),
    "back": Action(acting.back, (), True),
    "forward": Action(acting.forward, (), True),
    "reload": Action(acting.reload, ("ignore_cache",), True),
    "click": Action(acting.click, (*ADDRESS, "button", "double"), True),
    "type": Action(acting.type_text, (*ADDRESS, "text", "append", "submit"), True),
    "press": Action(acting.press, (*ADDRESS, "key"), True),
    "select": Action(acting.select, (*ADDRESS, "values"), True),
    "hover": Action(acting.hover, ADDRESS, True),
    "drag": Action(acting.drag, (*ADDRESS, *(f"to_{name}" for name in ADDRESS)), True),
    "scroll": Action(acting.scroll, (*ADDRESS, "dx", "dy"), True),
    "wait": Action(acting.wait, (*ADDRESS, "text", "gone_text", "network_quiet", "seconds"), False),
    "read": Action(reading.read, (*ADDRESS, "form", "offset", "max_chars"), False),
    "snapshot": Action(reading.take_snapshot, ("interactive", "within", "max_chars", "diff"), False),
    "screenshot": Action(reading.screenshot, (*ADDRESS, "full", "annotate", "kind", "save_to"), False),
    "pdf": Action(reading.pdf, ("save_to",), False),
    "evaluate": Action(reading.evaluate, ("script", "max_chars"), True),
    "tabs": Action(tabs, ("do", "url"), True),
    "dialog": Action(acting.dialog, ("accept", "text"), True),
    "upload": Action(acting.upload, (*ADDRESS, "paths"), True),
    "downloads": Action(downloads, (), True),
    "cookies": Action(reading.cookies, ("set", "clear"), True),
    "storage": Action(reading.storage, ("kind", "set", "clear"), True),
    "console": Action(reading.console, ("clear",), False),
    "network": Action(reading.network, ("clear",), False),
    "settings": Action(
        reading.settings, ("width", "height", "scale", "mobile", "user_agent", "locale", "timezone"), True
    ),
}


def check(action: BrowserAction) -> None:
    """
    Raises:
        InvalidArgument: there is no such action, or it does not take what was given.
    """
    known = ACTIONS.get(action.action)
    if known is None:
        near = difflib.get_close_matches(str(action.action), ACTIONS, 1)
        raise InvalidArgument(
            f"there is no action {action.action!r}", hint=f"did you mean {near[0]!r}?" if near else ", ".join(ACTIONS)
        )
    for name in action.params:
        if name not in known.takes and name not in _COMMON:
            raise InvalidArgument(
                f"{action.action} takes no {name!r}", argument=str(name), hint=", ".join((*known.takes, *_COMMON))
            )


def seconds_for(params: Mapping[str, Any]) -> float:
    seconds = params.get("timeout", ACTION_SECONDS)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise WrongType("timeout", seconds, "a number of seconds")
    if not 0 < seconds <= MOST_SECONDS:
        raise InvalidArgument(f"timeout is {seconds}", argument="timeout", hint=f"above 0, at most {MOST_SECONDS:g}")
    return float(seconds)


async def perform(browser: Browser, action: BrowserAction, files: Workspace | None) -> BrowserResult:
    """Do one action in a browser.

    Raises:
        BrowserError: it cannot be done, or not in time.
        InvalidArgument, WrongType: it makes no sense.
    """
    check(action)
    seconds = seconds_for(action.params)
    work = Work(browser, action.params, seconds, files)
    popups, known = browser.closed_popups, set(browser.tabs)
    begun = len(browser.downloads)
    before = _tab(browser, action)
    was_open = before is not None and before.dialog is not None
    try:
        # Each wait has its own deadline with its own words; this one is for all of them together.
        async with asyncio.timeout(seconds + 1.0):
            done = await ACTIONS[action.action].do(work)
    except TimeoutError as fault:
        if isinstance(fault, BrowserError):
            raise
        raise BrowserTimeout(f"{action.action} is not done", seconds) from None
    except DialogOpened:
        if was_open:  # nothing was done
            raise
        done = Done("")
    except CallRefused as fault:
        raise BrowserError(f"{action.action}: the browser refuses it ({fault.said})") from None
    except NONSENSE as fault:
        if isinstance(fault, BrowserError | InvalidArgument | WrongType):
            raise
        raise BrowserGone(f"{action.action}: what the browser answered makes no sense") from None
    if ACTIONS[action.action].changes and (shown := _tab(browser, action)) is not None:
        await _look_at_title(shown)
    return _result(browser, action, done, popups, known, begun)


async def _look_at_title(tab: Tab) -> None:
    """What the browser tells of it comes late."""
    if tab.dialog is None and not tab.is_crashed:
        with suppress(BrowserError):
            tab.title = str(await tab.run("() => document.title.slice(0, 500)", seconds=_TITLE_SECONDS))


def _tab(browser: Browser, action: BrowserAction) -> Tab | None:
    name = action.params.get("tab") or browser.current
    return browser.tabs.get(name)


def _result(
    browser: Browser, action: BrowserAction, done: Done, popups: int, known: set[str], begun: int
) -> BrowserResult:
    tab = browser.tabs.get(browser.current) if action.action == "tabs" else _tab(browser, action)
    values: dict[str, Any] = {}
    said = [done.said]
    if tab is not None:
        values |= {"tab": tab.id, "url": tab.url, "title": tab.title}
        if tab.dialog is not None:
            values["dialog"] = {"kind": tab.dialog.kind, "message": tab.dialog.message}
            said.append(f"A dialog of the page is open ({tab.dialog.kind}): close it with the action dialog.")
    if new := [name for name in browser.tabs if name not in known]:
        said.append(f"New tabs: {', '.join(new)}.")
    if len(browser.downloads) > begun:
        said.append("A download has begun: the action downloads carries it into the workspace.")
    if browser.closed_popups > popups:
        said.append(f"{browser.closed_popups - popups} popups were closed at once: too many tabs.")
    if action.action == "tabs" or new:
        values["tabs"] = [
            {"id": each.id, "url": each.url, "title": each.title, "current": each.id == browser.current}
            for each in browser.tabs.values()
        ]
    running = browser.running
    return BrowserResult(
        action=action.action,
        said=" ".join(filter(None, said)),
        page=done.page,
        values=values | dict(done.values),
        files=done.files,
        browser=running.kind,
        walled=running.walled,
    )
