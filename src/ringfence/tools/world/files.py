"""`file_read`, `file_write`, `file_edit`, `file_list` and `search`, by the file tools and under their rules."""

from __future__ import annotations

from typing import Any, Final

from ringfence.tools.editing import FileEditTool
from ringfence.tools.files import FileReadTool, FileWriteTool
from ringfence.tools.searching import FileListTool, SearchTool
from ringfence.tools.world.answers import PICTURE_BYTES, Picture, ToolAnswer, answered, of_run, told
from ringfence.tools.world.base import PATH, Arguments, Place, ToolSpec, WorldTool
from ringfence.tools.world.text import cut, shown
from ringfence.values.outcome import Refused, Result

MOST_LINES: Final = 2000
"""Of a file at once, if nobody says how many."""
_MOST_CHARACTERS: Final = 64 * 1024
_PICTURE_HEADS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
)


async def _read(place: Place, given: Arguments) -> ToolAnswer:
    result = await FileReadTool(place.owner, place.session_id).execute(given["path"])
    if not result.ok:
        return _failed(place, result)
    data = result.stdout_bytes
    kind = next((mime for head, mime in _PICTURE_HEADS if data.startswith(head)), "")
    values = {"size_bytes": len(data)}
    if kind and len(data) <= PICTURE_BYTES:
        return answered(f"{kind}, {len(data)} bytes", values=values, pictures=[Picture(kind, data)])
    if b"\0" in data[:8192]:
        return answered(f"It is no text: {len(data)} bytes. Look at it with bash.", values=values)
    return _lines(data, given.get("first_line", 1), given.get("lines", MOST_LINES))


def _lines(data: bytes, first: int, count: int) -> ToolAnswer:
    """Some lines of a text, and where to go on."""
    lines = data.decode("utf-8", "replace").split("\n")
    total = len(lines) - (lines[-1] == "")
    end = first - 1 + count
    chosen = "\n".join(lines[first - 1 : end])
    if len(chosen) > _MOST_CHARACTERS:
        whole = chosen[:_MOST_CHARACTERS].rfind("\n")
        end = first - 1 + chosen[:_MOST_CHARACTERS].count("\n") if whole > 0 else first
        chosen = chosen[:whole] if whole > 0 else cut(chosen.partition("\n")[0], _MOST_CHARACTERS)
    content = shown(chosen)
    values: dict[str, Any] = {"content": content, "total_lines": total, "size_bytes": len(data)}
    notes = []
    if end < total:
        values["next_line"] = end + 1
        notes.append(f"Lines {first} to {end} of {total}; go on with first_line {end + 1}.")
    if content != chosen:
        notes.append("Control and invisible characters are written out, such as \\x1b; an edit does not find these.")
    return answered(" ".join(notes), content or "(empty)", values=values)


async def _write(place: Place, given: Arguments) -> ToolAnswer:
    tool = FileWriteTool(place.owner, place.session_id)
    return _said(place, await tool.execute(given["path"], given["content"]))


async def _edit(place: Place, given: Arguments) -> ToolAnswer:
    tool = FileEditTool(place.owner, place.session_id)
    if "patch" in given:
        if "old" in given or "new" in given:
            return told("file_edit: give either a patch, or old and new", "invalid_argument")
        return _said(place, await tool.apply(given["path"], given["patch"]))
    if "old" not in given or "new" not in given:
        return told("file_edit: old and new belong together; or give a patch", "invalid_argument")
    everywhere = given.get("everywhere", False)
    return _said(place, await tool.execute(given["path"], given["old"], given["new"], everywhere=everywhere))


async def _list(place: Place, given: Arguments) -> ToolAnswer:
    tool = FileListTool(place.owner, place.session_id)
    return _found(place, await tool.execute(given.get("path", "."), depth=given.get("depth")))


async def _search(place: Place, given: Arguments) -> ToolAnswer:
    tool = SearchTool(place.owner, place.session_id)
    return _found(place, await tool.execute(given["pattern"], given.get("path", "."), names=given.get("names")))


def _found(place: Place, result: Result) -> ToolAnswer:
    if not result.ok:
        return _failed(place, result)
    text = cut(shown(result.stdout), _MOST_CHARACTERS)
    return answered(text or "Nothing was found.", values={"lines": text.splitlines()})


def _said(place: Place, result: Result) -> ToolAnswer:
    if not result.ok:
        return _failed(place, result)
    said = shown(result.stdout.strip())
    return answered(said, values={"said": said})


def _failed(place: Place, result: Result) -> ToolAnswer:
    """A file tool that did not do it: refused, or the file is not as it should be."""
    if isinstance(result.ending, Refused):
        return of_run(result, place)
    return told(shown(result.stderr.strip()))


FILE_READ: Final = WorldTool(
    ToolSpec(
        "file_read",
        "Read a file",
        "Read a file as commands in the sandbox see it: text by lines, pictures as pictures.",
        {
            "path": PATH,
            "first_line": {"type": "integer", "minimum": 1, "description": "Default: 1."},
            "lines": {"type": "integer", "minimum": 1, "description": f"How many; default: {MOST_LINES}."},
        },
        ("path",),
        {
            "content": {"type": "string"},
            "total_lines": {"type": "integer"},
            "next_line": {"type": "integer", "description": "Where to go on; missing at the end."},
            "size_bytes": {"type": "integer"},
        },
    ),
    _read,
)
FILE_WRITE: Final = WorldTool(
    ToolSpec(
        "file_write",
        "Write a file",
        "Make or replace a file; missing directories are made.",
        {"path": PATH, "content": {"type": "string"}},
        ("path", "content"),
        {"said": {"type": "string"}},
        changes=True,
    ),
    _write,
)
FILE_EDIT: Final = WorldTool(
    ToolSpec(
        "file_edit",
        "Change a part of a file",
        "Replace one text in a file by another. The old text has to be there exactly once, with its blanks and line "
        "ends: give enough of what is around it, or everywhere: true for all places. Or give a patch: a unified diff "
        "of this one file, whose lines have to fit the file.",
        {
            "path": PATH,
            "old": {"type": "string", "minLength": 1},
            "new": {"type": "string"},
            "everywhere": {"type": "boolean", "description": "Replace every place where the old text is."},
            "patch": {"type": "string", "minLength": 1, "description": "A unified diff, instead of old and new."},
        },
        ("path",),
        {"said": {"type": "string"}},
        changes=True,
    ),
    _edit,
)
FILE_LIST: Final = WorldTool(
    ToolSpec(
        "file_list",
        "List files",
        "List the files at or below a directory, a name on each line.",
        {
            "path": {**PATH, "description": "Default: the workspace."},
            "depth": {"type": "integer", "minimum": 1, "description": "How many levels; default: all."},
        },
        (),
        {"lines": {"type": "array", "items": {"type": "string"}}},
    ),
    _list,
)
SEARCH: Final = WorldTool(
    ToolSpec(
        "search",
        "Search files",
        "Find the lines that a regular expression (Python's) matches in the files below a directory, as path:line: "
        "text. Files that git keeps for itself, binary and very large ones are left out.",
        {
            "pattern": {"type": "string", "minLength": 1},
            "path": {**PATH, "description": "Default: the workspace."},
            "names": {"type": "string", "minLength": 1, "description": "Only files of such names: *.py, src/**/*.c"},
        },
        ("pattern",),
        {"lines": {"type": "array", "items": {"type": "string"}}},
    ),
    _search,
)
