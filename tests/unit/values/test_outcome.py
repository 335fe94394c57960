"""Results: one exit code, one verdict and one exception for every ending."""

from dataclasses import replace
from typing import get_args

import pytest

from ringfence import errors
from ringfence.values.limits import Limit
from ringfence.values.outcome import Ending, Exited, LimitHit, Refused, Result, Signalled, TimedOut, Usage
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


@pytest.mark.req("C10")
def test_a_limit_that_was_hit_says_which_how_much_it_is_and_how_much_was_used() -> None:
    used = Usage(wall_seconds=1.0, cpu_seconds=0.5, peak_memory_bytes=70 << 20, measured_by="x")

    with pytest.raises(errors.ResourceLimitExceeded) as caught:
        Result(ending=LimitHit(Limit.MEMORY, 64 << 20), usage=used).check()

    fault = caught.value
    assert (fault.resource, fault.current, fault.limit) == ("memory", 70 << 20, 64 << 20)
    assert "64 MiB" in fault.message
    with pytest.raises(errors.ResourceLimitExceeded) as caught:
        Result(ending=LimitHit(Limit.PROCESSES, 64), usage=used).check()
    assert caught.value.current is None, "nobody counted those that were never made"


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("kind", "fault", "field"),
    [
        (ViolationKind.COMMAND_BLOCKED, errors.CommandNotAllowed, "command"),
        (ViolationKind.DANGEROUS_PATTERN, errors.CommandNotAllowed, "command"),
        (ViolationKind.NETWORK_VIOLATION, errors.NetworkAccessDenied, "host"),
        (ViolationKind.PATH_ACCESS_DENIED, errors.PathAccessDenied, "path"),
        (ViolationKind.SENSITIVE_FILE_ACCESS, errors.PathAccessDenied, "path"),
    ],
)
def test_a_refusal_is_raised_as_what_it_is_about_with_its_field(
    kind: ViolationKind, fault: type[errors.RingfenceError], field: str
) -> None:
    about = Violation(kind, Severity.HIGH, "not that", "rule", "do so", target="the target")

    with pytest.raises(fault) as caught:
        Result(ending=Refused("not that", "rule", "do so"), violations=(about,)).check()

    assert getattr(caught.value, field) == "the target"
    assert (caught.value.rule, caught.value.hint) == ("rule", "do so")  # type: ignore[attr-defined]


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("fault", "fields"),
    [
        (errors.ResourceLimitExceeded("cpu", 3.0, current=4.0), {"resource": "cpu", "current": 4.0, "limit": 3.0}),
        (errors.PathAccessDenied("/x", "no", rule="r"), {"path": "/x", "rule": "r"}),
        (errors.PathTraversalError("../x", "no"), {"path": "../x"}),
        (errors.CommandNotAllowed("no", command="rm", rule="r"), {"command": "rm", "rule": "r"}),
        (errors.NetworkAccessDenied("h:1", "no", rule="r"), {"host": "h:1", "rule": "r"}),
        (errors.Timeout(5.0), {"seconds": 5.0}),
        (errors.InitializationFailed("no wall"), {"message": "no wall"}),
        (errors.SpawnFailed("ls", "gone"), {"program": "ls", "why": "gone"}),
        (errors.InvalidConfig("bad", source="f", line=3, column=1), {"source": "f", "line": 3, "column": 1}),
        (errors.PermissionDenied("not ours"), {"message": "not ours"}),
        (errors.Internal("a fault"), {"message": "a fault"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_of_the_family_carries_its_fields(fault: errors.RingfenceError, fields: dict[str, object]) -> None:
    assert {name: getattr(fault, name) for name in fields} == fields
    assert fault.code != errors.RingfenceError.code and isinstance(fault.hint, str)


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
