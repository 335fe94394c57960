"""What a network costs when a box is opened: against a box without one, interleaved, until its first command has ended.

    python -m benchmarks.egress_open [ROUNDS] [WALL]

Whoever serves the network here takes the listeners and no more, so that what is measured is ours: the namespace, its
socket maker, the sockets, and for a network that is looked into the files that say whom to trust.
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks.rounds import Case, Run, measure, report
from ringfence.confinement.choose import confiners
from ringfence.egress.base import Listeners
from ringfence.egress.inspection.authority import Authority
from ringfence.engines.base import SocketMaker
from ringfence.engines.native.engine import NativeEngine
from ringfence.values.grant import Grant
from ringfence.values.network import Inspection, NetworkGrant, NetworkRule
from ringfence.values.request import Request
from ringfence.values.violation import Violation

GOAL = 1.1


class Holding:
    """Takes the listeners of a box, and closes them with it."""

    variables: tuple[tuple[str, str], ...] = ()
    published: tuple[tuple[int, int], ...] = ()

    def __init__(self, listeners: Listeners) -> None:
        self._listeners = listeners

    async def settle(self) -> bool:
        return True

    def taken(self, until: float | None = None) -> tuple[Violation, ...]:
        return ()

    async def close(self) -> None:
        self._listeners.close()


class Nobody:
    def __init__(self) -> None:
        self._authority = Authority.make().certificate_pem

    async def authority(self) -> bytes:
        return self._authority

    async def known_hosts(self) -> str:
        return ""

    async def attach(self, box: str, network: NetworkGrant, listeners: Listeners, maker: SocketMaker) -> Holding:
        return Holding(listeners)


async def measured(rounds: int, wall: str | None, console: Console) -> list[Case]:
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        workspace = Path(directory)
        workspace.chmod(0o755)
        engine = NativeEngine(confiners(), {"PATH": "/usr/bin:/bin"}, directory, only=wall, network=Nobody())

        def opened(network: NetworkGrant | None) -> Run:
            async def run() -> None:
                box = await engine.open(Grant(workspace=workspace, network=network))
                try:
                    (await box.run(Request(command="true"))).check()
                finally:
                    await box.close()

            return run

        spliced = NetworkGrant(rules=(NetworkRule(host="example.com"),))
        inspected = NetworkGrant(rules=(NetworkRule(host="example.com", inspection=Inspection.ALWAYS),))
        cases = [
            Case("a box without a network", opened(None), group="ringfence"),
            Case("with one", opened(spliced), group="ringfence", at_most=GOAL),
            Case("with one that is looked into", opened(inspected), group="ringfence"),
        ]
        await measure(cases, rounds, console)
        return cases


async def main(rounds: int, wall: str | None) -> None:
    console = Console()
    cases = await measured(rounds, wall, console)
    report(cases, f"opening a box ({wall or 'the best wall'}): {rounds} interleaved rounds", console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 60, sys.argv[2] if len(sys.argv) > 2 else None))
