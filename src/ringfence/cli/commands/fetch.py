"""`ringfence fetch`: a page as text, a file into the workspace, through the same judge as a box."""

import json
import os
from dataclasses import asdict
from enum import StrEnum
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
from ringfence.manager.blocking import wait_for
from ringfence.manager.granting import current_directory
from ringfence.manager.options import SandboxOptions
from ringfence.manager.tool_network import tool_network
from ringfence.tools.fetch import USUAL_CHARACTERS, Fetched, FetchTool, Form
from ringfence.tools.storing import open_storage


class PageForm(StrEnum):
    MARKDOWN = "markdown"
    TEXT = "text"
    RAW = "raw"


def fetch(
    url: Annotated[str, typer.Argument(metavar="URL", help="What to fetch.", show_default=False)],
    form: Annotated[PageForm, typer.Option(help="What a page becomes; raw is its HTML.")] = PageForm.MARKDOWN,
    offset: Annotated[int, typer.Option(min=0, help="The first character that is wanted.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="How many characters are.")] = USUAL_CHARACTERS,
    save_to: Annotated[
        str | None, typer.Option("--save-to", "-o", metavar="PATH", help="Save it there, in the workspace.")
    ] = None,
    workspace: WorkspaceOption = None,
    policy: PolicyOption = None,
    config: ConfigOption = None,
    allow: AllowOption = None,
    secret: SecretOption = None,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fetch a page as text, or a file into the workspace, outside the wall and by the policy's rules.

    Redirects are judged as requests of their own. Pictures, PDFs and other files are saved below downloads/.

    Example:

        ringfence fetch --allow docs.python.org https://docs.python.org/3/
    """
    options = tool_options(workspace=workspace, config=config, policy=policy, allow=allow, secret=secret)
    seconds = tool_seconds(timeout)
    found = wait_for(
        fetched(url, options, form=form.value, offset=offset, limit=limit, save_to=save_to, seconds=seconds)
    )
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        show(found)


async def fetched(
    url: str,
    options: SandboxOptions,
    *,
    form: Form,
    offset: int,
    limit: int,
    save_to: str | None,
    seconds: float,
) -> Fetched:
    """One call of the tool, with a network for it alone."""
    root = os.fspath(options.workspace or current_directory())
    with open_storage(root) as storage:
        async with tool_network(options, os.environ, url) as network:
            tool = FetchTool(network.opener, workspace=storage, authority=network.authority, seconds=seconds)
            return await tool.execute(url, form=form, offset=offset, limit=limit, save_to=save_to)


def show(found: Fetched) -> None:
    """For a person: what it is on stderr, what it says on stdout."""
    said: list[Any] = [found.url, found.status, found.content_type or "no type"]
    print_note(visible(" · ".join(map(str, said))))
    if found.saved:
        print(f"{visible(found.saved)} ({found.length} bytes)")
        return
    if found.title:
        print_note(f"title: {found.title}")
    print(visible_text(found.text))
    if found.next_offset is not None:
        print_note(f"{found.next_offset} of {found.length} characters; go on with --offset {found.next_offset}")
