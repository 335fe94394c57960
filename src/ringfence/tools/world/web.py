"""`fetch` and `http`: the network for an agent, outside the wall and through the same judge as a box's."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Any, Final

from ringfence.manager.tool_network import tool_network
from ringfence.tools.fetch import USUAL_CHARACTERS, FetchTool
from ringfence.tools.file_places import place_of
from ringfence.tools.files import FileWriteTool
from ringfence.tools.http import HttpTool
from ringfence.tools.world.answers import ToolAnswer, answered
from ringfence.tools.world.base import Arguments, Place, ToolSpec, WorldTool
from ringfence.tools.world.text import shown

_URL: Final = {"type": "string", "minLength": 1}


async def _fetch(place: Place, given: Arguments) -> ToolAnswer:
    async with tool_network(place.options, os.environ, given["url"]) as network:
        storage = None if place.options.read_only else _BoxStorage(place, asyncio.get_running_loop())
        tool = FetchTool(network.opener, workspace=storage, authority=network.authority)
        found = await tool.execute(
            given["url"],
            form=given.get("form", "markdown"),
            offset=given.get("offset", 0),
            save_to=given.get("save_to"),
        )
    values: dict[str, Any] = {
        "url": shown(found.url),
        "status": found.status,
        "content_type": shown(found.content_type),
        "title": shown(found.title),
        "text": shown(found.text.replace("\r\n", "\n")),
        "links": [[shown(text), shown(address)] for text, address in found.links],
        "length": found.length,
    }
    words = f"{found.status}, {values['content_type'] or 'no type'}, from {values['url']}"
    if found.saved:
        values["saved"] = found.saved
        words += f"; saved as {shown(found.saved)}, {found.length} bytes"
    if found.next_offset is not None:
        values["next_offset"] = found.next_offset
        words += f"; {found.next_offset} of {found.length} characters: go on with offset {found.next_offset}"
    return answered(words, values["text"], values=values)


@dataclass(frozen=True, slots=True)
class _BoxStorage:
    """Where a fetched file goes: into the box, by the tool that writes files, under its rules. Called in threads."""

    place: Place
    loop: asyncio.AbstractEventLoop

    def exists(self, path: str, /) -> bool:
        return bool(self._wait(self._exists(path)))

    async def _exists(self, path: str) -> bool:
        sandbox = await place_of(self.place.owner, self.place.session_id, "fetch").sandbox()
        return await sandbox.files.exists(path)

    def write(self, path: str, data: bytes, /) -> None:
        self._wait(FileWriteTool(self.place.owner, self.place.session_id).execute(path, data)).check()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


async def _http(place: Place, given: Arguments) -> ToolAnswer:
    headers = {one["name"]: one["value"] for one in given.get("headers", ())}
    async with tool_network(place.options, os.environ, given["url"]) as network:
        tool = HttpTool(network.opener, authority=network.authority)
        answer = await tool.execute(given.get("method", "GET"), given["url"], headers, given.get("body"))
    offset = given.get("offset", 0)
    text = answer.text if _is_text(answer.body) else ""
    piece = shown(text[offset : offset + USUAL_CHARACTERS])
    values: dict[str, Any] = {
        "url": shown(answer.url),
        "status": answer.status,
        "headers": [{"name": shown(name), "value": shown(value)} for name, value in answer.headers],
        "body": piece,
        "length": len(text) or len(answer.body),
    }
    words = f"{answer.status} from {values['url']}, {len(answer.body)} bytes"
    if answer.body and not text:
        words += "; it is no text: fetch saves it into the workspace"
    end = offset + USUAL_CHARACTERS
    if end < len(text):
        values["next_offset"] = end
        words += f"; {end} of {len(text)} characters: go on with offset {end}"
    return answered(words, piece, values=values)


def _is_text(body: bytes) -> bool:
    return b"\0" not in body[:8192]


FETCH: Final = WorldTool(
    ToolSpec(
        "fetch",
        "Fetch a web page",
        "Fetch a page as Markdown, or a picture, PDF or other file into the workspace. Only hosts that the person has "
        "allowed can be reached; each request is recorded.",
        {
            "url": _URL,
            "form": {"type": "string", "enum": ["markdown", "text", "raw"], "description": "Default: markdown."},
            "offset": {"type": "integer", "minimum": 0, "description": "The first character that is wanted."},
            "save_to": {"type": "string", "description": "Save it there, in the workspace, whatever it is."},
        },
        ("url",),
        {
            "url": {"type": "string"},
            "status": {"type": "integer"},
            "content_type": {"type": "string"},
            "title": {"type": "string"},
            "text": {"type": "string"},
            "links": {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
            "length": {"type": "integer"},
            "next_offset": {"type": "integer"},
            "saved": {"type": "string", "description": "The file in the workspace."},
        },
        reaches_out=True,
    ),
    _fetch,
)
HTTP: Final = WorldTool(
    ToolSpec(
        "http",
        "Send an HTTP request",
        "Send one HTTP request and get its status, headers and body. Only hosts, methods and paths that the person has "
        "allowed can be reached; each request is recorded. Keys are put in outside: do not ask for them.",
        {
            "url": _URL,
            "method": {"type": "string", "minLength": 1, "description": "Default: GET."},
            "headers": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                    "required": ["name", "value"],
                },
            },
            "body": {"type": "string"},
            "offset": {"type": "integer", "minimum": 0, "description": "The first character of the body."},
        },
        ("url",),
        {
            "url": {"type": "string"},
            "status": {"type": "integer"},
            "headers": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "value": {"type": "string"}},
                },
            },
            "body": {"type": "string"},
            "length": {"type": "integer"},
            "next_offset": {"type": "integer"},
        },
        reaches_out=True,
    ),
    _http,
)
