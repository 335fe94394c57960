"""The fixture that the attacks run in, one per caller, and the line that says how they went."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.attacks.harness import Arena, Caller, callers

PROPERTY = "attack"


def _as(caller: Caller) -> object:
    """One worker plays all of a caller's part: an arena is built once, and two of them do not disturb each other."""
    return pytest.param(caller, id=str(caller), marks=pytest.mark.xdist_group(str(caller)))


@pytest.fixture(scope="session", params=[_as(caller) for caller in callers()])
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Everything that a case attacks, as that caller has it."""
    if platform.machine() != "x86_64":
        pytest.skip("the probes know the system calls of x86-64 only")
    with Arena(request.param) as arena:
        yield arena


@pytest.hookimpl(tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """`attacks as root, cold: 155 safe of 156 (PRT-07 xfailed)`, and the same for every caller and way."""
    counts: dict[str, Counter[str]] = {}
    others: dict[str, list[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, value in getattr(report, "user_properties", ()):
                if key == PROPERTY and (report.when == "call" or outcome in ("error", "skipped")):
                    who, case = value
                    counts.setdefault(who, Counter())[outcome] += 1
                    if outcome != "passed":
                        others.setdefault(who, []).append(f"{case} {outcome}")
    for who, count in counts.items():
        rest = f" ({', '.join(others[who])})" if who in others else ""
        terminalreporter.write_line(f"attacks as {who}: {count['passed']} safe of {count.total()}{rest}")
