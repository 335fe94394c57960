"""The store: bounded, its counts stay right, and it finds what is asked for, from any thread."""

import threading
from typing import Any

import pytest

from ringfence.audit.violations import ViolationStore
from ringfence.errors import InvalidArgument
from ringfence.policy.violating import type_of, violation_of
from ringfence.shell.checks import CHECKS
from ringfence.values.facts import Span
from ringfence.values.grant import Grant
from ringfence.values.verdict import Decision, Reason, Verdict
from ringfence.values.violation import (
    USUAL_SEVERITY,
    Operation,
    Severity,
    Violation,
    ViolationKind,
    ViolationType,
)

pytestmark = pytest.mark.req("C7")


def a_violation(what: str = "read /etc/shadow", **changes: Any) -> Violation:
    parts: dict[str, Any] = {
        "kind": ViolationType.PATH_ACCESS_DENIED,
        "severity": Severity.MEDIUM,
        "what": what,
        "rule": "filesystem.deny /etc/shadow",
    }
    return Violation(**(parts | changes))


def test_the_ten_types_of_the_requirement_are_there_and_each_has_a_severity() -> None:
    ten = {
        "heredoc_injection", "shell_metacharacter_abuse", "variable_injection", "dangerous_pattern",
        "critical_path_removal", "sensitive_file_access", "path_access_denied", "command_blocked",
        "disallowed_temp_write", "network_violation",
    }  # fmt: skip

    assert {str(kind) for kind in ViolationType} == ten | {"resource_limit"}
    assert USUAL_SEVERITY.keys() == set(ViolationType)
    assert [severity.rank for severity in Severity] == [0, 1, 2, 3]


def test_the_short_names_mean_the_same() -> None:
    assert ViolationKind.PATH is ViolationType.PATH_ACCESS_DENIED
    assert ViolationKind.LIMIT is ViolationType.RESOURCE_LIMIT


def test_old_ones_go_and_the_counts_stay() -> None:
    store = ViolationStore(3)
    for number in range(10):
        store.record(a_violation(str(number), count=2))

    assert (len(store), store.total) == (3, 20)
    assert store.counts_by_type() == {ViolationType.PATH_ACCESS_DENIED: 20}
    assert store.counts_by_severity() == {Severity.MEDIUM: 20}
    assert [entry.violation.what for entry in store.recent(2)] == ["9", "8"]


def test_a_store_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        ViolationStore(0)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["c", "b", "a"]),
        ({"session": "one"}, ["b", "a"]),
        ({"kind": ViolationType.NETWORK_VIOLATION}, ["c"]),
        ({"at_least": Severity.HIGH}, ["c", "b"]),
        ({"since": 20.0}, ["c", "b"]),
        ({"until": 20.0}, ["b", "a"]),
        ({"text": "SHADOW"}, ["a"]),
        ({"text": "10.0.0.1"}, ["c"]),
        ({"text": "10.0.0.1", "session": "one"}, []),
    ],
)
def test_queries_find_what_fits_everything_that_is_given(wanted: dict[str, Any], found: list[str]) -> None:
    store = ViolationStore()
    store.record(a_violation("a", at=10.0, target="/etc/shadow"), session="one", tool="shell_exec", run_id="1")
    store.record(a_violation("b", at=20.0, severity=Severity.CRITICAL, rule="x"), session="one")
    store.record(
        a_violation(
            "c",
            at=30.0,
            kind=ViolationType.NETWORK,
            severity=Severity.HIGH,
            rule="network",
            operation=Operation.CONNECT,
            target="10.0.0.1:80",
        ),
        session="two",
    )

    assert [entry.violation.what for entry in store.query(**wanted)] == found
    assert [entry.violation.what for entry in store.high_severity()] == ["c", "b"]
    assert store.get_high_severity() == store.high_severity()
    assert {each: store.count_by_severity(each) for each in store.counts_by_severity()} == store.counts_by_severity()


def test_many_threads_may_write_and_read_at_once() -> None:
    store = ViolationStore(100)

    def work() -> None:
        for _ in range(500):
            store.record(a_violation())
            store.query(text="x")

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert (store.total, len(store)) == (4000, 100)
    store.clear()
    assert (store.total, len(store)) == (0, 0)


def test_a_violation_comes_back_from_its_record() -> None:
    whole = a_violation(
        allow_by="remove it",
        operation=Operation.RENAME,
        target="/a\x1b[31m\udcff",
        place="policy.yaml:12",
        at=12.5,
        pid=42,
        program="mv",
        count=3,
    )

    assert Violation.from_record(whole.as_record()) == whole
    assert Violation.from_record(a_violation().as_record()) == a_violation()


@pytest.mark.parametrize(
    "record",
    [{}, {"type": "nonsense", "severity": "high", "what": "", "rule": ""}, {"type": "command_blocked"}],
)
def test_what_is_no_record_of_a_violation_is_refused(record: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        Violation.from_record(record)


@pytest.mark.parametrize(
    ("rule", "kind"),
    [
        ("check here_document: feeds-shell", ViolationType.HEREDOC_INJECTION),
        ("check metacharacter: x", ViolationType.SHELL_METACHARACTER_ABUSE),
        ("check variable: code-x", ViolationType.VARIABLE_INJECTION),
        ("check pattern: fork-bomb", ViolationType.DANGEROUS_PATTERN),
        ("check removal: critical", ViolationType.CRITICAL_PATH_REMOVAL),
        ("check sensitive_path: .ssh", ViolationType.SENSITIVE_FILE_ACCESS),
        ("check sensitive_path: temporary", ViolationType.DISALLOWED_TEMP_WRITE),
        ("check sensitive_path: system", ViolationType.PATH_ACCESS_DENIED),
        ("filesystem.blacklist **/.env", ViolationType.PATH_ACCESS_DENIED),
        ("denied_paths /x", ViolationType.PATH_ACCESS_DENIED),
        ("denied_commands rm -rf", ViolationType.COMMAND_BLOCKED),
        ("check denied_command: sudo", ViolationType.COMMAND_BLOCKED),
        ("network_access", ViolationType.NETWORK_VIOLATION),
        ("denied_domains *.internal", ViolationType.NETWORK_VIOLATION),
        ("fault in judging", ViolationType.COMMAND_BLOCKED),
    ],
)
def test_a_refusal_has_the_type_that_its_rule_is_about(rule: str, kind: ViolationType) -> None:
    assert type_of(rule) is kind


def test_every_check_has_a_type_of_its_own_but_the_one_on_commands() -> None:
    plain = [name for name in CHECKS if type_of(f"check {name}: x") is ViolationType.COMMAND_BLOCKED]

    assert plain == ["denied_command"]


def test_a_refusal_becomes_a_violation_with_the_rules_place_and_the_text_that_it_is_about(tmp_path: Any) -> None:
    reason = Reason(Verdict.DENY, "denied_commands rm", "no rm", "remove it", "policy.yaml", 8, Span(3, 5))
    decision = Decision((reason,), Grant(workspace=tmp_path), text="ls;rm x")

    violation = violation_of(decision, reason, "no rm", 5.0)

    assert (violation.place, violation.target, violation.at) == ("policy.yaml:8", "rm", 5.0)
    assert str(violation) == "no rm [rule: denied_commands rm at policy.yaml:8]; to allow it: remove it"
