"""What a person is shown cannot mislead the terminal, and marks what it is about."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.approvals.show import lines_of, underlined, visible
from ringfence.values.facts import Span
from ringfence.values.verdict import Reason, Verdict
from tests.support.questions import a_question

pytestmark = pytest.mark.req("E6")


def test_a_span_is_underlined_where_it_stands() -> None:
    assert list(underlined("ls; rm -rf /", (Span(4, 6), Span(11, 12)))) == [
        "  ls; rm -rf /",
        "      ^^     ^",
    ]


def test_spans_cross_lines_and_lines_without_one_have_no_mark() -> None:
    assert list(underlined("echo a\nrm b\nls", (Span(5, 9),))) == ["  echo a", "       ^", "  rm b", "  ^^", "  ls"]


def test_control_characters_are_written_out_and_marks_stay_below_their_text() -> None:
    assert list(underlined("a\x1b[2Kb", (Span(5, 6),))) == ["  a\\x1b[2Kb", "          ^"]


def test_wide_characters_take_two_cells() -> None:
    assert list(underlined("日 rm", (Span(2, 4),))) == ["  日 rm", "     ^^"]


def test_long_lines_are_broken_with_their_marks() -> None:
    shown = list(underlined("x" * 30 + "rm", (Span(30, 32),), width=22))

    assert shown == ["  " + "x" * 20, "  " + "x" * 10 + "rm", "  " + " " * 10 + "^^"]


def test_characters_that_turn_text_around_or_have_no_width_are_written_out() -> None:
    assert visible("a\u202eb\u200bc\u0301\r\n\t") == "a\\u202eb\\u200bc\\u0301\\x0d\\x0a\\x09"


@given(st.text(), st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50))), st.integers(0, 100))
def test_no_text_and_no_span_puts_a_control_character_on_the_terminal(
    text: str, spans: list[tuple[int, int]], width: int
) -> None:
    reason = Reason(Verdict.ASK, text, text)
    question = a_question(
        command=text,
        spans=tuple(Span(*span) for span in spans),
        reasons=(reason,),
        session=text,
        details=((text, text),),
    )

    for line in lines_of(question, width):
        assert all(char.isprintable() for char in line)


def test_the_question_says_risk_reasons_and_details() -> None:
    question = a_question(reasons=(Reason(Verdict.ASK, "removal", "removes a tree"),), details=(("in", "/w"),))

    text = "\n".join(lines_of(question))

    assert "[risk: high]" in text
    assert "- removes a tree [rule: removal]" in text
    assert "in: /w" in text
    assert "session: s1" in text


def test_hidden_and_foreign_characters_are_counted() -> None:
    text = "\n".join(lines_of(a_question(command="l\u200bs\x07 \u0440m")))

    assert "note: 2 control or invisible character(s)" in text
    assert "note: 1 character(s) outside ASCII" in text
