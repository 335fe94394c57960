"""The cases as data: what each one tries, what it needs, and which are left out for now and why."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from shutil import which

from tests.attacks.worker import Way

DATA = Path(__file__).parent / "data"

LATER: Mapping[str, str] = {}
"""Cases that this wall is known to lose, each with its reason. They run, and it is an error if one turns out safe."""

OF_THE_PROXY: Mapping[str, str] = {
    "NET-10": "its connections are taken by the proxy, which judges them: the corpus of egress has them",
}
"""Cases that mean something else in a box with a network."""

KEPT_IN_SESSION: Mapping[str, str] = {
    "PER-03": "HOME stays for the next command of a session, start-up files in it included",
    "PER-05": "the case is about another sandbox",
}
"""Cases with a second command that a box which lives on is not meant to hold, with reasons."""

REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "fs-read": ("A3", "A4"),
    "fs-write": ("A4", "B6"),
    "protected-paths": ("A3",),
    "links-mounts": ("A3", "B6"),
    "proc-sys": ("B6",),
    "devices": ("B6",),
    "network": ("A5",),
    "privilege": ("B6",),
    "signals": ("D3",),
    "tty": ("D3",),
    "fd-inheritance": ("D3",),
    "env": ("D3",),
    "resources": ("B6", "C9"),
    "persistence": ("A8", "D3"),
    "must-work": ("A7", "D3"),
}
"""What the cases of a category prove."""

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "ENV-04": ("node",),
    "NET-23": ("curl",),
    "OK-02": ("node",),
    "OK-03": ("node",),
    "OK-06": ("pip",),
    "OK-08": ("make",),
    "OK-25": ("perl", "jq"),
    "PER-01": ("pgrep",),
    "PRV-27": ("gcc",),
    "SIG-02": ("pkill",),
}
"""What a case needs beyond Debian's essential packages, Python and git; without it the case would show nothing."""

NEEDS_ROOT = frozenset(
    {
        "DEV-06",  # the device is root's
        "FSR-19",  # CAP_DAC_READ_SEARCH
        "FSR-20",  # disks are root's
        "FSW-21",  # only root makes files that are set-uid root
        "NET-19",  # CAP_NET_RAW and CAP_NET_ADMIN
        "PRC-04",  # /proc/sys is root's
        "PRC-05",
        "PRC-10",  # /sys is root's
        "PRV-02",  # the case is about being root
        "PRV-03",  # capabilities
        "PRV-31",  # CAP_SYS_NICE
        "PRV-32",  # CAP_IPC_LOCK
    }
)
"""Cases that the kernel refuses to an ordinary user even without a wall, so that only root's control can leak."""

LOADS_THE_MACHINE = frozenset(
    {
        "RES-03",  # hundreds of threads
        "RES-04",  # memory, of three kinds
        "RES-05",
        "RES-06",
        "RES-08",  # all processors
        "RES-14",  # hundreds of processes
        "RES-15",  # hundreds of megabytes on the disk
        "RES-16",
        "RES-20",  # or of output
        "RES-25",  # a path of thousands of names, walked for each of them
        "RES-28",
    }
)
"""Cases that run while no other does: what they use would be missed elsewhere, and they are judged by it."""

NEEDS_DEVICE: Mapping[str, str] = {
    "DEV-06": "/dev/net/tun",
    "FSR-20": "disk under one of the usual names",
    "NET-16": "AF_VSOCK",
    "NET-19": "exotic socket family",
}
"""Cases that find nothing to attack on some machines, so that they hold there without a wall too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One line of escapes.jsonl. The keys are those of the data."""

    id: str
    category: str
    title: str
    command: str
    expect: str
    check: str
    control: str
    """`leak`: the check fails without a wall; `ok`: it holds there too; `skip`: never to be run without one."""
    timeout_s: float
    needs: tuple[str, ...]
    ref: str
    surface: bool
    policy: str = ""
    limits: Mapping[str, int] | None = None
    stdin: str | None = None
    command2: str | None = None
    other_sandbox: bool = False
    inherit_fds: bool = False
    keyring: bool = False
    tty: bool = False
    stdout_file: bool = False
    set_env: Mapping[str, str] | None = None
    snapshot_ps: bool = False
    snapshot_tcp: bool = False

    @property
    def ways(self) -> tuple[Way, ...]:
        """How it is run: a case without a second command cannot tell what is kept from one to the next."""
        has_session = self.command2 is not None and self.id not in KEPT_IN_SESSION
        return (Way.COLD, Way.WARM, Way.SESSION) if has_session else (Way.COLD, Way.WARM)

    @property
    def requirements(self) -> tuple[str, ...]:
        return REQUIREMENTS[self.category]


def load(path: Path = DATA / "escapes.jsonl") -> tuple[Case, ...]:
    """All cases in the order of the file; a key that nothing here would obey is an error."""
    known = {field.name for field in fields(Case)}
    cases = []
    for line in path.read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        if unknown := raw.keys() - known:
            raise ValueError(f"{raw['id']}: no idea what {', '.join(sorted(unknown))} means")
        cases.append(Case(**{**raw, "needs": tuple(raw["needs"])}))
    if len({case.id for case in cases}) != len(cases):
        raise ValueError(f"{path.name}: an id occurs twice")
    return tuple(cases)


def missing(case: Case, path: str, has: Callable[[str], bool] | None = None) -> str:
    """Which program the case lacks; empty if none.

    Args:
        path: where it is looked for on this machine.
        has: who knows, if the case runs elsewhere.
    """
    return next((name for name in PROGRAMS.get(case.id, ()) if not (has(name) if has else _is_here(name, path))), "")


def _is_here(name: str, path: str) -> bool:
    return _PROBES.get(name, which_in)(name, path)


@cache
def which_in(name: str, path: str) -> bool:
    return which(name, path=path) is not None


@cache
def _has_pip(name: str, path: str) -> bool:
    python = which("python3", path=path)
    return python is not None and subprocess.run([python, "-m", name, "--version"], capture_output=True).returncode == 0


_PROBES: Mapping[str, Callable[[str, str], bool]] = {"pip": _has_pip}
