"""Results: one exit code, one verdict and one exception for every ending."""

from dataclasses import replace
from typing import get_args

import pytest

from ringfence import errors
from ringfence.values.limits import Limit
from ringfence.values.outcome import Ending, Exited, LimitHit, Refused, Result, Signalled, TimedOut
from ringfence.values.violation import Severity, Violation, ViolationKind

# (ending, exit code, what check() raises)
TABLE: list[tuple[Ending, int, type[errors.RingfenceError]]] = [
    (Exited(3), 3, errors.CommandFailed),
    (Signalled(9), 137, errors.CommandFailed),
    (TimedOut(5), 124, errors.Timeout),
    (LimitHit(Limit.MEMORY, 1024), 123, errors.ResourceLimitExceeded),
    (Refused("no", "rule"), 122, errors.CommandNotAllowed),
]


def test_the_table_below_names_every_ending() -> None:
    assert {type(ending) for ending, _, _ in TABLE} == set(get_args(Ending))


@pytest.mark.req("A8", "C10")
@pytest.mark.parametrize(("ending", "code", "fault"), TABLE)
def test_each_ending_has_its_code_and_its_error(ending: Ending, code: int, fault: type[errors.RingfenceError]) -> None:
    result = Result(ending=ending)

    assert result.exit_code == code
    assert not result.ok
    with pytest.raises(fault):
        result.check()


def test_success_is_ok_and_check_returns_the_result() -> None:
    result = Result(ending=Exited(0))

    assert result.ok
    assert result.check() is result
    assert not result.blocked


def test_only_a_refusal_or_a_violation_counts_as_blocked() -> None:
    violation = Violation(ViolationKind.LIMIT, Severity.MEDIUM, "too much", "limits.memory", "raise it")

    assert Result(ending=Refused("no", "r", "do so")).blocked_reason == "refused: no [rule: r]; to allow it: do so"
    assert Result(ending=Exited(1), violations=(violation,)).blocked
    assert not Result(ending=Exited(1), violations=(replace(violation, severity=Severity.LOW),)).blocked
    assert Result(ending=Exited(1)).blocked_reason is None


def test_bytes_that_are_no_utf8_survive() -> None:
    result = Result(ending=Exited(0), stdout_bytes=b"a\xff\xfe", stderr_bytes=b"\xc3\x28")

    assert result.stdout_bytes == b"a\xff\xfe"
    assert (result.stdout, result.stderr) == (
        "a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}",
        "\N{REPLACEMENT CHARACTER}(",
    )


def test_a_failed_command_hints_at_its_last_line() -> None:
    with pytest.raises(errors.CommandFailed) as caught:
        Result(ending=Exited(2), stderr_bytes=b"first\nlast\n").check()

    assert (caught.value.exit_code, caught.value.hint) == (2, "last")


def test_a_signal_without_a_name_is_shown_by_its_number() -> None:
    assert (str(Signalled(9)), str(Signalled(99))) == ("ended by SIGKILL", "ended by signal 99")
