"""What `ringfence browser` says: which browsers this machine has, which one is used, and how to get one."""

from __future__ import annotations

import os
from typing import Final

from ringfence.browser.finding import BrowserKind, programs
from ringfence.dataclass import dataclass

PACKAGES: Final = (
    ("/usr/bin/apt-get", "apt-get install chromium-headless-shell", "Debian 12 and later; half of Chromium's memory"),
    ("/usr/bin/apt-get", "apt-get install chromium", "Debian; the whole browser"),
    ("/usr/bin/dnf", "dnf install chromium-headless", "Fedora"),
    ("/usr/bin/pacman", "pacman -S chromium", "Arch"),
    ("/sbin/apk", "apk add chromium", "Alpine"),
)
"""(what tells that it is this system, the command, what for)"""
FONTS: Final = "fonts for what pages show: fonts-dejavu-core, fonts-noto-cjk, fonts-noto-color-emoji"


@dataclass(frozen=True, slots=True)
class FoundBrowser:
    path: str
    kind: str
    is_default: bool


def found_browsers() -> tuple[FoundBrowser, ...]:
    return tuple(FoundBrowser(each.path, each.kind, number == 0) for number, each in enumerate(programs()))


def how_to_install() -> tuple[str, ...]:
    """Commands for this system, the best first; for every system that we know, if it is none of them."""
    here = [f"{command}   # {what}" for mark, command, what in PACKAGES if os.path.exists(mark)]
    return tuple(here or (f"{command}   # {what}" for _, command, what in PACKAGES))


def is_small(found: FoundBrowser) -> bool:
    return found.kind == BrowserKind.HEADLESS
