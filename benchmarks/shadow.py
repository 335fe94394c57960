"""What a shadow costs: making one of a large project, a box over it, the diff of a thousand changes, committing them.

python -m benchmarks.shadow [rounds]

For diff and commit the changes are written into the upper directory as overlayfs would, so that nothing has to be
mounted. Every figure is a ratio to a program that does the same work, or less, without any promise.
"""

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from benchmarks.rounds import Case, Run, measure, report
from ringfence.confinement.choose import confiners
from ringfence.confinement.linux.bwrap import find_bwrap
from ringfence.engines.native.engine import NativeEngine
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.globs import PathRules
from ringfence.values.grant import Grant, Shadowing, Trace
from ringfence.values.request import Request
from ringfence.workspace.commit import commit
from ringfence.workspace.diff import changes
from ringfence.workspace.scan import scan
from ringfence.workspace.shadow import Shadow
from ringfence.workspace.shadow_store import ShadowStore

ROUNDS = 10
DIRECTORIES = 2_500
FILES_EACH = 40
CHANGED = 1_000
CONTENT = b"some line of a program, as long as such lines are\n" * 80
GOAL_BOX = 3.0
"""Of bubblewrap alone."""
GOAL_SCAN = 2.0
"""Of `find` that prints every name."""

ROWS = tuple(row for row in BLACKLIST if not row.startswith("~"))


def make_project(top: Path) -> None:
    """A hundred thousand files, most of them empty: what is measured is names."""
    for number in range(DIRECTORIES):
        directory = top / f"d{number % 50}" / f"e{number}"
        directory.mkdir(parents=True)
        for file in range(FILES_EACH):
            (directory / f"f{file}.py").touch()


def change(top: Path, content: bytes) -> None:
    for number in range(CHANGED):
        directory = top / f"d{number % 50}" / f"e{number}"
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "f0.py").write_bytes(content)


def program(name: str, *line: str, setup: Callable[[], None] | None = None) -> Case:
    def run() -> None:
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL)

    return Case(name, _async(run), group="programs", setup=None if setup is None else _async(setup))


def _async(work: Callable[[], object]) -> Run:
    async def run() -> None:
        work()

    return run


class Bench:
    def __init__(self, place: Path) -> None:
        self.project = place / "project"
        make_project(self.project)
        self.store = ShadowStore(place / "store")
        self.shadow: Shadow | None = None
        self.changed = place / "changed"
        self.target = place / "target"
        change(self.changed, CONTENT)

    def making(self) -> list[Case]:
        every = program("find: every name", "find", str(self.project))
        owners = program("find: every owner", "find", str(self.project), "!", "-uid", str(os.getuid()))
        rules = PathRules(ROWS)

        def look() -> None:
            scan(str(self.project), rules)

        def new() -> None:
            self.shadow = self.store.new(self.project, denied=ROWS)

        return [
            every,
            owners,
            Case("scan for what is hidden", _async(look), group="ringfence", at_most=GOAL_SCAN),
            Case("a new shadow, owners checked", _async(new), group="ringfence", setup=_async(self.discard)),
        ]

    def opening(self) -> list[Case]:
        """A box over the shadow of the large project, against one over an empty directory, and bubblewrap alone."""
        raw = find_bwrap(None)
        assert raw is not None
        small = self.target.parent / "small"
        small.mkdir(exist_ok=True)
        shadow = self.store.new(self.project, denied=ROWS)
        stands_in = Shadowing(shadow.directory, is_copy=False)
        engine = NativeEngine(confiners(), {"PATH": "/usr/bin:/bin"}, str(small))

        def opened(grant: Grant) -> Run:
            async def run() -> None:
                await (await engine.open(grant)).close()

            return run

        line = (raw, "--unshare-all", "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--", "/bin/true")
        return [
            program("bwrap true", *line),
            Case("a box over an empty directory", opened(Grant(workspace=small)), group="ringfence"),
            Case(
                "a box over a shadow of the project",
                opened(Grant(workspace=self.project, shadow=stands_in)),
                group="ringfence",
                at_most=GOAL_BOX,
            ),
        ]

    async def inside(self, console: Console, rounds: int) -> None:
        """The same programs outside and, in a box, over the shadow."""
        shadow = self.store.new(self.project, denied=ROWS)
        engine = NativeEngine(confiners(), {"PATH": "/usr/bin:/bin"}, str(self.target))
        stands_in = Shadowing(shadow.directory, is_copy=False)
        box = await engine.open(Grant(workspace=self.project, shadow=stands_in, trace=Trace.OFF))
        try:
            for line in ("find . | wc -l", "grep -r nothing d0 | wc -l"):

                async def within(line: str = line) -> None:
                    (await box.run(Request(command=line))).check()

                outside = program(f"outside: {line}", "/bin/sh", "-c", f"cd {self.project} && {line}")
                cases = [outside, Case(f"inside: {line}", within, group="ringfence")]
                await measure(cases, rounds, console)
                report(cases, f"reading through a shadow: {rounds} interleaved rounds", console)
        finally:
            await box.close()

    def committing(self) -> list[Case]:
        copy = [program("cp -a", "cp", "-a", f"{self.changed}/.", str(self.target), setup=self.clear)]
        if shutil.which("rsync"):
            line = ("rsync", "-a", f"{self.changed}/", f"{self.target}/")
            copy = [
                program("rsync -a", *line, setup=self.clear),
                program("rsync -a --fsync", *line, "--fsync", setup=self.clear),
                *copy,
            ]
        return [
            *copy,
            Case("diff of 1,000 changes", _async(self.diff), group="ringfence", setup=_async(self.prepare)),
            Case("commit of 1,000 files", _async(self.commit), group="ringfence", setup=_async(self.prepare)),
        ]

    def clear(self) -> None:
        shutil.rmtree(self.target, ignore_errors=True)
        change(self.target, b"old\n")

    def discard(self) -> None:
        if self.shadow is not None:
            self.store.discard(self.shadow)
            self.shadow = None

    def prepare(self) -> None:
        """A shadow of a small project in which every file has been changed."""
        self.discard()
        self.clear()
        self.shadow = self.store.new(self.target, denied=ROWS)
        change(self.shadow.upper, CONTENT)

    def diff(self) -> None:
        assert self.shadow is not None and len(changes(self.shadow)) == CHANGED

    def commit(self) -> None:
        assert self.shadow is not None and len(commit(self.shadow).applied) == CHANGED


async def main(rounds: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as directory:
        bench = Bench(Path(directory))
        for title, cases in (
            (f"making, {DIRECTORIES * FILES_EACH:,} files", bench.making()),
            ("opening", bench.opening()),
            (f"committing, {CHANGED:,} files of {len(CONTENT):,} bytes", bench.committing()),
        ):
            await measure(cases, rounds, console)
            report(cases, f"{title}: {rounds} interleaved rounds", console)
        bench.discard()
        await bench.inside(console, rounds)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
