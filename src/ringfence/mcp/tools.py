"""What each tool does: arguments that were checked become calls of the library, and results become answers."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import mcp_types as types

from ringfence.manager.tool_network import tool_network
from ringfence.mcp import answers
from ringfence.mcp.boxes import OpenBox
from ringfence.mcp.calls import Call
from ringfence.mcp.catalog import MOST_LINES, OUTPUT_BYTES
from ringfence.mcp.reviewing import review
from ringfence.mcp.text import cut, shown
from ringfence.tools.fetch import FetchTool
from ringfence.tools.files import FileEditTool, FileReadTool, FileWriteTool, SearchTool
from ringfence.values.outcome import Refused, Result
from ringfence.values.remedy import Door
from ringfence.values.request import Overflow, Stream

_READ_CHARACTERS: Final = 64 * 1024
_PICTURE_HEADS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)
Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A call with all that a tool needs."""

    box: OpenBox
    call: Call
    arguments: Arguments
    door: Door

    def listen(self, stream: Stream, data: bytes) -> None:
        self.call.output_bytes += len(data)


async def run_code(job: Job) -> types.CallToolResult:
    given = job.arguments
    result = await job.box.sandbox.code(
        given.get("language", "python"),
        given["code"],
        timeout=given.get("timeout"),
        overflow=Overflow.KEEP_ENDS,
        output_limit=OUTPUT_BYTES,
        on_output=job.listen,
    )
    return answers.of_run(job.box.id, result, job.door)


async def bash(job: Job) -> types.CallToolResult:
    given = job.arguments
    result = await job.box.sandbox.shell(
        given["command"],
        cwd=given.get("cwd"),
        context=given.get("shell"),
        stdin=given.get("stdin"),
        timeout=given.get("timeout"),
        keep_background=given.get("background", False),
        overflow=Overflow.KEEP_ENDS,
        output_limit=OUTPUT_BYTES,
        on_output=job.listen,
    )
    return answers.of_run(job.box.id, result, job.door)


async def read_file(job: Job) -> types.CallToolResult:
    result = await FileReadTool(job.box.sandbox).execute(job.arguments["path"])
    if not result.ok:
        return _failed(job, result)
    data = result.stdout_bytes
    kind = next((mime for head, mime in _PICTURE_HEADS if data.startswith(head)), "")
    if kind and len(data) <= answers.PICTURE_BYTES:
        seen = [answers.picture(kind, data)]
        words = f"{kind}, {len(data)} bytes"
        return answers.answered(job.box.id, words, values={"size_bytes": len(data)}, pictures=seen)
    if b"\0" in data[:8192]:
        return answers.answered(
            job.box.id, f"It is no text: {len(data)} bytes. Look at it with bash.", values={"size_bytes": len(data)}
        )
    return _lines(job, data)


def _lines(job: Job, data: bytes) -> types.CallToolResult:
    """Some lines of a text, and where to go on."""
    text = data.decode("utf-8", "replace")
    lines = text.split("\n")
    total = len(lines) - (lines[-1] == "")
    first = job.arguments.get("first_line", 1)
    chosen = "\n".join(lines[first - 1 : first - 1 + job.arguments.get("lines", MOST_LINES)])
    end = first - 1 + job.arguments.get("lines", MOST_LINES)
    if len(chosen) > _READ_CHARACTERS:
        whole = chosen[:_READ_CHARACTERS].rfind("\n")
        end = first - 1 + chosen[:_READ_CHARACTERS].count("\n") if whole > 0 else first
        chosen = chosen[:whole] if whole > 0 else cut(chosen.partition("\n")[0], _READ_CHARACTERS)
    content = shown(chosen)
    values: dict[str, Any] = {"content": content, "total_lines": total, "size_bytes": len(data)}
    notes = []
    if end < total:
        values["next_line"] = end + 1
        notes.append(f"Lines {first} to {end} of {total}; go on with first_line {end + 1}.")
    if content != chosen:
        notes.append("Control and invisible characters are written out, such as \\x1b; edit_file does not find these.")
    return answers.answered(job.box.id, " ".join(notes), content or "(empty)", values=values)


async def write_file(job: Job) -> types.CallToolResult:
    return _said(job, await FileWriteTool(job.box.sandbox).execute(job.arguments["path"], job.arguments["content"]))


async def edit_file(job: Job) -> types.CallToolResult:
    given = job.arguments
    return _said(job, await FileEditTool(job.box.sandbox).execute(given["path"], given["old"], given["new"]))


async def search_files(job: Job) -> types.CallToolResult:
    tool, path = SearchTool(job.box.sandbox), job.arguments.get("path", ".")
    pattern = job.arguments.get("pattern")
    result = await (tool.list(path) if pattern is None else tool.execute(pattern, path))
    if not result.ok:
        return _failed(job, result)
    text = cut(shown(result.stdout), _READ_CHARACTERS)
    return answers.answered(job.box.id, text or "Nothing was found.", values={"lines": text.splitlines()})


async def fetch(job: Job) -> types.CallToolResult:
    given, options = job.arguments, job.box.options
    async with tool_network(options, os.environ, given["url"]) as network:
        storage = None if options.read_only else _BoxStorage(job, asyncio.get_running_loop())
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
    return answers.answered(job.box.id, words, values["text"], values=values)


@dataclass(frozen=True, slots=True)
class _BoxStorage:
    """Where a fetched file goes: into the box, by the tool that writes files, under its rules. Called in threads."""

    job: Job
    loop: asyncio.AbstractEventLoop

    def exists(self, path: str, /) -> bool:
        return bool(self._wait(self.job.box.sandbox.files.exists(path)))

    def write(self, path: str, data: bytes, /) -> None:
        self._wait(FileWriteTool(self.job.box.sandbox).execute(path, data)).check()

    def _wait(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


async def review_changes(job: Job) -> types.CallToolResult:
    return await review(job.box, job.arguments["action"], tuple(job.arguments.get("paths", ())))


def _said(job: Job, result: Result) -> types.CallToolResult:
    if not result.ok:
        return _failed(job, result)
    said = shown(result.stdout.strip())
    return answers.answered(job.box.id, said, values={"said": said})


def _failed(job: Job, result: Result) -> types.CallToolResult:
    """A file tool that did not do it: refused, or the file is not as it should be."""
    if isinstance(result.ending, Refused):
        return answers.of_run(job.box.id, result, job.door)
    return answers.told(job.box.id, shown(result.stderr.strip()))


TOOLS: Final[dict[str, Callable[[Job], Awaitable[types.CallToolResult]]]] = {
    "run_code": run_code,
    "bash": bash,
    "read_file": read_file,
    "write_file": write_file,
    "edit_file": edit_file,
    "search_files": search_files,
    "fetch": fetch,
    "review": review_changes,
}
