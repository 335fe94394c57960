"""`ringfence policy`: check a policy file, and explain what holds in it."""

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from ringfence.cli.completing import complete_roles, complete_tools
from ringfence.cli.exits import FAULT_CODE
from ringfence.cli.group import make_group
from ringfence.cli.say import say_coloured, visible
from ringfence.errors import InvalidConfig
from ringfence.manager.policing import PolicyEngine, organisation_policy, read_policy
from ringfence.manager.policy_pages import Remark, explained, in_common, remarks, schema_text, unkept_promises

policy = make_group("Check or explain a policy file.")

_REMARKS_CODE = 1


@policy.command()
def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy file.", show_default=False)],
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 if there are remarks.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say whether a policy is valid, whether its examples hold, and which of its rules do nothing.

    What sounds as if it opened the network, and opens nothing, is noted and no remark.

    Exits with 0 if it is valid, 125 if it is not.
    """
    try:
        loaded = read_policy(file, os.environ)
    except InvalidConfig as fault:
        if as_json:
            print(
                json.dumps({"valid": False, "errors": [_as_error(each) for each in fault.faults or (fault,)]}, indent=2)
            )
            raise typer.Exit(FAULT_CODE) from None
        raise
    found = remarks(loaded, organisation_policy(os.environ))
    if as_json:
        document = {
            "valid": True,
            "remarks": [_as_remark(remark) for remark in found],
            "notes": [_as_remark(promise) for promise in unkept_promises(loaded)],
        }
        print(json.dumps(document, indent=2))
        raise typer.Exit(_REMARKS_CODE if strict and found else 0)
    for remark in found:
        print(visible(str(remark)))
    for promise in unkept_promises(loaded):
        print(f"note: {visible(str(promise))}")
    rules = "valid" if not found else f"valid, {len(found)} remark{'s' if len(found) > 1 else ''}"
    print(f"{visible(os.fspath(file))}: {rules}")
    raise typer.Exit(_REMARKS_CODE if strict and found else 0)


def _as_error(fault: InvalidConfig) -> dict[str, Any]:
    return {"line": fault.line, "column": fault.column, "message": fault.message, "hint": fault.hint}


def _as_remark(remark: Remark) -> dict[str, Any]:
    return {"file": remark.mark.source, "line": remark.mark.line, "message": remark.text}


@policy.command()
def explain(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The policy file.", show_default=False)],
    role: Annotated[
        str | None, typer.Option(metavar="NAME", help="The role to explain.", autocompletion=complete_roles)
    ] = None,
    tool: Annotated[
        str | None, typer.Option(metavar="NAME", help="One tool instead of all.", autocompletion=complete_tools)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Say what holds for a role and its tools, after inheritance and all layers, and where each setting comes from.

    What every tool has in common is said once, first; tools of which the same holds are named together.
    """
    engine = PolicyEngine.from_files(project=file)
    tools = (tool,) if tool is not None else engine.tools
    page: dict[str, Any] = {name: explained(engine.terms(name, role)) for name in tools}
    if as_json:
        print(json.dumps({"role": role, "tools": page}, indent=2))
        return
    unusable = {name: found for name, found in page.items() if not found["usable"]}
    if tool is not None:
        for name, found in unusable.items():
            print(f"{visible(name)}: {visible(found['why'])}")
    common, groups = in_common(page)
    if common["settings"] or common["notes"]:
        say_coloured(typer.style("every tool", bold=True))
        _show_part(common)
        print()
    for names, part in groups:
        say_coloured(typer.style(visible(", ".join(names)), bold=True) + f"  ({part['handling']})")
        _show_part(part)
    if unusable and tool is None:
        print(f"\nnot for this role: {visible(', '.join(unusable))}")


def _show_part(part: dict[str, Any]) -> None:
    _show_settings(part["settings"])
    if part["isolates"]:
        print(f"  isolated is {visible(part['isolates'])}")
    for text in part["notes"]:
        print(f"  note: {visible(text)}")


def _show_settings(settings: dict[str, Any]) -> None:
    for key, setting in settings.items():
        value = setting["value"]
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        say_coloured(f"  {key}: {visible(text)}   {typer.style('# ' + visible(setting['at']), dim=True)}")


@policy.command()
def schema() -> None:
    """Print the JSON schema of policy files, for editors.

    Example:

        ringfence policy schema > policy.schema.json
    """
    print(schema_text(), end="")
