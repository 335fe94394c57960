"""One call of a server: JSON there, JSON or bytes back, errors raised as the library raises them.

What is repeated, and when. A request that starts something carries a key, by which the server knows it again. It is
sent once more where the connection broke before the answer was here: the server then gives the answer that it has,
waits for what still runs, or says that it does not know (`Internal`); it never runs it twice. A request that could not
be sent at all, since nobody listened, is tried again for a moment, so that a restart is not an error. Nothing else is
repeated: not what was refused, nor what streams its body or its answer.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import quote, urlencode

from ringfence.client.address import Address
from ringfence.client.frames import MEDIA
from ringfence.client.http import Answer, Body, Broken, Connections, Headers
from ringfence.client.problems import fault_of
from ringfence.errors import Internal, RingfenceError, Unreachable
from ringfence.version import VERSION

DEADLINE_SECONDS: Final = 60.0
"""Of a call that starts nothing and waits for nobody."""
AT_ONCE_SECONDS: Final = 20.0
"""Of one that blocks its thread."""
_PAUSES: Final = (0.05, 0.2, 0.5)
"""Between tries to connect: as long as a service takes that is started again."""
_OK: Final = 300
_JSON: Final = "application/json"

Query = Mapping[str, str | int | bool | None]


class Calls:
    """The calls of one server, as one caller."""

    def __init__(self, address: Address, token: str | None, ca_file: str | None = None) -> None:
        self.address = address
        self._connections = Connections(address, ca_file)
        self._token = token

    async def close(self) -> None:
        await self._connections.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Query | None = None,
        deadline: float | None = DEADLINE_SECONDS,
        starts: bool = False,
    ) -> Any:
        """A call with JSON both ways; None if the answer is empty.

        Args:
            deadline: how long all of it may take; None if it takes as long as what it waits for.
            starts: whether it starts something, and so must not be done twice.

        Raises:
            RingfenceError: what the server raised.
            Unreachable: it did not answer.
        """
        headers = self._headers(_JSON if body is not None else None, key=starts)
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        return _understood(await self._repeated(method, target(path, query), headers, data, deadline))

    async def fetch(self, path: str, *, query: Query | None = None) -> bytes:
        """What is at a path, as it is."""
        return await self._repeated("GET", target(path, query), self._headers(None), b"", DEADLINE_SECONDS)

    async def send(self, method: str, path: str, body: Body, *, query: Query | None = None) -> Any:
        """Give bytes, as they come; raises as `ask`. Never repeated."""
        headers = self._headers("application/octet-stream")
        try:
            answer = await self._connections.ask(method, target(path, query), headers, body, fresh=True)
            return _understood(await _taken(answer))
        except Broken as fault:
            raise self._gone(fault) from fault

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        accept: str,
        after: int = 0,
        starts: bool = False,
        headers: Headers | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes | bytearray]]:
        """A call whose answer is read as it comes. Whoever leaves early ends what runs for it.

        Args:
            after: how much of it the caller has already.
        """
        own = [*self._headers(_JSON if body is not None else None, key=starts), ("Accept", accept), *(headers or ())]
        if after:
            own.append(("Last-Event-ID", str(after)))
        data = b"" if body is None else json.dumps(body, separators=(",", ":")).encode()
        try:
            answer = await self._begun(method, path, own, data)
        except Broken as fault:
            raise self._gone(fault) from fault
        async with self._read(answer) as pieces:
            yield pieces

    @asynccontextmanager
    async def feed(self, path: str, body: AsyncIterator[bytes]) -> AsyncIterator[AsyncIterator[bytes | bytearray]]:
        """The same for a request whose body comes as it is sent: frames both ways. Never repeated."""
        headers = [*self._headers(MEDIA), ("Accept", MEDIA)]
        try:
            answer = await self._connections.ask("POST", path, headers, body, fresh=True)
        except Broken as fault:
            raise self._gone(fault) from fault
        async with self._read(answer) as pieces:
            yield pieces

    @asynccontextmanager
    async def _read(self, answer: Answer) -> AsyncIterator[AsyncIterator[bytes | bytearray]]:
        try:
            if answer.head.status >= _OK:
                raise fault_of(answer.head.status, await answer.whole())
            yield self._following(answer)
        except Broken as fault:
            raise self._gone(fault) from fault
        finally:
            answer.finish()

    def ask_at_once(self, method: str, path: str, body: Any = None, *, query: Query | None = None) -> Any:
        """A small call, waited for in this thread; raises as `ask`."""
        headers = self._headers(_JSON if body is not None else None)
        data = b"" if body is None else json.dumps(body).encode()
        try:
            head, got = self._connections.ask_at_once(
                method, target(path, query), headers, data, timeout=AT_ONCE_SECONDS
            )
        except Broken as fault:
            raise self._gone(fault) from fault
        if head.status >= _OK:
            raise fault_of(head.status, got)
        return _understood(got)

    # --- how ----------------------------------------------------------------------------------------------------------

    def _headers(self, content: str | None, *, key: bool = False) -> Headers:
        headers = [("User-Agent", f"ringfence/{VERSION}")]
        if self._token is not None:
            headers.append(("Authorization", f"Bearer {self._token}"))
        if content is not None:
            headers.append(("Content-Type", content))
        if key:
            headers.append(("Idempotency-Key", os.urandom(16).hex()))
        return headers

    async def _repeated(self, method: str, path: str, headers: Headers, body: bytes, deadline: float | None) -> bytes:
        try:
            async with asyncio.timeout(deadline):
                try:
                    return await _taken(await self._begun(method, path, headers, body))
                except Broken as fault:
                    if not _may_repeat(method, headers):
                        raise self._gone(fault) from fault
                try:
                    return await _taken(await self._begun(method, path, headers, body, fresh=True))
                except Broken as fault:
                    raise self._gone(fault) from fault
        except TimeoutError:
            raise Unreachable(f"{self.address} did not answer within {deadline:g} s", hint="look at its log") from None

    async def _begun(self, method: str, path: str, headers: Headers, body: bytes, *, fresh: bool = False) -> Answer:
        """Send a request; again if a connection that was kept turns out to be closed, or if nobody listens yet."""
        for pause in (*_PAUSES, None):
            try:
                return await self._connections.ask(method, path, headers, body, fresh=fresh)
            except Broken as fault:
                if fresh or not fault.is_unanswered or not _may_repeat(method, headers):
                    raise
                fresh = True
            except Unreachable:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
        raise Unreachable(f"{self.address} closes every connection", hint="look at its log")

    async def _following(self, answer: Answer) -> AsyncIterator[bytes | bytearray]:
        try:
            async for piece in answer.pieces():
                yield piece
        except Broken as fault:
            raise self._gone(fault) from fault

    def _gone(self, fault: Broken) -> RingfenceError:
        return Unreachable(
            f"the connection to {self.address} was lost before the answer was here: {fault}",
            hint="what ran is in the server's record; ask for the session again",
        )


def target(path: str, query: Query | None = None) -> str:
    """A path with its query; what is None is left out."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in (query or {}).items()
        if value is not None
    }
    return f"{path}?{urlencode(given, errors='surrogateescape')}" if given else path


def part(text: str) -> str:
    """A text as one part of a path."""
    return quote(text, safe="", errors="surrogateescape")


def _may_repeat(method: str, headers: Headers) -> bool:
    return method in ("GET", "DELETE") or any(name == "Idempotency-Key" for name, _ in headers)


async def _taken(answer: Answer) -> bytes:
    try:
        got = await answer.whole()
    except BaseException:
        answer.close()
        raise
    if answer.head.status >= _OK:
        raise fault_of(answer.head.status, got)
    return got


def _understood(got: bytes) -> Any:
    if not got:
        return None
    try:
        return json.loads(got)
    except ValueError as fault:
        raise Internal("the server's answer is no JSON", hint="look at the URL") from fault
