"""The hash of a question covers everything that would run."""

from collections.abc import AsyncIterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.approvals.question import hash_request, make_question
from ringfence.errors import Internal
from ringfence.values.grant import Explain, Grant, Shadowing
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.request import Overflow, Request
from ringfence.values.verdict import Decision, Reason, Verdict

pytestmark = pytest.mark.req("E6")

REQUEST = Request(command="ls", cwd=Path("/w"), env=(("A", "1"),), stdin=b"x", timeout=5)
GRANT = Grant(workspace=Path("/w"), requires=frozenset({Guarantee.NETWORK_OFF, Guarantee.NEVER_ROOT}))
DECISION = Decision((Reason(Verdict.ALLOW, "default", "fine"), Reason(Verdict.ASK, "rule", "removes")), GRANT)

CHANGED_REQUEST: dict[str, Any] = {
    "command": "ls ",
    "argv": ("ls",),
    "code": "1",
    "language": "python",
    "context": "a",
    "cwd": Path("/w/a"),
    "env": (("A", "2"),),
    "stdin": b"y",
    "timeout": 6,
    "overflow": Overflow.KEEP_ENDS,
}
CHANGED_GRANT: dict[str, Any] = {
    "workspace": Path("/v"),
    "writable": (Path("/x"),),
    "readable": (Path("/x"),),
    "denied": ("**/.env",),
    "protected": (".git/hooks",),
    "strict": True,
    "shadow": Shadowing(Path("/s"), is_copy=True),
    "places": (("limits.wall", "policy.yaml:3"),),
    "cores": 0.5,
    "read_outside": True,
    "env": (("B", "1"),),
    "python": "/usr/bin/python3",
    "preload": ("json",),
    "explain": Explain.FULL,
    "limits": Limits(processes=3),
    "requires": frozenset({Guarantee.NETWORK_OFF}),
}


@pytest.mark.parametrize("field", CHANGED_REQUEST)
def test_a_changed_request_has_another_hash(field: str) -> None:
    changed = replace(REQUEST, **{field: CHANGED_REQUEST[field]})

    assert hash_request(changed, GRANT) != hash_request(REQUEST, GRANT)


@pytest.mark.parametrize("field", CHANGED_GRANT)
def test_a_changed_grant_has_another_hash(field: str) -> None:
    changed = replace(GRANT, **{field: CHANGED_GRANT[field]})

    assert hash_request(REQUEST, changed) != hash_request(REQUEST, GRANT)


def test_no_field_of_what_runs_is_left_out_above() -> None:
    assert {field.name for field in fields(Request)} - {"on_output"} <= CHANGED_REQUEST.keys()
    assert {field.name for field in fields(Grant)} <= CHANGED_GRANT.keys()


def test_the_same_request_has_the_same_hash() -> None:
    other = replace(GRANT, requires=frozenset({Guarantee.NEVER_ROOT, Guarantee.NETWORK_OFF}))

    assert hash_request(replace(REQUEST, on_output=lambda *_: None), other) == hash_request(REQUEST, GRANT)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"argv": ("a", "b")}, {"argv": ("a b",)}),
        ({"argv": ("a", "")}, {"argv": ("a",)}),
        ({"command": "a"}, {"argv": ("a",)}),
        ({"env": (("A", "B"), ("C", "D"))}, {"env": (("A", "B"),)}),
        ({"env": (("A", "BC"),)}, {"env": (("AB", "C"),)}),
        ({"stdin": b""}, {"stdin": None}),
    ],
)
def test_requests_that_look_alike_are_told_apart(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert hash_request(Request(**one), GRANT) != hash_request(Request(**other), GRANT)


@given(st.lists(st.text()), st.lists(st.text()))
def test_two_argument_lists_share_a_hash_only_if_they_are_equal(one: list[str], other: list[str]) -> None:
    first, second = Request(argv=tuple(one)), Request(argv=tuple(other))

    assert (hash_request(first, GRANT) == hash_request(second, GRANT)) == (one == other)


def test_a_value_of_an_unknown_kind_is_an_error_and_not_a_gap() -> None:
    with pytest.raises(Internal):
        hash_request(replace(REQUEST, env=[("A", "1")]), GRANT)  # type: ignore[arg-type]


async def stream() -> AsyncIterator[bytes]:
    yield b"rm -rf ."


def test_a_yes_to_input_that_is_not_known_is_never_remembered() -> None:
    question = make_question(replace(REQUEST, stdin=stream()), DECISION, session="s", seconds=5)

    assert not question.may_remember
    assert ("input", "a stream, not known beforehand") in question.details


def test_a_question_shows_what_runs_and_no_value_of_a_variable() -> None:
    request = Request(argv=("rm", "a b"), cwd=Path("/w"), env=(("TOKEN", "hunter2"),), stdin=b"echo hi")

    question = make_question(request, DECISION, session="s", seconds=5)

    assert dict(question.details) == {
        "in": "/w",
        "arguments": "('rm', 'a b')",
        "variables": "TOKEN",
        "input": "echo hi",
    }
    assert [reason.rule for reason in question.reasons] == ["rule"]
    assert "hunter2" not in repr(question)


def test_two_questions_never_share_an_id() -> None:
    ids = {make_question(REQUEST, DECISION, session="s", seconds=5).id for _ in range(100)}

    assert len(ids) == 100
