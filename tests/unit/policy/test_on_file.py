"""The votes on a file that is opened without a command, and what a granted directory changes for commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.manager.policing import PolicyEngine
from ringfence.policy.decide import on_file
from ringfence.shell import analyse, answer, validate
from ringfence.shell.context import CheckContext
from ringfence.values.facts import CheckAnswer
from ringfence.values.grant import Grant
from ringfence.values.verdict import Verdict
from ringfence.values.violation import Severity

GRANT = Grant(workspace=Path("/w"), writable=(Path("/tmp/sage"),))


def denied(path: str, handling: str, *, write: bool) -> bool:
    engine = PolicyEngine.from_text(
        f"policies: {{default: {{validation: {{sensitive_files: {handling}}}, temporary_files: own_prefix}}}}", "p"
    )
    votes = on_file(path, engine.terms(), GRANT, "/home/me", write=write)
    return any(vote.verdict is Verdict.DENY for vote in votes)


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    ("path", "write"), [("/home/me/.ssh/id_rsa", False), ("/w/.git/hooks/x", True), (".claude/a", True)]
)
def test_sensitive_files_are_refused_to_the_file_api_as_to_commands(path: str, write: bool) -> None:
    assert denied(path, "block", write=write)
    assert not denied(path, "warn", write=write)
    assert not denied("/w/src/a.py", "block", write=write)


@pytest.mark.req("C6")
def test_temporary_files_go_below_the_prefixes_and_what_is_granted() -> None:
    assert denied("/tmp/other", "block", write=True)
    assert not denied("/tmp/other", "block", write=False)
    for path in ("/tmp/sage/x", "/tmp/sage-agent/x", "/tmp/ringfence/x"):
        assert not denied(path, "block", write=True)


@pytest.mark.req("C3", "C6")
def test_a_write_into_a_granted_directory_is_as_one_into_the_workspace() -> None:
    facts = analyse("echo x > /srv/out/file")

    assert answer(validate(facts, CheckContext(workspace="/w"))) is not CheckAnswer.PASS
    assert answer(validate(facts, CheckContext(workspace="/w", writable=("/srv/out",)))) is CheckAnswer.PASS


@pytest.mark.req("C3")
def test_normal_warns_of_operators_only_where_it_is_asked_to() -> None:
    facts = analyse("ls | wc -l && echo ${HOME}")

    assert validate(facts, CheckContext()) == ()
    assert {finding.rule for finding in validate(facts, CheckContext(warn_operators=True))} == {"|", "&&", "${"}


@pytest.mark.req("C7")
def test_severities_are_ordered_by_how_grave_they_are_and_not_as_texts() -> None:
    assert sorted(Severity, reverse=True) == [Severity.CRITICAL, Severity.HIGH, Severity.MEDIUM, Severity.LOW]
    assert Severity.CRITICAL > Severity.HIGH >= "high" > Severity.LOW
