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
from ringfence.values.grant import Grant, Shadowing, Trace
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.network import NetworkGrant
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
    "live_input": True,
    "timeout": 6,
    "overflow": Overflow.KEEP_ENDS,
    "output_limit": 5,
    "keep_background": True,
}
CHANGED_GRANT: dict[str, Any] = {
    "workspace": Path("/v"),
    "writable": (Path("/x"),),
    "readable": (Path("/x"),),
    "placed": (("/__runner__", Path("/x")),),
    "denied": ("**/.env",),
    "protected": (".git/hooks",),
    "kept": ("/w/policy.yaml",),
    "mediate_opens": True,
    "shadow": Shadowing(Path("/s"), is_copy=True),
    "places": (("limits.wall", "policy.yaml:3"),),
    "cores": 0.5,
    "read_outside": True,
    "read_only": True,
    "env": (("B", "1"),),
    "python": "/usr/bin/python3",
    "preload": ("json",),
    "trace": Trace.FULL,
    "limits": Limits(processes=3),
    "wall_capped_by": "limits.wall at policy.yaml:3",
    "network": NetworkGrant(reach=(5432,)),
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


@pytest.mark.parametrize(
    ("request_", "where"),
    [
        (Request(command="touch x", context="a"), "wherever the shell `a` is now, with what it keeps"),
        (Request(code="f()", language="python"), "wherever the interpreter is now, with what it keeps"),
        (
            Request(code="f()", language="python", context="b"),
            "wherever the interpreter `b` is now, with what it keeps",
        ),
    ],
)
def test_a_yes_to_what_runs_in_kept_state_is_never_remembered(request_: Request, where: str) -> None:
    question = make_question(request_, DECISION, session="s", seconds=5)

    assert not question.may_remember
    assert dict(question.details)["in"] == where


@pytest.mark.parametrize("request_", [Request(command="touch x"), Request(code="f()", language="perl")])
def test_a_yes_to_what_starts_anew_may_be_remembered(request_: Request) -> None:
    question = make_question(request_, DECISION, session="s", seconds=5)

    assert question.may_remember
    assert dict(question.details)["in"] == "/w"


def test_a_question_shows_everything_that_runs_and_that_it_is_given() -> None:
    stdin = b"echo hi\n" * 1000 + b"rm -rf ."
    env = (("TOKEN", "hunter2"), ("BASH_ENV", "evil.sh"))
    request = Request(argv=("rm", "a b"), cwd=Path("/w"), env=env, stdin=stdin)

    question = make_question(request, DECISION, session="s", seconds=5, variables=(("PAGER", "less"), ("TOKEN", "x")))

    assert question.command == "rm 'a b'"
    assert question.details == (
        ("in", "/w"),
        ("variable BASH_ENV", "evil.sh"),
        ("variable PAGER", "less"),
        ("variable TOKEN", "hunter2"),
        ("input", stdin.decode()),
    )
    assert [reason.rule for reason in question.reasons] == ["rule"]
    assert "hunter2" not in repr(question), "it is shown to a person, and not in a log"


def test_input_that_is_no_text_is_shown_as_the_bytes_that_it_is() -> None:
    question = make_question(replace(REQUEST, stdin=b"\xff\\xff\n"), DECISION, session="s", seconds=5)

    assert dict(question.details)["input"] == r"b'\xff\\xff\n'"


def test_input_that_is_written_while_it_runs_is_a_stream() -> None:
    question = make_question(replace(REQUEST, live_input=True), DECISION, session="s", seconds=5)

    assert not question.may_remember
    assert ("input", "a stream, not known beforehand") in question.details
    assert hash_request(replace(REQUEST, live_input=True), GRANT) != hash_request(REQUEST, GRANT)


def test_two_questions_never_share_an_id() -> None:
    ids = {make_question(REQUEST, DECISION, session="s", seconds=5).id for _ in range(100)}

    assert len(ids) == 100
