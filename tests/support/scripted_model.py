"""A model that says what a test has written down: a server on loopback with the streaming APIs of three makers.

Each request that offers tools takes the next turn of the script: a call of a tool, or words, after which the agent
ends. What the agent sent is kept, so that a test sees what the model was told. Requests without tools (titles,
summaries, counts) get some words and take no turn.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

_WORDS: Final = "Done."


@dataclass(frozen=True)
class Use:
    """The model calls a tool."""

    tool: str
    arguments: dict[str, Any]
    namespace: str = ""
    """Where Codex keeps the tools of a server."""


@dataclass(frozen=True)
class Seen:
    """A request that took a turn."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def tools(self) -> list[str]:
        """The names of the tools that it offers."""
        found: list[str] = []
        for each in self.body.get("tools", []):
            declared = each.get("functionDeclarations")
            found += [one["name"] for one in declared] if declared else [str(each.get("name", each.get("type")))]
        return found

    @property
    def told(self) -> str:
        """All that the model is told in its last message, as text: results of tools above all."""
        for key in ("messages", "input", "contents"):
            if self.body.get(key):
                return json.dumps(self.body[key][-1], ensure_ascii=False)
        return ""


@dataclass
class ScriptedModel:
    """The server, as a test speaks of it."""

    script: Sequence[Use | str]
    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    """Paths of requests that took no turn."""
    _turn: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def next(self, seen: Seen) -> Use | str:
        with self._lock:
            self.seen.append(seen)
            turn = self.script[self._turn] if self._turn < len(self.script) else _WORDS
            self._turn += 1
            return turn


@contextmanager
def scripted_model(*script: Use | str, tls: ssl.SSLContext | None = None) -> Iterator[ScriptedModel]:
    """
    Args:
        tls: what it speaks HTTPS with.
    """
    model = ScriptedModel(script)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"model": model}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    server.daemon_threads = True
    model.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    model: ScriptedModel
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._send(b"", "text/plain")

    def do_GET(self) -> None:
        self.model.others.append(f"GET {self.path}")
        self._send(b'{"data":[],"models":[]}', "application/json")

    def do_POST(self) -> None:
        body = self._body()
        path = self.path.split("?")[0]
        if path.endswith("/messages"):
            self._stream(_anthropic(self._turn(body)) if body.get("stream") else None, _anthropic_whole(_WORDS))
        elif path.endswith("/responses"):
            self._stream(_openai(self._turn(body)), {})
        elif path.endswith(":streamGenerateContent"):
            self._stream(_gemini(self._turn(body)), {})
        elif path.endswith(":generateContent"):
            self.model.others.append(path)
            self._send(json.dumps(_gemini_part({"text": _WORDS})).encode(), "application/json")
        else:
            self.model.others.append(f"POST {path}")
            self._send(b'{"input_tokens":10,"totalTokens":10}', "application/json")

    def _turn(self, body: dict[str, Any]) -> Use | str:
        if not body.get("tools"):
            self.model.others.append(self.path)
            return _WORDS
        return self.model.next(Seen(self.path, dict(self.headers.items()), body))

    def _body(self) -> dict[str, Any]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            data = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                data += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            found = json.loads(data)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _stream(self, events: list[tuple[str, dict[str, Any]]] | None, whole: dict[str, Any]) -> None:
        if events is None:
            self._send(json.dumps(whole).encode(), "application/json")
            return
        lines = [(f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n" for name, data in events]
        self._send("".join(lines).encode(), "text/event-stream")

    def _send(self, data: bytes, kind: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _anthropic_whole(words: str) -> dict[str, Any]:
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": [{"type": "text", "text": words}],
        "stop_reason": "end_turn",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def _anthropic(turn: Use | str) -> list[tuple[str, dict[str, Any]]]:
    """Messages, streamed."""
    if isinstance(turn, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": turn}
        stop = "end_turn"
    else:
        block = {"type": "tool_use", "id": "toolu_1", "name": turn.tool, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(turn.arguments)}
        stop = "tool_use"
    message = {**_anthropic_whole(""), "content": [], "stop_reason": None}
    ended = {"stop_reason": stop, "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    return [(event["type"], event) for event in events]


def _openai(turn: Use | str) -> list[tuple[str, dict[str, Any]]]:
    """Responses, streamed."""
    if isinstance(turn, str):
        content = [{"type": "output_text", "text": turn, "annotations": []}]
        item: dict[str, Any] = {"type": "message", "role": "assistant", "id": "msg_1", "content": content}
    else:
        item = {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_1",
            "name": turn.tool,
            "arguments": json.dumps(turn.arguments),
            **({"namespace": turn.namespace} if turn.namespace else {}),
        }
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_details": None}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "output": [item], "usage": usage}},
    ]
    return [(event["type"], event) for event in events]


def _gemini(turn: Use | str) -> list[tuple[str, dict[str, Any]]]:
    """streamGenerateContent with alt=sse."""
    part = {"text": turn} if isinstance(turn, str) else {"functionCall": {"name": turn.tool, "args": turn.arguments}}
    return [("", _gemini_part(part))]


def _gemini_part(part: dict[str, Any]) -> dict[str, Any]:
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "scripted", "responseId": "r1"}
