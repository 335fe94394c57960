"""What a tool of the world is: what a model reads about it, and what it does.

A new tool is one module with a `WorldTool`, and its line in `interface.py`; a tool of somebody else's is handed to
`WorldInterface.add`. Schemas of arguments use plain types only: some clients drop a tool whose schema has anything
else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument
from ringfence.manager.manager import SandboxManager
from ringfence.manager.options import SandboxOptions
from ringfence.manager.sandbox import Sandbox
from ringfence.tools.world.answers import ToolAnswer
from ringfence.values.remedy import Door
from ringfence.values.request import OnOutput

Schema = dict[str, Any]
Arguments = Mapping[str, Any]

OPERATOR: Final = (
    "Only the operator of this sandbox can change this. Tell them what you need and why; do not try to get around it."
)


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as a model sees it."""

    name: str
    title: str
    description: str
    """One paragraph for a model: what it does, what stays between calls, what to do when it is refused."""
    properties: Schema
    required: tuple[str, ...]
    results: Schema
    """Of `ToolAnswer.values`, besides those that every answer has."""
    changes: bool = False
    """Whether a call may change something in the workspace."""
    reaches_out: bool = False
    """Whether a call may reach hosts."""

    @property
    def input_schema(self) -> Schema:
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
            "additionalProperties": False,
        }

    @property
    def output_schema(self) -> Schema:
        return {"type": "object", "properties": {**COMMON, **self.results}, "required": ["ok"]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a call works, and in whose words it is answered."""

    owner: Sandbox | SandboxManager
    session_id: str | None = None
    """The session of a manager."""
    options: SandboxOptions
    """What the tools outside the box may reach follows from them."""
    name: str = ""
    """What the model knows the sandbox as; empty if there is only one."""
    door: Door = Door.AGENT
    only_the_person: str = OPERATOR
    """What a model is told after a refusal."""
    on_output: OnOutput | None = None
    """Told what a command says, as it comes."""

    @asynccontextmanager
    async def sandbox(self, tool: str) -> AsyncIterator[Sandbox]:
        """The sandbox for one call, judged as one of the policy's tools."""
        if isinstance(self.owner, Sandbox):
            yield self.owner
            return
        async with self.owner.in_session(tool, session_id=self.session_id) as sandbox:
            yield sandbox


Call = Callable[[Place, Arguments], Awaitable[ToolAnswer]]


@dataclass(frozen=True, slots=True)
class WorldTool:
    """A tool: what a model reads, and what a call of it does with arguments that fit its schema."""

    spec: ToolSpec
    call: Call

    @property
    def name(self) -> str:
        return self.spec.name


def place_for(owner: Sandbox | SandboxManager, session_id: str | None) -> Place:
    """
    Raises:
        InvalidArgument: a manager without a session, or a sandbox with one.
    """
    if isinstance(owner, SandboxManager):
        chosen = session_id or owner.session_id
        if chosen is None:
            raise InvalidArgument("a manager without a session keeps nothing between calls", hint="give session_id=")
        return Place(owner=owner, session_id=chosen, options=owner.options)
    if session_id is not None:
        raise InvalidArgument("a sandbox has no sessions", argument="session_id", hint="leave session_id out")
    return Place(owner=owner, options=owner.options)


# --- parts of schemas -------------------------------------------------------------------------------------------------

COMMON: Final[Schema] = {
    "ok": {"type": "boolean"},
    "error": {"type": "string", "description": "Why it did not succeed."},
    "error_code": {"type": "string"},
    "refusals": {
        "type": "array",
        "description": "What was refused, by which rule, and what the person could do to allow it.",
        "items": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("what", "rule", "remedy", "severity")},
            "required": ["what", "rule"],
        },
    },
}
PATH: Final[Schema] = {"type": "string", "minLength": 1, "description": "Relative to the workspace, or absolute."}
TIMEOUT: Final[Schema] = {
    "type": "number",
    "exclusiveMinimum": 0,
    "description": "Seconds after which it is ended; a policy may allow less.",
}
