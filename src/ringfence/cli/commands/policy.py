"""`ringfence policy`: check a policy file, explain what holds in it, start a new one."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.say import note, visible
from ringfence.errors import InvalidConfig
from ringfence.manager.policing import PolicyEngine, organisation_policy, read_policy
from ringfence.manager.policy_pages import START, explained, remarks

policy = typer.Typer(no_args_is_help=True, help="Check, explain or start a policy file.", rich_markup_mode="rich")

_REMARKS_CODE = 1


@policy.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy file.", show_default=False)],
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there are remarks.")] = False,
) -> None:
    """Say whether a policy is valid, whether its examples hold, and which of its rules do nothing.

    Exits with 0 if it is valid, 125 if it is not.
    """
    loaded = read_policy(file, os.environ)
    found = remarks(loaded, organisation_policy(os.environ))
    for remark in found:
        print(visible(str(remark)))
    rules = "valid" if not found else f"valid, {len(found)} remark{'s' if len(found) > 1 else ''}"
    print(f"{visible(os.fspath(file))}: {rules}")
    raise typer.Exit(_REMARKS_CODE if strict and found else 0)


@policy.command()
def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy file.", show_default=False)],
    role: Annotated[str | None, typer.Option(metavar="NAME", help="The role to explain.")] = None,
    tool: Annotated[str | None, typer.Option(metavar="NAME", help="One tool instead of all.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what holds for a role and its tools, after inheritance and all layers, and where each setting comes from."""
    engine = PolicyEngine.from_files(project=file)
    tools = (tool,) if tool is not None else engine.tools
    page: dict[str, Any] = {name: explained(engine.terms(name, role)) for name in tools}
    if as_json:
        print(json.dumps({"role": role, "tools": page}, indent=2))
        return
    for name, found in page.items():
        _show_tool(name, found, alone=tool is not None)


def _show_tool(name: str, found: dict[str, Any], *, alone: bool) -> None:
    if not found["usable"]:
        if alone:
            print(f"{visible(name)}: {visible(found['why'])}")
        return
    print(typer.style(visible(name), bold=True) + f"  ({found['handling']})")
    for key, setting in found["settings"].items():
        value = setting["value"]
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        print(f"  {key}: {visible(text)}   {typer.style('# ' + visible(setting['at']), dim=True)}")
    if found["isolates"]:
        print(f"  isolated is {visible(found['isolates'])}")
    for text in found["notes"]:
        print(f"  note: {visible(text)}")


@policy.command()
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where to write it.")] = Path("policy.yaml"),
) -> None:
    """Write a commented policy to start from; never over a file that is there."""
    try:
        with open(file, "x", encoding="utf-8") as target:
            target.write(START)
    except FileExistsError:
        raise InvalidConfig(f"{file} is there already", hint="give another name") from None
    except OSError as fault:
        raise InvalidConfig(f"{file} cannot be written: {fault.strerror}", hint="give another place") from None
    note(f"wrote {file}; try: ringfence policy check {file}")
