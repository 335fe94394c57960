"""The server of one connection: lists the tools, checks arguments, runs calls, answers what went wrong in words."""

import asyncio
from importlib.metadata import version
from typing import Any, Final

import mcp_types as types
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # has no types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError

from ringfence.errors import Internal, RingfenceError
from ringfence.mcp import answers
from ringfence.mcp.asking import Asker
from ringfence.mcp.boxes import BoxSource, directory_of_root
from ringfence.mcp.calls import Call, Calls, digest_of
from ringfence.mcp.catalog import ToolText, hints_of, tools_for
from ringfence.mcp.early import INSTRUCTIONS
from ringfence.mcp.tools import TOOLS, Job
from ringfence.tools.world.browser import has_browser
from ringfence.tools.world.text import cut, shown

AT_ONCE: Final = 8
"""Calls that run side by side; others wait. A machine that runs fifty commands at once finishes none."""
MOST_CALLS: Final = 256
"""Calls that wait or run."""
_INVALID_PARAMS: Final = -32602
_NO_SANDBOX: Final = "none"


class Desk:
    """Takes requests."""

    def __init__(self, boxes: BoxSource) -> None:
        self._boxes = boxes
        self._calls = Calls()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._count = 0
        offered = tools_for(with_shadow=boxes.has_shadow, with_browser=has_browser())
        self._texts = {tool.name: tool for tool in offered}
        self._validators = {name: Draft202012Validator(tool.input_schema) for name, tool in self._texts.items()}

    def server(self) -> Server[Any]:
        return Server(
            "ringfence",
            version=version("ringfence"),
            title="Ringfence",
            instructions=INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
        )

    async def close(self) -> None:
        await self._calls.close()

    async def list_tools(
        self, context: ServerRequestContext[Any], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        powers = await self._boxes.powers()
        return types.ListToolsResult(tools=[_tool(text, hints_of(text, powers)) for text in self._texts.values()])

    async def call_tool(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult | types.InputRequiredResult:
        """
        Raises:
            MCPError: there is no such tool, as the protocol wants it.
        """
        if params.name not in self._texts:
            known = ", ".join(self._texts)
            raise MCPError(code=_INVALID_PARAMS, message=f"there is no tool {params.name[:60]!r}; there are {known}")
        arguments = params.arguments or {}
        if wrong := self._wrong(params.name, arguments):
            return answers.told(_NO_SANDBOX, wrong, "invalid_argument")
        digest = digest_of(params.name, arguments)
        if params.request_state is not None:
            call = self._calls.resumed(params.request_state, digest)
            if call is None:
                why = "This question is not open any longer: it was answered, has expired, or was about another call."
                return answers.told(_NO_SANDBOX, why, "question_not_open")
            call.answer(params.input_responses or {})  # type: ignore[arg-type]  # answers to what we asked
            return await self._calls.serve(call, context)
        parked = self._calls.resumed(digest, digest)
        if parked is not None:
            return await self._calls.serve(parked, context)
        if self._count >= MOST_CALLS:
            return answers.told(_NO_SANDBOX, f"{MOST_CALLS} calls wait already; wait for their results.", "busy")
        info = context.session.client_params
        capabilities = context.session.client_capabilities or types.ClientCapabilities()
        name = info.client_info.name if info is not None else ""
        call = Call(digest, capabilities, name, may_answer=self._boxes.may_answer)
        call.start(lambda own: self._work(own, params.name, arguments))
        return await self._calls.serve(call, context)

    def _wrong(self, name: str, arguments: dict[str, Any]) -> str:
        """What is wrong with arguments, for the model to correct; empty if nothing is."""
        fault = next(self._validators[name].iter_errors(arguments), None)
        if fault is None:
            return ""
        where = ".".join(map(str, fault.absolute_path)) or "the arguments"
        return f"{name}: {shown(where)}: {cut(shown(fault.message), 500)}"

    async def _work(self, call: Call, name: str, arguments: dict[str, Any]) -> types.CallToolResult:
        self._count += 1
        sandbox = _NO_SANDBOX
        turn = _Turn(self._slots)
        call.on_asking = turn.end
        try:
            await turn.begin()
            call.stage = "making the sandbox"
            box = await self._boxes.find(arguments.get("sandbox"), lambda: _root(call))
            sandbox = box.id
            call.stage = "running"
            box.confirmation.enter(call)
            try:
                return answers.result_of(sandbox, await TOOLS[name](Job(box, call, arguments, self._boxes.door)))
            finally:
                box.confirmation.leave(call)
        except RingfenceError as fault:
            return answers.failed(sandbox, fault, self._boxes.door)
        except Exception as fault:  # the outermost edge: the model is told, and the person sees it on stderr
            own = Internal(f"a fault of Ringfence's own: {type(fault).__name__}: {fault}", hint="tell the person")
            self._boxes.report(own)
            return answers.failed(sandbox, own, self._boxes.door)
        finally:
            turn.end()
            self._count -= 1


class _Turn:
    """A call's place among those that run. Whoever waits for a person gives it up, so that nobody waits behind them."""

    def __init__(self, slots: asyncio.Semaphore) -> None:
        self._slots = slots
        self._has_one = False

    async def begin(self) -> None:
        await self._slots.acquire()
        self._has_one = True

    def end(self) -> None:
        if self._has_one:
            self._has_one = False
            self._slots.release()


async def _root(call: Asker) -> str:
    assert isinstance(call, Call)
    return directory_of_root(await call.roots())


def _tool(text: ToolText, hints: Any) -> types.Tool:
    return types.Tool(
        name=text.name,
        title=text.title,
        description=text.description,
        input_schema=text.input_schema,
        output_schema=text.output_schema,
        annotations=types.ToolAnnotations(
            title=text.title,
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive,
            idempotent_hint=hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )
