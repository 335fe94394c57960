"""What is valid and still not meant: rules that never fire, rules that another one shadows."""

from __future__ import annotations

import pytest

from ringfence.policy.lint import lint
from ringfence.policy.load import load_policy
from ringfence.policy.presets import PRESETS


def remarks(text: str, *earlier: str) -> list[str]:
    before = [load_policy(other, "org.yaml") for other in earlier]
    return [str(remark) for remark in lint(load_policy(text, "p.yaml"), before)]


def default(line: str) -> str:
    return f"policies:\n  default:\n    {line}\n"


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("denied_commands: [rm, rm -rf]", "'rm -rf' adds nothing to 'rm'"),
        ("denied_commands: [rm -rf, rm -r -f]", "'rm -r -f' adds nothing to 'rm -rf'"),
        ("allowed_commands: [git, git status]", "'git status' adds nothing to 'git'"),
        ("allowed_commands: [ls, rm -rf], denied_commands: [rm]", "'rm -rf' can never be allowed"),
        ("allowed_commands: [ls], denied_commands: [make]", "'make' never fires"),
        ("allowed_commands: [python]", "runs whatever it is told to"),
        ("allowed_commands: []", "nothing is allowed"),
        ("allowed_paths: [/workspace/a], denied_paths: [/workspace/**]", "can never be allowed"),
        ("denied_domains: ['*.corp', db.corp]", "'db.corp' adds nothing"),
        ("denied_domains: [10.0.0.0/8, 10.1.0.0/16]", "'10.1.0.0/16' adds nothing"),
        ("network_access: false, allowed_domains: [a.com]", "allowed_domains never counts"),
        ("isolation_requires: [own_kernel], requires: [own_kernel, network_off]", "gets no other wall"),
        ("isolation_requires: [own_kernel], filesystem: {mediate_opens: true}", "does not run"),
    ],
)
def test_a_rule_that_does_nothing_is_named(line: str, what: str) -> None:
    found = remarks(f"policies:\n  default: {{{line}}}\n")

    assert any(what in remark and remark.startswith("p.yaml:2: ") for remark in found), found


@pytest.mark.parametrize(
    "line",
    [
        "denied_commands: [rm -rf, rm --dir]",
        "allowed_commands: [git status, git diff]",
        "allowed_commands: [rm], denied_commands: [rm -rf]",
        "denied_domains: ['*.corp', corp]",
        "allowed_paths: [/workspace/**], denied_paths: ['/workspace/**/*.key']",
    ],
)
def test_rules_that_work_together_are_left_alone(line: str) -> None:
    assert remarks(f"policies:\n  default: {{{line}}}\n") == []


def test_what_an_earlier_layer_overrules_is_said() -> None:
    (remark,) = remarks(default("max_memory: 4GB"), default("max_memory: 1GB"))

    assert "wider" in remark and "org.yaml:3" in remark


@pytest.mark.parametrize("mode", PRESETS)
def test_the_modes_have_no_remarks(mode: str) -> None:
    assert remarks(PRESETS[mode]) == []
