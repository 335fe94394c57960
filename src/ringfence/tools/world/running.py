"""`run_code` and `bash`: what runs in the box."""

from __future__ import annotations

from typing import Final

from ringfence.manager.policing import CODE_TOOL, SHELL_TOOL
from ringfence.tools.world.answers import ToolAnswer, of_run
from ringfence.tools.world.base import TIMEOUT, Arguments, Place, Schema, ToolSpec, WorldTool
from ringfence.values.request import Overflow

OUTPUT_BYTES: Final = 32 * 1024
"""Of each stream of a command: its beginning and its end."""

RUN_RESULTS: Final[Schema] = {
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


async def _run_code(place: Place, given: Arguments) -> ToolAnswer:
    async with place.sandbox(CODE_TOOL) as sandbox:
        result = await sandbox.code(
            given.get("language", "python"),
            given["code"],
            timeout=given.get("timeout"),
            overflow=Overflow.KEEP_ENDS,
            output_limit=OUTPUT_BYTES,
            on_output=place.on_output,
        )
    return of_run(result, place)


async def _bash(place: Place, given: Arguments) -> ToolAnswer:
    async with place.sandbox(SHELL_TOOL) as sandbox:
        result = await sandbox.shell(
            given["command"],
            cwd=given.get("cwd"),
            context=given.get("shell"),
            stdin=given.get("stdin"),
            timeout=given.get("timeout"),
            keep_background=given.get("background", False),
            overflow=Overflow.KEEP_ENDS,
            output_limit=OUTPUT_BYTES,
            on_output=place.on_output,
        )
    return of_run(result, place)


RUN_CODE: Final = WorldTool(
    ToolSpec(
        "run_code",
        "Run code in the sandbox",
        "Run a piece of code in a sandbox. Python keeps its variables, imports and functions from call to call, shows "
        "the value of the last expression, and returns matplotlib figures as pictures. The workspace, HOME and /tmp "
        "can be written and stay between calls; nothing else of the machine is visible. If something is refused, the "
        "result says by which rule and what the person could do: tell the person, do not look for a way around.",
        {
            "code": {"type": "string", "description": "The code."},
            "language": {
                "type": "string",
                "description": "python (default), javascript, typescript, bash, ...; what the machine has.",
            },
            "timeout": TIMEOUT,
        },
        ("code",),
        RUN_RESULTS,
        changes=True,
    ),
    _run_code,
)
BASH: Final = WorldTool(
    ToolSpec(
        "bash",
        "Run a shell command in the sandbox",
        "Run a command line with the shell in a sandbox. It starts in the workspace; files in the workspace, HOME and "
        "/tmp stay between calls. What it leaves running is ended with it, unless background is true. Of long output "
        "the beginning and the end are returned: redirect it to a file and look at the rest with grep or by lines.",
        {
            "command": {"type": "string", "description": "The command line."},
            "cwd": {"type": "string", "description": "Where it runs; default: the workspace."},
            "shell": {
                "type": "string",
                "description": "Name of a shell that keeps its directory, variables and functions from call to call.",
            },
            "background": {"type": "boolean", "description": "Leave what it starts running, such as a server."},
            "stdin": {"type": "string", "description": "What it reads on standard input."},
            "timeout": TIMEOUT,
        },
        ("command",),
        RUN_RESULTS,
        changes=True,
    ),
    _bash,
)
