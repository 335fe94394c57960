"""The corpus of commands with the weakest and strictest answer that is right for each."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.shell import CheckContext, analyse, answer, validate
from ringfence.shell.analyse import FAULT
from ringfence.values.facts import CheckAnswer

CORPUS = Path(__file__).parents[2] / "corpus"
CORPORA = (
    "validator.jsonl",
    "validator_own.jsonl",
    "validator_fresh_a.jsonl",
    "validator_fresh_b.jsonl",
    "validator_fresh_c.jsonl",
    "validator_fresh_d.jsonl",
    "validator_fresh_e.jsonl",
    "validator_fresh_f.jsonl",
    "validator_fresh_g.jsonl",
    "validator_fresh_h.jsonl",
    "validator_fresh_i.jsonl",
)
ANSWERS = {"allow": CheckAnswer.PASS, "warn": CheckAnswer.WARN, "block": CheckAnswer.BLOCK}
EXCEPTIONS: dict[str, str] = {}
"""Id to reason. At most one line in a hundred."""


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


def context_of(row: dict[str, Any], **further: str) -> CheckContext:
    """A line may name the commands that are denied with it."""
    return CheckContext(denied_commands=tuple(row.get("denied_commands", ())), **further)


def wrong(rows: list[dict[str, Any]]) -> list[str]:
    found = []
    for row in rows:
        findings = validate(analyse(row["command"]), context_of(row))
        given = answer(findings)
        if not ANSWERS[row["min"]] <= given <= ANSWERS[row["max"]]:
            said = [(finding.check, finding.rule) for finding in findings]
            found.append(f"{row['id']} {row['command'][:80]!r}: {given.name}, not {row['min']}..{row['max']} {said}")
    return found


@pytest.mark.req("C3", "C4", "C5")
@pytest.mark.parametrize("name", CORPORA)
def test_every_line_gets_an_answer_within_its_bounds(name: str) -> None:
    rows = lines(name)
    misses = [miss for miss in wrong(rows) if miss.split()[0] not in EXCEPTIONS]

    print(f"validator: {len(rows) - len(misses)} right of {len(rows)} ({name})")
    assert misses == []
    assert len(EXCEPTIONS) <= len(rows) / 100


@pytest.mark.req("C3")
@pytest.mark.parametrize("name", CORPORA)
def test_no_benign_line_is_blocked(name: str) -> None:
    benign = [row for row in lines(name) if row["max"] == "allow" or row.get("verdict") == "allow"]

    assert len(benign) > {
        "validator_fresh_b.jsonl": 50,
        "validator_fresh_d.jsonl": 20,
        "validator_fresh_e.jsonl": 20,
    }.get(name, 60)
    assert [
        row["command"]
        for row in benign
        if answer(validate(analyse(row["command"]), context_of(row))) is CheckAnswer.BLOCK
    ] == []


@pytest.mark.parametrize("name", CORPORA)
def test_the_answer_does_not_hang_on_where_the_workspace_lies(name: str) -> None:
    rows = [row for row in lines(name) if row["min"] == row["max"]]
    for workspace, home in (("/home/eve/work/app", "/home/eve"), ("/tmp/jobs/7", "/root"), ("/root/app", "/root")):
        for row in rows:
            context = context_of(row, workspace=workspace, home=home)
            assert answer(validate(analyse(row["command"]), context)) is ANSWERS[row["min"]], (workspace, row)


def test_every_span_lies_in_the_text() -> None:
    for row in (row for name in CORPORA for row in lines(name)):
        facts = analyse(row["command"])
        for finding in validate(facts, CheckContext()):
            assert 0 <= finding.span.start <= finding.span.end <= len(row["command"]), (row["command"], finding)


def test_no_check_fails_on_any_line() -> None:
    for row in (row for name in CORPORA for row in lines(name)):
        facts = analyse(row["command"])
        assert facts.problem is None or FAULT not in facts.problem.why, row["command"]
        assert not [finding for finding in validate(facts, CheckContext()) if finding.rule == "fault"], row["command"]
