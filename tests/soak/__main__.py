"""`python -m tests.soak [executions]`: run it, watch it, read the table. Exits with 1 if something was wrong.

`python -m tests.soak --containers SECONDS`, as root, is another one: sessions in containers of a mistreated daemon.
`python -m tests.soak --server ROUNDS` is a third: two hundred sessions on one server, fifty calls at once, which is
killed in the middle of every other round.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.soak.client_load import ServerLoad
from tests.soak.containers import SESSIONS, ContainerSoak
from tests.soak.soak import Soak
from tests.soak.table import show
from tests.support import leaks
from tests.support.own_docker import own_daemon
from tests.support.serving import running_server

SERVER_SESSIONS, SERVER_CALLS = 200, 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("executions", nargs="?", type=int, default=10_000)
    parser.add_argument(
        "--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="to do the same again"
    )
    parser.add_argument("--workers", type=int, default=6, help="calls under way at once")
    parser.add_argument(
        "--containers", type=float, metavar="SECONDS", help="faults of Docker instead, for so long (root, docker.io)"
    )
    parser.add_argument("--server", type=int, metavar="ROUNDS", help="load on a server instead, for so many rounds")
    given = parser.parse_args()
    console = Console()
    if given.containers is not None:
        return _in_containers(given.containers, given.seed, console)
    if given.server is not None:
        return _on_server(given.server, console)
    console.print(f"{given.executions} executions, {given.workers} at once, seed {given.seed}, uid {os.geteuid()}")
    with tempfile.TemporaryDirectory(prefix="rf-soak-") as directory, _progress(console) as progress:
        os.chmod(directory, 0o711)
        bar = progress.add_task("", total=given.executions, note="")
        soak = Soak(given.executions, Path(directory), seed=given.seed, workers=given.workers)
        soak.on_step = lambda note: progress.update(bar, completed=soak.done, note=note)
        report = asyncio.run(soak.run())
    show(report, console)
    return 1 if report.faults else 0


def _on_server(rounds: int, console: Console) -> int:
    kills = max(1, rounds // 2)
    console.print(f"{SERVER_SESSIONS} sessions, {SERVER_CALLS} calls at once, {rounds} rounds, {kills} kills")
    with tempfile.TemporaryDirectory(prefix="rf-soak-") as directory:
        os.chmod(directory, 0o711)
        home, work = Path(directory) / "home", Path(directory) / "work"
        home.mkdir()
        work.mkdir(mode=0o711)
        begin = time.monotonic()
        with running_server(home) as server:
            load = ServerLoad(server, work, sessions=SERVER_SESSIONS, at_once=SERVER_CALLS, rounds=rounds, kills=kills)
            report = asyncio.run(load.run())
    lost = ", ".join(f"{code} {count}" for code, count in sorted(report.lost.items())) or "none"
    console.print(f"{report.answered} calls answered in {time.monotonic() - begin:.0f} s; ended by a kill: {lost}")
    console.print(f"at once at most {load.most_at_work}; sessions begun again: {report.remade}")
    for fault in report.faults:
        console.print(f"[red]{fault}")
    return 1 if report.faults else 0


def _in_containers(seconds: float, seed: int, console: Console) -> int:
    console.print(f"{SESSIONS} sessions in containers for {seconds:g} s, seed {seed}")
    leaks.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="rf-tests-") as directory:  # as in conftest
        os.chmod(directory, 0o711)
        os.environ["TMPDIR"] = tempfile.tempdir = directory  # what is left in it is ours
        before = leaks.Snapshot.take()
        with own_daemon() as daemon:
            place = Path(directory) / "soak"
            place.mkdir(mode=0o711)
            soak = ContainerSoak(daemon, place, seed=seed, long_seconds=seconds)
            soak.on_step = lambda note: console.print(note, highlight=False)
            report = asyncio.run(soak.run())
        left = leaks.wait_for_leaks(before)
        report.faults += [
            what for what in left if not what.startswith("mount ") or directory in what
        ]  # others mount too
    for line in report.lines():
        console.print(line, highlight=False)
    console.print("[green]nothing was wrong[/]" if not report.faults else f"[red]{len(report.faults)} faults[/]")
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
