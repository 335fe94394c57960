"""`ringfence image`: builds, lists and checks the images that containers are made of."""

import asyncio
import json
import time
from typing import Annotated, Any

import typer

from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.output import console, make_table, show_table
from ringfence.cli.say import print_note, visible
from ringfence.manager.image import (
    ImageReport,
    ListedImage,
    check_image,
    is_built,
    list_images,
    recipe,
)
from ringfence.manager.image import build as build_image
from ringfence.values.sizes import show_age, show_size

image = make_group("Build, list and check images for containers.")

_UNFIT_CODE = 1

DockerUrl = Annotated[
    str | None,
    typer.Option(
        "--docker-url",
        metavar="URL",
        help="Where the daemon is: unix:///path, tcp://host:port; default: what DOCKER_HOST or docker's context says.",
        show_default=False,
    ),
]


@image.command()
def build(
    base: Annotated[
        str | None, typer.Option(metavar="IMAGE", help="What to build on; pin it by digest.", show_default=False)
    ] = None,
    data: Annotated[bool, typer.Option("--data/--no-data", help="With numpy, pandas and matplotlib.")] = True,
    arguments: Annotated[
        list[str] | None,
        typer.Option("--arg", metavar="NAME=VALUE", help="A further build argument; may be repeated."),
    ] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NAME", help="The network of the build: host, none, ...", show_default=False)
    ] = None,
    again: Annotated[bool, typer.Option("--again", help="Build even if there is an image of the same inputs.")] = False,
    docker_url: DockerUrl = None,
) -> None:
    """Build the sandbox image, tagged by the hash of its inputs and by the version.

    Shows what Docker does. Exits with 0 if the image is there, 125 if it could not be built.
    """
    made = recipe(arguments or (), base=base, with_data=data)
    if not again and asyncio.run(is_built(made, docker_url)):
        print_note(f"{made.tags[0]} exists already; --again builds it again")
    else:
        build_image(made, docker_url=docker_url, network=network, no_cache=again)
    for tag in made.tags:
        print(tag)


@image.command(name="list")
def list_(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")] = False,
    docker_url: DockerUrl = None,
) -> None:
    """Show the sandbox images that the daemon has, with their age and size. Exits with 1 if there is none."""
    found = asyncio.run(list_images(docker_url))
    if as_json:
        print(json.dumps([_listed_as_json(each) for each in found], indent=2))
    elif found:
        _show_list(found)
    else:
        print("There is no sandbox image. Make one: ringfence image build")
    raise Finished(0 if found else 1)


def _listed_as_json(each: ListedImage) -> dict[str, Any]:
    return {
        "id": each.id,
        "tags": list(each.tags),
        "created": each.created,
        "size_bytes": each.size_bytes,
        "inputs": each.inputs,
    }


def _show_list(found: tuple[ListedImage, ...]) -> None:
    from rich.text import Text

    table = make_table("image", "id", "built", "size", whole=("image", "id"))
    for each in found:
        names = "\n".join(each.tags) or "(no name)"
        age = show_age(time.time() - each.created)
        table.add_row(Text(visible(names)), each.id.removeprefix("sha256:")[:12], age, show_size(each.size_bytes))
    show_table(table)


@image.command()
def check(
    name: Annotated[
        str | None, typer.Argument(metavar="IMAGE", help="Default: the one of this version.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of a table.")] = False,
    docker_url: DockerUrl = None,
) -> None:
    """Try out whether boxes can be made of an image, and what is in it.

    Containers are made of it, walled in, and thrown away. Exits with 0 if it is fit, 1 if it is not, 125 if that
    cannot be found out.
    """
    report = asyncio.run(check_image(docker_url, name or recipe().tags[1]))
    if as_json:
        print(json.dumps(_as_json(report), indent=2))
    else:
        _show(report)
    raise Finished(0 if report.fit else _UNFIT_CODE)


def _as_json(report: ImageReport) -> dict[str, Any]:
    facts = report.facts
    return {
        "image": facts.image,
        "id": facts.id,
        "fit": report.fit,
        "architecture": facts.architecture,
        "size_bytes": facts.size_bytes,
        "created": facts.created,
        "user": facts.user,
        "uid": facts.uid,
        "programs": {name: {"path": each.path, "version": each.version} for name, each in facts.programs.items()},
        "set_id": list(report.set_id),
        "checks": [
            {"claim": each.claim, "ok": each.ok, "needed": each.needed, "found": each.found, "hint": each.hint}
            for each in report.checks
        ],
    }


def _show(report: ImageReport) -> None:
    from rich.text import Text

    facts, shown = report.facts, console()
    title = f"{visible(facts.image)}, {show_size(facts.size_bytes)}"
    table = make_table("", "claim", "found", "what to do", title=title)
    for each in report.checks:
        mark = Text("yes", style="green") if each.ok else Text("no", style="red" if each.needed else "yellow")
        table.add_row(mark, each.claim, Text(visible(each.found)), Text(visible(each.hint)))
    show_table(table, shown)
    if report.fit:
        shown.print("[green]Boxes can be made of it.[/]")
    else:
        shown.print("[red]It is not fit for boxes[/]: see what to do above.")
