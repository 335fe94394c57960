"""`python -m tests.soak [executions]`: run it, watch it, read the table. Exits with 1 if something was wrong."""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.soak.soak import Soak
from tests.soak.table import show


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("executions", nargs="?", type=int, default=10_000)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="to do the same again"
    )
    parser.add_argument("--workers", type=int, default=6, help="calls under way at once")
    given = parser.parse_args()
    console = Console()
    console.print(f"{given.executions} executions, {given.workers} at once, seed {given.seed}, uid {os.geteuid()}")
    with tempfile.TemporaryDirectory(prefix="rf-soak-") as directory, _progress(console) as progress:
        os.chmod(directory, 0o711)
        bar = progress.add_task("", total=given.executions, note="")
        soak = Soak(given.executions, Path(directory), seed=given.seed, workers=given.workers)
        soak.on_step = lambda note: progress.update(bar, completed=soak.done, note=note)
        report = asyncio.run(soak.run())
    show(report, console)
    return 1 if report.faults else 0


def _progress(console: Console) -> Progress:
    return Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        refresh_per_second=4 if console.is_terminal else 0.2,
    )


if __name__ == "__main__":
    sys.exit(main())
