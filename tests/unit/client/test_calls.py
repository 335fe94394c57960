"""Calls against a scripted server: what is repeated and what is not, errors, deadlines, answers that end too early."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ringfence.client import calls as calls_module
from ringfence.client.address import Address
from ringfence.client.calls import Calls
from ringfence.client.frames import Frame, frame, frames
from ringfence.errors import Busy, Internal, NotFound, RingfenceError, Unreachable

Script = Callable[[str, dict[str, str], bytes], bytes | None]
"""From a request's first line, headers and body to the bytes of the answer; None closes the connection."""


class Scripted:
    """A server that answers by a script, and notes what it was asked."""

    def __init__(self, path: Path, script: Script) -> None:
        self.path = path
        self.script = script
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        self.connections = 0

    async def __aenter__(self) -> Scripted:
        self._server = await asyncio.start_unix_server(self._serve, self.path)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode().split("\r\n")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest if line)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                self.asked.append((first, headers, body))
                answer = self.script(first, headers, body)
                if answer is None:
                    break
                writer.write(answer)
                await writer.drain()
                if b"Connection: close" in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def answer(status: int, body: Any, kind: str = "application/json") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def talk(tmp_path: Path, script: Script, work: Callable[[Calls, Scripted], Awaitable[Any]]) -> Any:
    async def whole() -> Any:
        async with asyncio.timeout(20), Scripted(tmp_path / "s", script) as server:
            calls = Calls(Address(socket=str(server.path)), "rf_token")
            try:
                return await work(calls, server)
            finally:
                await calls.close()

    return asyncio.run(whole())


def test_a_connection_is_kept_and_the_token_is_in_its_header(tmp_path: Path) -> None:
    async def work(calls: Calls, server: Scripted) -> None:
        for _ in range(3):
            assert await calls.ask("POST", "/v1/x", {"a": 1}) == {"ok": True}
        assert server.connections == 1
        first, headers, body = server.asked[0]
        assert first == "POST /v1/x HTTP/1.1"
        assert headers["authorization"] == "Bearer rf_token"
        assert json.loads(body) == {"a": 1}

    talk(tmp_path, lambda *_: answer(200, {"ok": True}), work)


def test_an_error_of_the_server_is_raised_as_the_library_raises_it(tmp_path: Path) -> None:
    problem = {
        "status": 404,
        "code": "not_found",
        "title": "'/a': No such file or directory",
        "hint": "h",
        "fields": {"path": "/a", "errno": 2, "strerror": "No such file or directory", "filename": "/a"},
    }

    async def work(calls: Calls, server: Scripted) -> None:
        with pytest.raises(NotFound) as caught:
            await calls.ask("GET", "/v1/x")
        assert (caught.value.path, caught.value.errno, caught.value.hint) == ("/a", 2, "h")
        with pytest.raises(NotFound):
            await asyncio.to_thread(calls.ask_at_once, "GET", "/v1/x")

    talk(tmp_path, lambda *_: answer(404, problem, "application/problem+json"), work)


def test_what_is_no_answer_of_a_server_is_said(tmp_path: Path) -> None:
    async def work(calls: Calls, server: Scripted) -> None:
        with pytest.raises(Internal, match="something else than a Ringfence server"):
            await calls.ask("GET", "/v1/x")

    talk(tmp_path, lambda *_: answer(502, b"<html>bad gateway</html>", "text/html"), work)


def test_what_starts_something_is_repeated_with_the_same_key(tmp_path: Path) -> None:
    answers = [None, answer(200, {"ok": True})]

    async def work(calls: Calls, server: Scripted) -> None:
        assert await calls.ask("POST", "/v1/x", {}, starts=True) == {"ok": True}
        keys = [headers["idempotency-key"] for _, headers, _ in server.asked]
        assert len(keys) == 2 and len(set(keys)) == 1
        await calls.ask("POST", "/v1/x", {}, starts=True)
        assert server.asked[-1][1]["idempotency-key"] != keys[0]

    talk(tmp_path, lambda *_: answers.pop(0) if len(answers) > 1 else answers[0], work)


def test_without_a_key_nothing_is_repeated(tmp_path: Path) -> None:
    async def work(calls: Calls, server: Scripted) -> None:
        with pytest.raises(Unreachable, match="was lost"):
            await calls.ask("POST", "/v1/x", {})
        assert len(server.asked) == 1

    talk(tmp_path, lambda *_: None, work)


def test_a_refusal_is_not_repeated(tmp_path: Path) -> None:
    async def work(calls: Calls, server: Scripted) -> None:
        with pytest.raises(Busy):
            await calls.ask("POST", "/v1/x", {}, starts=True)
        assert len(server.asked) == 1

    talk(tmp_path, lambda *_: answer(503, {"code": "shutting_down", "title": "it ends"}), work)


def test_an_answer_that_is_cut_off_is_no_answer(tmp_path: Path) -> None:
    cut = b'HTTP/1.1 200 X\r\nConnection: close\r\nContent-Length: 100\r\n\r\n{"ok"'

    async def work(calls: Calls, server: Scripted) -> None:
        with pytest.raises(Unreachable, match="before the answer was here"):
            await calls.ask("POST", "/v1/x", {})
        assert len(server.asked) == 1

    talk(tmp_path, lambda *_: cut, work)


def test_a_call_ends_at_its_deadline(tmp_path: Path) -> None:
    async def work(calls: Calls, server: Scripted) -> None:
        with pytest.raises(Unreachable, match=r"within 0\.2 s"):
            await calls.ask("POST", "/v1/x", {}, deadline=0.2)

    talk(tmp_path, lambda *_: b"HTTP/1.1 200 X\r\n", work)


def test_a_server_that_is_not_there_yet_is_waited_for_a_moment(tmp_path: Path) -> None:
    async def whole() -> None:
        path = tmp_path / "s"
        calls = Calls(Address(socket=str(path)), None)
        asking = asyncio.ensure_future(calls.ask("GET", "/v1/x"))
        await asyncio.sleep(0.1)
        async with Scripted(path, lambda *_: answer(200, {"ok": True})):
            assert await asking == {"ok": True}
        await calls.close()

    asyncio.run(whole())


def test_a_server_that_never_comes_is_unreachable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls_module, "_PAUSES", (0.01,))
    calls = Calls(Address(socket=str(tmp_path / "none")), None)

    with pytest.raises(Unreachable, match="no server answers at unix://") as caught:
        asyncio.run(calls.ask("POST", "/v1/x", {}))
    assert isinstance(caught.value, ConnectionError)
    with pytest.raises(Unreachable):
        calls.ask_at_once("GET", "/v1/x")


def test_frames_are_found_however_they_were_cut() -> None:
    sent = [(Frame.STDOUT, b"x" * 1000), (Frame.ALIVE, b""), (Frame.EXECUTION, b"{}")]
    data = b"".join(frame(kind, piece) for kind, piece in sent)

    async def cut(size: int) -> list[tuple[int, bytes]]:
        async def pieces() -> Any:
            for at in range(0, len(data), size):
                yield data[at : at + size]

        return [each async for each in frames(pieces())]

    for size in (1, 3, 7, 1000, len(data)):
        assert asyncio.run(cut(size)) == sent


def test_a_frame_that_is_cut_off_or_too_long_is_a_fault() -> None:
    async def read(data: bytes) -> None:
        async def pieces() -> Any:
            yield data

        async for _ in frames(pieces()):
            pass

    with pytest.raises(RingfenceError, match="cut off"):
        asyncio.run(read(frame(Frame.STDOUT, b"abc")[:-1]))
    with pytest.raises(Internal, match="a frame of"):
        asyncio.run(read(b"\x01\xff\xff\xff\xff"))
