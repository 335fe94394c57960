"""The filter for container engines, asked call by call, against the native one."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.confinement.choose import container_profile
from ringfence.confinement.linux.bpf import AnyBit, Condition, NoneOf, OneOf
from ringfence.confinement.linux.seccomp import Profile, assemble, refusals
from ringfence.confinement.linux.seccomp_json import ARCHITECTURES, docker_profile, render
from ringfence.confinement.linux.syscalls import MACHINES
from tests.support.bpf import ALLOW, ERRNO, Program

pytestmark = pytest.mark.req("B8")

PROFILES = {
    "default": Profile(),
    "everything off": Profile(unix_sockets=False, inet_sockets=False, system_v_ipc=False, openat2=False),
    "debugging": Profile(debugging=True),
}
CHECKED_IN = Path(__file__).parents[3] / "deploy" / "seccomp.json"
WORD = 0xFFFFFFFF


def rules_for(document: dict[str, Any], call: str) -> list[tuple[int, list[tuple[int, int, int]]]]:
    return [
        (rule["errnoRet"], [(each["index"], each["value"], each["valueTwo"]) for each in rule["args"]])
        for rule in document["syscalls"]
        if call in rule["names"]
    ]


def verdicts(rules: list[tuple[int, list[tuple[int, int, int]]]], arguments: tuple[int, ...]) -> set[int]:
    """The answers of all rules that match: more than one would mean that their order counts."""
    return {
        answer for answer, checks in rules if all(arguments[index] & mask == value for index, mask, value in checks)
    }


def telling(condition: Condition) -> set[int]:
    match condition:
        case AnyBit(mask=mask):
            return {0, mask, WORD, WORD ^ mask, *(1 << place for place in range(32))}
        case OneOf(values=values, mask=mask):
            return {0, WORD, *values, *(value | WORD ^ mask for value in values), *(value + 1 for value in values)}
        case NoneOf(values=values):
            return {*values, *(value ^ 1 << place for value in values for place in range(32))}


def vectors(profile: Profile, call: str) -> list[tuple[int, ...]]:
    words: list[set[int]] = [{0} for _ in range(6)]
    for row in refusals(profile):
        if call in row.calls:
            for condition in row.when:
                words[condition.argument] |= telling(condition)
    low = list(itertools.product(*words))
    return [*low, *(tuple(word | 0xDEAD << 32 for word in vector) for vector in low[::7])]


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("profile", PROFILES.values(), ids=list(PROFILES))
def test_every_call_gets_the_answer_of_the_native_filter(profile: Profile, machine: str) -> None:
    native, document = Program.load(assemble(profile, machine)), docker_profile(profile)
    table = MACHINES[machine]

    for call, number in table.numbers.items():
        rules = rules_for(document, call)
        for vector in vectors(profile, call):
            verdict = native.verdict(table.audit_arch, number, vector)
            expected = set() if verdict == ALLOW else {verdict ^ ERRNO}
            assert verdicts(rules, vector) == expected, (call, [hex(word) for word in vector])


def test_a_rule_that_is_left_out_shows() -> None:
    document = docker_profile()
    document["syscalls"] = [rule for rule in document["syscalls"] if rule["names"] != ["bpf"]]

    assert verdicts(rules_for(document, "bpf"), (0,) * 6) == set()
    assert verdicts(rules_for(docker_profile(), "bpf"), (0,) * 6) == {1}


def test_no_rule_compares_a_register_twice() -> None:
    """runc takes two comparisons of one register for alternatives."""
    for rule in docker_profile()["syscalls"]:
        indexes = [each["index"] for each in rule["args"]]
        assert len(indexes) == len(set(indexes))


@pytest.mark.req("B8")
def test_who_makes_users_may_make_a_user_namespace_and_nothing_else_besides() -> None:
    usual, made = docker_profile(), docker_profile(makes_users=True)
    user, network, mounts = 0x10000000, 0x40000000, 0x20000

    for flags in (0, network, mounts, user | network, user | mounts, user | 1, WORD):
        assert verdicts(rules_for(made, "unshare"), (flags, *[0] * 5)) == {1}, hex(flags)
    assert verdicts(rules_for(made, "unshare"), (user, *[0] * 5)) == set()
    assert verdicts(rules_for(usual, "unshare"), (user, *[0] * 5)) == {1}
    calls = {name for rule in usual["syscalls"] for name in rule["names"]} - {"unshare"}
    assert all(rules_for(made, call) == rules_for(usual, call) for call in calls - {"setns"})
    assert verdicts(rules_for(made, "setns"), (0,) * 6) == {1}


def test_upper_halves_are_never_looked_at() -> None:
    for rule in docker_profile()["syscalls"]:
        for each in rule["args"]:
            assert each["op"] == "SCMP_CMP_MASKED_EQ"
            assert each["value"] <= WORD
            assert each["valueTwo"] & ~each["value"] == 0


def test_every_rule_says_why() -> None:
    assert all(len(rule["comment"]) >= 10 for rule in docker_profile()["syscalls"])


def test_no_second_architecture_is_let_in() -> None:
    document = docker_profile()

    assert document["archMap"] == [{"architecture": name, "subArchitectures": []} for name in ARCHITECTURES]
    assert len(ARCHITECTURES) == len(MACHINES)
    assert "architectures" not in document


def test_the_file_in_deploy_is_what_the_rows_give() -> None:
    """If not: python -m ringfence.confinement.linux.seccomp_json > deploy/seccomp.json"""
    assert CHECKED_IN.read_text() == render(docker_profile())


def test_the_text_says_the_same_as_the_data() -> None:
    assert json.loads(render(docker_profile())) == docker_profile() == container_profile()
