"""Keys by name, as the protocol wants them told: `Enter`, `Control+a`, `ArrowDown`, or a character."""

from typing import Any, Final

from ringfence.errors import InvalidArgument

_MODIFIERS: Final = {"alt": 1, "control": 2, "ctrl": 2, "meta": 4, "shift": 8}
_NAMED: Final[dict[str, tuple[str, int, str]]] = {
    "enter": ("Enter", 13, "\r"),
    "tab": ("Tab", 9, ""),
    "escape": ("Escape", 27, ""),
    "backspace": ("Backspace", 8, ""),
    "delete": ("Delete", 46, ""),
    "insert": ("Insert", 45, ""),
    "space": (" ", 32, " "),
    "arrowleft": ("ArrowLeft", 37, ""),
    "arrowup": ("ArrowUp", 38, ""),
    "arrowright": ("ArrowRight", 39, ""),
    "arrowdown": ("ArrowDown", 40, ""),
    "home": ("Home", 36, ""),
    "end": ("End", 35, ""),
    "pageup": ("PageUp", 33, ""),
    "pagedown": ("PageDown", 34, ""),
    **{f"f{number}": (f"F{number}", 111 + number, "") for number in range(1, 13)},
}
"""name -> (key, number of the key on Windows, which the protocol asks for, text)"""


def key_events(wanted: str) -> list[dict[str, Any]]:
    """What is sent for one press: down, and up.

    Raises:
        InvalidArgument: there is no such key.
    """
    *held, last = wanted.split("+") if wanted != "+" and not wanted.endswith("++") else [*wanted[:-2].split("+"), "+"]
    modifiers = 0
    for name in filter(None, held):
        if name.lower() not in _MODIFIERS:
            raise InvalidArgument(f"{name!r} is no modifier", hint="Control, Shift, Alt, Meta")
        modifiers |= _MODIFIERS[name.lower()]
    key, number, text = _key(last)
    if modifiers & ~_MODIFIERS["shift"]:
        text = ""
    event = {"key": key, "code": _code(key), "windowsVirtualKeyCode": number, "modifiers": modifiers}
    down = {**event, "type": "keyDown" if text else "rawKeyDown"}
    if text:
        down["text"] = text
    if modifiers & _MODIFIERS["control"] and key.lower() == "a":
        down["commands"] = ["selectAll"]
    return [down, {**event, "type": "keyUp"}]


def _key(name: str) -> tuple[str, int, str]:
    if name.lower() in _NAMED:
        return _NAMED[name.lower()]
    if len(name) == 1:
        return name, ord(name.upper()) if name.isascii() and name.isalnum() else 0, name
    raise InvalidArgument(f"there is no key {name[:40]!r}", hint=f"a character, or one of {', '.join(_NAMED)}")


def _code(key: str) -> str:
    if len(key) == 1 and key.isascii() and key.isalpha():
        return f"Key{key.upper()}"
    if len(key) == 1 and key.isdecimal() and key.isascii():
        return f"Digit{key}"
    return "Space" if key == " " else key if len(key) > 1 else ""
