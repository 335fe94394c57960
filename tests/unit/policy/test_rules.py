"""Command rules match programs with their arguments; to deny they match more, to allow less."""

from __future__ import annotations

import pytest

from ringfence.policy.document import Mark
from ringfence.policy.rules import CommandRule, Match
from ringfence.shell.analyse import analyse

HERE = Mark("p.yaml", 1)


def denied(rule: str, command: str) -> Match:
    parsed = CommandRule.parse(rule, HERE)
    return max((parsed.denies(program) for program in analyse(command).programs), default=Match.NO)


def allowed(rule: str, command: str) -> bool:
    parsed = CommandRule.parse(rule, HERE)
    return all(parsed.allows(program) is Match.YES for program in analyse(command).programs)


DENIED = [
    ("rm -rf", "rm -rf x"),
    ("rm -rf", "rm -r -f x"),
    ("rm -rf", "rm -fr x"),
    ("rm -rf", "rm -Rfv x"),
    ("rm -rf", "rm x --recursive --force"),
    ("rm -rf", "rm --recurs --forc x"),
    ("rm -rf", "/bin/rm -rf x"),
    ("rm -rf", "cd a && sudo env A=1 rm -rf x"),
    ("rm -rf", "x=rm; $x -rf y"),
    ("rm -rf", "bash -c 'rm -r -f y'"),
    ("rm -rf", "find . -exec rm -rf {} +"),
    ("rm --recursive", "rm -R x"),
    ("sudo", "sudo -u me ls"),
    ("curl", "ls | xargs curl -s"),
    ("git push", "git push origin main"),
    ("git push", "git -C repo push"),
    ("git push --force", "git push -f origin main"),
    ("git push --force", "git push origin main --force"),
    ("python*", "python3.12 x.py"),
    ("find -delete", "find . -name x -delete"),
    ("chmod 777", "chmod -R 777 ."),
]

SPARED = [
    ("rm -rf", "rm -r x"),
    ("rm -rf", "rm x"),
    ("rm -rf", "echo rm -rf x"),
    ("rm -rf", "echo 'rm -rf x' > notes.txt"),
    ("rm -rf", "grep -rf patterns ."),
    ("rm -rf", "rmdir x"),
    ("git push", "git commit -m push"),
    ("git push", "git log push"),
    ("git push --force", "git push origin main"),
    ("find -delete", "find . -maxdepth 1 -type l -empty"),
    ("sudo", "man sudo"),
]


@pytest.mark.req("B4")
@pytest.mark.parametrize(("rule", "command"), DENIED)
def test_a_deny_rule_matches_every_spelling(rule: str, command: str) -> None:
    assert denied(rule, command) is Match.YES


@pytest.mark.parametrize(("rule", "command"), SPARED)
def test_a_deny_rule_spares_what_only_looks_like_it(rule: str, command: str) -> None:
    assert denied(rule, command) is Match.NO


@pytest.mark.parametrize(("rule", "command"), [("rm -rf", "rm $X y"), ("rm", "$X y"), ("git push", "git $X")])
def test_what_is_not_known_may_match(rule: str, command: str) -> None:
    assert denied(rule, command) is Match.MAYBE


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("ls", "ls -la /"),
        ("ls", "/usr/bin/ls"),
        ("git status", "git status -s"),
        ("python3*", "python3.12 x"),
        ("./go", "./go x"),
    ],
)
def test_an_allow_rule_matches_its_program(rule: str, command: str) -> None:
    assert allowed(rule, command)


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("ls", "./ls"),
        ("ls", "/workspace/bin/ls"),
        ("ls", "lsof"),
        ("git status", "git push"),
        ("git status", "git"),
        ("git status", "git -c core.pager=x status"),
        ("git status", "git $X"),
        ("ls", "$X"),
    ],
)
def test_an_allow_rule_does_not_match_what_may_be_another_program(rule: str, command: str) -> None:
    assert not allowed(rule, command)
