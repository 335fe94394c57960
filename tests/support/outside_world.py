"""The real proxy process, with a world of the test's own behind it: names and public addresses that lead to servers
on this machine's loopback.

Everything else is as it is in earnest: the process, its wall, its wire, its judge. Nothing of production can be told to
do this: the test starts another program in the place of the interpreter that runs the proxy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import pytest

from ringfence.egress import service

PUBLIC = "93.184.216.34"
"""Where every name is."""
_PROGRAM = """\
#!{python} -I
import asyncio, ipaddress, json, sys
from ringfence.egress import process
from ringfence.egress.dialing import dial_one

ports = {{int(port): to for port, to in json.loads({ports!r}).items()}}

class Names:
    async def addresses(self, host):
        return (host.address or ipaddress.ip_address({public!r}),)

class Ways:
    async def connect(self, addresses, port):
        reached = str(addresses[0]) == "127.0.0.1"
        return await dial_one(ipaddress.ip_address("127.0.0.1"), port if reached else ports[port], 5), addresses[0]

process.SystemResolver = Names
process.SystemDialer = Ways
sys.argv = [sys.argv[0], sys.argv[-1]]
process.main()
"""


def replace_outside(patch: pytest.MonkeyPatch, directory: Path, ports: Mapping[int, int]) -> None:
    """From now on, a proxy that is started sees this world.

    Args:
        ports: by port of any public address, the port of our loopback that answers there.
    """
    program = directory / "proxy-with-a-world"
    program.write_text(_PROGRAM.format(python=sys.executable, ports=json.dumps(dict(ports)), public=PUBLIC))
    program.chmod(0o755)
    patch.setattr(service, "sys", SimpleNamespace(executable=str(program)))
