"""A person sees what changed, and nothing that a name could paint."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from ringfence.cli.show_changes import as_refusals, as_tree, summary
from ringfence.values.change import Change, ChangeKind, CommitRefusal, Committed, Node, NodeKind

pytestmark = pytest.mark.req("D7")

FILE = Node(NodeKind.FILE, 0o644, 10)
DIRECTORY = Node(NodeKind.DIRECTORY, 0o755)


def added(path: str, node: Node = FILE, **more: object) -> Change:
    return Change(kind=ChangeKind.ADDED, path=path, old=None, new=node, **more)  # type: ignore[arg-type]


def shown(*found: Change, counts: dict[str, tuple[int, int]] | None = None, most: int = 500) -> str:
    out = io.StringIO()
    Console(file=out, width=120, color_system=None).print(as_tree(found, counts or {}, most_shown=most))
    return out.getvalue()


def test_the_tree_has_directories_as_branches_and_says_what_changed() -> None:
    found = (
        added("new", DIRECTORY),
        added("new/file"),
        Change(kind=ChangeKind.RENAMED, path="src/b", source="src/a", old=FILE, new=FILE),
        Change(kind=ChangeKind.CHANGED, path="src/run", old=FILE, new=Node(NodeKind.FILE, 0o755, 10)),
        Change(kind=ChangeKind.CHANGED, path="t", old=DIRECTORY, new=Node(NodeKind.LINK, 0o777, target="/etc")),
        Change(kind=ChangeKind.REMOVED, path="z", old=FILE, new=None),
    )

    text = shown(*found, counts={"new/file": (3, 0), "z": (0, 2)})

    assert text.splitlines()[0] == "2 added, 2 changed, 1 removed, 1 renamed; lines: +3 -2"
    for words in ("+ new/", "+ file  +3 -0", "> b  from src/a", "mode 644 becomes 755", "leads to /etc", "- z  +0 -2"):
        assert words in text
    assert "directory becomes link" in text and text.count("src/\n") == 1


def test_names_paint_nothing_and_are_no_markup() -> None:
    hostile = "\x1b[2J[red]\u202ex\n"

    text = shown(
        added(f"{hostile}/{hostile}", refused=f"why {hostile}"), added("l", Node(NodeKind.LINK, 0, 0, hostile))
    )
    refusals = as_refusals(Committed(refused=(CommitRefusal(hostile, hostile, hostile, hostile),)))

    for seen in (text, str(refusals[0])):
        assert "\x1b" not in seen and "\u202e" not in seen and "\\x1b[2J[red]\\u202ex\\x0a" in seen


def test_a_long_list_is_cut_and_counted_whole() -> None:
    text = shown(*(added(f"f{number}") for number in range(20)), most=5)

    assert "20 added" in text and "... and 15 more" in text and "f7" not in text


def test_nothing_is_said_in_words() -> None:
    assert summary((), {}) == "nothing was changed"
