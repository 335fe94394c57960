"""A page as a tree of roles, names and states, with a ref for each element that can be named later.

From the browser's own accessibility tree, frame by frame. A ref stays the same as long as its element does, so that two
snapshots can be compared; it is bound to the document, and stale when that is left.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

from ringfence.browser.cdp import CallRefused
from ringfence.browser.tab import Element, Frame, Tab
from ringfence.dataclass import dataclass, replace

INTERACTIVE: Final = frozenset(
    (
        *("button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox", "option", "menuitem"),
        *("menuitemcheckbox", "menuitemradio", "tab", "slider", "spinbutton", "switch", "treeitem", "gridcell"),
        *("DisclosureTriangle", "ColorWell", "Date", "DateTime", "InputTime"),
    )
)
_HOISTED: Final = frozenset({"none", "generic", "RootWebArea", "InlineTextBox", "LineBreak", "ListMarker", "Ignored"})
"""Nothing to say of them: their children stand in their place."""
_STATES: Final = (
    "disabled",
    "checked",
    "pressed",
    "expanded",
    "selected",
    "required",
    "readonly",
    "invalid",
    "focused",
)
_NAME: Final = 160
_DEPTH: Final = 60
_REFS: Final = 20_000
DEFAULT_CHARACTERS: Final = 8_000


@dataclass(frozen=True, slots=True)
class Line:
    depth: int
    text: str
    element: Element | None
    is_interactive: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    text: str
    lines: int
    """Of the whole."""
    shown: int


async def take(
    tab: Tab,
    *,
    interactive: bool = False,
    within: Element | None = None,
    most: int = DEFAULT_CHARACTERS,
    diff: bool = False,
) -> Snapshot:
    """
    Args:
        interactive: only what can be clicked, typed into or chosen.
        within: only this element and what is in it.
        most: characters; the rest is left out, and that is said.
        diff: only what differs from the last snapshot.
    """
    main = tab.main
    lines: list[Line] = []
    if main is not None:
        lines = [line async for line in _frame(tab, main, 0)]
    if within is not None:
        lines = _within(lines, within)
    if len(tab.refs) > _REFS:  # of documents that were left
        tab.refs = {ref: each for ref, each in tab.refs.items() if each.frame in tab.frames}
        tab.known = {(each.session, each.loader, each.backend): ref for ref, each in tab.refs.items()}
    if interactive:
        written = [f"- {line.text}" for line in lines if line.is_interactive]
    else:
        written = [f"{'  ' * line.depth}- {line.text}" for line in lines]
    before, tab.snapshot = tab.snapshot, written
    if diff:
        found = difflib.unified_diff(before, written, n=0, lineterm="")
        written = [line for line in found if not line.startswith(("---", "+++", "@@"))]
    return _cut(written, most)


def _cut(lines: list[str], most: int) -> Snapshot:
    size = 0
    for count, line in enumerate(lines):
        size += len(line) + 1
        if size > most:
            return Snapshot("\n".join(lines[:count]), len(lines), count)
    return Snapshot("\n".join(lines), len(lines), len(lines))


def _within(lines: list[Line], wanted: Element) -> list[Line]:
    for index, line in enumerate(lines):
        if line.element is not None and (line.element.session, line.element.backend) == (
            wanted.session,
            wanted.backend,
        ):
            end = next((i for i in range(index + 1, len(lines)) if lines[i].depth <= line.depth), len(lines))
            return [replace(each, depth=each.depth - line.depth) for each in lines[index:end]]
    return []


async def _frame(tab: Tab, frame: Frame, depth: int) -> AsyncIterator[Line]:
    try:
        tree = await tab.call("Accessibility.getFullAXTree", {"frameId": frame.id}, session=frame.session)
    except CallRefused:
        return
    nodes = {str(node["nodeId"]): node for node in tree.get("nodes", []) if "nodeId" in node}
    roots = [node for node in nodes.values() if str(node.get("parentId", "")) not in nodes]
    for node, level, text in _walk(nodes, roots[:1]):
        backend = node.get("backendDOMNodeId")
        element = None
        if isinstance(backend, int) and _role(node) != "StaticText":
            element = _named(tab, frame, backend)
            text = _with_ref(text, element.ref)
        role = _role(node)
        is_interactive = role in INTERACTIVE or (_is_focusable(node) and not role.startswith("Iframe"))
        yield Line(min(depth + level, _DEPTH), text, element, is_interactive)
        if role.startswith("Iframe") and isinstance(backend, int):
            child = await _child(tab, frame, backend)
            if child is not None and depth < _DEPTH:
                async for line in _frame(tab, child, depth + level + 1):
                    yield line


async def _child(tab: Tab, frame: Frame, backend: int) -> Frame | None:
    try:
        node = await tab.call("DOM.describeNode", {"backendNodeId": backend}, session=frame.session)
    except CallRefused:
        return None
    return tab.frames.get(str(node.get("node", {}).get("frameId", "")))


def _walk(nodes: dict[str, Any], roots: list[Any]) -> Iterator[tuple[dict[str, Any], int, str]]:
    """What is worth a line, with how deep it stands; each node once, whatever the browser says."""
    waiting: list[tuple[Any, int, str]] = [(node, 0, "") for node in reversed(roots)]
    seen: set[str] = set()
    while waiting:
        node, level, around = waiting.pop()
        id = str(node["nodeId"])
        if id in seen:
            continue
        seen.add(id)
        role, name = _role(node), _name(node)
        is_shown = not node.get("ignored") and role not in _HOISTED
        if role == "StaticText":
            is_shown = is_shown and bool(name) and name not in around
        if is_shown:
            yield node, level, _text(node, role, name)
        inner = level + is_shown
        value = (node.get("value") or {}).get("value") or ""
        words = f"{name} {value}" if is_shown and name else around
        if role == "StaticText":
            continue
        children = (nodes.get(str(child)) for child in reversed(node.get("childIds", ())))
        waiting += [(child, inner, words) for child in children if child is not None]


def _role(node: dict[str, Any]) -> str:
    return str((node.get("role") or {}).get("value", ""))[:40]


def _name(node: dict[str, Any]) -> str:
    return " ".join(str((node.get("name") or {}).get("value", "")).split())


def _is_focusable(node: dict[str, Any]) -> bool:
    return any(each.get("name") == "focusable" for each in node.get("properties", ())) and bool(_name(node))


def _text(node: dict[str, Any], role: str, name: str) -> str:
    short = name if len(name) <= _NAME else f"{name[:_NAME]}..."
    if role == "StaticText":
        return f"text: {short}"
    parts = [role]
    if name:
        parts.append(json.dumps(short, ensure_ascii=False))
    states = {each.get("name"): (each.get("value") or {}).get("value") for each in node.get("properties", ())}
    parts += [f"[{_state(key, states[key])}]" for key in _STATES if states.get(key) not in (None, False, "false")]
    if "level" in states:
        parts.append(f"[level={states['level']}]")
    value = (node.get("value") or {}).get("value")
    if value not in (None, "") and str(value) != name:
        parts.append(f"value={json.dumps(str(value)[:_NAME], ensure_ascii=False)}")
    return " ".join(parts)


def _state(key: str, value: Any) -> str:
    return key if value in (True, "true") else f"{key}={value}"


def _with_ref(text: str, ref: str) -> str:
    return f"{text} [ref={ref}]"


def _named(tab: Tab, frame: Frame, backend: int) -> Element:
    key = (frame.session, frame.loader, backend)
    ref = tab.known.get(key)
    if ref is None:
        tab.ref_count += 1
        ref = tab.known[key] = f"e{tab.ref_count}"
    element = tab.refs.get(ref)
    if element is None:
        element = tab.refs[ref] = Element(frame.session, frame.id, frame.loader, backend, ref)
    return element
