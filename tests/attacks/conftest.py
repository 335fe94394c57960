"""The fixture that the attacks run in, one per caller and worker, and the line that says how they went."""

from __future__ import annotations

import os
import platform
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.attacks.cases import LOADS_THE_MACHINE, Case
from tests.attacks.harness import Arena, callers

PROPERTY = "attack"


def marks(case: Case) -> list[pytest.MarkDecorator]:
    """Of every test that runs the case."""
    return [pytest.mark.alone] if case.id in LOADS_THE_MACHINE else []


@pytest.fixture(scope="session", params=callers(), ids=str)
def arena(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """Everything that a case attacks, as that caller has it."""
    if platform.machine() != "x86_64":
        pytest.skip("the probes know the system calls of x86-64 only")
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with Arena(request.param, number=number) as arena:
        yield arena


@pytest.fixture(scope="session", params=callers(), ids=str)
def networked(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """The same for boxes with a network, behind which everything is refused."""
    if platform.machine() != "x86_64":
        pytest.skip("the probes know the system calls of x86-64 only")
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    with Arena(request.param, number=number, network=True) as arena:
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
