"""Shows the changes of a shadow to a person: a tree with counts, or one line.

The names were chosen by an agent. So they are text and never markup, and their control characters are written out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ringfence.cli.say import visible
from ringfence.values.change import Change, ChangeKind, CommitRefusal, Committed, NodeKind

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

Counts = Mapping[str, tuple[int, int]]
"""Lines that came and went, by path."""

MOST_SHOWN = 500
"""Names in a tree; nobody reads more, and the line above it counts them all."""
_COLOURS = {
    ChangeKind.ADDED: "green",
    ChangeKind.CHANGED: "yellow",
    ChangeKind.REMOVED: "red",
    ChangeKind.RENAMED: "cyan",
}
_SIGNS = {ChangeKind.ADDED: "+", ChangeKind.CHANGED: "~", ChangeKind.REMOVED: "-", ChangeKind.RENAMED: ">"}


def summary(found: Iterable[Change], counts: Counts) -> str:
    """All of it on one line."""
    every = tuple(found)
    if not every:
        return "nothing was changed"
    kinds = Counter(change.kind for change in every)
    parts = [f"{kinds[kind]} {kind}" for kind in ChangeKind if kinds[kind]]
    if refused := sum(bool(change.refused) for change in every):
        parts.append(f"{refused} of them refused")
    came, went = (sum(pair[side] for pair in counts.values()) for side in (0, 1))
    lines = f"; lines: +{came} -{went}" if came or went else ""
    return ", ".join(parts) + lines


def as_tree(found: Iterable[Change], counts: Counts, *, most_shown: int = MOST_SHOWN) -> "Tree":
    """A renderable tree, directories as branches."""
    from rich.text import Text
    from rich.tree import Tree

    every = tuple(found)
    top = Tree(Text(summary(every, counts), style="bold"))
    branches: dict[str, Tree] = {"": top}
    for change in every[:most_shown]:
        above, _, name = change.path.rpartition("/")
        label = _label(change, name, counts.get(change.path))
        branches[change.path] = _branch(branches, above).add(label)
    if len(every) > most_shown:
        top.add(Text(f"... and {len(every) - most_shown} more", style="dim"))
    return top


def as_refusals(done: Committed) -> "tuple[Text, ...]":
    """What a commit left out or ran into, a line each."""
    from rich.text import Text

    marked = [(one, "yellow") for one in done.refused] + [(one, "bold red") for one in done.conflicts]
    return tuple(Text(_refusal(refusal), style=style) for refusal, style in marked)


def _branch(branches: "dict[str, Tree]", path: str) -> "Tree":
    """The branch of a directory; those that did not change themselves are made on the way."""
    from rich.text import Text

    if path in branches:
        return branches[path]
    here, done = branches[""], ""
    for name in path.split("/"):
        done = f"{done}/{name}" if done else name
        if done not in branches:
            branches[done] = here.add(Text(f"{visible(name)}/", style="dim"))
        here = branches[done]
    return here


def _label(change: Change, name: str, lines: tuple[int, int] | None) -> "Text":
    from rich.text import Text

    node = change.new or change.old
    slash = "/" if node is not None and node.is_directory else ""
    label = Text(f"{_SIGNS[change.kind]} {visible(name)}{slash}", style=_COLOURS[change.kind])
    for detail in _details(change, lines):
        label.append(f"  {detail}", style="dim")
    if change.refused:
        label.append(f"  refused: {visible(change.refused)}", style="red")
    return label


def _details(change: Change, lines: tuple[int, int] | None) -> Iterable[str]:
    old, new = change.old, change.new
    if change.source:
        yield f"from {visible(change.source)}"
    if change.is_type_change and old is not None and new is not None:
        yield f"{old.kind} becomes {new.kind}"
    if change.is_mode_change and old is not None and new is not None:
        yield f"mode {old.mode:o} becomes {new.mode:o}"
    if new is not None and new.kind is NodeKind.LINK:
        yield f"leads to {visible(new.target)}"
    if lines is not None and lines != (0, 0):
        yield f"+{lines[0]} -{lines[1]}"
    elif change.is_content and new is not None:
        yield f"{'binary, ' if change.is_binary else ''}{new.size_bytes} bytes"


def _refusal(refusal: CommitRefusal) -> str:
    # The library's argument is an option here.
    allow_by = refusal.allow_by.replace("allow_protected", "--allow-protected")
    tail = f" ({visible(allow_by)})" if allow_by else ""
    return f"{visible(refusal.path)}: {visible(refusal.why)} [rule: {visible(refusal.rule)}]{tail}"
