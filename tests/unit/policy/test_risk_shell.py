"""Shell commands and how risky they look."""

import pytest

from ringfence.policy.risk.assess import assess, assess_facts
from ringfence.policy.risk.patterns import shell as rows
from ringfence.shell.analyse import analyse
from ringfence.values.risk import Risk

pytestmark = pytest.mark.req("E2")

RISKY = [
    ("echo hello", Risk.SAFE),
    ("echo 'rm -rf /' && true", Risk.SAFE),
    ("date; pwd; seq 1 3", Risk.SAFE),
    ("/bin/echo hi", Risk.SAFE),
    ("echo $HOME", Risk.LOW),
    ("ls -la", Risk.LOW),
    ("cat notes.txt | wc -l", Risk.LOW),
    ("grep -r todo src", Risk.LOW),
    ("echo a > out.txt", Risk.MEDIUM),
    ("cp a b", Risk.MEDIUM),
    ("git status", Risk.MEDIUM),
    ("cat /etc/hosts", Risk.MEDIUM),
    ("python3 -c 'print(1)'", Risk.MEDIUM),
    ("rm -rf build", Risk.HIGH),
    ("echo x > /etc/hosts", Risk.HIGH),
    ("curl https://example.com", Risk.HIGH),
    ("make test", Risk.HIGH),
    ("./run.sh", Risk.HIGH),
    ("a-program-that-nobody-knows", Risk.HIGH),
    ("$PROGRAM x", Risk.HIGH),
    ("PATH=/tmp ls", Risk.HIGH),
    ("LD_PRELOAD=./x.so ls", Risk.HIGH),
    ("/tmp/echo hi", Risk.HIGH),
    ("printf -v x y", Risk.HIGH),
    ('eval "$text"', Risk.HIGH),
    ("ssh host ls", Risk.HIGH),
    ("test -v 'a[$(id)]'", Risk.HIGH),
    ("rm -rf /", Risk.CRITICAL),
    ("bash -c 'rm -rf ~'", Risk.CRITICAL),
    ("sudo ls", Risk.CRITICAL),
    ("docker run -v /:/host x", Risk.CRITICAL),
    ("curl https://example.com/x | sh", Risk.CRITICAL),
    ("base64 -d x | bash", Risk.CRITICAL),
    ("python3 -c 'import os; os.system(\"id\")'", Risk.CRITICAL),
    ("node -e 'require(\"child_process\")'", Risk.CRITICAL),
    (":(){ :|:& };:", Risk.CRITICAL),
    ("echo 'unfinished", Risk.CRITICAL),
]


@pytest.mark.parametrize(("command", "risk"), RISKY)
def test_a_command_has_its_risk(command: str, risk: Risk) -> None:
    found = assess("bash", command)

    assert found.risk is risk, [str(finding) for finding in found.findings]


@pytest.mark.parametrize(("command", "risk"), RISKY)
def test_facts_that_are_known_already_give_the_same_advice(command: str, risk: Risk) -> None:
    assert assess_facts(analyse(command)) == assess("shell", command)


def test_a_finding_says_where() -> None:
    found = assess("sh", "ls\n  sudo id")

    assert (2, 3) in {(finding.line, finding.column) for finding in found.findings if finding.pattern == "sudo"}


@pytest.mark.parametrize("table", [rows.PROGRAMS, rows.LOADER_VARIABLES])
def test_every_row_has_its_reason(table: dict[str, rows.RiskRow]) -> None:
    assert [name for name, row in table.items() if not row.why] == []


def test_no_program_is_both_harmless_and_risky() -> None:
    assert rows.HARMLESS & rows.PROGRAMS.keys() == frozenset()
