"""`ringfence bundle`: portable tools in signed bundles."""

import asyncio
import json
import os
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.output import console, make_table, show_table
from ringfence.cli.say import print_note, visible
from ringfence.errors import InvalidArgument
from ringfence.manager.bundling import Bundles, described
from ringfence.manager.configuring import home_directory

bundle = make_group("Portable tools in signed bundles: build, sign, verify, install and run them.")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
BundleArgument = Annotated[Path, typer.Argument(metavar="BUNDLE", help="A file that `build` wrote, or a directory.")]
OutputOption = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where it goes.", show_default=False)
]


@bundle.command()
def build(
    directory: Annotated[Path, typer.Argument(metavar="DIRECTORY", help="With a tool.json, and the tool's files.")],
    output: OutputOption = None,
) -> None:
    """Make a bundle of a directory. The same directory always gives the same bytes."""
    print(Bundles().build(directory, output))


@bundle.command()
def sign(
    path: BundleArgument,
    key: Annotated[Path, typer.Option("--key", metavar="FILE", help="The private key that `keygen` made.")],
    output: OutputOption = None,
) -> None:
    """Sign a bundle with your key."""
    print(Bundles().sign(path, key, output))


@bundle.command()
def verify(path: BundleArgument, as_json: JsonOption = False) -> None:
    """Say whether a bundle is whole and signed by a key that you trust for it. Exits with 125 if not."""
    checked = Bundles().verify(path)
    about = {"name": checked.manifest.name, "version": checked.manifest.version, "key": checked.key.name}
    if as_json:
        print(json.dumps({**about, "digest": checked.digest}, indent=2))
    else:
        print(visible(f"{about['name']} {about['version']} is whole and signed by {about['key']}"))


@bundle.command()
def install(
    path: BundleArgument,
    allow_downgrade: Annotated[
        bool, typer.Option("--allow-downgrade", help="Also a version older than one that was installed.")
    ] = False,
    allow_key_change: Annotated[
        bool, typer.Option("--allow-key-change", help="Also if another trusted key signed the one before.")
    ] = False,
) -> None:
    """Install a bundle that verifies. Its tool can then be run by its name."""
    done = Bundles().install(path, allow_downgrade=allow_downgrade, allow_key_change=allow_key_change)
    print_note(f"installed {done.manifest.name} {done.manifest.version}, signed by {done.key.name}")


@bundle.command()
def remove(name: Annotated[str, typer.Argument(metavar="NAME", help="Of the tool.")]) -> None:
    """Remove an installed tool. An older version than it had is still not taken later."""
    Bundles().store.remove(name)
    print_note(f"removed {name}")


@bundle.command(name="list")
def list_(as_json: JsonOption = False) -> None:
    """Show the tools that are installed. Exits with 1 if there is none."""
    bundles = Bundles()
    found = bundles.installed()
    keys = bundles.store.trust.keys()
    names = {key.id: key.name for key in keys}
    rows = [(row.name, row.version, names.get(row.key, row.key[:16]), row.digest[:16]) for row in found]
    if as_json:
        print(json.dumps([dict(zip(("name", "version", "key", "digest"), row, strict=True)) for row in rows], indent=2))
    elif rows:
        table = make_table("tool", "version", "signed by", "digest", whole=("tool",))
        for row in rows:
            table.add_row(*map(visible, row))
        show_table(table)
    else:
        print("No tool is installed. Install one: ringfence bundle install FILE")
    raise Finished(0 if found else 1)


@bundle.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|BUNDLE", help="An installed tool, or a bundle that verifies.")],
    as_json: JsonOption = False,
) -> None:
    """Show what a bundle says about its tool: arguments, limits, what it sees and imports."""
    bundles = Bundles()
    checked = bundles.verify(Path(name)) if os.path.exists(name) else bundles.store.load(name)
    about = {**described(checked.manifest), "signed_by": checked.key.name, "digest": checked.digest}
    if as_json:
        print(json.dumps(about, indent=2))
        return
    from rich.text import Text

    table = make_table("", "", title=f"{about['name']} {about['version']}")
    for key, value in about.items():
        shown = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        table.add_row(key, Text(visible(shown)))
    show_table(table)


@bundle.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def run(
    name: Annotated[str, typer.Argument(metavar="NAME", help="An installed tool.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENTS]...", show_default=False)] = None,
) -> None:
    """Run an installed tool in the current directory, as `ringfence run` would, and exit as it exits."""
    from ringfence.cli.running import run_command

    Bundles().store.load(name)  # what is wrong with it is said before a box is made
    run_command([name, *(arguments or [])], engine="wasi")


@bundle.command()
def keygen(
    path: Annotated[Path | None, typer.Argument(metavar="FILE", help="Where the private key goes.")] = None,
) -> None:
    """Make a key that signs bundles; never over a file that is there."""
    target = path if path is not None else Path(home_directory(os.environ)) / ".ringfence" / "bundles.key"
    public = Bundles().keygen(target.absolute())
    print_note(f"wrote {target} and {public}; others trust the second one: ringfence bundle trust NAME FILE --for ...")
    print(public)


@bundle.command()
def trust(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="What you call whose key it is.", show_default=False)
    ] = None,
    public_key: Annotated[
        Path | None, typer.Argument(metavar="[KEY.pub]", help="The public key.", show_default=False)
    ] = None,
    may_sign: Annotated[
        list[str] | None, typer.Option("--for", metavar="PATTERN", help="Tools that it may sign: 'acme/*'.")
    ] = None,
    revoke: Annotated[
        str | None, typer.Option("--revoke", metavar="NAME", help="Nothing that this key signed counts any longer.")
    ] = None,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="With --revoke: the reason.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Trust a key, revoke one, or show whom you trust and for what."""
    bundles = Bundles()
    if revoke is not None:
        bundles.store.trust.revoke(revoke, why)
        print_note(f"revoked {revoke}: nothing that it signed runs any longer")
        return
    if name is not None:
        if public_key is None:
            raise InvalidArgument("a key to trust is a file", hint="ringfence bundle trust NAME KEY.pub --for 'acme/*'")
        key = bundles.trust(name, public_key, tuple(may_sign or ()))
        print_note(f"trusted {key.name} ({key.id[:16]}) for {', '.join(key.may_sign)}")
        return
    keys = bundles.store.trust.keys()
    if as_json:
        rows = [{"name": k.name, "id": k.id, "may_sign": list(k.may_sign), "revoked": k.revoked} for k in keys]
        print(json.dumps(rows, indent=2))
    elif keys:
        table = make_table("key", "id", "may sign", "revoked")
        for key in keys:
            table.add_row(key.name, key.id[:16], visible(", ".join(key.may_sign)), visible(key.revoked))
        show_table(table)
    else:
        print("You trust no key yet: ringfence bundle trust NAME KEY.pub --for 'publisher/*'")


@bundle.command()
def prepare() -> None:
    """Build CPython for WASI and compile what modules need, once: it takes about a minute."""
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    shown = console(stderr=True)
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn(), console=shown, transient=True
    ) as progress:
        task = progress.add_task("looking", total=None)
        names = asyncio.run(Bundles().prepare(lambda text: progress.update(task, description=text)))
    print_note(f"ready: {', '.join(names)}")
