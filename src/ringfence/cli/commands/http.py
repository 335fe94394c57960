"""`ringfence http`: one HTTP request outside the wall, through the same judge as a box."""

import json
import os
import sys
from typing import Annotated, Any

import typer

from ringfence.cli.network_options import AllowOption, SecretOption
from ringfence.cli.say import print_note, visible
from ringfence.cli.tool_options import (
    ConfigOption,
    JsonOption,
    PolicyOption,
    TimeoutOption,
    WorkspaceOption,
    tool_options,
    tool_seconds,
    visible_text,
)
from ringfence.errors import InvalidArgument
from ringfence.manager.blocking import wait_for
from ringfence.manager.options import SandboxOptions
from ringfence.manager.tool_network import tool_network
from ringfence.tools.http import HttpAnswer, HttpTool


def http(
    method: Annotated[str, typer.Argument(metavar="METHOD", help="GET, POST, ...", show_default=False)],
    url: Annotated[str, typer.Argument(metavar="URL", help="Where to.", show_default=False)],
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME: VALUE", help="A header; may be given again.")
    ] = None,
    body: Annotated[str | None, typer.Option("--body", "-d", metavar="TEXT", help="The body; - is stdin.")] = None,
    json_body: Annotated[
        str | None, typer.Option("--json-body", "-j", metavar="JSON", help="The body, as JSON.")
    ] = None,
    workspace: WorkspaceOption = None,
    policy: PolicyOption = None,
    config: ConfigOption = None,
    allow: AllowOption = None,
    secret: SecretOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Send one HTTP request, outside the wall and by the policy's rules, and show the answer.

    Exits with 0 whatever the status is; --json has it.

    Example:

        ringfence http --allow api.example.com POST https://api.example.com/items -j '{"name": "one"}'
    """
    options = tool_options(workspace=workspace, config=config, policy=policy, allow=allow, secret=secret)
    given: dict[str, Any] = {"headers": dict(map(_header, header or ()))}
    if json_body is not None:
        given["json"] = _json(json_body)
    if body is not None:
        given["body"] = sys.stdin.buffer.read() if body == "-" else body
    seconds = tool_seconds(timeout)
    answer = wait_for(_asked(method, url, options, seconds, given))
    if as_json:
        print(json.dumps(as_object(answer)))
    else:
        print_note(visible(f"{answer.url} · {answer.status} · {answer.header('content-type') or 'no type'}"))
        print(visible_text(answer.text))


async def _asked(method: str, url: str, options: SandboxOptions, seconds: float, given: dict[str, Any]) -> HttpAnswer:
    async with tool_network(options, os.environ, url) as network:
        tool = HttpTool(network.opener, authority=network.authority, seconds=seconds)
        return await tool.execute(method, url, **given)


def as_object(answer: HttpAnswer) -> dict[str, Any]:
    """The answer as plain values; a body that is no text has its bytes counted."""
    try:
        text: str | None = answer.body.decode("utf-8")
    except UnicodeDecodeError:
        text = answer.text if answer.header("content-type").startswith("text/") else None
    return {
        "url": answer.url,
        "status": answer.status,
        "headers": [list(pair) for pair in answer.headers],
        "body": text,
        "bytes": len(answer.body),
        "redirects": list(answer.redirects),
        "seconds": round(answer.seconds, 3),
    }


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise InvalidArgument(f"--header {name!r} has no value", hint="write it as 'Name: value'")
    return name.strip(), value.strip()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as fault:
        raise InvalidArgument(f"--json-body is no JSON: {fault}") from None
