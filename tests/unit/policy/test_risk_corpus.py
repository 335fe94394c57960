"""Pieces of code with the lowest and the highest level of risk that is right for each."""

import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.policy.risk.assess import assess
from ringfence.values.risk import Risk

pytestmark = pytest.mark.req("E2")

CORPUS = Path(__file__).parents[2] / "corpus"
CORPORA = ("code_fresh_f.jsonl", "code_fresh_g.jsonl", "code_fresh_h.jsonl")


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("name", CORPORA)
def test_every_piece_of_code_has_a_level_within_its_bounds(name: str) -> None:
    rows = lines(name)
    misses = []
    for row in rows:
        risk = assess(row["language"], row["code"]).risk
        if not Risk[row["min"].upper()] <= risk <= Risk[row["max"].upper()]:
            misses.append(f"{row['id']} {row['code'][:80]!r}: {risk.name}, not {row['min']}..{row['max']}")

    print(f"risk: {len(rows) - len(misses)} right of {len(rows)} ({name})")
    assert misses == []


@pytest.mark.parametrize("name", CORPORA)
def test_both_kinds_are_in_the_corpus(name: str) -> None:
    assert {row["min"] for row in lines(name)} >= {"safe", "high"}


@pytest.mark.parametrize(
    "code",
    [
        "print('~/.ssh is where keys lie')",
        "print('.aws')",
        "names = ['.netrc', 'id_rsa']\nprint(len(names))",
    ],
)
def test_the_name_of_a_secret_is_nothing_to_code_that_opens_nothing(code: str) -> None:
    assert assess("python", code).risk is Risk.SAFE


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "open('/home/x/.ssh/id_rsa').read()"),
        ("python", "import os\nopen(os.path.join(os.environ['HOME'], '.aws', 'credentials'))"),
        ("javascript", "require('fs').readFileSync(`${process.env.HOME}/.netrc`)"),
        ("typescript", "import { readFileSync } from 'fs';\nreadFileSync('/etc/shadow', 'utf8');"),
    ],
)
def test_code_that_can_open_files_and_names_a_secret_is_of_high_risk(language: str, code: str) -> None:
    assert assess(language, code).risk >= Risk.HIGH
