"""A path that servers read in two ways is refused; the rest has one spelling."""

import posixpath
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.values.web_path import BadPath, canonical_path, path_pattern


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("/simple/requests/", "/simple/requests/"),
        ("/a?b=//../c", "/a"),
        ("/%61bc", "/abc"),
        ("/a%20b", "/a%20b"),
        ("/caf%c3%a9", "/caf%C3%A9"),
        ("/@babel%2fcore", "/@babel/core"),
        ("/@babel%2Fcore", "/@babel/core"),
        ("/npm/@types%2fnode", "/npm/@types/node"),
        ("*", "*"),
    ],
)
def test_one_spelling(target: str, path: str) -> None:
    assert canonical_path(target) == path


@pytest.mark.parametrize(
    "target",
    [
        *(
            "",
            "a",
            "//evil.com/x",
            "/a//b",
            "/a/../b",
            "/a/./b",
            "/a/..",
            "/%2e%2e/b",
            "/a/%2E%2e/b",
            "/a%2fb",
            "/a\\b",
        ),
        *(
            "/a%5cb",
            "/a%00b",
            "/a;b=c/d",
            "/a%3bb",
            "/a%252e",
            "/a b",
            "/a\0b",
            "/a\r\nb",
            "/caf\u00e9",
            "/a#b",
            "/a%zz",
        ),
        *("/a%", "/@babel%2f..%2fx", "/@a%2f%2e%2e", "/@a%2fb%2fc", "/@a%2f../b", "/@..%2fx", "/a%0ab", "/a%7f"),
    ],
)
def test_two_readings_are_refused(target: str) -> None:
    with pytest.raises(BadPath):
        canonical_path(target)


@given(st.text(alphabet="/.%2efFa@;\\", max_size=24).map("/".__add__))
def test_no_reading_of_a_path_that_passes_goes_up(target: str) -> None:
    try:
        canonical = canonical_path(target)
    except BadPath:
        return
    assert canonical_path(canonical) == canonical
    for reading in (canonical, unquote(canonical), unquote(target)):
        assert posixpath.normpath(reading).rstrip("/") == reading.rstrip("/") or not reading.strip("/")


@pytest.mark.parametrize(
    ("glob", "path", "means"),
    [
        ("/simple/**", "/simple/a/b", True),
        ("/simple/**", "/simple/", True),
        ("/simple/**", "/simpler", False),
        ("/simple/*/", "/simple/a/", True),
        ("/simple/*/", "/simple/a/b/", False),
        ("/a.b", "/axb", False),
        ("/x*y", "/x/y", False),
    ],
)
def test_globs(glob: str, path: str, means: bool) -> None:
    assert (path_pattern(glob).fullmatch(path) is not None) == means


@pytest.mark.parametrize("glob", ["", "simple", "**", "/a?b", "/a//b", "/%2e", "/a***", "/a b"])
def test_no_globs(glob: str) -> None:
    with pytest.raises(BadPath):
        path_pattern(glob)
