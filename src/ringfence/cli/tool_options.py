"""The options that `fetch` and `http` have in common on the command line, and what is made of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.options import typed_options
from ringfence.cli.say import visible
from ringfence.cli.typed_network import typed_network
from ringfence.manager.options import SandboxOptions
from ringfence.tools.http import USUAL_SECONDS
from ringfence.values.sizes import parse_duration

WorkspaceOption = Annotated[
    Path | None,
    typer.Option("--workspace", "-w", metavar="DIR", help="Where files go, and whose policy counts; default: here."),
]
PolicyOption = Annotated[
    Path | None, typer.Option("--policy", metavar="FILE", help="The policy that says what may be reached.")
]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="Use this configuration file.")]
TimeoutOption = Annotated[
    str | None, typer.Option("--timeout", metavar="TIME", help="Give up after this long: 30s, 2m.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def tool_options(
    *,
    workspace: Path | None,
    config: Path | None,
    policy: Path | None,
    allow: Sequence[str] | None,
    secret: Sequence[str] | None,
) -> SandboxOptions:
    """What a tool may reach follows from the same options as what a box may.

    Raises:
        InvalidArgument: something of it makes no sense.
    """
    network = typed_network(allow=allow, secret=secret)
    return typed_options(workspace=workspace, config=config, policy=policy, network=network)


def tool_seconds(timeout: str | None) -> float:
    """How long one call may take."""
    return USUAL_SECONDS if timeout is None else parse_duration(timeout)


def visible_text(text: str) -> str:
    """Lines of others, without anything that a terminal would obey."""
    return "\n".join(visible(line) for line in text.split("\n"))
