"""One execution on a server: asked for, heard as it goes on, its result made anew.

Whoever is cancelled while it runs ends it: the connection is closed, by which the server knows that nobody waits.
"""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final, TypeGuard

from ringfence.client.calls import Calls
from ringfence.client.frames import MEDIA, Frame, frame, frames
from ringfence.client.problems import revived_problem
from ringfence.dataclass import replace
from ringfence.errors import InvalidArgument, RingfenceError, Unreachable
from ringfence.manager.arguments import make_request
from ringfence.values.execution import ExecutionRequest
from ringfence.values.outcome import Result
from ringfence.values.request import Request, Stream

Told = Callable[[Result | RingfenceError], None]
"""Somebody who keeps what was refused."""
STREAMS: Final = {Frame.STDOUT: Stream.STDOUT, Frame.STDERR: Stream.STDERR}
_SHORT_BYTES: Final = 256 * 1024
"""Input that travels with the request."""
_PIECE_BYTES: Final = 256 * 1024


class Executions:
    """
    Args:
        told: hears of every result and every error.
    """

    def __init__(self, calls: Calls, told: Told) -> None:
        self._calls = calls
        self._told = told

    async def run(self, request: Request, path: str) -> Result:
        """Run a request to its end, at the server's path for executions; raises as `ringfence.Sandbox.shell`."""
        return await self._run(request, body_of(request), path)

    async def execute(self, request: ExecutionRequest, path: str) -> Result:
        """The same for a request of a manager, with its files."""
        if (request.code is None) == (request.command is None):
            raise InvalidArgument("a request has either code or a command", hint="set one of them")
        asked = make_request(
            command=request.command,
            code=request.code,
            language=request.language if request.code is not None else None,
            context=request.context,
            stdin=request.stdin,
            timeout=request.timeout,
            on_output=request.on_output,
        )
        body = body_of(asked)
        if request.files:
            body["files"] = {name: _content(data) for name, data in request.files.items()}
        if request.collect is not None:
            body["collect"] = request.collect
        return await self._run(asked, body, path)

    async def start(
        self, request: Request, path: str, terminal: tuple[int, int] | None, *, typed_by_person: bool
    ) -> dict[str, Any]:
        """Begin what goes on by itself; the execution as the server tells it."""
        body = body_of(replace(request, stdin=None)) | {"background": True}
        if request.live_input and terminal is None:
            body["interactive"] = True
        if terminal is not None:
            body["terminal"] = {"rows": terminal[0], "columns": terminal[1]}
        if typed_by_person:
            body["typed_by_person"] = True
        if request.stdin is not None:
            body |= _input(await _gathered(request.stdin))
        try:
            started: dict[str, Any] = await self._calls.ask("POST", path, body, starts=True, deadline=None)
        except RingfenceError as fault:
            self._told(fault)
            raise
        return started

    async def stream(self, request: Request, path: str) -> AsyncGenerator[tuple[Stream, bytes] | Result, None]:
        """Its output as it comes, then its result. The command waits for a reader who is slow."""
        async with aclosing(self._streamed(request, body_of(request), path)) as stream:
            async for each in stream:
                yield each

    async def _streamed(
        self, request: Request, body: dict[str, Any], path: str
    ) -> AsyncGenerator[tuple[Stream, bytes] | Result, None]:
        stdin = request.stdin
        if stdin is None or _is_short(stdin):
            asked = body if stdin is None else body | _input(stdin)
            asking = self._calls.stream("POST", path, asked, accept=MEDIA, starts=True)
        else:
            asking = self._calls.feed(f"{path}/fed", _fed(body, stdin))
        execution: dict[str, Any] | None = None
        try:
            async with asking as pieces:
                async for kind, data in frames(pieces):
                    if kind in STREAMS:
                        yield STREAMS[Frame(kind)], data
                    elif kind == Frame.EXECUTION:
                        execution = json.loads(data)
            if execution is None:
                raise Unreachable("the server's output was cut off", hint="look at the server's record")
            result = self.ended(execution)
        except RingfenceError as fault:
            self._told(fault)
            raise
        yield result

    def ended(self, execution: Mapping[str, Any]) -> Result:
        """What came of an execution that has ended.

        Raises:
            RingfenceError: why it has no result.
        """
        if execution["result"] is None:
            raise revived_problem(execution["problem"] or {"code": "internal", "title": "it has no result"})
        result = Result.from_dict(execution["result"])
        self._told(result)
        return result

    async def _run(self, request: Request, body: dict[str, Any], path: str) -> Result:
        if request.on_output is None and (request.stdin is None or _is_short(request.stdin)):
            asked = body if request.stdin is None else body | _input(request.stdin)
            try:
                return self.ended(await self._calls.ask("POST", path, asked, starts=True, deadline=None))
            except RingfenceError as fault:
                self._told(fault)
                raise
        async with aclosing(self._streamed(request, body, path)) as stream:
            async for each in stream:
                if isinstance(each, Result):
                    return each
                waits = None if request.on_output is None else request.on_output(*each)
                if waits is not None:
                    await waits
        raise Unreachable("the server's output was cut off", hint="look at the server's record")


def body_of(request: Request) -> dict[str, Any]:
    """What a server is asked, without the input; what was not asked for is left out."""
    given = {
        "command": request.command,
        "argv": None if request.argv is None else list(request.argv),
        "code": request.code,
        "language": request.language if request.code is not None else None,
        "context": request.context,
        "cwd": None if request.cwd is None else str(request.cwd),
        "env": dict(request.env) or None,
        "timeout_seconds": request.timeout,
        "output_limit_bytes": request.output_limit,
        "overflow": request.overflow.value,
        "keep_background": request.keep_background or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _is_short(stdin: object) -> TypeGuard[bytes]:
    """Whether it may travel with the request; else it comes while the command runs."""
    return isinstance(stdin, bytes) and len(stdin) <= _SHORT_BYTES


async def _fed(body: dict[str, Any], stdin: Any) -> AsyncIterator[bytes]:
    yield frame(Frame.REQUEST, json.dumps(body).encode())
    if isinstance(stdin, bytes):
        for at in range(0, len(stdin), _PIECE_BYTES):
            yield frame(Frame.INPUT, stdin[at : at + _PIECE_BYTES])
        return
    async for piece in stdin:
        yield frame(Frame.INPUT, bytes(piece))


async def _gathered(stdin: Any) -> bytes:
    """All of the input of what is started: it goes on without whoever started it."""
    if isinstance(stdin, bytes):
        return stdin
    return b"".join([piece async for piece in stdin])


def _input(data: bytes) -> dict[str, str]:
    try:
        return {"stdin": data.decode()}
    except UnicodeDecodeError:
        return {"stdin_base64": base64.b64encode(data).decode()}


def _content(data: bytes | str) -> dict[str, str]:
    if isinstance(data, str):
        return {"text": data}
    return {"base64": base64.b64encode(data).decode()}
