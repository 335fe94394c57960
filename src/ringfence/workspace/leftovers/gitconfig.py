"""Reads git's settings from bytes that an agent has written, as git would read them.

Two readers. The strict one knows only what git itself writes: headers and settings alone on their lines, no quotes in
values, no backslash, no carriage return. About that there are no two opinions, whatever the version. Everything else
goes to git's own reader (`gitreader`), if there is one; where there is none, or where it does not understand the text
either, the settings cannot be told, which counts as a finding.
"""

import re
from collections.abc import Callable
from typing import Final

from ringfence.workspace.leftovers.gitkeys import Setting, harmful
from ringfence.workspace.leftovers.gitreader import read_by_git

LIMIT_BYTES: Final = 256 * 1024
"""Nobody's settings are longer; one that is cannot be understood."""

_BLANK: Final = re.compile(rb"[ \t]*(?:[#;][^\0\r]*)?")
_HEADER: Final = re.compile(rb'[ \t]*\[([A-Za-z0-9-]+)(?:[ \t]+"([^"\\\0-\x1f\x7f]*)")?\][ \t]*')
_SETTING: Final = re.compile(rb'[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*([^"\\#;\0-\x08\x0a-\x1f\x7f]*))?')

Reader = Callable[[bytes], tuple[Setting, ...] | None]


def what_runs(data: bytes, by_git: Reader = read_by_git) -> str | None:
    """The first setting of a git configuration that is not known to be harmless; None if all are."""
    settings = read_strictly(data)
    if settings is None:
        settings = by_git(data)
    return "what cannot be understood" if settings is None else harmful(settings)


def read_strictly(data: bytes) -> tuple[Setting, ...] | None:
    """All settings, in their order; None if the text has anything that is not plain."""
    if len(data) > LIMIT_BYTES:
        return None
    section: str | None = None
    found: list[Setting] = []
    for line in data.split(b"\n"):
        if _BLANK.fullmatch(line):
            continue
        if header := _HEADER.fullmatch(line):
            section = header[1].decode().lower()
            if header[2] is not None:
                section += f".{header[2].decode('utf-8', 'surrogateescape')}"
            continue
        setting = _SETTING.fullmatch(line)
        if setting is None or section is None:
            return None
        value = None if setting[2] is None else setting[2].rstrip(b" \t").decode("utf-8", "surrogateescape")
        found.append((f"{section}.{setting[1].decode().lower()}", value))
    return tuple(found)
