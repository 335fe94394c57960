"""The worked policies in examples/policies do what their comments say."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.manager.policing import PolicyEngine
from ringfence.policy.lint import lint
from ringfence.values.limits import Limits
from ringfence.values.request import Request
from ringfence.values.verdict import Verdict

FOLDER = Path(__file__).parents[3] / "examples" / "policies"
ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY


def engine(name: str) -> PolicyEngine:
    return PolicyEngine.from_files(project=FOLDER / f"{name}.yaml", environ={"HOME": "/home/ann"})


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_worked_policy_is_valid_and_has_no_rule_that_does_nothing(path: Path) -> None:
    (policy,) = engine(path.stem).policies

    assert [str(remark) for remark in lint(policy) if "runs whatever" not in str(remark)] == []


@pytest.mark.parametrize(
    ("policy", "role", "tool", "command", "verdict"),
    [
        ("coding-assistant", "assistant", "shell_exec", "pytest -q | tail -3", ALLOW),
        ("coding-assistant", "assistant", "shell_exec", "make -j4 && git commit -am 'ready to push'", ALLOW),
        ("coding-assistant", "assistant", "shell_exec", "git push origin main", ASK),
        ("coding-assistant", "assistant", "shell_exec", "git -C lib push -f", DENY),
        ("coding-assistant", "assistant", "shell_exec", "cat certs/server.key", DENY),
        ("coding-assistant", "assistant", "shell_exec", "sudo make install", DENY),
        ("coding-assistant", "assistant", "shell_exec", "rm -rf ~", DENY),
        ("coding-assistant", "assistant", "fetch", "ls", DENY),
        ("coding-assistant", "reviewer", "shell_exec", "git log --oneline | head -3", ALLOW),
        ("coding-assistant", "reviewer", "shell_exec", "find . -name '*.py' -delete", DENY),
        ("coding-assistant", "reviewer", "shell_exec", "make", DENY),
        ("coding-assistant", "reviewer", "file_write", "ls", DENY),
        ("data-analyst", "analyst", "shell_exec", "ls", DENY),
        ("data-analyst", "trainee", "file_write", "ls", DENY),
        ("ci-job", "build", "shell_exec", "make -j4 all 2>&1 | wc -l", ALLOW),
        ("ci-job", "build", "shell_exec", "python -m pytest -q", ALLOW),
        ("ci-job", "build", "shell_exec", "python -c 'print(1)'", DENY),
        ("ci-job", "build", "shell_exec", "cat ../other/secret", DENY),
        ("ci-job", "build", "shell_exec", "curl https://example.com", DENY),
        ("ci-job", "build", "shell_exec", "make > /tmp/log", DENY),
        ("ci-job", "build", "shell_exec", "make > /tmp/ringfence/log", ALLOW),
        ("ci-job", "build", "shell_exec", "tar xf a.tar --to-command=sh", DENY),
        ("ci-job", "build", "shell_exec", "git status; git push", DENY),
    ],
)
def test_what_a_worked_policy_decides(policy: str, role: str, tool: str, command: str, verdict: Verdict) -> None:
    decision = engine(policy).decide(Request(command=command), tool, role)

    assert decision.verdict is verdict, decision.full


@pytest.mark.parametrize(
    ("role", "code", "verdict"),
    [
        ("analyst", "print(sum(range(10)))", ALLOW),
        ("analyst", "import subprocess; subprocess.run(['ls'])", ASK),
        ("trainee", "print(1)", ASK),
    ],
)
def test_the_analysts_code_is_asked_for_where_it_looks_risky(role: str, code: str, verdict: Verdict) -> None:
    decision = engine("data-analyst").decide(Request(command=code), "code_run", role, language="python")

    assert decision.verdict is verdict, decision.full


def test_the_analysts_files_hosts_and_limits() -> None:
    analyst = engine("data-analyst")

    assert analyst.check_path("/srv/datasets/a.csv", role="analyst").verdict is ALLOW
    assert analyst.check_path("/srv/datasets/pii-2024.csv", role="analyst").verdict is DENY
    assert (
        analyst.check_path("/workspace/results/a.png", write=True, tool="file_write", role="analyst").verdict is ALLOW
    )
    assert analyst.check_path("/workspace/data.csv", write=True, tool="file_write", role="analyst").verdict is DENY
    assert analyst.check_host("query.wikidata.org", 443, tool="fetch", role="analyst").verdict is ALLOW
    assert analyst.check_host("10.0.0.1", 443, tool="fetch", role="analyst").verdict is DENY
    assert analyst.terms("code_run", "analyst").limits(Limits()).memory_bytes == 8 * 1024**3
    assert analyst.terms("code_run", "trainee").limits(Limits()).memory_bytes == 2 * 1024**3
