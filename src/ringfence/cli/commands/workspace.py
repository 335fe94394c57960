"""`ringfence workspace`: shadows of projects: look at what an agent did, and carry over what you want."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.choosing import choose_hunks
from ringfence.cli.exits import Finished
from ringfence.cli.say import note, visible
from ringfence.cli.shadows import make_shadow, opened_workspaces, show_changes
from ringfence.cli.show_changes import MOST_SHOWN, as_refusals
from ringfence.manager.assemble import Judged
from ringfence.manager.workspaces import Shadow, ShadowKind, Workspaces
from ringfence.values.change import Change, Committed, Selection

CONFLICT_CODE = 1
"""The host changed the same; nothing was committed."""

workspace = typer.Typer(
    name="workspace",
    help="Shadows of projects: look at what was done in them, commit it, save it, throw it away.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Which = Annotated[str, typer.Argument(metavar="SHADOW", help="Its id, the beginning of it, or its name.")]
_Paths = Annotated[list[str] | None, typer.Argument(metavar="[PATH]...", help="Only these, with all below them.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@workspace.command()
def new(
    project: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="The project; default: here.")] = None,
    name: Annotated[str, typer.Option(metavar="NAME", help="A name for it.")] = "",
    copy: Annotated[bool, typer.Option("--copy", help="A copy, even where an overlay would do.")] = False,
    policy: Annotated[Path | None, typer.Option(metavar="FILE", help="Hide what this policy hides.")] = None,
    role: Annotated[str | None, typer.Option(metavar="ROLE", help="The role in the policy.")] = None,
) -> None:
    """Make a shadow of a project, and print its id.

    Example:

        ringfence run --in $(ringfence workspace new) -- make
    """
    with opened_workspaces() as workspaces:
        kind = ShadowKind.COPY if copy else None
        made = make_shadow(workspaces, project, Judged(policy=policy, role=role), name=name, kind=kind)
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
        note(f"shadow {shadow_id} cannot be read: {why}; `ringfence workspace discard {shadow_id}` removes it")


@workspace.command()
def diff(
    which: _Which,
    paths: _Paths = None,
    patch: Annotated[bool, typer.Option("--patch", help="Print a unified diff that `git apply` takes.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Show what was changed in a shadow."""
    with opened_workspaces() as workspaces:
        shadow = workspaces.find(which)
        found = _below(workspaces.changes(shadow), paths)
        if as_json:
            print(json.dumps([_change_as_json(change) for change in found], indent=2))
        elif patch:
            made = workspaces.patch(shadow, found)
            sys.stdout.buffer.write(made.data)
            sys.stdout.buffer.flush()
            for refusal in made.left_out:
                note(f"left out: {refusal}")
        else:
            show_changes(workspaces, shadow, found, most_shown=MOST_SHOWN)


@workspace.command()
def commit(
    which: _Which,
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
        shadow = workspaces.find(which)
        found = workspaces.changes(shadow)
        selection = Selection(paths=tuple(paths) if paths else None)
        if interactive:
            selection = choose_hunks(workspaces, shadow, _below(found, paths))
        done = workspaces.commit(shadow, select=selection, seen=found, allow_protected=allow_protected, merge=merge)
    if as_json:
        print(json.dumps(_committed_as_json(done), indent=2))
    else:
        _say_committed(done, shadow)
    if not done.is_done:
        raise Finished(CONFLICT_CODE)


@workspace.command()
def discard(
    which: _Which,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a shadow with everything that was done in it; the project stays as it is."""
    with opened_workspaces() as workspaces:
        if which in dict(workspaces.broken()):
            workspaces.discard_broken(which)
            return
        shadow = workspaces.find(which)
        count = _count(workspaces, shadow)
        if count and not yes and sys.stdin.isatty():
            typer.confirm(f"{count} changes are not committed. Discard them?", abort=True)
        workspaces.discard(shadow)
        note(f"shadow {shadow.id} is gone, with {count} changes")


def _below(found: tuple[Change, ...], paths: list[str] | None) -> tuple[Change, ...]:
    if not paths:
        return found
    wanted = tuple(os.path.normpath(path) for path in paths)
    return tuple(
        change
        for change in found
        if any(name == path or name.startswith(f"{path}/") for path in wanted for name in (change.path, change.source))
    )


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
    from rich.console import Console

    console = Console(stderr=True)
    for line in as_refusals(done):
        console.print(line)
    if not done.is_done:
        note("nothing was committed; commit other paths, use --merge, or bring the host's file in order")
    else:
        note(
            f"{len(done.applied)} changes are in {shadow.lower} now" if done.applied else "there was nothing to commit"
        )


def _show_list(found: list[tuple[Shadow, int]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("id", "name", "project", "kind", "made", "changes")
    for shadow, count in found:
        made = time.strftime("%Y-%m-%d %H:%M", time.localtime(shadow.born_ns / 1e9))
        names = (Text(visible(text)) for text in (shadow.id, shadow.name, os.fspath(shadow.lower)))
        table.add_row(*names, str(shadow.kind), made, str(count))
    Console().print(table)
