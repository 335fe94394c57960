"""YAML that is broken, hostile or just odd gives an error with its place, in bounded time."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidConfig
from ringfence.policy import document
from ringfence.policy.document import MAX_CHARACTERS, Listing, Scalar, Section, read_document

BILLION = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)
)

BROKEN = [
    ("a: 1\na: 2\n", 2, 1, "given twice"),
    ("a:\n  b: 1\n  c: 2\n  b: 3\n", 4, 3, "given twice"),
    ("a:\n\tb: 1\n", 2, 1, "a tab"),
    ("a: [1, 2\n", 2, 1, "no valid YAML"),
    ("a: &x [*x]\n", 1, 8, "contains itself"),
    ("a: *nobody\n", 1, 4, "names nothing"),
    ("a: !!python/object:os.system x\n", 1, 4, "tag"),
    ("a: !mine x\n", 1, 4, "tag"),
    ("---\na: 1\n---\nb: 2\n", 3, 1, "second document"),
    ("? [a]\n: 1\n", 1, 3, "a key has to be a name"),
    ("a: \x07\n", 1, 4, "U+0007"),
    ("a: @x\n", 1, 4, "cannot start any token"),
]


@pytest.mark.parametrize(("text", "line", "column", "what"), BROKEN)
def test_broken_text_is_an_error_with_its_place(text: str, line: int, column: int, what: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        read_document(text, "p.yaml")

    assert (caught.value.source, caught.value.line, caught.value.column) == ("p.yaml", line, column)
    assert f"p.yaml:{line}:{column}: " in caught.value.message
    assert what in caught.value.message


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "a:\n" + "".join(" " * n + "- \n" for n in range(1, 500)),
        "{a: " * 10_000,
        BILLION,
        "x" * (MAX_CHARACTERS + 1),
    ],
    ids=["brackets", "indents", "braces", "aliases", "length"],
)
def test_text_that_explodes_is_refused_in_bounded_time(text: str) -> None:
    start = time.monotonic()

    with pytest.raises(InvalidConfig):
        read_document(text, "p.yaml")

    assert time.monotonic() - start < 10


def test_an_alias_within_bounds_is_what_it_names() -> None:
    root = read_document("a: &x [one]\nb: *x\n", "p.yaml")

    assert isinstance(root, Section)
    assert root.entries[0][1] == root.entries[1][1]


def test_values_are_kept_as_written() -> None:
    root = read_document("[yes, 'yes', 0x10, ~]", "p.yaml")

    assert isinstance(root, Listing)
    scalars = [item for item in root.items if isinstance(item, Scalar)]
    assert [(item.text, item.plain, item.is_nothing) for item in scalars] == [
        ("yes", True, False),
        ("yes", False, False),
        ("0x10", True, False),
        ("~", True, True),
    ]


def test_an_empty_text_is_an_empty_section() -> None:
    assert isinstance(read_document("# nothing yet\n", "p.yaml"), Section)


@given(st.text(max_size=200))
def test_any_text_gives_a_document_or_an_error_with_a_place(text: str) -> None:
    try:
        read_document(text, "p.yaml")
    except InvalidConfig as fault:
        assert fault.line is not None and fault.column is not None


def test_a_text_is_parsed_once_and_another_text_or_place_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    events = document._events
    monkeypatch.setattr(document, "_events", lambda text: parsed.append(text) or events(text))

    first = read_document("once: [1]\n", "one.yaml")

    assert read_document("once: [1]\n", "one.yaml") is first
    assert read_document("once: [2]\n", "one.yaml") != first
    assert read_document("once: [1]\n", "two.yaml").mark.source == "two.yaml"
    assert parsed == ["once: [1]\n", "once: [2]\n", "once: [1]\n"]


def test_a_text_with_a_fault_is_never_kept() -> None:
    for _ in range(2):
        with pytest.raises(InvalidConfig, match="given twice"):
            read_document("kept: 1\nkept: 2\n", "faulty.yaml")
