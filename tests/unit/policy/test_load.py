"""Policy files: the documents' own load unchanged; what is wrong is an error that names the place and the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidConfig
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.policy.reading import ExpansionContext
from ringfence.policy.schema import SETTINGS
from ringfence.values.limits import Limits

CORPUS = Path(__file__).parents[2] / "corpus"
DOCUMENT = (CORPUS / "sandbox_policy.yaml").read_text(encoding="utf-8")
NETWORK = (CORPUS / "network_policy.yaml").read_text(encoding="utf-8")
MB = 1024 * 1024


@pytest.mark.req("B4")
def test_the_documents_policy_loads_unchanged() -> None:
    policy = load_policy(DOCUMENT, "sandbox_policy.yaml")

    assert list(policy.tools) == ["file_read", "shell_exec", "code_run", "browser_automation"]
    assert list(policy.roles) == ["code_assistant", "data_analyst", "web_scraper"]
    shell = effective((policy,), "shell_exec", "code_assistant")
    assert [rule.written for rule in shell.value("denied_commands")] == ["rm -rf", "sudo", "curl", "wget", "nc", "ssh"]
    assert shell.limits(Limits()) == Limits(wall_seconds=60, memory_bytes=512 * MB, cpu_seconds=60)


@pytest.mark.req("B4")
def test_a_role_replaces_what_the_tool_and_the_default_say() -> None:
    policy = load_policy(DOCUMENT, "sandbox_policy.yaml")

    assert effective((policy,), "code_run").limits(Limits()).memory_bytes == 1024 * MB
    assert effective((policy,), "code_run", "data_analyst").limits(Limits()).memory_bytes == 2048 * MB
    assert effective((policy,), "browser_automation").value("network_access") is True
    assert effective((policy,), "file_read").value("network_access") is False


@pytest.mark.req("B5")
def test_the_documents_network_section_loads_unchanged() -> None:
    terms = effective((load_policy(NETWORK, "network.yaml"),), "browser_automation")

    assert [rule.written for rule in terms.host_lists()[0]] == [
        "api.openai.com",
        "api.anthropic.com",
        "*.githubusercontent.com",
    ]
    assert terms.value("network.denylist.ports") == (22, 3306, 5432, 6379)


def default(line: str) -> str:
    return f"policies:\n  default:\n    {line}\n"


BAD = [
    ("polices: {}", "1:1", "'polices'", "'policies'"),
    ("policies:\n  defaults: {}", "2:3", "'policies.defaults'", "'default'"),
    (default("max_memry: 1GB"), "3:5", "'max_memry'", "'max_memory'"),
    (default("filesystem: {wirte: [/x]}"), "3:18", "'filesystem.wirte'", "'write'"),
    (default("max_memory: 512QB"), "3:17", "'512QB' is not a size", "512MB"),
    (default("max_memory: 0"), "3:17", "no limit can be", "default"),
    (default("max_memory: 9999999999TB"), "3:17", "no limit can be", "default"),
    (default("max_execution_time: -5s"), "3:25", "'-5s' is not a duration", "30s"),
    (default("max_execution_time: [1]"), "3:25", "not a list", "60s"),
    (default("max_cpu: much"), "3:14", "a number above zero", "1.0"),
    (default("limits: {processes: 1.5}"), "3:25", "a whole number", "256"),
    (default("sandbox_enabled: 'yes'"), "3:22", "true or false", "true"),
    (default("sandbox_enabled: maybe"), "3:22", "true or false", "true"),
    (default("engine: nativ"), "3:13", "'nativ'", "'native'"),
    (default("risk_level: hihg"), "3:17", "'hihg'", "'high'"),
    (default("requires: [network of]"), "3:16", "'network of'", "network_off"),
    (default("allowed_commands: ls"), "3:23", "a list of commands", "ls"),
    (default("allowed_commands:"), "3:22", "not nothing", "[]"),
    (default("allowed_commands: ['*']"), "3:24", "allows everything", "leave allowed_commands out"),
    (default("allowed_commands: ['[a-z]*']"), "3:24", "allows everything", "leave"),
    (default("allowed_commands: ['ls | cat']"), "3:24", "'|'", "each program"),
    (default("denied_commands: ['rm \"x']"), "3:23", "open quote", "close"),
    (default("denied_commands: ['']"), "3:23", "''", "rm -rf"),
    (default("allowed_domains: ['*']"), "3:23", "allows everything", "leave"),
    (default("allowed_domains: ['https://example.com/']"), "3:23", "URL", "host alone"),
    (default("allowed_domains: ['exa mple.com']"), "3:23", "neither a host name", "10.0.0.0/8"),
    (default("allowed_domains: ['example.com:99999']"), "3:23", "'99999' is not a port", "65535"),
    (default("network: {denylist: {ports: [70000]}}"), "3:34", "'70000' is not a port", "65535"),
    (default("denied_paths: [secrets/x]"), "3:20", "is relative", "/workspace/secrets/x"),
    (default("denied_paths: [/a/../b]"), "3:20", "`..`", "path that is meant"),
    (default("denied_paths: ['/**']"), "3:20", "hides everything", "name what"),
    (default("denied_paths: ['$NOT_SET/x']"), "3:20", "is not set", "write the path out"),
    (default("filesystem: {read: [data]}"), "3:25", "not an absolute path", "from /"),
    (default("limits: {wall: 1s}\n    max_execution_time: 2s"), "4:5", "says the same as limits.wall", "keep one"),
    (default("denied_commands: [{comand: rm}]"), "3:24", "'comand'", "command"),
    (default("denied_commands: [{why: x}]"), "3:23", "without `command`", "command: ..."),
    (default("<<: {max_memory: 1GB}"), "3:5", "merge keys", "inherit"),
    ("policies: {default: [1]}", "1:21", "has to be a section", "indent"),
    ("- 1", "1:1", "has to be a section", "indent"),
    ("policies: {tools: {shel_exec: {risk_level: high}}}", "1:20", "'shel_exec'", "'shell_exec'"),
    ("policies: {tools: {deploy: {}}}", "1:20", "'deploy'", "risk_level"),
    ("policies: {agent_roles: {a: {tools: [shell_exce]}}}", "1:38", "'shell_exce'", "'shell_exec'"),
    ("policies: {agent_roles: {a: {inherits: defualt}}}", "1:40", "'defualt'", "'default'"),
    ("policies: {agent_roles: {a: {inherits: b}, b: {inherits: a}}}", "1:58", "a -> b -> a", "remove"),
    ("policies: {agent_roles: {default: {}}}", "1:26", "`default`", "policies.default"),
    ("policies: {may_widen: [max_memroy]}", "1:24", "'max_memroy'", "'max_memory'"),
    (
        "network: {default: none}\npolicies: {default: {network: {default: none}}}",
        "1:10",
        "at the top and in",
        "keep one",
    ),
    (default("approvals: {ask_for: {tools: [shel_exec]}}"), "3:35", "'shel_exec'", "'shell_exec'"),
    (default("approvals: {remember: forever}"), "3:27", "'forever'", "'never'"),
]


@pytest.mark.parametrize(("text", "place", "what", "remedy"), BAD, ids=[row[0][:60].replace("\n", "/") for row in BAD])
def test_what_is_wrong_is_named_with_its_place_and_remedy(text: str, place: str, what: str, remedy: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_policy(text, "p.yaml")

    assert caught.value.message.startswith(f"p.yaml:{place}: "), caught.value.message
    assert what in caught.value.message
    assert remedy in caught.value.hint, caught.value.hint


WRONG_IN_MANY_PLACES = """\
policies:
  default:
    max_memry: 1GB
    max_memory: 5QB
    max_memory: 1GB
    denied_commands:
      - command: rm -rf
        matches: [rm x, rm -rf y, rm z]
      - {comand: dd, y: 1}
      - ''
    engine: nativ
  tools:
    shel_exec: {risk_level: hihg}
  agent_roles:
    a: {inherits: [b, nobody], tools: [shell_exce, file_read]}
    b: {inherits: a}
  may_widen: [max_memroy, max_memory]
  typo: 1
"""


@pytest.mark.req("B4")
def test_all_errors_of_a_file_are_named_at_once_in_the_order_of_their_lines() -> None:
    with pytest.raises(InvalidConfig) as caught:
        load_policy(WRONG_IN_MANY_PLACES, "p.yaml")

    found = [(fault.line, fault.column) for fault in caught.value.faults]
    assert found == [
        (3, 5), (4, 17), (5, 5), (8, 19), (8, 35), (9, 10), (9, 22), (10, 9), (11, 13), (13, 5), (13, 29),
        (15, 23), (15, 40), (16, 19), (17, 15), (18, 3),
    ]  # fmt: skip
    assert caught.value.message == "p.yaml: 16 errors"
    assert all(str(fault) in str(caught.value) for fault in caught.value.faults)
    assert "\n  p.yaml:3:5: unknown key 'max_memry' (did you mean 'max_memory'?)\n" in str(caught.value)


def test_a_file_of_errors_is_not_read_to_its_end() -> None:
    rows = "\n".join(f"    wrong_{number}: 1" for number in range(20_000))

    with pytest.raises(InvalidConfig) as caught:
        load_policy(f"policies:\n  default:\n{rows}\n", "p.yaml")

    assert len(caught.value.faults) == 50
    assert "at least 50 errors" in caught.value.message


@pytest.mark.parametrize("key", SETTINGS, ids=lambda key: key.name)
def test_the_example_of_every_key_is_valid(key: object) -> None:
    name, example = key.name, key.example  # type: ignore[attr-defined]
    *sections, last = name.split(".")
    text = f"{last}: {example}"
    for section in reversed(sections):
        text = f"{section}: {{{text}}}"

    policy = load_policy(default(text), "p.yaml")

    assert policy.default or name.endswith(".enabled")


def test_an_example_that_does_not_hold_is_an_error_at_the_example() -> None:
    rule = "denied_commands: [{command: rm -rf, %s}]"

    load_policy(default(rule % "matches: [rm -r -f x, sudo rm -fr x], spares: [rm x, echo rm -rf]"), "p.yaml")
    for wrong, what in (("matches: [rm -r x]", "does not match"), ("spares: [rm --force -R x]", "should spare")):
        with pytest.raises(InvalidConfig, match=what):
            load_policy(default(rule % wrong), "p.yaml")


@pytest.mark.parametrize(
    ("rule", "wrong"),
    [
        (
            "denied_paths: [{path: '**/*.key', matches: [/workspace/a/b.key], spares: [/workspace/key]}]",
            "/workspace/key",
        ),
        ("denied_domains: [{domain: '*.corp', matches: [a.b.corp], spares: [corp]}]", "corp"),
    ],
)
def test_path_and_host_rules_carry_examples_too(rule: str, wrong: str) -> None:
    load_policy(default(rule), "p.yaml")
    with pytest.raises(InvalidConfig, match="does not match"):
        load_policy(default(rule.replace("matches: [", f"matches: [{wrong}, ")), "p.yaml")


def test_a_program_called_yes_is_no_flag() -> None:
    policy = load_policy(default("allowed_commands: [yes, true, 'no']"), "p.yaml")

    (rules,) = policy.default["allowed_commands"].value
    assert [rule.words for rule in rules] == [("yes",), ("true",), ("no",)]


def test_home_and_variables_in_paths_are_put_in() -> None:
    text = default("filesystem: {deny: [~/keys, $DATA/x]}")
    policy = load_policy(text, "p.yaml", ExpansionContext("/home/ann", {"DATA": "/srv"}))

    assert [rule.row for rule in policy.default["filesystem.deny"].value] == ["/home/ann/keys", "/srv/x"]


def test_a_long_chain_of_roles_is_refused_and_not_followed() -> None:
    rows = "\n".join(f"    r{n}: {{inherits: r{n + 1}}}" for n in range(2000))
    with pytest.raises(InvalidConfig, match="levels deep"):
        load_policy(f"policies:\n  agent_roles:\n{rows}\n    r2000: {{}}\n", "p.yaml")


@given(st.text(alphabet="policestnamr: {}[],\n-_'*&", max_size=80))
def test_any_text_is_a_policy_or_an_error(text: str) -> None:
    try:
        load_policy(text, "p.yaml")
    except InvalidConfig as fault:
        assert fault.line is not None
