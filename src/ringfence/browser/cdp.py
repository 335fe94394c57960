"""The DevTools protocol, seen from the side that trusts nobody: calls out, answers and events in.

A browser that runs pages of others may be one of them by now. So an answer has to belong to a question, every question
has a deadline, a message has a largest size (`wire.py`) and depth, and whoever says much that nobody asked for is
ended. What is wrong with the whole is `BrowserGone`, for everybody who waits; what is wrong with one call is that
call's alone.

What this does not protect against: lies in the right form. What a browser says about a page is what it says.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from ringfence.browser.wire import Wire
from ringfence.errors import BrowserError, BrowserGone, BrowserTimeout, Busy

Params = Mapping[str, Any]
Answer = dict[str, Any]
OnEvent = Callable[[str, str, Answer], None]
"""Called with the session, the method and the parameters of an event; must not wait."""

CALL_SECONDS: Final = 30.0
_WAITING: Final = 512
"""Calls that are not answered."""
_GIVEN_UP: Final = 4096
"""Calls whose deadline has passed, and whose answers are still to be taken for what they are."""
_STRAY: Final = 64
"""Answers to questions that nobody asked, from which on it is no browser."""
_FLOOD_SECONDS: Final = 10.0
_FLOOD_MESSAGES: Final = 60_000
_FLOOD_BYTES: Final = 256 * 1024 * 1024
"""Events within that time; a busy page sends some thousand."""
_WORDS: Final = 300


NONSENSE: Final = (KeyError, TypeError, ValueError, AttributeError, IndexError)
"""What reading an answer comes to that is not as the protocol describes it: who sent it is no browser."""


class CallRefused(BrowserError):
    """The browser answered a call with an error."""

    def __init__(self, method: str, number: int, said: str) -> None:
        super().__init__(f"{method}: {said}")
        self.number = number
        self.said = said


class Connection:
    """
    Args:
        wire: ours to close from now on.
        on_event: told of every event.
        on_lost: told, once, why nothing more comes.
    """

    def __init__(self, wire: Wire, on_event: OnEvent, on_lost: Callable[[BrowserGone], None]) -> None:
        self._wire = wire
        self._on_event = on_event
        self._on_lost = on_lost
        self._count = 0
        self._waiting: dict[int, tuple[str, asyncio.Future[Answer]]] = {}
        self._given_up: dict[int, None] = {}
        self._stray = 0
        self._window = time.monotonic()
        self._messages = self._bytes = 0
        self.lost: BrowserGone | None = None
        """Why it is over."""
        self._posted: set[asyncio.Task[None]] = set()
        """Calls that nobody waits for; a task that nothing refers to may be dropped."""
        self._reader = asyncio.get_running_loop().create_task(self._read())

    async def call(
        self, method: str, params: Params | None = None, *, session: str = "", seconds: float = CALL_SECONDS
    ) -> Answer:
        """Ask, and wait for the answer.

        Raises:
            CallRefused: the browser says no.
            BrowserTimeout: it says nothing.
            BrowserGone: it is not there any more.
        """
        number, answer = await self._ask(method, params, session, seconds)
        try:
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            raise BrowserTimeout(f"the browser does not answer ({method})", seconds) from None
        finally:
            if self._waiting.pop(number, None) is not None:
                self._given_up[number] = None
                while len(self._given_up) > _GIVEN_UP:
                    del self._given_up[next(iter(self._given_up))]

    async def _ask(
        self, method: str, params: Params | None, session: str, seconds: float
    ) -> tuple[int, asyncio.Future[Answer]]:
        if self.lost is not None:
            raise _again(self.lost)
        if len(self._waiting) >= _WAITING:
            raise Busy("the browser has too many calls that it has not answered", hint="wait for some of them")
        self._count += 1
        number = self._count
        message: Answer = {"id": number, "method": method, "params": dict(params or {})}
        if session:
            message["sessionId"] = session
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[number] = method, answer
        try:
            async with asyncio.timeout(seconds):
                await self._wire.send(json.dumps(message).encode())
        except TimeoutError:
            # Half a message may be out: nothing that follows would be understood.
            self._end(BrowserGone(f"the browser takes no calls ({method})"))
        except BrowserGone as fault:
            self._end(fault)
        return number, answer

    def post(self, method: str, params: Params | None = None, *, session: str = "") -> None:
        """Ask without waiting: what comes of it is nobody's business."""
        task = asyncio.get_running_loop().create_task(self._quietly(method, params, session))
        self._posted.add(task)
        task.add_done_callback(self._posted.discard)

    async def _quietly(self, method: str, params: Params | None, session: str) -> None:
        with suppress(BrowserError, Busy):
            await self.call(method, params, session=session, seconds=5.0)

    async def _read(self) -> None:
        try:
            while True:
                self._take(await self._wire.receive())
        except BrowserGone as fault:
            self._end(fault)

    def _take(self, data: bytes) -> None:
        try:
            message = json.loads(data, parse_constant=_no_number)
        except (ValueError, RecursionError) as fault:
            why = "is nested too deeply" if isinstance(fault, RecursionError) else "is no JSON"
            raise BrowserGone(f"what the browser sent {why}") from None
        if not isinstance(message, dict):
            raise BrowserGone("what the browser sent is no message")
        if "id" in message:
            self._answered(message)
        else:
            self._happened(message, len(data))

    def _answered(self, message: Answer) -> None:
        number = message["id"]
        if not isinstance(number, int) or number not in self._waiting:
            if isinstance(number, int) and number in self._given_up:
                del self._given_up[number]
                return
            self._stray += 1
            if self._stray > _STRAY:
                raise BrowserGone("the browser answers what nobody asked")
            return
        method, answer = self._waiting.pop(number)
        if answer.done():
            return
        fault, result = message.get("error"), message.get("result")
        if isinstance(fault, dict):
            code = fault.get("code")
            said = str(fault.get("message", ""))[:_WORDS]
            answer.set_exception(CallRefused(method, code if isinstance(code, int) else 0, said))
        elif isinstance(result, dict):
            answer.set_result(result)
        else:
            answer.set_exception(BrowserError(f"{method}: the answer of the browser makes no sense"))

    def _happened(self, message: Answer, size: int) -> None:
        method, params, session = message.get("method"), message.get("params", {}), message.get("sessionId", "")
        if not (isinstance(method, str) and isinstance(params, dict) and isinstance(session, str)):
            raise BrowserGone("what the browser sent is neither an answer nor an event")
        now = time.monotonic()
        if now - self._window > _FLOOD_SECONDS:
            self._window, self._messages, self._bytes = now, 0, 0
        self._messages += 1
        self._bytes += size
        if self._messages > _FLOOD_MESSAGES or self._bytes > _FLOOD_BYTES:
            raise BrowserGone("the browser floods us with events", hint="open it anew, and avoid that page")
        try:
            self._on_event(session, method, params)
        except NONSENSE:
            # Its form is not that of the protocol. Nothing waits for an event, so nothing is owed.
            self._stray += 1
            if self._stray > _STRAY:
                raise BrowserGone("the browser tells of events that make no sense") from None

    def _end(self, fault: BrowserGone) -> None:
        if self.lost is not None:
            return
        self.lost = fault
        self._wire.abort()
        for _, answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(_again(fault))
                answer.exception()  # whoever was cancelled does not ask
        self._on_lost(fault)

    async def close(self) -> None:
        """Take no more; whoever waits is told."""
        self._end(BrowserGone("the browser was closed", hint="open it anew"))
        await asyncio.wait((self._reader, *self._posted))
        self._wire.close()


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number")


def _again(fault: BrowserGone) -> BrowserGone:
    """The same, for one more who waits: an exception carries where it was raised."""
    return BrowserGone(fault.message, hint=fault.hint)
