"""Landlock and seccomp around one command line, without namespaces: a small program restricts itself and becomes it.

The rules are made here and travel as one JSON argument; `confine_and_run.py` is a program of its own that needs
nothing but the standard library, so that it starts quickly and works from any interpreter.

What this does not protect against: names, sizes and modes of host files can be seen, modes and times of one's own
files can be changed, host processes can be seen; there is no private /tmp; nothing is limited, and nothing ends what
the command leaves behind. For ordinary users only.
"""

from __future__ import annotations

import base64
import json
import os
import sys
from collections.abc import Sequence
from typing import Final

from ringfence.confinement.adapter import CommandLine, Mount, in_place, working_directory
from ringfence.confinement.base import Probe
from ringfence.confinement.linux import landlock, seccomp
from ringfence.confinement.linux.adapters import confine_and_run
from ringfence.confinement.linux.adapters.system import ENVIRONMENT, links, places
from ringfence.confinement.linux.landlock import DEVICES, ON_FILES, READ, WRITE, Right
from ringfence.confinement.linux.landlock_only import LandlockOnly
from ringfence.values.guarantee import Guarantee

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class LandlockAdapter:
    name = "landlock"

    def probe(self) -> Probe:
        found = LandlockOnly().probe()
        return found if found.missing else Probe(found.guarantees - {Guarantee.TREE_DIES}, notes=("best effort",))

    def wrap(self, command: str, arguments: Sequence[str], mounts: Sequence[Mount] = ()) -> CommandLine:
        rules: dict[str, Right] = {os.path.realpath(path): READ for path in places()}
        rules |= {os.path.realpath(path): READ for path, _ in links()}
        rules |= dict.fromkeys(_DEVICES, DEVICES) | {"/proc": READ}
        for mount in in_place(mounts, self.name):
            rules[os.path.realpath(mount.source)] = WRITE if mount.writable else READ
        profile = seccomp.Profile(unix_sockets=False, inet_sockets=False, system_v_ipc=False, own_pids=False)
        told = {
            "abi": landlock.abi(),
            "handled": int(landlock.handled(landlock.abi())),
            "rules": [
                [path, int(access if os.path.isdir(path) else access & ON_FILES)] for path, access in rules.items()
            ],
            "seccomp": base64.b64encode(seccomp.assemble(profile)).decode(),
            "directory": working_directory(mounts),
            "environment": ENVIRONMENT,
        }
        runner = os.path.abspath(confine_and_run.__file__)
        return sys.executable, ("-I", "-S", runner, json.dumps(told), command, *arguments)
