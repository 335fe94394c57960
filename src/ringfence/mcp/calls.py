"""One call of a tool, from the client's request to its answer, in both eras of the protocol.

The work runs in a task of its own. Whoever serves the request waits for it, says every few seconds that it goes on, and
carries its questions to the client:

- handshake era: a question is a request of ours to the client, while the call waits;
- 2026-07-28: the answer to the call says that input is required. The task waits, and the client calls again with the
  answer and a token. The token is random, for one use, for exactly the same arguments, and gone when the question is.

A cancelled request, the end of the connection, and a question that nobody comes back for end the task, and with it what
runs in the box.
"""

import asyncio
import hashlib
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, cast

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ringfence.mcp.answers import waiting_elsewhere
from ringfence.mcp.asking import CURRENT

BEAT_SECONDS: Final = 3.0
"""How often a client hears that a call goes on: several give up after 30 s of silence, one after five."""
WAIT_SECONDS: Final = 600.0
"""How long a question waits for the client to come back; the policy's own time for an answer is usually shorter."""
MOST_WAITING: Final = 100
POLL_SECONDS: Final = 5.0
"""After which a client hears that a person was asked elsewhere, and comes back: some give a call up soon."""
_Request = types.ElicitRequest | types.ListRootsRequest
_Response = types.ElicitResult | types.ListRootsResult
Work = Callable[["Call"], Awaitable[types.CallToolResult]]


@dataclass(slots=True, eq=False)
class _Asked:
    request: _Request
    answer: "asyncio.Future[_Response]"
    is_sent: bool = False


@dataclass(slots=True, eq=False)
class Call:
    """A call that runs. An `Asker` for questions to the person."""

    digest: str
    capabilities: types.ClientCapabilities
    client: str
    may_answer: bool = True
    """Whether the client may be asked for a person's answer."""
    output_bytes: int = 0
    """How much its command has said so far."""
    stage: str = "waiting for its turn"
    started: float = field(default_factory=monotonic)
    _open: dict[str, _Asked] = field(default_factory=dict)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    task: "asyncio.Task[types.CallToolResult] | None" = None
    elsewhere: str = ""
    """The question that a person is asked by another way than this client."""
    elsewhere_since: float = 0.0
    on_asking: Callable[[], None] = lambda: None
    """Called when it begins to wait for a person, who may take their time."""

    def start(self, work: Work) -> None:
        async def run() -> types.CallToolResult:
            CURRENT.set(self)
            return await work(self)

        self.task = asyncio.get_running_loop().create_task(run())
        self.task.add_done_callback(lambda _: self._news.set())

    @property
    def is_over(self) -> bool:
        return self.task is None or self.task.done()

    @property
    def can_ask(self) -> bool:
        """Forms: an empty capability means them, too."""
        able = self.capabilities.elicitation
        return self.may_answer and able is not None and (able.form is not None or able.url is None)

    def asks_elsewhere(self, question: str) -> None:
        self.elsewhere, self.elsewhere_since = question, monotonic()
        if question:
            self.on_asking()

    @property
    def is_to_be_asked_after(self) -> bool:
        """Whether the client has waited long enough for a person who is asked elsewhere: it may come back for that."""
        return bool(self.elsewhere) and monotonic() - self.elsewhere_since > POLL_SECONDS

    async def fill_form(self, message: str, schema: dict[str, Any]) -> tuple[str, Mapping[str, Any]]:
        params = types.ElicitRequestFormParams(message=message, requested_schema=cast(Any, schema))
        answer = await self._ask(types.ElicitRequest(params=params))
        if not isinstance(answer, types.ElicitResult):
            return "cancel", {}
        return answer.action, answer.content or {}

    async def roots(self) -> list[str]:
        """The client's roots; none if it has no such thing."""
        if self.capabilities.roots is None:
            return []
        answer = await self._ask(types.ListRootsRequest())
        return [str(root.uri) for root in answer.roots] if isinstance(answer, types.ListRootsResult) else []

    async def _ask(self, request: _Request) -> _Response:
        key = secrets.token_hex(4)
        asked = self._open[key] = _Asked(request, asyncio.get_running_loop().create_future())
        self._news.set()
        self.on_asking()
        try:
            return await asked.answer
        finally:
            self._open.pop(key, None)

    # --- for whoever serves the request -------------------------------------------------------------------------------

    @property
    def requests(self) -> dict[str, _Request]:
        return {key: asked.request for key, asked in self._open.items()}

    def unsent(self) -> list[_Asked]:
        """Questions that no client has seen."""
        found = [asked for asked in self._open.values() if not asked.is_sent]
        for asked in found:
            asked.is_sent = True
        return found

    def answer(self, responses: Mapping[str, _Response]) -> None:
        """What the client brought; a question without an answer was closed."""
        for key, asked in tuple(self._open.items()):
            if asked.is_sent and not asked.answer.done():
                asked.answer.set_result(responses.get(key) or types.ElicitResult(action="cancel"))

    async def wait(self, seconds: float) -> None:
        """Until something happens: it is over, or has a question; or the time is."""
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return
        self._news.clear()

    async def end(self) -> None:
        """End what runs; returns when nothing of it does."""
        if self.task is not None and not self.task.done():
            self.task.cancel()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({self.task})


def digest_of(name: str, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([name, arguments], sort_keys=True).encode()).hexdigest()


class Calls:
    """All calls of a connection, those among them that wait for a client to come back."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[Call, asyncio.TimerHandle]] = {}
        """By the token, or, for a question that is asked elsewhere, by the digest of the call."""

    def resumed(self, token: str, digest: str) -> Call | None:
        """The call that a token stands for, once; None if there is none for these arguments."""
        found = self._waiting.get(token)
        if found is None or found[0].digest != digest:
            return None
        del self._waiting[token]
        found[1].cancel()
        return found[0]

    async def serve(
        self, call: Call, context: ServerRequestContext[Any]
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Until the call is over, or needs the client to come back."""
        is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
        asking: set[asyncio.Task[None]] = set()
        is_kept = False
        beat = 1.0
        try:
            while not call.is_over:
                await call.wait(beat)
                beat = BEAT_SECONDS
                if call.is_over:
                    break
                if call.is_to_be_asked_after:
                    is_kept = True
                    return self._park(call)
                unsent = call.unsent()
                if is_modern and unsent:
                    is_kept = True
                    return self._keep(call)
                for asked in unsent:
                    asking.add(asyncio.get_running_loop().create_task(_ask(asked, context)))
                await context.session.report_progress(round(monotonic() - call.started, 3), None, _progress(call))
            assert call.task is not None
            return call.task.result()
        finally:
            for task in asking:
                task.cancel()
            if not is_kept:
                await call.end()

    def _park(self, call: Call) -> types.CallToolResult:
        """It goes on waiting; the same call again finds it."""
        self._put_by(call.digest, call)
        return waiting_elsewhere(call.elsewhere)

    def _keep(self, call: Call) -> types.InputRequiredResult:
        token = secrets.token_urlsafe(32)
        self._put_by(token, call)
        return types.InputRequiredResult(input_requests=cast(Any, call.requests), request_state=token)

    def _put_by(self, token: str, call: Call) -> None:
        while len(self._waiting) >= MOST_WAITING:
            self._forget(next(iter(self._waiting)))
        timer = asyncio.get_running_loop().call_later(WAIT_SECONDS, self._forget, token)
        self._waiting[token] = (call, timer)

    def _forget(self, token: str) -> None:
        """Nobody came back."""
        call, timer = self._waiting.pop(token)
        timer.cancel()
        if call.task is not None:
            call.task.cancel()

    async def close(self) -> None:
        for token in tuple(self._waiting):
            call, timer = self._waiting.pop(token)
            timer.cancel()
            await call.end()


async def _ask(asked: _Asked, context: ServerRequestContext[Any]) -> None:
    """By a request to the client, as the handshake era has it."""
    is_form = isinstance(asked.request, types.ElicitRequest)
    kind: type[_Response] = types.ElicitResult if is_form else types.ListRootsResult
    try:
        answer = await context.session.send_request(asked.request, kind)
    except Exception:  # whatever the client did wrong is no answer
        answer = types.ElicitResult(action="cancel")
    if not asked.answer.done():
        asked.answer.set_result(answer)


def _progress(call: Call) -> str:
    if call.requests or call.elsewhere:
        return "waiting for the person's answer"
    said = f", {call.output_bytes} bytes of output" if call.output_bytes else ""
    return f"{call.stage}{said}"
