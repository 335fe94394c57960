"""Installed bundles as tools: each is one, with the arguments that its signed manifest declares.

    async with Sandbox(engine="wasi") as sandbox:
        world = WorldInterface(sandbox, tools=(*EVERY, *bundle_tools()))
        answer = await world.execute("acme__words", {"args": ["notes.txt"]})

A call is a command of the sandbox: judged, asked about and recorded as one, under the bundle's name.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Final

from ringfence.errors import InvalidArgument
from ringfence.manager.bundling import Bundles
from ringfence.manager.policing import SHELL_TOOL
from ringfence.tools.world.answers import ToolAnswer, of_run
from ringfence.tools.world.arguments import check_schema
from ringfence.tools.world.base import TIMEOUT, Arguments, Place, ToolSpec, WorldTool
from ringfence.tools.world.running import OUTPUT_BYTES, RUN_RESULTS
from ringfence.values.request import Overflow

if TYPE_CHECKING:
    from ringfence.bundles.manifest import Manifest

_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_-]")
_NAME_MAX: Final = 64
_TIMEOUT: Final = "timeout"


def bundle_tools(bundles: Bundles | None = None) -> tuple[WorldTool, ...]:
    """The installed tools, each verified now; and again with every call, by the engine.

    Raises:
        BundleRefused: one of them may not run.
        InvalidArgument: one declares arguments that would not be checked.
    """
    return tuple(_tool(manifest) for manifest in (bundles or Bundles()).manifests())


def tool_name(bundle: str) -> str:
    """A bundle's name as every provider takes one: `acme/words` is `acme__words`."""
    return _NOT_IN_NAMES.sub("-", bundle.replace("/", "__"))[:_NAME_MAX]


def _tool(manifest: Manifest) -> WorldTool:
    properties = dict(manifest.arguments["properties"])
    if manifest.input == "json" and _TIMEOUT in properties:
        raise InvalidArgument(f"{manifest.name}: an argument called {_TIMEOUT!r} would never reach the tool")
    spec = ToolSpec(
        tool_name(manifest.name),
        f"{manifest.name} {manifest.version}",
        manifest.description or f"The portable tool {manifest.name}; it sees the workspace only.",
        {**properties, _TIMEOUT: TIMEOUT},
        tuple(manifest.arguments.get("required", ())),
        RUN_RESULTS,
        changes=any(mount.mode == "read-write" for mount in manifest.mounts),
    )
    check_schema(spec.input_schema, f"tool {manifest.name}")
    return WorldTool(spec, partial(_call, manifest))


async def _call(manifest: Manifest, place: Place, given: Arguments) -> ToolAnswer:
    arguments = {name: value for name, value in given.items() if name != _TIMEOUT}
    is_json = manifest.input == "json"
    async with place.sandbox(SHELL_TOOL) as sandbox:
        result = await sandbox.exec(
            [manifest.name, *([] if is_json else arguments.get("args", ()))],
            stdin=json.dumps(arguments, ensure_ascii=False, sort_keys=True).encode() if is_json else None,
            timeout=given.get(_TIMEOUT),
            overflow=Overflow.KEEP_ENDS,
            output_limit=OUTPUT_BYTES,
            on_output=place.on_output,
        )
    return of_run(result, place)
