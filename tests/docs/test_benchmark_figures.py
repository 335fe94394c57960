"""README's figures: written by the benchmark between two marks, like compared with like."""

from pathlib import Path

import pytest

from benchmarks.readme import BEGIN, END, write_figures
from benchmarks.rounds import Case
from benchmarks.sections import COMMAND_LINE, LIBRARY

README = Path(__file__).parents[2] / "README.md"


async def nothing() -> None:
    """A case that is not run."""


def a_case(name: str, ratio: float, section: str, group: str = "other") -> Case:
    return Case(name, nothing, seconds=[ratio], section=section, group=group)


CASES = [
    a_case("subprocess.run: true", 1, "Without a wall, for comparison", "bare"),
    a_case("ringfence, cold: true", 15.4, LIBRARY, "ringfence"),
    a_case("their library", 5.52, LIBRARY),
    a_case("their program", 1234, COMMAND_LINE),
]


def test_each_figure_stands_in_the_row_of_what_it_is_compared_with(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text(f"before\n{BEGIN}\nof last year\n{END}\nafter\n")

    write_figures(CASES, file, rounds=3)

    text = file.read_text()
    assert f"| {LIBRARY} | cold: true **15** | their library **5.5** |" in text
    assert "Container" not in text
    assert f"| {COMMAND_LINE} |  | their program **1,234** |" in text
    assert text.startswith(f"before\n{BEGIN}\n") and text.endswith(f"{END}\nafter\n") and "last year" not in text


def test_a_file_without_marks_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "README.md"
    file.write_text("no marks\n")
    with pytest.raises(ValueError, match="no place for figures"):
        write_figures(CASES, file, rounds=3)
    assert file.read_text() == "no marks\n"


def test_readme_has_a_place_for_figures_and_shows_the_picture() -> None:
    text = README.read_text()
    assert text.index(BEGIN) < text.index(END) < text.index("(docs/bench.png)")
