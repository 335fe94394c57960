"""The tools as clients see them: names, what they say to a model, schemas of arguments and results, hints.

Eight at most: with more, models choose worse. Schemas of arguments use plain types only; some clients drop a tool whose
schema has anything else.
"""

from dataclasses import dataclass
from typing import Any, Final

from ringfence.mcp.hints import Powers

Schema = dict[str, Any]

NEW: Final = "new"
"""As a sandbox's id: make one."""
MAIN: Final = "main"
"""The one that is meant if none is named."""
OUTPUT_BYTES: Final = 32 * 1024
"""Of each stream of a command."""
MOST_LINES: Final = 2000
"""Of a file at once, if nobody says how many."""

_SANDBOX: Final[Schema] = {
    "type": "string",
    "description": f"Id of the sandbox, from an earlier result; '{NEW}' makes another one over the same workspace, "
    f"with its own interpreter and /tmp. Default: '{MAIN}'.",
}
_TIMEOUT: Final[Schema] = {
    "type": "number",
    "exclusiveMinimum": 0,
    "description": "Seconds after which it is ended; a policy may allow less.",
}
_PATH: Final[Schema] = {"type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute."}

_REFUSALS: Final[Schema] = {
    "type": "array",
    "description": "What was refused, by which rule, and what the person could do to allow it.",
    "items": {
        "type": "object",
        "properties": {name: {"type": "string"} for name in ("what", "rule", "remedy", "severity")},
        "required": ["what", "rule"],
    },
}
_COMMON: Final[Schema] = {
    "sandbox": {"type": "string"},
    "ok": {"type": "boolean"},
    "error": {"type": "string", "description": "Why it did not succeed."},
    "error_code": {"type": "string"},
    "refusals": _REFUSALS,
}
_RUN: Final[Schema] = {
    "ending": {"type": "string", "enum": ["exited", "signalled", "timed_out", "limit_hit", "refused", "failed"]},
    "exit_code": {"type": "integer"},
    "stdout": {"type": "string"},
    "stderr": {"type": "string"},
    "stdout_dropped": {"type": "integer", "description": "Bytes that are left out in the middle."},
    "stderr_dropped": {"type": "integer"},
    "value": {"type": "string", "description": "Of the last expression of code."},
    "exception": {"type": "string"},
    "pictures": {"type": "integer", "description": "How many pictures follow as image content."},
    "state_kept": {"type": "boolean", "description": "False: the interpreter's or shell's earlier state is gone."},
    "seconds": {"type": "number"},
    "run_id": {"type": "string", "description": "Its record in the journal."},
}


@dataclass(frozen=True, slots=True)
class ToolText:
    """One tool, but for its hints."""

    name: str
    title: str
    description: str
    properties: Schema
    required: tuple[str, ...]
    results: Schema

    @property
    def input_schema(self) -> Schema:
        return {
            "type": "object",
            "properties": {**self.properties, "sandbox": _SANDBOX},
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> Schema:
        return {"type": "object", "properties": {**_COMMON, **self.results}, "required": ["sandbox", "ok"]}


RUN_CODE: Final = ToolText(
    "run_code",
    "Run code in the sandbox",
    "Run a piece of code in a sandbox. Python keeps its variables, imports and functions from call to call, shows the "
    "value of the last expression, and returns matplotlib figures as pictures. The workspace, HOME and /tmp can be "
    "written and stay between calls; nothing else of the machine is visible. If something is refused, the result says "
    "by which rule and what the person could do: tell the person, do not look for a way around.",
    {
        "code": {"type": "string", "description": "The code."},
        "language": {
            "type": "string",
            "description": "python (default), javascript, typescript, bash, ...; what the machine has.",
        },
        "timeout": _TIMEOUT,
    },
    ("code",),
    _RUN,
)
BASH: Final = ToolText(
    "bash",
    "Run a shell command in the sandbox",
    "Run a command line with the shell in a sandbox. It starts in the workspace; files in the workspace, HOME and /tmp "
    "stay between calls. What it leaves running is ended with it, unless background is true. Of long output the "
    "beginning and the end are returned: redirect it to a file and use read_file or grep for the rest.",
    {
        "command": {"type": "string", "description": "The command line."},
        "cwd": {"type": "string", "description": "Where it runs; default: the workspace."},
        "shell": {
            "type": "string",
            "description": "Name of a shell that keeps its directory, variables and functions from call to call.",
        },
        "background": {"type": "boolean", "description": "Leave what it starts running, such as a server."},
        "stdin": {"type": "string", "description": "What it reads on standard input."},
        "timeout": _TIMEOUT,
    },
    ("command",),
    _RUN,
)
READ_FILE: Final = ToolText(
    "read_file",
    "Read a file",
    "Read a file as commands in the sandbox see it: text by lines, pictures as pictures.",
    {
        "path": _PATH,
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
)
WRITE_FILE: Final = ToolText(
    "write_file",
    "Write a file",
    "Make or replace a file; missing directories are made.",
    {"path": _PATH, "content": {"type": "string"}},
    ("path", "content"),
    {"said": {"type": "string"}},
)
EDIT_FILE: Final = ToolText(
    "edit_file",
    "Change a part of a file",
    "Replace one text in a file by another. The old text has to be there exactly once, with its blanks and line ends: "
    "give enough of what is around it.",
    {"path": _PATH, "old": {"type": "string", "minLength": 1}, "new": {"type": "string"}},
    ("path", "old", "new"),
    {"said": {"type": "string"}},
)
SEARCH_FILES: Final = ToolText(
    "search_files",
    "List or search files",
    "List the files below a directory, or, with a pattern, the lines that a regular expression (Python's) finds in "
    "them, as path:line: text.",
    {"pattern": {"type": "string", "minLength": 1}, "path": {**_PATH, "description": "Default: the workspace."}},
    (),
    {"lines": {"type": "array", "items": {"type": "string"}}},
)
FETCH: Final = ToolText(
    "fetch",
    "Fetch a web page",
    "Fetch a page as Markdown, or a picture, PDF or other file into the workspace. Only hosts that the person has "
    "allowed can be reached; each request is recorded.",
    {
        "url": {"type": "string", "minLength": 1},
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
)
REVIEW: Final = ToolText(
    "review",
    "Review or commit what was changed",
    "All changes are in a shadow of the project: nothing has reached the project yet. 'diff' shows them; 'commit' asks "
    "the person, carries them over to the project and starts the sandbox anew: files stay, variables do not.",
    {
        "action": {"type": "string", "enum": ["diff", "commit"]},
        "paths": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Only these, with all below them; default: everything.",
        },
    },
    ("action",),
    {
        "changes": {"type": "array", "items": {"type": "string"}},
        "patch": {"type": "string"},
        "committed": {"type": "array", "items": {"type": "string"}},
        "shadow": {"type": "string"},
    },
)

EVERY: Final = (RUN_CODE, BASH, READ_FILE, WRITE_FILE, EDIT_FILE, SEARCH_FILES, FETCH, REVIEW)


def tools_for(*, with_shadow: bool) -> tuple[ToolText, ...]:
    """Those that make sense: without a shadow there is nothing to review."""
    return tuple(tool for tool in EVERY if with_shadow or tool is not REVIEW)


@dataclass(frozen=True, slots=True)
class Hints:
    read_only: bool
    destructive: bool
    idempotent: bool
    open_world: bool


def hints_of(tool: ToolText, powers: Powers) -> Hints:
    """What a call of a tool may do, by what is granted."""
    match tool.name:
        case "run_code" | "bash":
            return Hints(powers.runs_harmlessly, powers.changes_project, False, powers.reaches_network)
        case "read_file" | "search_files":
            return Hints(True, False, True, False)
        case "write_file" | "edit_file":
            return Hints(False, powers.changes_project, tool.name == "write_file", False)
        case "fetch":  # what is asked for can tell somebody something, and files are saved
            return Hints(False, False, False, powers.reaches_network)
        case _:  # review: a commit changes the project
            return Hints(False, True, False, False)
