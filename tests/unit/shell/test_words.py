"""Undoing quoting and expanding, word by word."""

import time

import pytest

from ringfence.shell import analyse


def argv(text: str) -> list[str | None]:
    program = [one for one in analyse(text).programs if not one.wrappers][-1]
    return [word.text for word in program.argv]


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x 'a b'", ["a b"]),
        ('x "a b"', ["a b"]),
        (r"x a\ b", ["a b"]),
        ("x 'q'\\ z", ["q z"]),
        ("x a'b'\"c\"d", ["abcd"]),
        ("x ''", [""]),
        ('x ""', [""]),
        ("x r''m", ["rm"]),
        (r"x $'\x41\102\u0043\n'", ["ABC\n"]),
        ('x "a\\$b\\"c\\d"', ['a$b"c\\d']),
        ("x a\\\nb", ["ab"]),
        ('x "a\\\nb"', ["ab"]),
        ("x {a,b}c", ["ac", "bc"]),
        ("x a{1..3}", ["a1", "a2", "a3"]),
        ("x {a,b{c,d}}", ["a", "bc", "bd"]),
        ("x '{a,b}'", ["{a,b}"]),
        ("x {a}", ["{a}"]),
        ("x {a},b}", ["a}", "b"]),
        ("x {a}{b,c}", ["{a}b", "{a}c"]),
        ("x {a,b", ["{a,b"]),
        ("x {c..a}", ["c", "b", "a"]),
        ("x ~/f", ["~/f"]),
        ("x ~root/f", ["/root/f"]),
        ("x a=~/f", ["a=~/f"]),
        ("v=1; x $v ${v} \"$v\" '$v'", ["1", "1", "1", "$v"]),
        ("v='a b'; x $v", ["a", "b"]),
        ("v='a b'; x \"$v\"", ["a b"]),
        ("v=; x $v", []),
        ('v=; x "$v"', [""]),
        ("x $UNSET", [None]),
        ("x ${UNSET:-d}", ["d"]),
        ("v=abc; x ${v%c} ${v#a} ${v^^} ${v/b/X} ${v:1:1}", ["ab", "bc", "ABC", "aXc", "b"]),
        ("v=rm; w=v; x ${!w}", ["rm"]),
        ("a=(1 '2 3'); x \"${a[@]}\" ${#a[@]}", ["1", "2 3", "2"]),
        ("set -- a 'b c'; x \"$@\" $1", ["a", "b c", "a"]),
        ("x $(echo a b)", ["a", "b"]),
        ("x \"$(printf '%s-' a b)\"", ["a-b-"]),
        ("x `echo a`", ["a"]),
        ("IFS=:; v=a:b; x $v", ["a", "b"]),
        ("x $(date)", [None]),
        ("x a#b", ["a#b"]),
        ("x a # b", ["a"]),
    ],
)
def test_arguments_are_what_the_shell_would_give(text: str, expected: list[str | None]) -> None:
    assert argv(text)[1:] == expected


def test_a_quoted_tilde_is_a_name_and_not_a_home() -> None:
    quoted, plain = analyse("rm -r '~'").paths[0], analyse("rm -r ~").paths[0]

    assert (quoted.path, plain.path) == ("./~", "~")


def test_what_remains_of_a_word_with_an_unknown_part_is_told() -> None:
    word = analyse("rm -rf $x/etc").programs[0].argv[2]

    assert (word.text, word.if_unset) == (None, "/etc")


def test_only_an_unquoted_glob_is_a_pattern() -> None:
    words = analyse("ls *.py '*.py' a[b] [").programs[0].argv[1:]

    assert [word.pattern for word in words] == [True, False, True, False]


def test_too_many_alternatives_are_unknown() -> None:
    assert argv("x {1..100}{1..100}{1..100}")[1:] == [None]


def test_a_value_that_differs_between_branches_is_unknown() -> None:
    assert argv("if a; then v=ls; else v=rm; fi; $v x")[0] is None


@pytest.mark.parametrize(
    "text",
    [
        "x=" + "a" * 60_000 + "; a=(" + "$x " * 3_000 + ")",
        "x=" + "a" * 60_000 + "; echo " + "${x:1}" * 3_000,
        "x='" + "[" * 60_000 + "'; echo " + "$x" * 20,
    ],
    ids=["array", "one word", "brackets"],
)
def test_long_values_are_not_read_letter_by_letter(text: str) -> None:
    begun = time.process_time()
    analyse(text)

    assert time.process_time() - begun < 4  # of 20 and more, when each letter was looked at


@pytest.mark.parametrize(
    ("word", "is_pattern"), [("[]", False), ("a]b[", False), ("[a]", True), ("x?", True), ("[[", False)]
)
def test_what_the_shell_would_look_for_files_by(word: str, is_pattern: bool) -> None:
    assert analyse(f"x='{word}'; y $x").programs[-1].argv[-1].pattern is is_pattern
