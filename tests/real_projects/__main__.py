"""`python -m tests.real_projects [NAME...]`: runs each project's tests bare and in a box, and shows a table.

The two runs have the same programs, the same empty home, the same variables and a fresh copy of the project each. Bare
comes first; where the two differ, both are run once more, since some suites race against the machine's load. What the
tests of a difference said is in the logs, whose places are named. It fails if a test is worse in the box than bare;
where none differs, the counts are equal.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ringfence
from ringfence import Limits
from ringfence.values.outcome import Exited
from tests.real_projects.comparing import Outcome, differences, outcome_of
from tests.real_projects.fetching import PLUGIN, FetchError, Ready, fetch
from tests.real_projects.projects import PROJECTS, Project, Registry

SECONDS = 1800.0
LIMITS = Limits(
    wall_seconds=SECONDS, cpu_seconds=2 * SECONDS, memory_bytes=6 * 2**30, processes=2048, tmp_bytes=4 * 2**30
)
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
DIFFERENCES_SHOWN = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real_projects", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these projects")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ringfence-real-projects")
    parser.add_argument("--wall", help="the adapter, if not the machine's best")
    asked = parser.parse_args()
    if os.geteuid() == 0:
        # Some suites find that they are root, and set the clock, or make users.
        parser.error("run it as an ordinary user: the bare half is bare")
    unknown = set(asked.names) - {project.name for project in PROJECTS}
    if unknown:
        parser.error(f"no such project: {', '.join(sorted(unknown))}")
    if asked.wall:
        os.environ["RINGFENCE_PROCESS_SANDBOX"] = asked.wall
    rows = [_row(project, asked.cache) for project in PROJECTS if not asked.names or project.name in asked.names]
    print("\n" + _table([row for row, _ in rows]))
    return 0 if all(is_good for _, is_good in rows) else 1


def _row(project: Project, cache: Path) -> tuple[tuple[str, ...], bool]:
    name = f"{project.name} {project.version}"
    _say(f"{name}: fetching")
    try:
        ready = fetch(project, cache)
    except FetchError as fault:
        _say(f"{name}: not fetched: {fault}")
        return (name, "not fetched", "", "", "no"), False
    for attempt in ("first", "second"):
        bare, inside = (_run(ready, cache, is_inside=where) for where in (False, True))
        worse, other = differences(bare, inside)
        if not worse and not other and _passed(bare):
            break
        _say(f"{name}: {len(worse)} are worse inside, {len(other)} otherwise different, {attempt} time")
        for line in [*worse, *other][:DIFFERENCES_SHOWN]:
            _say(f"    {line}")
    is_good = not worse and _passed(bare)
    for test, why in project.different:
        _say(f"    not compared: {test}: {why}")
    ratio = f"{inside.seconds / bare.seconds:.2f}"
    same = (
        f"no: {len(worse)} worse"
        if worse
        else "no: none passed"
        if not is_good
        else f"but for {len(other)} that are not worse"
        if other
        else "yes"
    )
    return (name, str(bare), str(inside), ratio, same), is_good


def _passed(outcome: Outcome) -> bool:
    """Whether anything did: a suite that could not even be collected fails alike everywhere, and shows nothing."""
    return outcome.counts[0] > 0


def _run(ready: Ready, cache: Path, *, is_inside: bool) -> Outcome:
    project, how = ready.project, "inside" if is_inside else "bare"
    work = cache / "runs" / f"{project.name}-{how}"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(ready.tree, work / "project", symlinks=True)
    (work / "home").mkdir()
    path = ":".join((*ready.path, SYSTEM_PATH))
    command = project.command
    if project.registry is Registry.PYPI:
        command = f"python -m pytest -q -p {PLUGIN} -p no:cacheprovider {command}"
    log = work / "log"
    _say(f"{project.name} {project.version}: {how} ...")
    begin = time.monotonic()
    ended = _in_box(command, work, path, log) if is_inside else _bare(command, work, path, log)
    seconds = time.monotonic() - begin
    outcome = outcome_of(project, work / "project", log.read_text(errors="replace"), seconds, ended)
    _say(f"{project.name} {project.version}: {how} {outcome} in {seconds:.0f} s, log {log}")
    return outcome


def _variables() -> dict[str, str]:
    return {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "USER": "agent", "LOGNAME": "agent"}


def _bare(command: str, work: Path, path: str, log: Path) -> str:
    # pytest keeps its directories by the name of the user, which is not the real one here.
    with log.open("wb") as file, tempfile.TemporaryDirectory(prefix="rp-", ignore_cleanup_errors=True) as temporary:
        try:
            subprocess.run(
                ["/bin/bash", "-c", command],
                cwd=work / "project",
                env={"PATH": path, "HOME": str(work / "home"), "PYTEST_DEBUG_TEMPROOT": temporary, **_variables()},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "timed out"
    return ""


def _in_box(command: str, work: Path, path: str, log: Path) -> str:
    """By the library, as a program that embeds it would; with a home of its own, so that no setting of ours counts."""
    os.environ |= {"PATH": path, "HOME": str(work / "home")}
    with log.open("wb") as file:
        done = ringfence.run(
            command,
            workspace=work / "project",
            read=[path.split(":")[0].removesuffix("/bin")] if "venv" in path else [],
            env=_variables(),
            limits=LIMITS,
            on_output=lambda stream, data: file.write(data) and None,
        )
        file.write("".join(f"\nringfence: {violation}" for violation in done.violations[:50]).encode())
    return "" if isinstance(done.ending, Exited) else str(done.ending)


def _say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


def _table(rows: list[tuple[str, ...]]) -> str:
    head = ("project", "bare: passed/failed/skipped", "inside", "time", "same")
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join("  ".join(word.ljust(width) for word, width in zip(line, widths, strict=True)) for line in lines)


if __name__ == "__main__":
    sys.exit(main())
