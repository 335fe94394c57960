"""How a project's tests ended, and whether two runs of them ended alike."""

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.real_projects.projects import Project, Registry

_VITEST = {"passed": "passed", "failed": "failed", "pending": "skipped", "skipped": "skipped", "todo": "skipped"}
_AUTOMAKE = re.compile(r"^(PASS|FAIL|SKIP|XFAIL|XPASS|ERROR): (\S+)", re.MULTILINE)
_WORDS = {"PASS": "passed", "XFAIL": "passed", "SKIP": "skipped"}
_ZLIB = re.compile(r"^\s*\*\*\* (zlib.* test) (OK|FAILED) \*\*\*", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Outcome:
    tests: Mapping[str, str]
    """By its name: passed, failed or skipped."""
    seconds: float
    ended: str = ""
    """How the run as a whole ended, if it did not end by itself."""

    @property
    def counts(self) -> tuple[int, int, int]:
        counted = Counter(self.tests.values())
        return counted["passed"], counted["failed"], counted["skipped"]

    def __str__(self) -> str:
        return "/".join(map(str, self.counts)) + (f" ({self.ended})" if self.ended else "")


def outcome_of(project: Project, directory: Path, log: str, seconds: float, ended: str) -> Outcome:
    """What the run in this directory says of its tests, but for those that are known to differ."""
    known = tuple(name for name, _ in project.different) or ("\0",)  # no test is called so
    tests = _READ[project.registry](directory, log)
    return Outcome({name: word for name, word in tests.items() if not name.startswith(known)}, seconds, ended)


def differences(bare: Outcome, inside: Outcome) -> tuple[list[str], list[str]]:
    """The tests that ended worse in the box, and those that ended otherwise in another way, each as a line.

    Some do better there: a box has an IPv6 address and an empty /tmp, which not every machine has.
    """
    worse, other = [], []
    for name in sorted(bare.tests.keys() | inside.tests.keys()):
        before, now = (each.tests.get(name, "not there") for each in (bare, inside))
        if before != now:
            (worse if before == "passed" or now == "failed" else other).append(f"{name}: bare {before}, inside {now}")
    if inside.ended and bare.ended != inside.ended:
        worse.append(f"as a whole: bare {bare.ended or 'ended'}, inside {inside.ended}")
    return worse, other


def _from_pytest(directory: Path, log: str) -> Mapping[str, str]:
    try:
        return dict(json.loads((directory / "outcomes.json").read_text()))
    except FileNotFoundError:
        return {}


def _from_vitest(directory: Path, log: str) -> Mapping[str, str]:
    try:
        report = json.loads((directory / "outcomes.json").read_text())
    except FileNotFoundError:
        return {}
    return {
        f"{suite['name'].rpartition('/src/')[2]} {test['fullName']} {number}": _VITEST[test["status"]]
        for suite in report["testResults"]
        for number, test in enumerate(suite["assertionResults"])
    }


def _from_make(directory: Path, log: str) -> Mapping[str, str]:
    found = {name: _WORDS.get(word, "failed") for word, name in _AUTOMAKE.findall(log)}
    return found | {name: "passed" if word == "OK" else "failed" for name, word in _ZLIB.findall(log)}


_READ = {Registry.PYPI: _from_pytest, Registry.NPM: _from_vitest, Registry.DEBIAN: _from_make}
