"""The tools as clients see them: those of `WorldInterface` under names of their own, each with the sandbox as a handle.

Eight at most: with more, models choose worse.
"""

from dataclasses import dataclass
from typing import Any, Final

from ringfence.mcp.hints import Powers
from ringfence.tools.world.base import Schema, ToolSpec
from ringfence.tools.world.browser import BROWSER as WORLD_BROWSER
from ringfence.tools.world.files import FILE_EDIT, FILE_READ, FILE_WRITE, SEARCH
from ringfence.tools.world.running import BASH as WORLD_BASH
from ringfence.tools.world.running import RUN_CODE as WORLD_RUN_CODE
from ringfence.tools.world.web import FETCH as WORLD_FETCH

NEW: Final = "new"
"""As a sandbox's id: make one."""
MAIN: Final = "main"
"""The one that is meant if none is named."""

_SANDBOX: Final[Schema] = {
    "type": "string",
    "description": f"Id of the sandbox, from an earlier result; '{NEW}' makes another one over the same workspace, "
    f"with its own interpreter and /tmp. Default: '{MAIN}'.",
}


@dataclass(frozen=True, slots=True)
class ToolText:
    """One tool, but for its hints."""

    name: str
    spec: ToolSpec

    @property
    def title(self) -> str:
        return self.spec.title

    @property
    def description(self) -> str:
        return self.spec.description

    @property
    def input_schema(self) -> Schema:
        return _with(self.spec.input_schema, {"sandbox": _SANDBOX})

    @property
    def output_schema(self) -> Schema:
        schema = _with(self.spec.output_schema, {"sandbox": {"type": "string"}})
        return {**schema, "required": ["sandbox", *schema["required"]]}


def _with(schema: Schema, more: dict[str, Any]) -> Schema:
    return {**schema, "properties": {**schema["properties"], **more}}


RUN_CODE: Final = ToolText("run_code", WORLD_RUN_CODE.spec)
BASH: Final = ToolText("bash", WORLD_BASH.spec)
READ_FILE: Final = ToolText("read_file", FILE_READ.spec)
WRITE_FILE: Final = ToolText("write_file", FILE_WRITE.spec)
EDIT_FILE: Final = ToolText("edit_file", FILE_EDIT.spec)
SEARCH_FILES: Final = ToolText(
    "search_files",
    ToolSpec(
        "search_files",
        "List or search files",
        "List the files below a directory, or, with a pattern, the lines that a regular expression (Python's) finds in "
        "them, as path:line: text.",
        SEARCH.spec.properties,
        (),
        SEARCH.spec.results,
    ),
)
FETCH: Final = ToolText("fetch", WORLD_FETCH.spec)
REVIEW: Final = ToolText(
    "review",
    ToolSpec(
        "review",
        "Review or commit what was changed",
        "All changes are in a shadow of the project: nothing has reached the project yet. 'diff' shows them; 'commit' "
        "asks the person, carries them over to the project and starts the sandbox anew: files stay, variables do not.",
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
        changes=True,
    ),
)

BROWSER: Final = ToolText("browser", WORLD_BROWSER.spec)

EVERY: Final = (RUN_CODE, BASH, READ_FILE, WRITE_FILE, EDIT_FILE, SEARCH_FILES, FETCH, REVIEW, BROWSER)
MOST_TOOLS: Final = 8


def tools_for(*, with_shadow: bool, with_browser: bool) -> tuple[ToolText, ...]:
    """Those that make sense: without a shadow there is nothing to review, and where all would be one too many, the
    browser fetches, too."""
    has = {REVIEW.name: with_shadow, BROWSER.name: with_browser}
    found = tuple(tool for tool in EVERY if has.get(tool.name, True))
    return found if len(found) <= MOST_TOOLS else tuple(tool for tool in found if tool is not FETCH)


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
        case "fetch" | "browser":  # what is asked for can tell somebody something, and files are saved
            return Hints(False, False, False, powers.reaches_network)
        case _:  # review: a commit changes the project
            return Hints(False, True, False, False)
