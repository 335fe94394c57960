"""Which browsers this machine has, and how to get one."""

from __future__ import annotations

import os
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import NotInstalled

INSTALL: Final = (
    "Debian and Ubuntu: apt install chromium-headless-shell (or chromium); "
    "elsewhere install Chromium or Chrome with the system's packages"
)


class BrowserKind(StrEnum):
    """Which program is meant."""

    HEADLESS = "headless-shell"
    """Half the memory, a quicker start, no request of its own; the default."""
    CHROMIUM = "chromium"
    """The whole browser, without a window."""


@dataclass(frozen=True, slots=True)
class Program:
    path: str
    kind: BrowserKind


_PLACES: Final = (
    # The programs themselves: wrappers in /usr/bin read settings that a box does not show.
    (BrowserKind.HEADLESS, "/usr/lib/chromium/chromium-headless-shell"),
    (BrowserKind.HEADLESS, "/usr/lib/chromium-browser/chromium-headless-shell"),
    (BrowserKind.HEADLESS, "/usr/lib64/chromium-browser/headless_shell"),
    (BrowserKind.CHROMIUM, "/usr/lib/chromium/chromium"),
    (BrowserKind.CHROMIUM, "/usr/lib/chromium-browser/chromium-browser"),
    (BrowserKind.CHROMIUM, "/usr/lib64/chromium-browser/chromium-browser"),
    (BrowserKind.CHROMIUM, "/opt/google/chrome/chrome"),
)


def programs(places: Iterable[tuple[BrowserKind, str]] = _PLACES) -> tuple[Program, ...]:
    """Those that are there, the preferred first."""
    return tuple(Program(path, kind) for kind, path in places if os.access(path, os.X_OK) and os.path.isfile(path))


def find_program(kind: BrowserKind | None = None, path: str | None = None) -> Program:
    """The one to start.

    Args:
        kind: which is wanted; if not given, the first that is there.
        path: a program of the caller's own.

    Raises:
        NotInstalled: there is none; says how to get it.
    """
    if path is not None:
        if not os.access(path, os.X_OK):
            raise NotInstalled(f"there is no browser at {path}", hint="name a program that can be executed")
        is_small = "headless" in os.path.basename(path)
        return Program(path, BrowserKind.HEADLESS if is_small else BrowserKind.CHROMIUM)
    found = [each for each in programs() if kind in (None, each.kind)]
    if not found:
        raise NotInstalled(f"there is no {kind or 'browser'} on this machine", hint=INSTALL)
    return found[0]
