"""docs/requirements.md: every id is there, what is called done is proven by a test, and what is named exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")
ROWS = {
    found[1]: (found[2], found[3])
    for found in re.finditer(r"^\| ([A-Z]\d+) \| ([^|]+) \| (.*) \|$", PAGE, re.MULTILINE)
}
COUNTS = {"A": 10, "B": 12, "C": 12, "D": 10, "E": 8, "X": 7}
STATES = ("done", "partly", "not yet")


def proven() -> set[str]:
    """Ids that some test names."""
    found: set[str] = set()
    for path in (ROOT / "tests").rglob("*.py"):
        for marks in re.findall(r"mark\.req\(([^)]*)\)", path.read_text(encoding="utf-8")):
            found |= set(re.findall(r"[\"']([A-Z]\d+)[\"']", marks))
    return found


def test_every_requirement_has_one_row_and_one_of_three_states() -> None:
    assert list(ROWS) == [f"{part}{number}" for part, count in COUNTS.items() for number in range(1, count + 1)]
    assert [name for name, (state, _) in ROWS.items() if state not in STATES] == []


def test_what_is_done_or_begun_is_proven_by_a_test() -> None:
    assert [name for name, (state, _) in ROWS.items() if state != "not yet" and name not in proven()] == []


def test_what_is_not_whole_says_what_is_missing_or_never_run() -> None:
    partly = {name: text for name, (state, text) in ROWS.items() if state == "partly"}

    assert [name for name, text in partly.items() if not re.search(r"[Mm]issing|never|not |without|but ", text)] == []


def _files(text: str) -> list[str]:
    words = re.findall(r"`([^`]+)`", text) + re.findall(r"\b((?:docs|tests|deploy)/[\w./-]*\w)", text)
    return [word for word in words if re.fullmatch(r"[\w.-]+(?:/[\w.-]*)+|[\w-]+\.(?:py|c|md|toml)", word)]


@pytest.mark.parametrize("name", ROWS)
def test_every_file_that_a_row_names_exists(name: str) -> None:
    missing = [
        file
        for file in _files(ROWS[name][1])
        if not any((place / file).exists() for place in (ROOT, ROOT / "src" / "ringfence"))
        and not file.startswith(("/", "text/"))
    ]

    assert missing == []


def test_the_reader_of_the_page_would_notice_a_wrong_file() -> None:
    assert _files("`policy/nowhere.py` and docs/none.md") == ["policy/nowhere.py", "docs/none.md"]
