"""What commands that work on shadows have in common: making one, and saying what was changed in it."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence.cli.say import note
from ringfence.cli.show_changes import as_tree
from ringfence.errors import InvalidConfig
from ringfence.manager.assemble import Judged
from ringfence.manager.workspaces import Progress, Shadow, ShadowKind, Workspaces
from ringfence.values.change import Change
from ringfence.values.sizes import show_size

_SHOWN_MAX = 200
"""Lines of a tree of changes after a run; `workspace diff` shows all."""


@contextmanager
def opened_workspaces() -> Iterator[Workspaces]:
    """The caller's shadows; says what became of commits that were interrupted."""
    with Workspaces() as workspaces:
        for one in workspaces.recovered:
            note(f"an interrupted commit of shadow {one.shadow_id} was {one.kind}: {len(one.paths)} paths")
            for path in one.left:
                note(f"left as the host has it: {path}")
        yield workspaces


def make_shadow(
    workspaces: Workspaces,
    project: Path | None,
    judged: Judged,
    *,
    name: str = "",
    kind: ShadowKind | None = None,
) -> Shadow:
    """A new shadow; a copy shows how far it has come."""
    with _progress() as report:
        shadow = workspaces.new(project or Path(os.getcwd()), judged=judged, name=name, kind=kind, progress=report)
    if shadow.why and kind is not ShadowKind.COPY:
        note(f"the shadow is a copy: {shadow.why}")
    for path, why in shadow.left_out[:5]:
        note(f"the copy lacks {path}: {why}")
    return shadow


@contextmanager
def work_on(
    workspace: Path | None, judged: Judged, *, shadow: bool, inside: str | None
) -> Iterator[tuple[Path | None, Shadow | None]]:
    """Where a command works: in the directory itself, on a new shadow of it, or on one that is there already.

    Raises:
        InvalidConfig: what was asked for contradicts itself.
    """
    if not shadow and inside is None:
        yield workspace, None
        return
    if shadow and inside is not None:
        raise InvalidConfig("a new shadow, or one that is there already", hint="give --shadow or --in, not both")
    with opened_workspaces() as workspaces:
        chosen = workspaces.find(inside) if inside is not None else make_shadow(workspaces, workspace, judged)
        yield chosen.lower, chosen
        say_what_changed(workspaces, chosen, keep=inside is not None)


def say_what_changed(workspaces: Workspaces, shadow: Shadow, *, keep: bool = False) -> None:
    """After a run: the changes, and how to go on; a shadow without any is removed, unless it is kept."""
    found = workspaces.changes(shadow)
    if not found:
        if keep:
            return
        workspaces.discard(shadow)
        note("nothing was changed; the shadow is gone again")
        return
    workspaces.keep_bases(shadow, found)
    show_changes(workspaces, shadow, found, most_shown=_SHOWN_MAX, to_stderr=True)
    handle = shadow.name or shadow.id
    note(f"look:    ringfence workspace diff --patch {handle}")
    note(f"commit:  ringfence workspace commit {handle}     (-p asks about each hunk)")
    note(f"discard: ringfence workspace discard {handle}")


def show_changes(
    workspaces: Workspaces, shadow: Shadow, found: tuple[Change, ...], *, most_shown: int, to_stderr: bool = False
) -> None:
    """A tree of what was changed, with counts."""
    from rich.console import Console

    Console(stderr=to_stderr).print(as_tree(found, workspaces.line_counts(shadow, found), most_shown=most_shown))


@contextmanager
def saving() -> Iterator[Callable[[int, int], None]]:
    """A line on a terminal that says how far a snapshot has come."""
    with _line("saving") as update:
        yield lambda files, size: update(f"saving: {files} files, {show_size(size)} new")


@contextmanager
def _progress() -> Iterator[Callable[[Progress], None]]:
    with _line("looking at the project") as update:
        yield lambda so_far: update(f"copying: {so_far.files} files, {show_size(so_far.size_bytes)}")


@contextmanager
def _line(text: str) -> Iterator[Callable[[str], None]]:
    """A line on a terminal that changes; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status(text, console=Console(stderr=True)) as status:
        yield lambda changed: status.update(changed)
