"""Answers what a client asks first, before the SDK is loaded, which takes seconds that some clients do not wait.

`initialize`, `server/discover`, `tools/list` and `ping` in their plainest form are answered here, with what the SDK
would say; a test holds the two against each other. Every line is kept and given to the SDK afterwards, which so has the
same state as if it had been there from the start; what it answers to requests that were answered already is not
written. The first line that is anything else waits for the SDK, with all that come after it.
"""

import importlib
import json
import os
import select
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Final

from ringfence.mcp.catalog import ToolText, hints_of, tools_for
from ringfence.mcp.hints import Powers
from ringfence.mcp.lines import PIECE, Lines
from ringfence.tools.world.browser import has_browser

INSTRUCTIONS: Final = (
    "Commands, code and files run in a sandbox around the person's workspace. What is refused stays refused until the "
    "person allows it: say what you need and why."
)
HANDSHAKE_VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
MODERN_VERSION: Final = "2026-07-28"
_META: Final = "io.modelcontextprotocol/"
_HEAVY: Final = "ringfence.mcp.serving"
_IDLE_SECONDS: Final = 0.3
"""Without a line for so long, the SDK is loaded: the client waits for something else."""

RequestId = int | str


@dataclass(slots=True)
class Backlog:
    """What was read before the SDK came."""

    lines: list[bytes | None] = field(default_factory=list)
    rest: Lines = field(default_factory=Lines)
    """With the beginning of a line that is not whole yet."""
    answered: set[RequestId] = field(default_factory=set)
    is_over: bool = False
    """The client is gone, and nothing waits for an answer."""


class Early:
    """
    Args:
        powers: what the tools may do, found when it is asked for.
        load: what takes long.
    """

    def __init__(
        self,
        source: int,
        target: int,
        powers: Callable[[], Powers],
        *,
        with_shadow: bool,
        load: Callable[[], object] = lambda: importlib.import_module(_HEAVY),
    ) -> None:
        self._source = source
        self._target = target
        self._powers = powers
        self._with_shadow = with_shadow
        self._load = load
        self._is_initialized = False

    def answer(self) -> Backlog:
        """Until the SDK is needed and loaded, or the client is gone.

        Raises:
            ImportError: it cannot be loaded.
        """
        backlog = Backlog()
        faults: list[BaseException] = []
        loading = threading.Thread(target=self._loading, args=(faults,), name="loading", daemon=True)
        is_loading = is_needed = False
        while not is_needed:
            if is_loading and not loading.is_alive():
                break
            if not select.select([self._source], [], [], 0.02 if is_loading else _IDLE_SECONDS)[0]:
                if not is_loading:
                    loading.start()
                    is_loading = True
                continue
            piece = os.read(self._source, PIECE)
            if not piece:
                backlog.is_over = True
                break
            for line in backlog.rest.add(piece):
                backlog.lines.append(line)
                # In order: behind one that has to wait, all wait.
                is_needed = is_needed or not self._answered(line, backlog)
        if backlog.is_over and not is_needed:
            return backlog
        backlog.is_over = False
        if not is_loading:
            loading.start()
        loading.join()
        if faults:
            raise faults[0]
        return backlog

    def _loading(self, faults: list[BaseException]) -> None:
        try:
            self._load()
        except BaseException as fault:  # raised where somebody waits for it
            faults.append(fault)

    def _answered(self, line: bytes | None, backlog: Backlog) -> bool:
        """Whether nothing is left to do for a line now."""
        try:
            message = json.loads(line or b"")
        except (ValueError, RecursionError):
            return line is not None and not line.strip()
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            return False
        if message.keys() <= {"jsonrpc", "method", "params"} and message.get("method") == "notifications/initialized":
            return True
        number = message.get("id")
        if isinstance(number, bool) or not isinstance(number, int | str) or number in backlog.answered:
            return False
        params = message.get("params", {})
        if message.keys() - {"jsonrpc", "id", "method", "params"} or not isinstance(params, dict):
            return False
        result = self._result(message.get("method"), params)
        if result is None:
            return False
        backlog.answered.add(number)
        self._write(json.dumps({"jsonrpc": "2.0", "id": number, "result": result}).encode() + b"\n")
        return True

    def _result(self, method: object, params: dict[str, Any]) -> dict[str, Any] | None:
        is_modern = is_plain_modern(params)
        match method:
            case "initialize" if not self._is_initialized and is_plain_hello(params):
                self._is_initialized = True
                return initialized(params["protocolVersion"])
            case "server/discover" if is_modern and params.keys() == {"_meta"}:
                return discovered()
            case "tools/list" if is_modern and params.keys() == {"_meta"}:
                return {**_COMPLETE, "tools": self._tools(), "_meta": _named()}
            case "tools/list" if self._is_initialized and not params:
                return {"tools": self._tools()}
            case "ping" if self._is_initialized and not params:
                return {}
            case _:
                return None

    def _tools(self) -> list[dict[str, Any]]:
        powers = self._powers()
        offered = tools_for(with_shadow=self._with_shadow, with_browser=has_browser())
        return [tool_of(text, powers) for text in offered]

    def _write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._target, rest) :]


_COMPLETE: Final = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
_CAPABILITIES: Final = {"tools": {"listChanged": False}}


def server_info() -> dict[str, str]:
    return {"name": "ringfence", "title": "Ringfence", "version": version("ringfence")}


def initialized(asked: str) -> dict[str, Any]:
    chosen = asked if asked in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1]
    return {
        "protocolVersion": chosen,
        "capabilities": _CAPABILITIES,
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    }


def discovered() -> dict[str, Any]:
    return {
        **_COMPLETE,
        "supportedVersions": [MODERN_VERSION],
        "capabilities": _CAPABILITIES,
        "instructions": INSTRUCTIONS,
        "_meta": _named(),
    }


def _named() -> dict[str, Any]:
    return {f"{_META}serverInfo": server_info()}


def tool_of(text: ToolText, powers: Powers) -> dict[str, Any]:
    hints = hints_of(text, powers)
    return {
        "name": text.name,
        "title": text.title,
        "description": text.description,
        "inputSchema": text.input_schema,
        "outputSchema": text.output_schema,
        "annotations": {
            "title": text.title,
            "readOnlyHint": hints.read_only,
            "destructiveHint": hints.destructive,
            "idempotentHint": hints.idempotent,
            "openWorldHint": hints.open_world,
        },
    }


def is_plain_hello(params: dict[str, Any]) -> bool:
    info = params.get("clientInfo")
    return (
        isinstance(params.get("protocolVersion"), str)
        and isinstance(params.get("capabilities"), dict)
        and isinstance(info, dict)
        and isinstance(info.get("name"), str)
        and isinstance(info.get("version"), str)
        and params.keys() <= {"protocolVersion", "capabilities", "clientInfo"}
    )


def is_plain_modern(params: dict[str, Any]) -> bool:
    meta = params.get("_meta")
    return (
        isinstance(meta, dict)
        and meta.get(f"{_META}protocolVersion") == MODERN_VERSION
        and isinstance(meta.get(f"{_META}clientCapabilities"), dict)
    )
