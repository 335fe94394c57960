"""Which element is meant, and whether it can be used now.

By `ref` (of a snapshot), by `role` and `name`, by `selector` (CSS, through open shadow roots), or by `x` and `y`. An
element is scrolled into view, waited for until it stands still, and tested for what covers it, in its own frame and in
every frame around it; what a person could not click is not clicked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ringfence.browser import scripts
from ringfence.browser.cdp import CallRefused
from ringfence.browser.tab import Element, Frame, Tab
from ringfence.dataclass import dataclass
from ringfence.errors import ElementBlocked, ElementNotFound, InvalidArgument, StaleRef

ADDRESS: Final = ("ref", "role", "name", "selector", "x", "y")
_WHY: Final = {
    "moving": "it does not stand still",
    "hidden": "it is not visible",
    "disabled": "it is disabled",
    "outside": "it cannot be scrolled into view",
}
_PAUSE: Final = 0.1


@dataclass(frozen=True, slots=True)
class Point:
    x: float
    y: float


def is_addressed(given: Mapping[str, Any]) -> bool:
    return any(given.get(name) is not None for name in ADDRESS)


def point_of(given: Mapping[str, Any]) -> Point | None:
    """Coordinates, if that is how it is addressed."""
    if given.get("x") is None and given.get("y") is None:
        return None
    if given.get("x") is None or given.get("y") is None:
        raise InvalidArgument("a point needs x and y", hint="give both, or a ref")
    return Point(float(given["x"]), float(given["y"]))


async def find(tab: Tab, given: Mapping[str, Any]) -> Element:
    """The element that is meant.

    Raises:
        InvalidArgument: none is named.
        StaleRef, ElementNotFound: there is none, or more than one.
    """
    if given.get("ref"):
        return by_ref(tab, given["ref"])
    if given.get("selector"):
        return await _by_selector(tab, given["selector"])
    if given.get("role"):
        return await _by_role(tab, given["role"], given.get("name"))
    raise InvalidArgument("no element is named", hint="give ref (of a snapshot), role and name, or selector")


def by_ref(tab: Tab, ref: str) -> Element:
    element = tab.refs.get(ref)
    if element is None:
        why = "no snapshot of this tab has it" if tab.refs else "no snapshot of this tab was taken"
        raise StaleRef(ref, why)
    tab.frame_of(element)
    return element


async def _by_selector(tab: Tab, selector: str) -> Element:
    found: list[Element] = []
    for frame in tuple(tab.frames.values()):
        if frame.loader and len(found) < 2:
            found += await _query(tab, frame, selector)
    return _only(found, f"the selector {selector!r}")


async def _query(tab: Tab, frame: Frame, selector: str) -> list[Element]:
    try:
        found = await tab.call(
            "Runtime.callFunctionOn",
            {
                "functionDeclaration": scripts.QUERY,
                "executionContextId": await tab.world(frame),
                "arguments": [{"value": selector}],
            },
            session=frame.session,
        )
    except CallRefused:
        return []
    if "exceptionDetails" in found:
        raise InvalidArgument(f"{selector!r} is no selector of CSS", hint="as in document.querySelector")
    handle = found["result"].get("objectId", "")
    parts = await tab.call("Runtime.getProperties", {"objectId": handle, "ownProperties": True}, session=frame.session)
    nodes: list[Element] = []
    for part in parts.get("result", []):
        if str(part.get("name", "")).isdecimal():
            node = await tab.call("DOM.describeNode", {"objectId": part["value"]["objectId"]}, session=frame.session)
            nodes.append(Element(frame.session, frame.id, frame.loader, int(node["node"]["backendNodeId"])))
    tab.connection.post("Runtime.releaseObject", {"objectId": handle}, session=frame.session)
    return nodes


async def _by_role(tab: Tab, role: str, name: str | None) -> Element:
    found: list[Element] = []
    for frame in tuple(tab.frames.values()):
        if not frame.loader:
            continue
        try:
            document = await tab.call(
                "Runtime.evaluate",
                {"expression": "document", "contextId": await tab.world(frame)},
                session=frame.session,
            )
            asked = {"objectId": document["result"]["objectId"], "role": role}
            asked |= {} if name is None else {"accessibleName": name}
            nodes = (await tab.call("Accessibility.queryAXTree", asked, session=frame.session)).get("nodes", [])
        except (CallRefused, KeyError):
            continue
        found += [
            Element(frame.session, frame.id, frame.loader, node["backendDOMNodeId"])
            for node in nodes
            if isinstance(node.get("backendDOMNodeId"), int) and not node.get("ignored")
        ]
    return _only(found, role if name is None else f"{role} {name!r}")


def _only(found: list[Element], what: str) -> Element:
    if not found:
        raise ElementNotFound(f"there is no {what} on the page", hint="take a snapshot to see what there is")
    if len(found) > 1:
        raise ElementNotFound(f"{len(found)} elements are {what}", hint="say which: by a ref of a snapshot")
    return found[0]


async def ready_point(tab: Tab, element: Element, seconds: float) -> Point:
    """Where to click, once it can be.

    Raises:
        ElementBlocked: it cannot, for that long.
        StaleRef: it is gone.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while True:
        why, point = await _look(tab, element)
        if point is not None:
            return point
        if loop.time() >= until:
            raise ElementBlocked(
                f"the element {element.ref} cannot be used: {why}".replace("  ", " "),
                hint="look at a screenshot; close what is in front of it, or use another",
            )
        await asyncio.sleep(_PAUSE)


async def _look(tab: Tab, element: Element) -> tuple[str, Point | None]:
    found = await tab.on(element, scripts.READY)
    state = found.get("state") if isinstance(found, dict) else ""
    if state == "gone":
        raise StaleRef(element.ref or "(element)", "its element is not on the page any more")
    if state == "covered":
        return f"covered by {found.get('by')}", None
    if state != "ready":
        return _WHY.get(str(state), "the page does not say where it is"), None
    return await in_window(tab, tab.frame_of(element), float(found["x"]), float(found["y"]))


async def in_window(tab: Tab, frame: Frame, x: float, y: float) -> tuple[str, Point | None]:
    """A point of a frame as one of the window: through every frame around it."""
    while frame.parent:
        parent = tab.frames.get(frame.parent)
        if parent is None:
            return "its frame is gone", None
        owner = await tab.call("DOM.getFrameOwner", {"frameId": frame.id}, session=parent.session)
        node = Element(parent.session, parent.id, parent.loader, int(owner["backendNodeId"]))
        at = await tab.on(node, scripts.OWNER, x, y)
        if not at["open"]:
            return f"its frame is covered by <{at['by']}>", None
        x, y, frame = float(at["x"]), float(at["y"]), parent
    return "", Point(x, y)
