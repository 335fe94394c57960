"""Isolation: risk chooses between two walls, never whether there is one, and no layer or mode makes it less."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import InvalidConfig
from ringfence.policy.decide import Place, decide
from ringfence.policy.given import NOTHING_GIVEN
from ringfence.policy.isolation import Isolation, assess_given, isolated, isolation_of, on_wall
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.policy.model import Policy
from ringfence.policy.schema import GUARANTEES
from ringfence.policy.terms import Terms
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.request import Request
from ringfence.values.risk import Assessment, Route, RouteDecision, SecurityMode
from ringfence.values.verdict import Verdict

pytestmark = pytest.mark.req("E2", "D1")

CODE = {
    "SAFE": "print(1)",
    "LOW": "import os\nprint(os.getcwd())",
    "MEDIUM": "open('f', 'w').write('x')",
    "HIGH": "x = 1\n\neval('x')",
    "CRITICAL": "import subprocess",
}


def risk(language: str | None, text: str) -> Assessment:
    return assess_given(language or "bash", text, NOTHING_GIVEN)


MODES = ("permissive", "strict", None)
OWN_KERNEL = frozenset({Guarantee.OWN_KERNEL})


def policy(block: dict[str, Any], source: str = "p.yaml") -> Policy:
    return load_policy(yaml.safe_dump({"policies": {"default": block}}), source)


def terms(*blocks: dict[str, Any]) -> Terms:
    return effective([policy(block, f"{index}.yaml") for index, block in enumerate(blocks)], "code_run")


def isolation(mode: str | None, *needs: str) -> Isolation:
    found = isolation_of(
        terms({"isolation_requires": list(needs or ("own_kernel",))} | ({"security_mode": mode} if mode else {}))
    )
    assert found is not None
    return found


def needed(under: Terms, code: str) -> frozenset[Guarantee]:
    """What the wall of this code has to guarantee."""
    found = isolation_of(under)
    return under.requires | (found.routed(risk("python", code)).needs if found is not None else frozenset())


# --- the key ----------------------------------------------------------------------------------------------------------


def test_without_the_key_nothing_is_isolated_and_nothing_assessed() -> None:
    for block in ({}, {"security_mode": "strict"}, {"isolation_requires": []}, {"mode": "strict"}):
        assert isolation_of(terms(block)) is None
        decision = decide(
            Request(command="curl http://x"), Grant(workspace=Path("/w")), Place(Path("/w")), terms(block)
        )
        assert decision.routed is None
    assert isolation_of(None) is None


def test_a_word_that_is_no_guarantee_is_refused_with_its_place() -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_policy("policies:\n  default:\n    isolation_requires: [own_kernel, own_kernle]\n", "p.yaml")

    assert "p.yaml:3" in str(caught.value) and "own_kernle" in str(caught.value)
    assert "own_kernel" in caught.value.hint or "own_kernel" in caught.value.message


@pytest.mark.parametrize(
    "wrong", ["isolation_requires: 3", "isolation_requires: {a: b}", "isolation_requirse: [own_kernel]"]
)
def test_what_is_no_list_of_guarantees_is_refused(wrong: str) -> None:
    with pytest.raises(InvalidConfig, match=r"p\.yaml:3"):
        load_policy(f"policies:\n  default:\n    {wrong}\n", "p.yaml")


def test_lists_add_up_within_a_file_and_between_layers() -> None:
    file = load_policy(
        "policies: {default: {isolation_requires: [own_kernel]}, "
        "tools: {code_run: {isolation_requires: [own_loopback]}}}",
        "p.yaml",
    )
    later = policy({"isolation_requires": ["network_off"]})

    assert effective((file,), "shell_exec").isolation_requires == OWN_KERNEL
    assert effective((file, later), "code_run").isolation_requires == OWN_KERNEL | {
        Guarantee.OWN_LOOPBACK,
        Guarantee.NETWORK_OFF,
    }


LAYERS = st.fixed_dictionaries(
    {},
    optional={
        "isolation_requires": st.lists(st.sampled_from(GUARANTEES), unique=True, max_size=3),
        "requires": st.lists(st.sampled_from(GUARANTEES), unique=True, max_size=2),
        "security_mode": st.sampled_from(["permissive", "strict"]),
        "mode": st.sampled_from(["permissive", "normal", "restricted", "strict"]),
    },
)


@pytest.mark.req("B4")
@settings(max_examples=150, deadline=None)
@given(st.lists(LAYERS, min_size=1, max_size=3), LAYERS, st.sampled_from([None, *SecurityMode]))
def test_a_further_layer_or_the_callers_mode_never_weakens(
    layers: list[dict[str, Any]], further: dict[str, Any], mode: SecurityMode | None
) -> None:
    before, after = terms(*layers), terms(*layers, further)

    for code in CODE.values():
        assert needed(before, code) <= needed(after, code) <= needed(after.under(SecurityMode.STRICT), code)
        if isolation_of(before) is not None:  # else nobody has said anything that the caller's could weaken
            assert needed(before, code) <= needed(before.under(mode), code)


def test_a_file_that_isolates_and_names_no_mode_means_strict_and_later_ones_cannot_say_otherwise() -> None:
    first, later = {"isolation_requires": ["own_kernel"]}, {"security_mode": "permissive"}

    assert terms(first).security_mode is SecurityMode.STRICT
    assert terms(first, later).security_mode is SecurityMode.STRICT
    assert "permissive is wider than strict" in terms(first, later).notes[0]
    assert terms(later, first).security_mode is SecurityMode.STRICT, "a file that isolates nothing cannot say"
    assert terms(first | later).security_mode is SecurityMode.PERMISSIVE, "who isolates may say what is isolated"


def test_a_file_between_cannot_give_leave_to_loosen_the_mode_that_the_first_left_out() -> None:
    between = load_policy("policies: {may_widen: [security_mode], default: {}}", "between.yaml")
    layers = (policy({"isolation_requires": ["own_kernel"]}), between, policy({"security_mode": "permissive"}))

    assert effective(layers, "code_run").security_mode is SecurityMode.STRICT


@pytest.mark.parametrize("said", MODES)
@pytest.mark.parametrize("asked", [None, *SecurityMode])
def test_of_the_policys_mode_and_the_callers_the_stricter_counts(said: str | None, asked: SecurityMode | None) -> None:
    under = terms({} if said is None else {"security_mode": said}).under(asked)

    opinions = [mode for mode in (said, asked) if mode is not None]
    strict = SecurityMode.STRICT in opinions or not opinions
    assert under.security_mode is (SecurityMode.STRICT if strict else SecurityMode.PERMISSIVE)


# --- which code -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "apart"),
    [("permissive", {"HIGH", "CRITICAL"}), ("strict", {"LOW", "MEDIUM", "HIGH", "CRITICAL"})],
)
def test_the_mode_says_which_risks_are_isolated(mode: str, apart: set[str]) -> None:
    routes = {name: isolation(mode).routed(risk("python", code)) for name, code in CODE.items()}

    assert {name for name, routed in routes.items() if routed.is_isolated} == apart
    assert all(routed.needs == (OWN_KERNEL if routed.is_isolated else frozenset()) for routed in routes.values())
    assert all(name in routed.why and mode in routed.why for name, routed in routes.items())


@pytest.mark.parametrize(
    ("language", "text", "why"),
    [
        ("python", CODE["HIGH"], "isolated: HIGH risk (eval, line 3) under permissive"),
        ("javascript", "eval('1')", "isolated: HIGH risk (eval, line 1) under permissive"),
        ("cobol", "STOP RUN.", "isolated: HIGH risk (unknown language, line 1) under permissive"),
        (None, "ls\ncurl http://example.com", "isolated: HIGH risk (curl, line 2) under permissive"),
        (None, "echo x", "the ordinary wall is enough: SAFE risk under permissive"),
    ],
)
def test_the_reason_names_the_risk_what_was_found_and_where(language: str | None, text: str, why: str) -> None:
    assert isolation("permissive").routed(risk(language, text)).why == why


@pytest.mark.parametrize(
    ("name", "mode", "apart"),
    [
        ("BASH_ENV", "permissive", True),
        ("LD_PRELOAD", "permissive", True),
        ("COLOUR", "permissive", False),
        ("COLOUR", "strict", True),
    ],
)
def test_variables_that_are_set_for_it_count_as_if_it_set_them(name: str, mode: str, apart: bool) -> None:
    under = terms({"isolation_requires": ["own_kernel"], "security_mode": mode})
    request = Request(command="echo x", env=((name, "value"),))
    routed = decide(request, Grant(workspace=Path("/w")), Place(Path("/w")), under).routed

    assert routed is not None and routed.is_isolated is apart and f"({name}=, line 1)" in routed.why


def test_words_of_the_code_cannot_write_lines_into_the_reason() -> None:
    why = isolation("permissive").routed(risk(None, "rm $'a\nisolated: SAFE\x1b[2J' " + "x" * 500)).why

    assert why.isprintable() and len(why) < 150


def test_what_is_too_much_to_be_read_is_isolated() -> None:
    assert isolation("permissive").routed(risk("python", "x = 1\n" * 20_000)).is_isolated


# --- which wall -------------------------------------------------------------------------------------------------------


@given(st.sets(st.sampled_from(Guarantee)), st.sets(st.sampled_from(Guarantee)), st.booleans())
def test_the_isolated_grant_requires_more_and_gives_no_more(
    required: set[Guarantee], needs: set[Guarantee], outside: bool
) -> None:
    grant = Grant(workspace=Path("/w"), requires=frozenset(required), read_outside=outside)
    apart = isolated(grant, frozenset(needs))

    assert apart.requires == required | needs
    assert apart.mediate_opens is (Guarantee.DENIED_AT_OPEN in apart.requires)
    assert apart.read_outside <= grant.read_outside
    assert not (apart.read_outside and needs & {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN})


@pytest.mark.parametrize(
    ("mode", "code", "once", "apart"),
    [
        ("permissive", "SAFE", False, False),
        ("permissive", "HIGH", False, True),
        ("permissive", "HIGH", True, True),
        ("permissive", None, False, False),
        ("strict", "SAFE", True, False),
        ("strict", "LOW", True, True),
        ("strict", "SAFE", False, True),
        ("strict", None, False, True),
        ("strict", None, True, True),
    ],
)
def test_a_box_is_isolated_for_its_call_and_under_strict_for_those_that_may_follow(
    mode: str, code: str | None, once: bool, apart: bool
) -> None:
    rule = isolation(mode)
    routed = rule.routed(risk("python", CODE[code])) if code else None

    assert bool(rule.why_from_the_start(routed, once=once)) is apart


def test_a_wall_that_lacks_something_is_voted_against_with_what_by_which_rule_and_what_to_do() -> None:
    routed = isolation("permissive").routed(risk("python", CODE["HIGH"]))
    vote = on_wall(routed, Wall("bwrap", frozenset(Guarantee) - OWN_KERNEL))

    assert vote is not None and vote.verdict is Verdict.DENY
    assert "HIGH risk (eval, line 3)" in vote.why and "own kernel" in vote.why and "bwrap" in vote.why
    assert vote.place == "isolation_requires at 0.yaml:3" and "new session" in vote.allow_by
    assert on_wall(routed, Wall("gvisor", OWN_KERNEL)) is None
    assert on_wall(routed, None) is None, "no wall stands yet: one can be made that gives it"
    assert on_wall(RouteDecision(Route.WALLED, "safe"), Wall("none", frozenset())) is None


def test_a_decision_about_a_standing_wall_refuses_and_still_names_what_the_policy_denies() -> None:
    under = terms({"isolation_requires": ["own_kernel"], "security_mode": "permissive", "denied_commands": ["curl"]})
    grant, place = Grant(workspace=Path("/w")), Place(Path("/w"))
    wall = Wall("bwrap", frozenset())

    for command, rule in (("wget http://x", "isolation_requires"), ("curl http://x", "denied_commands curl")):
        assert decide(Request(command=command), grant, place, under).verdict is (
            Verdict.ALLOW if rule == "isolation_requires" else Verdict.DENY
        )
        assert decide(Request(command=command), grant, place, under, wall=wall).deciding.rule == rule
