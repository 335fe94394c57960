"""What holds for every test: it leaves nothing behind, and it says which requirements it proves."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from ringfence.deferred import load
from ringfence.manager.portal import portal
from ringfence.policy.environment import flag, lookup
from tests.support import leaks
from tests.support.turns import Turns

_PRIVATE_TMP = pytest.StashKey[str]()
_TURNS = pytest.StashKey[Turns]()
_TURNS_DIRECTORY = "ringfence_turns"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--req", action="append", default=[], metavar="ID", help="run only tests that prove requirement ID"
    )


def pytest_configure(config: pytest.Config) -> None:
    leaks.adopt_orphans()
    load("ringfence.errors")  # it keeps a descriptor from the first time on, which no test has left behind
    os.environ["RINGFENCE_KEEPER"] = "off"  # it would outlive the test; those about keepers switch it on for themselves
    # No database: whoever runs the suite may not be allowed to write to the checkout. No deadline: machines differ.
    hypothesis.settings.register_profile("ringfence", database=None, deadline=None)
    hypothesis.settings.load_profile("ringfence")
    # Private to this process, so that what turns up in it was left by our own tests and not by another worker's.
    # The path is short, because sockets are put there; others may pass, because the walled-in user is another one.
    shared = tempfile.gettempdir()
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", shared)  # tmp_path stays where it is, and outlives the session
    private = tempfile.mkdtemp(prefix="rf-tests-")
    os.chmod(private, 0o711)
    os.environ["TMPDIR"] = tempfile.tempdir = private
    config.stash[_PRIVATE_TMP] = private
    leaks.work_in(private)
    # A worker takes turns where the process that started it says, which is in that one's private directory.
    config.stash[_TURNS] = Turns(getattr(config, "workerinput", {}).get(_TURNS_DIRECTORY, private))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Of xdist, before a worker starts."""
    node.workerinput[_TURNS_DIRECTORY] = node.config.stash[_PRIVATE_TMP]


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the time limit: waiting is not the test's time
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with item.config.stash[_TURNS].taken(alone=item.get_closest_marker("alone") is not None):
        return (yield)


def pytest_unconfigure(config: pytest.Config) -> None:
    if (turns := config.stash.get(_TURNS, None)) is not None:
        turns.close()
    if (private := config.stash.get(_PRIVATE_TMP, None)) is not None:
        tempfile.tempdir = os.path.dirname(private)
        os.environ["TMPDIR"] = tempfile.tempdir
        shutil.rmtree(private, ignore_errors=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    wanted = set(config.getoption("--req"))
    chosen, others = [], []
    for item in items:
        ids = [str(name) for mark in item.iter_markers("req") for name in mark.args]
        item.user_properties.extend(("req", name) for name in ids)  # these travel in the report, also between workers
        (chosen if not wanted or wanted & set(ids) else others).append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


_WITH_WALLS = ("integration", "contract", "attacks")


def pytest_runtest_setup(item: pytest.Item) -> None:
    asked = lookup(os.environ, "RINGFENCE_SANDBOX_INTEGRATION")
    if asked is not None and not flag(asked) and item.path.relative_to(Path(__file__).parent).parts[0] in _WITH_WALLS:
        pytest.skip(f"{asked.name}={asked.value}: tests that build real walls are left out")
    if item.get_closest_marker("root") is not None and os.geteuid() != 0:
        pytest.skip("needs root")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line per kind: a requirement is proven if every test that names it ran and passed."""
    outcomes: defaultdict[str, set[str]] = defaultdict(set)
    for outcome in ("passed", "failed", "error", "skipped", "xfailed"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, name in getattr(report, "user_properties", ()):
                if key == "req":
                    outcomes[name].add(outcome)
    if not outcomes:
        return
    failed = {name for name, seen in outcomes.items() if seen & {"failed", "error"}}
    partly = {name for name, seen in outcomes.items() if name not in failed and seen != {"passed"}}
    for label, names in (("proven", outcomes.keys() - failed - partly), ("partly", partly), ("failed", failed)):
        if names:
            terminalreporter.write_line(f"requirements {label}: {' '.join(sorted(names, key=_natural))}")


def _natural(name: str) -> tuple[str, int]:
    digits = name.lstrip("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
    return name.removesuffix(digits), int(digits) if digits.isdigit() else 0


@pytest.fixture(scope="session", autouse=True)
def _thread_of_the_blocking_face() -> None:
    """One thread with its loop serves the whole process: it is there before anybody counts what is left."""
    portal()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fails a test that leaves a process, descriptor, mount, cgroup or temporary file. There is no way to opt out."""
    leaks.work_in(tmp_path_factory.getbasetemp())
    before = leaks.Snapshot.take()
    yield
    if left := leaks.wait_for_leaks(before):
        pytest.fail("the test left behind:\n  " + "\n  ".join(left), pytrace=False)
