"""Layers: a later one can only tighten, except where the earlier one says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import InvalidConfig
from ringfence.policy.decide import Place, decide
from ringfence.policy.judging import on_host
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.policy.model import Policy
from ringfence.policy.schema import BY_NAME, LANGUAGES
from ringfence.policy.terms import Terms
from ringfence.values.facts import HostFact, Span
from ringfence.values.grant import Grant
from ringfence.values.limits import Limits
from ringfence.values.paths import is_below
from ringfence.values.request import Request
from ringfence.values.verdict import Verdict

WORKSPACE = Path("/work")
COMMANDS = ("ls", "ls -l", "cat a.key", "rm -rf x", "git status", "git push -f", "cat /etc/hosts", "sudo ls", "$X")
HOSTS = ("www.example.com", "10.0.0.1", "db.internal.corp", "example.org")


def policy(settings_: dict[str, Any], source: str = "p.yaml", may_widen: tuple[str, ...] = ()) -> Policy:
    document = {"policies": {"default": settings_, "may_widen": list(may_widen)}}
    return load_policy(yaml.safe_dump(document), source)


def verdict(terms: Terms, command: str) -> Verdict:
    return decide(Request(command=command), Grant(workspace=WORKSPACE), Place(WORKSPACE), terms).verdict


def host_verdict(terms: Terms, host: str) -> Verdict:
    votes = on_host(terms, HostFact(host, 443, Span(0, 0), "fetch"))
    return max((vote.verdict for vote in votes), default=Verdict.ALLOW)


def subsets(*items: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(items), unique=True, max_size=len(items))


BLOCKS = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["permissive", "normal", "restricted", "strict"]),
        "risk_level": st.sampled_from(["low", "medium", "high", "critical"]),
        "sandbox_enabled": st.booleans(),
        "network_access": st.booleans(),
        "max_cpu": st.sampled_from([0.5, 1.0, 4.0]),
        "filesystem_access": st.sampled_from(["read_outside", "workspace_only"]),
        "limits": st.fixed_dictionaries(
            {},
            optional={
                "wall": st.sampled_from(["1s", "1m", "1h"]),
                "memory": st.sampled_from(["1MB", "1GB", "9GB"]),
                "processes": st.sampled_from([1, 100, 10_000]),
            },
        ),
        "filesystem": st.fixed_dictionaries(
            {},
            optional={
                "read": subsets("/data", "/data/a", "/srv"),
                "write": subsets("/data", "/data/a", "/srv"),
                "deny": subsets("**/*.key", "/etc/**"),
            },
        ),
        "allowed_commands": subsets("ls", "ls -l", "cat", "rm", "git status", "git"),
        "denied_commands": subsets("rm -rf", "git push", "sudo", "cat"),
        "allowed_paths": subsets("/workspace/**", "/etc/hosts", "**/*.key"),
        "denied_paths": subsets("/workspace/**/*.key", "/etc/**"),
        "allowed_domains": subsets("*.example.com", "10.*", "*.corp"),
        "denied_domains": subsets("*.internal.*", "10.*"),
        "supported_languages": subsets(*LANGUAGES),
        "requires": subsets("network_off", "own_kernel"),
        "isolation_requires": subsets("own_loopback", "own_kernel"),
        "validation": st.fixed_dictionaries({"strictness": st.sampled_from(["permissive", "normal", "strict"])}),
        "approvals": st.fixed_dictionaries(
            {},
            optional={
                "timeout": st.sampled_from(["5s", "5m"]),
                "remember": st.sampled_from(["session", "never"]),
                "ask_for": st.fixed_dictionaries({"patterns": subsets("git push", "ls")}),
            },
        ),
    },
)


@pytest.mark.req("B4")
@settings(max_examples=150, deadline=None)
@given(BLOCKS, BLOCKS)
def test_a_tightening_layer_never_widens(earlier: dict[str, Any], later: dict[str, Any]) -> None:
    first = policy(earlier, "organisation.yaml")
    alone = effective((first,), "shell_exec")
    both = effective((first, policy(later, "project.yaml")), "shell_exec")

    one, two = alone.limits(Limits()), both.limits(Limits())
    said = [name for name in alone.settings if name.startswith("limits.")]
    for name, field in (
        ("limits.wall", "wall_seconds"),
        ("limits.memory", "memory_bytes"),
        ("limits.processes", "processes"),
    ):
        assert name not in said or getattr(two, field) <= getattr(one, field)
    assert alone.requires <= both.requires
    assert alone.isolation_requires <= both.isolation_requires
    assert set(alone.hidden) <= set(both.hidden)
    for mine, theirs in ((alone.read, both.read), (alone.write, both.write)):
        if mine is not None:
            assert all(any(is_below(row.path, top.path) for top in mine) for row in theirs or ())
    for name in ("risk_level", "filesystem_access", "validation.strictness", "approvals.remember", "security_mode"):
        if (before := alone.value(name)) is not None:
            order = BY_NAME[name].choices.index
            assert order(both.value(name)) >= order(before)
    assert "approvals.timeout" not in alone.settings or both.asking.timeout_seconds <= alone.asking.timeout_seconds
    for command in COMMANDS:
        assert verdict(both, command) >= verdict(alone, command), command
    for host in HOSTS:
        assert host_verdict(both, host) >= host_verdict(alone, host), host


def test_a_wider_value_is_not_taken_and_is_said() -> None:
    terms = effective(
        (policy({"max_memory": "1GB"}, "org.yaml"), policy({"max_memory": "4GB"}, "mine.yaml")), "shell_exec"
    )

    assert terms.limits(Limits()).memory_bytes == 1024**3
    (note,) = terms.notes
    assert note.startswith("mine.yaml:3: max_memory") and "org.yaml:3" in note and "may_widen" in note


def test_what_the_earlier_layer_lets_be_widened_is_replaced() -> None:
    first = policy({"max_memory": "1GB", "allowed_commands": ["ls"]}, may_widen=("max_memory", "allowed_commands"))
    terms = effective((first, policy({"max_memory": "4GB", "allowed_commands": ["git"]})), "shell_exec")

    assert terms.limits(Limits()).memory_bytes == 4 * 1024**3
    assert verdict(terms, "git log") is Verdict.ALLOW
    assert terms.notes == ()


def test_a_later_layer_cannot_give_itself_the_leave_to_widen() -> None:
    layers = (
        policy({"max_memory": "1GB"}),
        policy({}, may_widen=("max_memory",)),
        policy({"max_memory": "4GB"}),
    )

    assert effective(layers, "shell_exec").limits(Limits()).memory_bytes == 1024**3


@pytest.mark.req("B3")
def test_a_file_between_cannot_give_leave_to_lower_a_risk_that_the_first_left_as_it_is() -> None:
    layers = (policy({}), policy({}, may_widen=("risk_level",)), policy({"risk_level": "low"}))

    assert effective(layers, "shell_exec").value("risk_level", None) == "high"


def test_a_later_layer_hands_on_the_leave_that_it_has() -> None:
    layers = (policy({"max_memory": "1GB"}, may_widen=("max_memory",)), policy({}), policy({"max_memory": "4GB"}))

    assert effective(layers, "shell_exec").limits(Limits()).memory_bytes == 4 * 1024**3


def test_lists_of_what_is_allowed_have_to_agree() -> None:
    terms = effective(
        (policy({"allowed_commands": ["ls", "cat"]}), policy({"allowed_commands": ["cat", "git"]})), "shell_exec"
    )

    assert [verdict(terms, command) for command in ("cat x", "ls", "git log")] == [
        Verdict.ALLOW,
        Verdict.DENY,
        Verdict.DENY,
    ]


def test_a_tool_or_role_that_no_policy_knows_is_an_error_with_the_nearest_name() -> None:
    mine = load_policy("policies: {agent_roles: {reviewer: {}}}", "p.yaml")

    with pytest.raises(InvalidConfig, match="shell_exec"):
        effective((mine,), "shel_exec")
    with pytest.raises(InvalidConfig, match="reviewer"):
        effective((mine,), "shell_exec", "reviewr")


def test_roles_inherit_and_the_nearest_wins() -> None:
    text = """
policies:
  default: {max_memory: 1GB, denied_commands: [sudo]}
  agent_roles:
    base: {max_memory: 2GB, denied_commands: [ssh], tools: [file_read]}
    middle: {inherits: base, max_memory: 3GB}
    leaf: {inherits: [default, middle], denied_commands: [nc], tools: [shell_exec]}
"""
    terms = effective((load_policy(text, "p.yaml"),), "shell_exec", "leaf")

    assert terms.limits(Limits()).memory_bytes == 3 * 1024**3
    assert [rule.written for rule in terms.value("denied_commands")] == ["sudo", "ssh", "nc"]
    assert [[name.text for name in names] for names in terms.tools] == [["shell_exec"]]


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    ("looser", "stricter"), [("permissive", "normal"), ("normal", "restricted"), ("restricted", "strict")]
)
def test_each_mode_is_at_least_as_tight_as_the_one_before(looser: str, stricter: str) -> None:
    loose = effective((policy({"mode": looser}),), "shell_exec")
    tight = effective((policy({"mode": stricter}),), "shell_exec")

    for command in ("cat .env", "ls; ls", "echo x > /tmp/x", "ls"):
        assert verdict(tight, command) >= verdict(loose, command), command
    one, two = loose.limits(Limits()), tight.limits(Limits())
    assert two.wall_seconds <= one.wall_seconds and two.memory_bytes <= one.memory_bytes


@pytest.mark.req("C6")
@pytest.mark.parametrize(
    ("mode", "expected"), [("normal", Verdict.ALLOW), ("restricted", Verdict.DENY), ("strict", Verdict.DENY)]
)
def test_writes_below_tmp_are_for_our_own_prefix_in_tight_modes(mode: str, expected: Verdict) -> None:
    terms = effective((policy({"mode": mode}),), "shell_exec")

    assert verdict(terms, "echo x > /tmp/other") is expected
    assert verdict(terms, "echo x > /tmp/ringfence/x") is Verdict.ALLOW


def test_a_block_changes_single_settings_of_its_mode() -> None:
    terms = effective((policy({"mode": "strict", "max_memory": "9GB"}),), "shell_exec")

    assert terms.limits(Limits()).memory_bytes == 9 * 1024**3
    assert terms.limits(Limits()).wall_seconds == 30
