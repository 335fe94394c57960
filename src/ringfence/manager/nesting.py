"""Whether this process is inside a sandbox already, as far as the kernel and the environment show it.

A wall inside a wall often cannot be built: most sandboxes take user namespaces away. So it is said which one it is, and
that exactly one of the two can be had. Only what a person would act on is looked at: a container that leaves user
namespaces alone is no hindrance, and a probe that opens a box has the last word (`doctor.py`).

What this does not protect against: variables can be set by anybody. Nothing is allowed because of what is found here.
"""

import re
from collections.abc import Mapping
from typing import Final

_OWN_INIT: Final = re.compile(rb"(?:/proc/self/fd/\d+|[^\0]*ringfence-box)\0init\0")
_SIGNS: Final = (
    # variable, whose sandbox sets it
    ("CODEX_SANDBOX", "Codex"),
    ("CODEX_SANDBOX_NETWORK_DISABLED", "Codex"),
    ("SANDBOX_RUNTIME", "Anthropic's sandbox-runtime (Claude Code)"),
    ("GEMINI_CLI_SANDBOX", "Gemini CLI"),
    ("SANDBOX", "Gemini CLI"),
)
HINT: Final = (
    "plan for one wall: switch the agent's own sandbox off, or run the whole agent with `ringfence wrap` from outside"
)


def is_inside_own_wall(first_process: str = "/proc/1/cmdline") -> bool:
    """Whether our own PID 1 is the first process here, which nobody outside a box can arrange."""
    return _OWN_INIT.match(_read(first_process)) is not None


def outer_sandbox(environ: Mapping[str, str], status: str = "/proc/self/status") -> str:
    """Which sandbox we are in, in words; empty if none shows."""
    if is_inside_own_wall():
        return "a box of Ringfence's own"
    for variable, whose in _SIGNS:
        if environ.get(variable):
            return f"{whose} ({variable} is set)"
    lines = dict(line.split(b":", 1) for line in _read(status).splitlines() if b":" in line)
    held = lines.get(b"Seccomp", b"").strip() == b"2"
    if held and lines.get(b"NoNewPrivs", b"").strip() == b"1":
        return "one that filters system calls and gives no new privileges"
    return ""


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(65536)
    except OSError:
        return b""
