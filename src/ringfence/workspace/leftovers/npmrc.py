"""Which settings of npm (and pnpm, which reads the same file) are harmless: an allow-list, as for git.

Others name a shell or a program (`script-shell`, `git`, `node-options`, `editor`), or another place that packages come
from. `${...}` would put a variable of the person's into an address.
"""

import re
from typing import Final

_HARMLESS: Final = frozenset(
    {
        "audit",
        "auto-install-peers",
        "dedupe-peer-dependents",
        "engine-strict",
        "fund",
        "hoist",
        "ignore-scripts",
        "install-links",
        "legacy-peer-deps",
        "loglevel",
        "node-linker",
        "package-lock",
        "prefer-dedupe",
        "prefer-frozen-lockfile",
        "prefer-offline",
        "progress",
        "resolution-mode",
        "save",
        "save-exact",
        "save-prefix",
        "shamefully-hoist",
        "side-effects-cache",
        "strict-peer-dependencies",
        "update-notifier",
    }
)
_LINE: Final = re.compile(rb"([a-z-]+) ?= ?([A-Za-z0-9^~.-]{0,40})")


def what_runs(data: bytes) -> str | None:
    """The first line that is not known to be harmless; None if all are."""
    if b"\r" in data:
        return "a carriage return, which npm takes for the end of a line"
    for line in data.split(b"\n"):
        line = line.strip(b" \t")
        if not line or line[:1] in (b"#", b";"):
            continue
        setting = _LINE.fullmatch(line)
        if setting is None or setting[1].decode() not in _HARMLESS:
            return line[:80].decode("utf-8", "replace")
    return None
