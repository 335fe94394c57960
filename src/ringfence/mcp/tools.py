"""What each tool does: a call of one of the tools of the world, over the sandbox that was named."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ringfence.mcp.answers import ONLY_THE_PERSON
from ringfence.mcp.boxes import OpenBox
from ringfence.mcp.calls import Call
from ringfence.mcp.reviewing import review
from ringfence.tools.world.answers import ToolAnswer
from ringfence.tools.world.base import Place, WorldTool
from ringfence.tools.world.browser import BROWSER
from ringfence.tools.world.files import FILE_EDIT, FILE_LIST, FILE_READ, FILE_WRITE, SEARCH
from ringfence.tools.world.running import BASH, RUN_CODE
from ringfence.tools.world.web import FETCH
from ringfence.values.remedy import Door
from ringfence.values.request import Stream

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

    @property
    def place(self) -> Place:
        return Place(
            owner=self.box.sandbox,
            options=self.box.options,
            name=self.box.id,
            door=self.door,
            only_the_person=ONLY_THE_PERSON,
            on_output=self.listen,
        )


def _by(tool: WorldTool) -> Callable[[Job], Awaitable[ToolAnswer]]:
    return lambda job: tool.call(job.place, job.arguments)


async def _search_files(job: Job) -> ToolAnswer:
    return await (SEARCH if "pattern" in job.arguments else FILE_LIST).call(job.place, job.arguments)


async def _review(job: Job) -> ToolAnswer:
    return await review(job.box, job.arguments["action"], tuple(job.arguments.get("paths", ())))


TOOLS: Final[dict[str, Callable[[Job], Awaitable[ToolAnswer]]]] = {
    "run_code": _by(RUN_CODE),
    "bash": _by(BASH),
    "read_file": _by(FILE_READ),
    "write_file": _by(FILE_WRITE),
    "edit_file": _by(FILE_EDIT),
    "search_files": _search_files,
    "fetch": _by(FETCH),
    "review": _review,
    "browser": _by(BROWSER),
}
