"""Rows of the blacklist against paths, also against a slow matcher that is easy to believe."""

import itertools
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import Internal, InvalidArgument
from ringfence.policy.globs import PathRules, escape

MATCHING = [
    ("/etc/shadow", "/etc/shadow"),
    ("/etc/shadow/", "/etc/shadow"),
    ("/home/u/.ssh", "/home/u/.ssh/id_rsa"),
    ("/home/u/.ssh/**", "/home/u/.ssh/a/b"),
    ("/home/u/.ssh/**", "/home/u/.ssh"),
    ("**/.env", "/.env"),
    ("**/.env", "/a/b/.env"),
    ("**/.env", "/a/.env/b"),
    ("/**/.env", "/a/.env"),
    ("**/**/.env", "/.env"),
    (".env", "/a/.env"),
    ("./keys", "/a/keys"),
    ("*.pem", "/a/b/x.pem"),
    ("*.pem", "/a/.pem"),
    ("**/a/b", "/x/a/b/c"),
    ("**/a/b", "/a/a/b"),
    ("/a/**/b", "/a/b"),
    ("/a/**/b", "/a/x/y/b/z"),
    ("/a/*/b", "/a/.x/b"),
    ("/a/b*d?f", "/a/bxxdyf"),
    ("/a/*a*b", "/a/xaybzb"),
    ("/k[0-9a]", "/ka"),
    ("/k[!0-9]", "/kx"),
    ("/k[^0-9]", "/kx"),
    ("/k[]]", "/k]"),
    ("/k[a-]", "/k-"),
    ("/k[&&|~-]", "/k&"),
    ("/k[", "/k["),
    ("/k[]", "/k[]"),
    ("/w/site[1]/key", "/w/site1/key"),
    ("/w/site[1]/key", "/w/site[1]/key"),
    ("/w/site[1]/*.key", "/w/site[1]/a.key"),
    ("**/a[bc]", "/x/a[bc]"),
    ("/a[*]b", "/a*b"),
    ("/a\\b", "/a\\b"),
    ("/a*", "/a\nb"),
    ("/a\nb", "/a\nb/c"),
    ("/a?b", "/a\udcffb"),
    ("/a\udcff", "/a\udcff/b"),
    ("**/.env", "/a//.env"),
    ("/a/b", "//a/./b"),
    ("/a/b", "/a/b/"),
]

NOT_MATCHING = [
    ("/etc/shadow", "/etc/shadow-"),
    ("/etc/shadow", "/etc"),
    ("/etc/shadow", "/x/etc/shadow"),
    ("**/.env", "/a/.env.example"),
    ("**/.env", "/a/x.env"),
    ("**/.env", "/a/.ENV"),
    ("**/.env", "/a/.env\n"),
    ("/a", "/a\n"),
    ("/a/*/b", "/a/b"),
    ("/a/*/b", "/a/x/y/b"),
    ("/a?b", "/a/b"),
    ("/a[!x]b", "/a/b"),
    ("/a[.-0]b", "/a/b"),
    ("/a/*", "/a"),
    ("/a[*]b", "/axb"),
    ("**/a/b", "/a/x/b"),
    ("/a.b", "/axb"),
    ("/a", "/"),
]


@pytest.mark.req("A3")
@pytest.mark.parametrize(("row", "path"), MATCHING)
def test_the_row_names_the_path(row: str, path: str) -> None:
    assert PathRules([row]).matches(path) == row


@pytest.mark.parametrize(("row", "path"), NOT_MATCHING)
def test_the_row_does_not_name_the_path(row: str, path: str) -> None:
    assert PathRules([row]).matches(path) is None


def test_the_first_row_that_matches_is_told_as_it_was_given() -> None:
    rules = PathRules(["/x", "**/.env/", ".env", "/a"])

    assert rules.matches("/a/.env") == "**/.env/"
    assert rules.matches("/a/b") == "/a"


def test_no_rows_match_nothing() -> None:
    assert PathRules([]).matches("/etc/shadow") is None


def test_rows_are_sorted_by_what_a_scanner_needs_to_do_for_them() -> None:
    rules = PathRules(["/etc/shadow", "/a[*]b/c", "**/.env", "secrets.json", "**/a/b", "*.pem", "/x/*/y"])

    assert rules.names == {".env", "secrets.json"}
    assert set(rules.literals) == {"/etc/shadow", "/a*b/c", "/a[*]b/c"}
    assert rules.globs == ("**/a/b", "*.pem", "/x/*/y")


@pytest.mark.parametrize("row", ["", " ", "/", "//", ".", "**", "/**", "/a/../b", "../a", "/a\0", "/a\ud800", "~/.ssh"])
def test_a_row_that_could_not_do_what_was_meant_is_an_error(row: str) -> None:
    with pytest.raises(InvalidArgument):
        PathRules([row])


@pytest.mark.parametrize("row", ["/a[z-a]", "/a[[:alpha:]]", "/a[![:digit:]]"])
def test_a_class_that_would_quietly_match_something_else_is_an_error(row: str) -> None:
    with pytest.raises(InvalidArgument):
        PathRules([row])


@pytest.mark.parametrize("path", ["a/b", "", "/a/../etc/shadow", "/a/.."])
def test_a_question_that_has_no_sure_answer_is_an_error(path: str) -> None:
    with pytest.raises(Internal):
        PathRules(["/etc/shadow"]).matches(path)


def test_names_with_two_dots_in_them_are_ordinary() -> None:
    assert PathRules(["/a/..b"]).matches("/a/..b") == "/a/..b"


NAMES = st.text(st.sampled_from("ab.*?[]-!^\\\n\udcff"), min_size=1, max_size=4).filter(
    lambda name: name not in (".", "..")
)
PATHS = st.lists(NAMES, min_size=1, max_size=5).map(lambda names: "/" + "/".join(names))


@given(PATHS)
def test_an_escaped_path_matches_itself_whatever_its_names_hold(path: str) -> None:
    rules = PathRules([escape(path)])

    assert rules.matches(path)
    assert path in rules.literals


@given(PATHS, PATHS)
def test_an_unescaped_path_still_matches_itself(path: str, other: str) -> None:
    try:
        rules = PathRules([path])
    except InvalidArgument:
        return
    assert rules.matches(path) == path
    assert rules.matches(path + other) == path


SIMPLE_SEGMENTS = st.sampled_from(["**", "*", "?", "a", "b", "ab", "a*", "*b", "a*b*a", "*a*", "[ab]", "[!a]", "?*"])
SIMPLE_PATHS = st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=6)


@settings(max_examples=500)
@given(st.lists(SIMPLE_SEGMENTS, min_size=1, max_size=5), st.booleans(), SIMPLE_PATHS)
def test_the_compiled_pattern_agrees_with_a_slow_matcher(glob: list[str], absolute: bool, names: list[str]) -> None:
    row = ("/" if absolute else "") + "/".join(glob)
    try:
        rules = PathRules([row])
    except InvalidArgument:
        assert set(glob) == {"**"}
        return
    while glob[-1] == "**":
        glob = glob[:-1]
    expected = any(
        slow_segments(glob if absolute else ["**", *glob], names[:count]) for count in range(1, len(names) + 1)
    )

    assert (rules.matches("/" + "/".join(names)) is not None) == expected


def slow_segments(glob: list[str], names: list[str]) -> bool:
    if not glob:
        return not names
    if glob[0] == "**":
        return any(slow_segments(glob[1:], names[skip:]) for skip in range(len(names) + 1))
    return bool(names) and slow_name(glob[0], names[0]) and slow_segments(glob[1:], names[1:])


def slow_name(glob: str, name: str) -> bool:
    if not glob:
        return not name
    if glob[0] == "*":
        return any(slow_name(glob[1:], name[skip:]) for skip in range(len(name) + 1))
    if not name:
        return False
    if glob[0] == "[":
        body, _, rest = glob[1:].partition("]")
        found = (name[0] not in body[1:]) if body[0] == "!" else (name[0] in body)
        return found and slow_name(rest, name[1:])
    return glob[0] in ("?", name[0]) and slow_name(glob[1:], name[1:])


def test_no_path_makes_matching_slow() -> None:
    rules = PathRules(["**/a/**/a/**/a/**/a/**/x", "/*a*a*a*a*a*a*a*x", "**/a*/b*/**/*a*b*c"])
    hostile = ["/" + "/".join(["a"] * 2000), "/" + "a" * 4000, "/a/b" * 1000]

    started = time.process_time()
    for path in itertools.chain(hostile, hostile):
        assert rules.matches(path) is None

    # Some milliseconds when all is well; hours if the segments are tried in every combination.
    assert time.process_time() - started < 5
