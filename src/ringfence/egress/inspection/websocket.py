"""A WebSocket after its handshake: passed on as it is, or message by message where secrets are swapped or taken out.

Messages are put together before they are looked at, up to a bound, since a placeholder may lie across two frames.
Extensions were taken out of the handshake then, so that nothing is compressed.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ringfence.dataclass import dataclass, field
from ringfence.egress.base import Flow, SecretRefused, Swapped
from ringfence.egress.inspection.base import Limits, Stopped
from ringfence.egress.inspection.tally import Tally
from ringfence.egress.inspection.wire import Wire

End = tuple[Wire, bytes]
_TOO_BIG: Final = CloseReason.MESSAGE_TOO_BIG


async def relay(flow: Flow, client: End, server: End, swapped: Swapped, limits: Limits, tally: Tally) -> None:
    """Both directions until either ends."""
    sides: tuple[asyncio.Task[None], asyncio.Task[None]]
    if swapped.frame is None and swapped.scrub is None:
        sides = (
            asyncio.create_task(_pass(client, server[0], lambda sent: _spend(flow, tally, sent))),
            asyncio.create_task(_pass(server, client[0], lambda sent: _count(tally, sent))),
        )
    else:
        there = _Messages(Connection(ConnectionType.SERVER), Connection(ConnectionType.CLIENT), limits.sizes.message)
        back = _Messages(there.to, there.by, limits.sizes.message)
        there.change, back.change = swapped.frame, swapped.scrub
        back.scrub = swapped.scrub
        sides = (
            asyncio.create_task(there.relay(client, server[0], client[0], lambda sent: _spend(flow, tally, sent))),
            asyncio.create_task(back.relay(server, client[0], server[0], lambda sent: _count(tally, sent))),
        )
    try:
        await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for side in sides:
            side.cancel()
        results = await asyncio.gather(*sides, return_exceptions=True)
        client[0].close()
        server[0].close()
    for result in results:
        if isinstance(result, Stopped | SecretRefused):
            raise result


def _spend(flow: Flow, tally: Tally, sent: int) -> bool:
    tally.bytes_out += sent
    return flow.spend(sent)


def _count(tally: Tally, sent: int) -> bool:
    tally.bytes_in += sent
    return True


async def _pass(source: End, target: Wire, count: Callable[[int], bool]) -> None:
    wire, data = source
    try:
        while True:
            if data:
                if not count(len(data)):
                    return
                target.send(data)
                await target.drain()
            if not (data := await wire.read()):
                return
    except ConnectionError:
        return


@dataclass(slots=True)
class _Messages:
    """One direction: what `by` reads is written by `to`."""

    by: Connection
    to: Connection
    largest: int
    change: Callable[[bytes], bytes] | None = None
    scrub: Callable[[bytes], bytes] | None = None
    """For what is no message: the words of a ping or of the end."""
    _parts: list[bytes] = field(default_factory=list)
    _held: int = 0

    async def relay(self, source: End, target: Wire, back: Wire, count: Callable[[int], bool]) -> None:
        wire, data = source
        try:
            while True:
                if data:
                    self.by.receive_data(data)
                    for event in self.by.events():
                        out = self._out(event)
                        if out and not count(len(out)):
                            return
                        target.send(out)
                        if isinstance(event, CloseConnection):
                            await target.drain()
                            if self.by.state is not ConnectionState.CLOSED:
                                continue
                            return
                    await target.drain()
                if not (data := await wire.read()):
                    return
        except (ConnectionError, LocalProtocolError):
            return
        except RemoteProtocolError:
            back.send(self._close(self.by, CloseReason.PROTOCOL_ERROR))
            target.send(self._close(self.to, CloseReason.GOING_AWAY))
        except SecretRefused as refused:
            back.send(self._close(self.by, CloseReason.POLICY_VIOLATION, refused.refusal.reason))
            target.send(self._close(self.to, CloseReason.GOING_AWAY))
            raise

    def _out(self, event: object) -> bytes:
        match event:
            case TextMessage() | BytesMessage():
                return self._message(event)
            case Ping():
                return self.to.send(Ping(payload=self._clean(bytes(event.payload))))
            case Pong():
                return self.to.send(Pong(payload=self._clean(bytes(event.payload))))
            case CloseConnection():
                reason = self._clean((event.reason or "").encode()).decode("utf-8", "replace")
                return self.to.send(CloseConnection(code=event.code, reason=reason or None))
            case _:
                return b""

    def _clean(self, words: bytes) -> bytes:
        return words if self.scrub is None else self.scrub(words)

    def _message(self, event: TextMessage | BytesMessage) -> bytes:
        piece = event.data.encode() if isinstance(event, TextMessage) else bytes(event.data)
        self._held += len(piece)
        if self._held > self.largest:
            raise RemoteProtocolError("the message is too large to be looked into")
        if piece:  # frames without a byte cost nothing to send, and nothing to hold
            self._parts.append(piece)
        if not event.message_finished:
            return b""
        whole = b"".join(self._parts)
        self._parts, self._held = [], 0
        if self.change is not None:
            whole = self.change(whole)
        if isinstance(event, TextMessage):
            return self.to.send(TextMessage(data=whole.decode("utf-8", "replace")))
        return self.to.send(BytesMessage(data=whole))

    def _close(self, connection: Connection, code: CloseReason, reason: str = "") -> bytes:
        try:
            return connection.send(CloseConnection(code=code, reason=reason[:100] or None))
        except LocalProtocolError:
            return b""
