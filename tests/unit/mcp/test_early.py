"""What is answered before the SDK is loaded is what the SDK would have said."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage

from ringfence.manager.options import SandboxOptions
from ringfence.mcp.boxes import Boxes, Settings, find_powers
from ringfence.mcp.early import Backlog, Early
from ringfence.mcp.server import Desk

VERSION = "io.modelcontextprotocol/protocolVersion"
META = {
    VERSION: "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}
INFO = {"name": "t", "version": "1"}


def request(method: str, number: int | str = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, **({"params": params} if params else {})}


def hello(version: str, number: int = 0) -> dict[str, Any]:
    return request("initialize", number, protocolVersion=version, capabilities={}, clientInfo=INFO)


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
TALKS = {
    "old": [hello("2025-06-18"), INITIALIZED, request("tools/list", 1), request("ping", "p")],
    "oldest": [hello("2024-11-05"), INITIALIZED, request("tools/list", 1)],
    "unknown": [hello("1999-01-01")],
    "newer": [hello("2026-07-28")],
    "modern": [request("server/discover", 0, _meta=META), request("tools/list", 1, _meta=META)],
}


def early(settings: Settings, lines: bytes, loads: list[int] | None = None) -> tuple[list[Any], Backlog]:
    """What is said to a client that sends these lines and goes."""
    source, sender = os.pipe()
    receiver, target = os.pipe()
    os.write(sender, lines)
    os.close(sender)
    said: list[bytes] = []
    reading = threading.Thread(target=lambda: said.extend(iter(lambda: os.read(receiver, 65536), b"")))
    reading.start()
    try:
        backlog = Early(
            source,
            target,
            lambda: find_powers(settings, lambda fault: None),
            with_shadow=settings.has_shadow,
            load=lambda: (loads if loads is not None else []).append(1),
        ).answer()
    finally:
        os.close(target)
        reading.join()
        os.close(source)
        os.close(receiver)
    return [json.loads(line) for line in b"".join(said).splitlines()], backlog


async def by_the_sdk(settings: Settings, messages: list[dict[str, Any]]) -> list[Any]:
    boxes = Boxes(settings, lambda line: None)
    desk = Desk(boxes)
    server = desk.server()
    arrivals, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    outgoing, departures = anyio.create_memory_object_stream[SessionMessage](16)
    serving = asyncio.create_task(server.run(incoming, outgoing, server.create_initialization_options()))
    found: list[Any] = []
    try:
        for message in messages:
            await arrivals.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(message)))
            if "id" in message:
                answer = (await departures.receive()).message
                found.append(json.loads(answer.model_dump_json(by_alias=True, exclude_unset=True)))
    finally:
        serving.cancel()
        await asyncio.wait({serving})
        for stream in (arrivals, incoming, outgoing, departures):
            stream.close()
        await desk.close()
        await boxes.close()
    return found


@pytest.mark.parametrize("talk", TALKS)
@pytest.mark.parametrize("has_shadow", [False, True])
def test_it_is_what_the_sdk_says(talk: str, has_shadow: bool, tmp_path: Path) -> None:
    settings = Settings(options=SandboxOptions(workspace=tmp_path), asks=False, on_shadow=has_shadow)
    lines = b"".join(json.dumps(message).encode() + b"\n" for message in TALKS[talk])

    said, backlog = early(settings, lines)

    assert said == asyncio.run(by_the_sdk(settings, TALKS[talk]))
    assert backlog.is_over and len(said) == sum("id" in message for message in TALKS[talk])


@pytest.mark.parametrize(
    "line",
    [
        b"no json",
        b"[]",
        b'{"jsonrpc":"1.0","id":1,"method":"ping"}',
        json.dumps(request("tools/list")).encode(),  # before the handshake
        json.dumps(request("ping")).encode(),
        json.dumps(request("tools/call", name="bash")).encode(),
        json.dumps({**hello("2025-06-18"), "id": True}).encode(),
        json.dumps({**hello("2025-06-18"), "extra": 1}).encode(),
        json.dumps(request("initialize", protocolVersion=1, capabilities={}, clientInfo=INFO)).encode(),
        json.dumps(request("tools/list", _meta=META | {VERSION: "2099-01-01"})).encode(),
        json.dumps(request("server/discover", _meta={})).encode(),
        b"[" * 5000,
    ],
)  # fmt: skip
def test_anything_else_is_left_to_the_sdk(line: bytes, tmp_path: Path) -> None:
    settings = Settings(options=SandboxOptions(workspace=tmp_path), asks=False)
    loads: list[int] = []

    said, backlog = early(settings, line + b"\n" + json.dumps(hello("2025-06-18", 7)).encode() + b"\n", loads)

    assert said == [] and loads == [1] and len(backlog.lines) == 2 and not backlog.is_over


def test_a_number_that_comes_twice_is_left_to_the_sdk(tmp_path: Path) -> None:
    settings = Settings(options=SandboxOptions(workspace=tmp_path), asks=False)
    lines = json.dumps(hello("2025-06-18", 1)) + "\n" + json.dumps(request("ping", 1)) + "\n"

    said, backlog = early(settings, lines.encode())

    assert len(said) == 1 and len(backlog.lines) == 2 and backlog.answered == {1}
