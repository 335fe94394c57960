"""`ringfence workspace`: shadows of projects: look at what an agent did, and carry over what you want."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.choosing import choose_hunks
from ringfence.cli.completing import complete_roles, complete_shadows, complete_snapshots
from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.options import typed_options
from ringfence.cli.output import console, make_table, show_table
from ringfence.cli.say import print_line, print_note, visible
from ringfence.cli.shadows import (
    below,
    find_shadow,
    find_shadow_and_paths,
    handle,
    make_shadow,
    opened_workspaces,
    saving,
    show_changes,
)
from ringfence.cli.show_changes import MOST_SHOWN, as_refusals
from ringfence.errors import PermissionDenied
from ringfence.manager.workspaces import Shadow, ShadowKind, Snapshot, Workspaces
from ringfence.values.change import Change, Committed, Selection
from ringfence.values.sizes import show_size

CONFLICT_CODE = 1
"""The host changed the same; nothing was committed."""

workspace = make_group("Shadows of projects: look at what was done in them, commit it, save it, throw it away.")

_NAMED = "Its id, the beginning of it, or its name"
_Which = Annotated[
    str, typer.Argument(metavar="SHADOW", help=f"{_NAMED}.", autocompletion=complete_shadows, show_default=False)
]
_Latest = Annotated[
    str | None,
    typer.Argument(
        metavar="SHADOW",
        help=f"{_NAMED}; default: the latest of this directory.",
        autocompletion=complete_shadows,
        show_default=False,
    ),
]
_Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH...", help="Only these, with all below them.")]
_Saved = Annotated[
    str,
    typer.Argument(
        metavar="SNAPSHOT", help="The name of a snapshot.", autocompletion=complete_snapshots, show_default=False
    ),
]
_Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@workspace.command()
def new(
    project: Annotated[Path | None, typer.Argument(metavar="DIR", help="The project; default: here.")] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="A name for it.")] = "",
    copy: Annotated[bool, typer.Option("--copy", help="A copy, even where an overlay would do.")] = False,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Hide what this policy hides.")] = None,
    role: Annotated[
        str | None, typer.Option(metavar="ROLE", help="The role in the policy.", autocompletion=complete_roles)
    ] = None,
) -> None:
    """Make a shadow of a project, and print its id.

    Example:

        ringfence run --use-shadow $(ringfence workspace new) -- make
    """
    options = typed_options(workspace=project, policy=policy, role=role)
    with opened_workspaces() as workspaces:
        kind = ShadowKind.COPY if copy else None
        made = make_shadow(workspaces, options, name=name, kind=kind)
    print(made.id)


@workspace.command("list")
def list_shadows(as_json: _AsJson = False) -> None:
    """Show all shadows: of which project, since when, and how much was changed in them."""
    with opened_workspaces() as workspaces:
        found = [(shadow, _count(workspaces, shadow)) for shadow in workspaces.list()]
        broken = workspaces.broken()
    if as_json:
        print(json.dumps([_as_json(shadow) | {"changes": count} for shadow, count in found], indent=2))
    elif found:
        _show_list(found)
    elif not broken:
        print("There are no shadows.")
    for shadow_id, why in broken:
        print_note(f"shadow {shadow_id} cannot be read: {why}; `ringfence workspace discard {shadow_id}` removes it")


@workspace.command()
def diff(
    which: _Latest = None,
    paths: _Paths = None,
    patch: Annotated[bool, typer.Option("--patch", help="Print a unified diff that `git apply` takes.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Show what was changed in a shadow."""
    with opened_workspaces() as workspaces:
        shadow, chosen = find_shadow_and_paths(workspaces, which, paths or ())
        found = below(workspaces.changes(shadow), chosen)
        if as_json:
            print(json.dumps([_change_as_json(change) for change in found], indent=2))
        elif patch:
            made = workspaces.patch(shadow, found)
            sys.stdout.buffer.write(made.data)
            sys.stdout.buffer.flush()
            for refusal in made.left_out:
                print_note(f"left out: {refusal}")
        else:
            show_changes(workspaces, shadow, found, most_shown=MOST_SHOWN)


@workspace.command()
def commit(
    which: _Latest = None,
    paths: _Paths = None,
    interactive: Annotated[bool, typer.Option("--patch", "-p", help="Ask about each hunk.")] = False,
    allow_protected: Annotated[
        bool,
        typer.Option("--allow-protected", help="Also protected names, and what other tools would run by themselves."),
    ] = False,
    merge: Annotated[bool, typer.Option("--merge", help="Merge texts that the host has changed too.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Carry changes of a shadow over to the project: all, some paths, or some hunks.

    All of it or nothing: a file that the host has changed since is a conflict, and then nothing is carried over. What
    the blacklist hides is never committed.
    """
    with opened_workspaces() as workspaces:
        shadow, chosen = find_shadow_and_paths(workspaces, which, paths or ())
        found = workspaces.changes(shadow)
        selection = Selection(paths=chosen or None)
        if interactive:
            selection = choose_hunks(workspaces, shadow, below(found, chosen))
        done = workspaces.commit(shadow, select=selection, seen=found, allow_protected=allow_protected, merge=merge)
    if as_json:
        print(json.dumps(_committed_as_json(done), indent=2))
    else:
        _say_committed(done, shadow)
    if not done.is_done:
        raise Finished(CONFLICT_CODE)


@workspace.command()
def discard(which: _Latest = None, yes: _Yes = False) -> None:
    """Remove a shadow with everything that was done in it; the project stays as it is.

    Asks first if something in it is not committed. Where there is no terminal to ask at, it refuses without --yes.
    """
    with opened_workspaces() as workspaces:
        if which is not None and which in dict(workspaces.broken()):
            _confirm_loss("it cannot be read, so what is not committed in it is not known", which, "discard", yes=yes)
            workspaces.discard_broken(which)
            return
        shadow = find_shadow(workspaces, which)
        count = _count(workspaces, shadow)
        if count:
            _confirm_loss(f"{count} changes are not committed", handle(shadow), "discard", yes=yes)
        workspaces.discard(shadow)
        print_note(f"shadow {shadow.id} is gone, with {count} changes")


@workspace.command()
def snapshot(which: _Which, name: Annotated[str, typer.Argument(metavar="NAME", help="What to call it.")]) -> None:
    """Save a shadow as it is, to come back to it or to fork it."""
    with opened_workspaces() as workspaces, saving() as progress:
        saved = workspaces.save(workspaces.find(which), name, progress=progress)
    print_note(f"snapshot {saved.name}: {saved.files} files, {show_size(saved.new_bytes)} new")
    for left_out in saved.left_out[:5]:
        print_note(f"left out: {left_out}")


@workspace.command()
def snapshots(as_json: _AsJson = False) -> None:
    """Show what was saved."""
    with opened_workspaces() as workspaces:
        found = workspaces.snapshots()
    if as_json:
        print(json.dumps([_snapshot_as_json(one) for one in found], indent=2))
    elif found:
        _show_snapshots(found)
    else:
        print("There are no snapshots.")


@workspace.command()
def compare(old: _Saved, new: _Saved, as_json: _AsJson = False) -> None:
    """Say what differs between two snapshots."""
    with opened_workspaces() as workspaces:
        found = workspaces.compare(old, new)
    if as_json:
        print(json.dumps([{"kind": str(one.kind), "path": one.path} for one in found], indent=2))
        return
    for one in found:
        print(f"{one.kind:8} {visible(one.path)}")


@workspace.command()
def restore(which: _Which, name: _Saved, yes: _Yes = False) -> None:
    """Make a shadow what it was when it was saved.

    What was done in it since then is gone. Asks first if something in it is not committed; where there is no terminal
    to ask at, it refuses without --yes.
    """
    with opened_workspaces() as workspaces:
        shadow = workspaces.find(which)
        count = _count(workspaces, shadow)
        if count:
            _confirm_loss(f"{count} changes are not committed", handle(shadow), "restore", yes=yes, more=f" {name}")
        workspaces.restore(shadow, name)
        print_note(f"shadow {handle(shadow)} is as it was saved in {name}")


@workspace.command()
def fork(
    name: _Saved, shadow_name: Annotated[str, typer.Option("--name", metavar="NAME", help="A name for it.")] = ""
) -> None:
    """Make a new shadow from a snapshot, and print its id."""
    with opened_workspaces() as workspaces:
        print(workspaces.fork(name, shadow_name=shadow_name).id)


@workspace.command()
def forget(name: _Saved) -> None:
    """Delete a snapshot, and what no other one needs."""
    with opened_workspaces() as workspaces:
        workspaces.forget(name)


_QUESTIONS = {"discard": "Discard the shadow?", "restore": "Overwrite them?"}


def _confirm_loss(what: str, which: str, act: str, *, yes: bool, more: str = "") -> None:
    """Let somebody say that uncommitted work may go.

    Raises:
        PermissionDenied: nobody can be asked, and nobody has said so.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise PermissionDenied(
            f"shadow {which} is left as it is: {what}, and there is no terminal to ask at",
            hint=f"`ringfence workspace diff {which}` shows them; `ringfence workspace {act} --yes {which}{more}` "
            "gives them up",
        )
    typer.confirm(f"Shadow {visible(which)}: {what}. {_QUESTIONS[act]}", abort=True)


def _count(workspaces: Workspaces, shadow: Shadow) -> int:
    return len(workspaces.changes(shadow))


def _as_json(shadow: Shadow) -> dict[str, Any]:
    return {
        "id": shadow.id,
        "name": shadow.name,
        "project": os.fspath(shadow.lower),
        "kind": str(shadow.kind),
        "made_at": shadow.born_ns / 1e9,
        "why_a_copy": shadow.why,
    }


def _change_as_json(change: Change) -> dict[str, Any]:
    return {
        "kind": str(change.kind),
        "path": change.path,
        "source": change.source,
        "is_content": change.is_content,
        "is_mode": change.is_mode_change,
        "is_binary": change.is_binary,
        "refused": change.refused,
    }


def _committed_as_json(done: Committed) -> dict[str, Any]:
    return {
        "done": done.is_done,
        "applied": [_change_as_json(change) for change in done.applied],
        "merged": list(done.merged),
        "refused": [str(refusal) for refusal in done.refused],
        "conflicts": [str(refusal) for refusal in done.conflicts],
    }


def _say_committed(done: Committed, shadow: Shadow) -> None:
    shown = console(stderr=True)
    for line in as_refusals(done):
        shown.print(line, soft_wrap=True)
    if not done.is_done:
        print_line("nothing was committed; commit other paths, use --merge, or resolve the host file")
    else:
        count = len(done.applied)
        print_note(f"committed {count} change{'s' * (count != 1)} to {shadow.lower}" if count else "nothing to commit")


def _snapshot_as_json(saved: Snapshot) -> dict[str, Any]:
    fields = ("name", "parent", "saved_at", "files", "total_bytes", "new_bytes")
    return {field: getattr(saved, field) for field in fields}


def _show_snapshots(found: tuple[Snapshot, ...]) -> None:
    from rich.text import Text

    table = make_table("name", "saved", "files", "size", "new", whole=("name", "saved"))
    for saved in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(saved.saved_at))
        sizes = (show_size(saved.total_bytes), show_size(saved.new_bytes))
        table.add_row(Text(visible(saved.name)), when, str(saved.files), *sizes)
    show_table(table)


def _show_list(found: list[tuple[Shadow, int]]) -> None:
    from rich.text import Text

    table = make_table("id", "name", "project", "kind", "made", "changes", whole=("id", "name"))
    for shadow, count in found:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(shadow.born_ns / 1e9))
        names = (Text(visible(text)) for text in (shadow.id, shadow.name, os.fspath(shadow.lower)))
        table.add_row(*names, str(shadow.kind), made, str(count))
    show_table(table)
