"""What commands that work on shadows have in common: making one, and saying what was changed in it."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ringfence.cli.output import console, is_coloured, is_quiet
from ringfence.cli.say import print_note
from ringfence.cli.show_changes import as_tree
from ringfence.dataclass import replace
from ringfence.errors import InvalidArgument, NotFound
from ringfence.manager.granting import current_directory
from ringfence.manager.options import SandboxOptions
from ringfence.manager.workspaces import Progress, Shadow, ShadowKind, Workspaces
from ringfence.values.change import Change
from ringfence.values.paths import is_below
from ringfence.values.sizes import parse_size, show_size

_SHOWN_MAX = 200
"""Lines of a tree of changes after a run; `workspace diff` shows all."""


@contextmanager
def opened_workspaces() -> Iterator[Workspaces]:
    """The caller's shadows; says what became of commits that were interrupted."""
    with Workspaces() as workspaces:
        for one in workspaces.recovered:
            print_note(f"an interrupted commit of shadow {one.shadow_id} was {one.kind}: {len(one.paths)} paths")
            for path in one.left:
                print_note(f"left as the host has it: {path}")
        yield workspaces


def make_shadow(
    workspaces: Workspaces, options: SandboxOptions, *, name: str = "", kind: ShadowKind | None = None
) -> Shadow:
    """A new shadow, which hides all that the options hide; a copy shows how far it has come."""
    with _progress() as report:
        shadow = workspaces.new(options, name=name, kind=kind, progress=report)
    if shadow.why and kind is not ShadowKind.COPY:
        print_note(f"the shadow is a copy: {shadow.why}")
    for path, why in shadow.left_out[:5]:
        print_note(f"the copy lacks {path}: {why}")
    return shadow


@contextmanager
def work_on(
    options: SandboxOptions, *, shadow: bool, use_shadow: str | None, shadow_size: str | None = None
) -> Iterator[SandboxOptions]:
    """The options for where a command works: the directory itself, a new shadow of it, or one that exists already.

    Raises:
        InvalidArgument: what was asked for contradicts itself.
    """
    if not shadow and use_shadow is None:
        if shadow_size is not None:
            raise InvalidArgument("--shadow-size without a shadow", hint="add --shadow, or --use-shadow SHADOW")
        yield options
        return
    if shadow and use_shadow is not None:
        raise InvalidArgument(
            "a new shadow, or one that exists already", hint="give --shadow or --use-shadow, not both"
        )
    size = 0 if shadow_size is None else parse_size(shadow_size)
    with opened_workspaces() as workspaces:
        chosen = workspaces.find(use_shadow) if use_shadow is not None else make_shadow(workspaces, options)
        yield replace(options, workspace=chosen.lower, shadow=chosen, shadow_bytes=size)
        say_what_changed(workspaces, chosen, keep=use_shadow is not None)


def find_shadow(workspaces: Workspaces, which: str | None) -> Shadow:
    """A shadow by its name; without one, the latest of the directory that we are in, which is said.

    Raises:
        NotFound: there is none.
    """
    if which is not None:
        return workspaces.find(which)
    here = current_directory().resolve()
    found = [one for one in workspaces.list() if one.lower == here or one.lower in here.parents]
    if not found:
        raise NotFound(
            f"there is no shadow of {here}",
            hint="`ringfence run --shadow COMMAND` makes one; `ringfence workspace list` shows those of other projects",
        )
    chosen = found[-1]
    print_note(f"shadow {handle(chosen)}, the latest of {chosen.lower}")
    return chosen


def find_shadow_and_paths(
    workspaces: Workspaces, which: str | None, paths: Sequence[str]
) -> tuple[Shadow, tuple[str, ...]]:
    """The same for `SHADOW [PATH]...`: a first word that names no shadow is a path in the latest one.

    Raises:
        InvalidArgument: it is neither.
    """
    if which is None:
        return find_shadow(workspaces, None), tuple(paths)
    if any(which == one.name or one.id.startswith(which) or one.id.endswith(which) for one in workspaces.list()):
        return workspaces.find(which), tuple(paths)
    shadow = find_shadow(workspaces, None)
    changed = workspaces.changes(shadow)
    for word in (which, *paths):
        if not below(changed, (word,)):
            raise InvalidArgument(
                f"{word!r} is neither a shadow nor a path that was changed in {handle(shadow)}",
                hint="`ringfence workspace list` shows the shadows, `ringfence workspace diff` what was changed",
            )
    return shadow, (which, *paths)


def below(found: tuple[Change, ...], paths: Sequence[str]) -> tuple[Change, ...]:
    """Those of the changes that lie at or below some paths; all of them, if none is named."""
    if not paths:
        return found
    wanted = tuple(os.path.normpath(path) for path in paths)
    return tuple(
        change
        for change in found
        if any(is_below(name, path) for path in wanted for name in (change.path, change.source))
    )


def handle(shadow: Shadow) -> str:
    """What a person calls it."""
    return shadow.name or shadow.id


def say_what_changed(workspaces: Workspaces, shadow: Shadow, *, keep: bool = False) -> None:
    """After a run: the changes, and how to go on; a shadow without any is removed, unless it is kept."""
    found = workspaces.changes(shadow)
    if not found:
        if keep:
            return
        workspaces.discard(shadow)
        print_note("nothing was changed; the shadow is gone again")
        return
    workspaces.keep_bases(shadow, found)
    if is_quiet():
        return
    show_changes(workspaces, shadow, found, most_shown=_SHOWN_MAX, to_stderr=True)
    name = handle(shadow)
    print_note(f"look:    ringfence workspace diff --patch {name}")
    print_note(f"commit:  ringfence workspace commit {name}     (-p asks about each hunk)")
    print_note(f"discard: ringfence workspace discard {name}")


def show_changes(
    workspaces: Workspaces, shadow: Shadow, found: tuple[Change, ...], *, most_shown: int, to_stderr: bool = False
) -> None:
    """A tree of what was changed, with counts."""
    tree = as_tree(found, workspaces.line_counts(shadow, found), most_shown=most_shown)
    console(stderr=to_stderr).print(tree, crop=False, soft_wrap=True)


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
    if not is_coloured(sys.stderr) or not sys.stderr.isatty() or is_quiet():
        yield lambda _: None
        return
    from rich.status import Status

    with Status(text, console=console(stderr=True)) as status:
        yield lambda changed: status.update(changed)
