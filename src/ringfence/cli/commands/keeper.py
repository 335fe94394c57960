"""`ringfence keeper`: the processes of this user that hold the command line ready."""

import fcntl
import json
import os
import time
from typing import TYPE_CHECKING, Annotated

import typer

from ringfence.cli.app import main
from ringfence.cli.exits import Finished
from ringfence.cli.group import make_group
from ringfence.cli.lazy import load
from ringfence.cli.output import make_table, show_table
from ringfence.deferred import deferred
from ringfence.errors import InvalidArgument
from ringfence.keeper.asking import ask_keepers
from ringfence.keeper.settings import read_settings
from ringfence.keeper.wire import Place, is_private
from ringfence.values.sizes import show_seconds

if TYPE_CHECKING:
    from ringfence.cli.preparing import prepare_line
    from ringfence.keeper.becoming import take_image
    from ringfence.keeper.child import CommandLine
    from ringfence.keeper.image import shows_walls
    from ringfence.keeper.preload import load_ahead
    from ringfence.keeper.serving import Keeper
else:  # what a keeper needs and whoever asks one does not
    prepare_line = deferred("ringfence.cli.preparing", "prepare_line")
    take_image = deferred("ringfence.keeper.becoming", "take_image")
    shows_walls = deferred("ringfence.keeper.image", "shows_walls")
    CommandLine = deferred("ringfence.keeper.child", "CommandLine")
    load_ahead = deferred("ringfence.keeper.preload", "load_ahead")
    Keeper = deferred("ringfence.keeper.serving", "Keeper")

keeper = make_group("Show or stop the process that holds the command line ready.")

# native/front/start.c
_LOCK, _DIRECTORY = 3, 4

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON list instead of a table.")]


@keeper.command()
def status(as_json: JsonOption = False) -> None:
    """Show the keepers of yours that run.

    There is one for each kind of surroundings that you call from: another cgroup, other limits, another language. Exits
    with 0 if there is one, else with 1.
    """
    found = ask_keepers(os.environ, stop=False)
    if as_json:
        print(json.dumps(found, indent=2))
    elif found:
        table = make_table("pid", "version", "runs for", "calls", "running", "boxes ready", "boxes used")
        for each in found:
            age = show_seconds(max(0.0, time.time() - float(each["since"])))
            boxes = f"{len(each['boxes'])} of {each['boxes_most']}"
            figures = (each["calls"], each["running"], boxes, each["boxes_taken"])
            table.add_row(str(each["pid"]), str(each["version"]), age, *map(str, figures))
        show_table(table)
    else:
        print("No keeper of yours runs. `ringfence` starts one by itself (RINGFENCE_KEEPER=off: never).")
    raise Finished(0 if found else 1)


@keeper.command()
def stop(as_json: JsonOption = False) -> None:
    """Stop the keepers of yours: they take no further calls, and end when what they run has ended."""
    found = ask_keepers(os.environ, stop=True)
    if as_json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"stopped {each['pid']}" for each in found) or "No keeper of yours runs.")
    raise Finished(0)


@keeper.command(hidden=True)
def serve(name: Annotated[str, typer.Argument(help="As which one.")]) -> None:
    """Be a keeper. The native front starts it so, with the lock and the directory as its descriptors 3 and 4."""
    if not shows_walls():
        raise InvalidArgument("under no_new_privs a keeper cannot tell which caller is walled in", hint=_BY_ITSELF)
    try:
        if not is_private(_DIRECTORY):
            raise InvalidArgument("descriptor 4 is no directory of yours alone", hint=_BY_ITSELF)
        fcntl.flock(_LOCK, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as fault:
        raise InvalidArgument(f"descriptors 3 and 4 are no lock and directory: {fault}", hint=_BY_ITSELF) from fault
    for number in (_LOCK, _DIRECTORY):
        os.set_inheritable(number, False)
    load_ahead()
    load("run")
    line = CommandLine(main, prepare_line)
    Keeper(Place(_DIRECTORY, name), _LOCK, take_image(), line, read_settings(os.environ)).serve()


_BY_ITSELF = "`ringfence` starts a keeper by itself"
