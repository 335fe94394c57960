"""`WorldInterface`: every tool of an agent behind one door (requirement E8).

    world = WorldInterface(SandboxManager("session_123"))
    answer = await world.execute("run_code", {"code": "6 * 7"})
    print(answer.text)

Whatever is asked, and whatever comes of it, the answer has one shape. A refusal, a fault of the machine and arguments
that make no sense are answers too, with `is_error` and a code: a model can read them and do something else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ringfence.errors import InvalidArgument, RingfenceError
from ringfence.manager.manager import SandboxManager
from ringfence.manager.sandbox import Sandbox
from ringfence.tools.world.answers import ToolAnswer, failed, told
from ringfence.tools.world.arguments import check_schema, wrong_with
from ringfence.tools.world.base import Place, ToolSpec, WorldTool, place_for
from ringfence.tools.world.browser import BROWSER_TOOLS, has_browser
from ringfence.tools.world.files import FILE_EDIT, FILE_LIST, FILE_READ, FILE_WRITE, SEARCH
from ringfence.tools.world.running import BASH, RUN_CODE
from ringfence.tools.world.text import shown
from ringfence.tools.world.web import FETCH, HTTP

EVERY: Final = (RUN_CODE, BASH, FILE_READ, FILE_WRITE, FILE_EDIT, FILE_LIST, SEARCH, FETCH, HTTP)
"""Those that need no browser."""


def tools_here() -> tuple[WorldTool, ...]:
    """All that this machine can offer: with `browser_*`, where there is a browser."""
    return (*EVERY, *BROWSER_TOOLS) if has_browser() else EVERY


class WorldInterface:
    """
    Args:
        session: a sandbox, or a manager whose session it is. It is the caller's to close.
        session_id: the session of a manager, if not its own.
        tools: those that are offered; if not given, all of them, with `browser_*` where this machine has a browser.

    Raises:
        InvalidArgument: a manager without a session.
    """

    def __init__(
        self,
        session: Sandbox | SandboxManager,
        *,
        session_id: str | None = None,
        tools: Iterable[WorldTool] | None = None,
    ) -> None:
        self._place = place_for(session, session_id)
        self._tools: dict[str, WorldTool] = {}
        for tool in tools_here() if tools is None else tools:
            self.add(tool)

    def add(self, tool: WorldTool) -> None:
        """Offer one more tool.

        Raises:
            InvalidArgument: there is one of that name, or its schema says something that would not be checked.
        """
        if tool.name in self._tools:
            raise InvalidArgument(f"there is a tool {tool.name!r} already", hint="give it another name")
        check_schema(tool.spec.input_schema, f"tool {tool.name}")
        self._tools[tool.name] = tool

    @property
    def tools(self) -> tuple[ToolSpec, ...]:
        """What is offered, as a model sees it; `ringfence.tools.schemas` writes it for a provider."""
        return tuple(tool.spec for tool in self._tools.values())

    async def execute(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolAnswer:
        """Call a tool. Never raises for what a model did; cancelling it ends what runs."""
        tool = self._tools.get(name)
        if tool is None:
            return told(f"there is no tool {shown(name[:60])!r}; there are {', '.join(self._tools)}", "no_such_tool")
        return await call_tool(tool, self._place, arguments or {})

    def __repr__(self) -> str:
        return f"<WorldInterface {', '.join(self._tools)}>"


async def call_tool(tool: WorldTool, place: Place, arguments: Mapping[str, Any]) -> ToolAnswer:
    """One call of one tool, its arguments checked first."""
    if wrong := wrong_with(arguments, tool.spec.input_schema):
        return told(f"{tool.name}: {shown(wrong)}", "invalid_argument")
    try:
        return await tool.call(place, arguments)
    except RingfenceError as fault:
        return failed(fault, place.door, place.only_the_person)
