"""`ringfence init`: a policy that starts from the project."""

from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.say import print_note, visible
from ringfence.errors import AlreadyExists, FileError
from ringfence.manager.granting import current_directory
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.policy_pages import meaning
from ringfence.manager.project import Project, look_at
from ringfence.manager.starting_policy import policy_text


def init(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Where to write it; `-` prints it and writes nothing.")
    ] = Path("policy.yaml"),
    project: Annotated[
        Path | None,
        typer.Option("--project", metavar="DIR", help="The project to look at; default: here.", show_default=False),
    ] = None,
) -> None:
    """Write a policy that starts from this project, and say what it means.

    Looks at the names of the project's files for its languages, package managers and tests. Never writes over a file
    that is there.

    Example:

        ringfence init && ringfence run --policy policy.yaml -- "pytest -q"
    """
    found = look_at((project or current_directory()).resolve())
    name = "policy.yaml" if file == Path("-") else str(file)
    text = policy_text(found, visible(name))
    engine = PolicyEngine.from_text(text, name)
    if file == Path("-"):
        print(text, end="")
        return
    try:
        with open(file, "x", encoding="utf-8") as target:
            target.write(text)
    except FileExistsError:
        raise AlreadyExists("exists already", path=str(file), hint="give another name, or `-` to print it") from None
    except OSError as fault:
        why = f"cannot be written: {fault.strerror}"
        raise FileError.of(fault.errno or 0, str(file), why, hint="give another place") from None
    print_note(f"wrote {file}")
    _say(found, engine, name)


def _say(found: Project, engine: PolicyEngine, name: str) -> None:
    """What was found, what the policy means for it, and what to do next."""
    print(f"{'found':12}{', '.join(found.languages) or 'no language that is known'}", end="")
    print(f"; package managers: {', '.join(found.managers)}" if found.managers else "")
    for title, sentence in meaning(engine):
        print(f"{title:12}{visible(sentence)}")
    command = found.test_command
    if command:
        print(f"{'tests':12}{command}")
    print()
    print(f"Look at it:  ringfence policy explain {visible(name)}")
    print(f'Use it:      ringfence run --policy {visible(name)} -- "{command or "COMMAND"}"')
