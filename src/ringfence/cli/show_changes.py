"""Draws what was changed in a shadow as a tree."""

from collections.abc import Iterable, Mapping

from rich.text import Text
from rich.tree import Tree

from ringfence.cli.say import visible
from ringfence.values.change import Change, ChangeKind

_STYLES = {
    ChangeKind.ADDED: ("+", "green"),
    ChangeKind.CHANGED: ("~", "yellow"),
    ChangeKind.REMOVED: ("-", "red"),
    ChangeKind.RENAMED: (">", "cyan"),
}


def changes_tree(
    found: Iterable[Change], counts: Mapping[str, tuple[int, int]], *, title: str, limit: int | None = None
) -> Tree:
    """A tree by directory; each change with its sign and the lines that were added and removed."""
    tree = Tree(Text(visible(title), style="bold"))
    branches: dict[str, Tree] = {"": tree}
    changes = list(found)
    for change in changes[:limit]:
        parent, _, name = change.path.rpartition("/")
        _branch(branches, parent).add(_line(change, name, counts.get(change.path)))
    if limit is not None and len(changes) > limit:
        tree.add(Text(f"and {len(changes) - limit} more", style="dim"))
    return tree


def _branch(branches: dict[str, Tree], path: str) -> Tree:
    if path not in branches:
        parent, _, name = path.rpartition("/")
        branches[path] = _branch(branches, parent).add(Text(f"{visible(name)}/", style="dim"))
    return branches[path]


def _line(change: Change, name: str, count: tuple[int, int] | None) -> Text:
    sign, style = _STYLES[change.kind]
    line = Text(f"{sign} {visible(name)}", style=style)
    if change.new is not None and change.new.is_directory:
        line.append("/")
    if change.source:
        line.append(f" (was {visible(change.source)})", style="dim")
    if change.is_mode_change and change.old is not None and change.new is not None:
        line.append(f" mode {change.old.mode:o} to {change.new.mode:o}", style="dim")
    if change.is_binary:
        line.append(" binary", style="dim")
    elif count is not None and any(count):
        line.append(f" +{count[0]} -{count[1]}", style="dim")
    if change.refused:
        line.append(f" never committed: {visible(change.refused)}", style="bold red")
    return line
