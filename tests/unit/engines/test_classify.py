"""Whose fault was it: the whole table, from evidence that the command cannot write."""

import signal
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.engines.boxes.classify import Evidence, allowed, classify, violations
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import Ending, Exited, LimitHit, Signalled, TimedOut

LIMITS = Limits(cpu_seconds=10, memory_bytes=1 << 20)
KILLED, XCPU, SEGV = int(signal.SIGKILL), int(signal.SIGXCPU), int(signal.SIGSEGV)


def exited(code: int) -> int:
    return code << 8


TABLE: list[tuple[Evidence, Ending]] = [
    (Evidence(exited(0)), Exited(0)),
    (Evidence(exited(255)), Exited(255)),
    (Evidence(SEGV), Signalled(SEGV)),
    (Evidence(SEGV | 0x80), Signalled(SEGV)),  # with a core
    (Evidence(KILLED), Signalled(KILLED)),
    # the kernel has killed for memory, and says not whom: beside others, one that was small was killed by somebody else
    (Evidence(KILLED, memory_kills=1), LimitHit(Limit.MEMORY, 1 << 20)),
    (Evidence(KILLED, memory_kills=1, overlapped=1), Signalled(KILLED)),
    (Evidence(KILLED, memory_kills=1, overlapped=1, peak_memory_bytes=1 << 19), LimitHit(Limit.MEMORY, 1 << 20)),
    # our own kill counts first, whatever the status says
    (Evidence(KILLED, Limit.WALL), TimedOut(5)),
    (Evidence(exited(0), Limit.WALL), TimedOut(5)),
    (Evidence(KILLED, Limit.WALL, memory_kills=3), TimedOut(5)),
    (Evidence(KILLED, Limit.OUTPUT), LimitHit(Limit.OUTPUT, LIMITS.output_bytes)),
    (Evidence(KILLED, Limit.DISK), LimitHit(Limit.DISK, LIMITS.disk_bytes)),
    # the kernel's
    (Evidence(KILLED, memory_kills=1), LimitHit(Limit.MEMORY, 1 << 20)),
    (Evidence(XCPU, cpu_seconds=10.0), LimitHit(Limit.CPU, 10)),
    (Evidence(XCPU, cpu_seconds=9.1), LimitHit(Limit.CPU, 10)),
    (Evidence(KILLED, cpu_seconds=10.5), LimitHit(Limit.CPU, 10)),
    (Evidence(int(signal.SIGXFSZ)), Signalled(signal.SIGXFSZ)),  # a command can send it to itself: no evidence
    # what a command does to itself is its own
    (Evidence(XCPU, cpu_seconds=0.1), Signalled(XCPU)),
    (Evidence(SEGV, memory_kills=1), Signalled(SEGV)),
    (Evidence(SEGV, cpu_seconds=99), Signalled(SEGV)),
    # part of the tree was killed, the command itself went on
    (Evidence(exited(1), memory_kills=1), Exited(1)),
    (Evidence(exited(137), memory_kills=1), Exited(137)),
]


@pytest.mark.req("B6", "C9")
@pytest.mark.parametrize(("evidence", "ending"), TABLE)
def test_the_evidence_decides(evidence: Evidence, ending: Ending) -> None:
    assert classify(evidence, LIMITS, 5) == ending


@pytest.mark.parametrize("limit", Limit)
def test_each_limit_has_a_value_and_an_ending(limit: Limit) -> None:
    ending = classify(Evidence(KILLED, limit), LIMITS, 5)

    assert allowed(limit, LIMITS) > 0
    assert ending == (TimedOut(5) if limit is Limit.WALL else LimitHit(limit, allowed(limit, LIMITS)))


@pytest.mark.req("C7")
def test_a_memory_kill_in_the_tree_is_a_violation_although_the_command_went_on() -> None:
    evidence = Evidence(exited(0), memory_kills=1)

    (found,) = violations(evidence, classify(evidence, LIMITS, 5), LIMITS)

    assert found.rule == "limits.memory"
    assert found.allow_by


def test_an_ordinary_ending_is_no_violation() -> None:
    for evidence in (Evidence(exited(0)), Evidence(exited(1)), Evidence(KILLED), Evidence(KILLED, Limit.WALL)):
        assert violations(evidence, classify(evidence, LIMITS, 5), LIMITS) == ()


@given(st.integers(0, 0xFFFF), st.none() | st.sampled_from(Limit), st.integers(0, 3), st.floats(0, 1e6))
def test_every_evidence_has_an_ending(status: int, killed: Limit | None, kills: int, cpu: float) -> None:
    ending = classify(Evidence(status, killed, kills, cpu), LIMITS, 5)

    assert isinstance(ending, get_args(Ending))
    if killed is not None:
        assert isinstance(ending, TimedOut | LimitHit)


@pytest.mark.parametrize(
    ("evidence", "is_shared"),
    [
        (Evidence(exited(0), Limit.CPU), False),
        (Evidence(exited(0), Limit.CPU, overlapped=2), False),
        (Evidence(exited(0), Limit.CPU, overlapped=2, is_shared=True), True),
        (Evidence(KILLED, memory_kills=1, overlapped=2), True),
    ],
)
def test_a_limit_that_may_be_a_neighbour_s_doing_says_so(evidence: Evidence, is_shared: bool) -> None:
    (violation,) = violations(evidence, classify(evidence, LIMITS, 5), LIMITS)

    assert ("which of them is not known" in violation.what) == is_shared
