"""What a model and its client are shown of what others wrote."""

import pytest

from ringfence.tools.world.text import cut, readable, shown, with_gap


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ("plain\ttext\n", "plain\ttext\n"),
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b[2Jcleared", "\\x1b[2Jcleared"),
        ("\x1b]8;;http://x\x07link", "\\x1b]8;;http://x\\x07link"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("\x9b31m", "\\x9b31m"),
        ("gpj.\u202eexe", "gpj.\\u202eexe"),
        ("zero\u200bwidth\ufeff", "zero\\u200bwidth\\ufeff"),
        ("tags \U000e0049\U000e0067", "tags \\U000e0049\\U000e0067"),
        ("hidden \U000e0141", "hidden \\U000e0141"),
        ("line\u2028separator", "line\\u2028separator"),
        ("שלום, Grüße, e\u0301, नमस्ते", "שלום, Grüße, e\u0301, नमस्ते"),
        ("\U0001f468\u200d\U0001f469 \u2764\ufe0f", "\U0001f468\u200d\U0001f469 \u2764\ufe0f"),
    ],
)
def test_only_what_is_seen_as_it_is_stays(given: str, seen: str) -> None:
    assert readable(given) == seen


def test_a_file_keeps_its_colours_written_out() -> None:
    assert shown("\x1b[1mx\r\n") == "\\x1b[1mx\\x0d\n"


def test_where_the_middle_is_missing_a_line_says_so() -> None:
    assert with_gap(b"aaabbb", 7) == "aaa\n[... 7 bytes are left out here ...]\nbbb"
    assert with_gap(b"aaabbb", 0) == "aaabbb"


def test_a_cut_says_how_much_there_was() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdef", 2) == "ab\n[... 4 more characters ...]"
