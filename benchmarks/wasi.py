"""What a call of a module costs: in a box that waits, and from nothing, beside bare processes of the same run.

    python -m benchmarks.wasi [ROUNDS]

Rounds are interleaved; each figure is the median of its rounds, as a ratio to `python -c pass` (or to starting
`true`) in the same run. Goals: a warm call of Python at most 1.2 of bare Python, of a small tool 1.0 of
`true`; cold at most 2.5 of bare Python, behind bubblewrap 3.5.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ringfence.confinement.choose import confiners
from ringfence.engines.native.engine import NativeEngine
from ringfence.engines.wasi.engine import WasiEngine, engine_environ
from ringfence.engines.wasi.places import wasi_places
from ringfence.values.grant import Grant, Trace
from ringfence.values.request import Request

ROUNDS = 25
PAUSE_SECONDS = 0.3
"""Until the next runner waits."""

Step = Callable[[], Awaitable[None]]


async def _process(*argv: str) -> None:
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


async def measure(rounds: int) -> dict[str, float]:
    """Milliseconds, the median of each."""
    home = os.path.expanduser("~")
    native = NativeEngine(confiners(), engine_environ(os.environ), home, only="bwrap")
    engine = WasiEngine(native, wasi_places(os.environ, home))
    runner = (await engine.programs()).stage
    with tempfile.TemporaryDirectory() as place:
        grant = Grant(workspace=Path(place), trace=Trace.OFF)
        warm = await engine.open(grant)
        cold = await engine.open(grant)
        try:
            await warm.warm()

            async def call(box: object, *argv: str) -> None:
                result = await box.run(Request(argv=argv))  # type: ignore[attr-defined]  # a box of the engine
                assert result.ok, result

            async def without_waiting(*argv: str) -> None:
                cold._box._commands.close()  # whoever waits is sent away: this is what a first call costs
                cold._box._commands._shell = None
                await call(cold, *argv)

            steps: dict[str, Step] = {
                "true": lambda: _process("true"),
                "python -c pass": lambda: _process("/usr/bin/python3", "-c", "pass"),
                "warm tool": lambda: call(warm, "true"),
                "warm python": lambda: call(warm, "python3", "-c", "pass"),
                "warm context": lambda: _cell(warm),
                "cold tool in bwrap": lambda: without_waiting("true"),
                "cold python in bwrap": lambda: without_waiting("python3", "-c", "pass"),
            }
            took: dict[str, list[float]] = {name: [] for name in steps}
            for _ in range(rounds):
                for name, step in steps.items():
                    await asyncio.sleep(PAUSE_SECONDS)
                    begin = time.perf_counter()
                    await step()
                    took[name].append((time.perf_counter() - begin) * 1000)
        finally:
            await warm.close()
            await cold.close()
    assert runner.directory.is_dir()
    return {name: statistics.median(values) for name, values in took.items()}


async def _cell(box: object) -> None:
    await box.run(Request(code="1", language="python"))  # type: ignore[attr-defined]


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    medians = asyncio.run(measure(rounds))
    bare = medians["python -c pass"]
    print(f"{'':24}{'ms':>8}{'x python':>10}{'x true':>10}")
    for name, value in medians.items():
        print(f"{name:24}{value:8.1f}{value / bare:10.2f}{value / medians['true']:10.2f}")


if __name__ == "__main__":
    main()
