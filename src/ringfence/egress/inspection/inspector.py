"""Looks into a connection (`Inspector`): which version of HTTP a client speaks, and who carries its requests.

A client chooses HTTP/2 or HTTP/1.1 in the TLS handshake, before the server has been asked for anything. What the server
speaks is known when it is dialled, so that HTTP/2 of a client may become HTTP/1.1 towards its server, never the other
way round.
"""

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from typing import Final

from ringfence.egress.base import Flow, SecretDesk, Stream
from ringfence.egress.inspection.authority import Authority
from ringfence.egress.inspection.base import Limits, Upstream
from ringfence.egress.inspection.carry import Carrier
from ringfence.egress.inspection.http1 import Http1Client
from ringfence.egress.inspection.http1_server import Http1Upstream
from ringfence.egress.inspection.http2 import Http2Client
from ringfence.egress.inspection.upstream import AnyUpstream
from ringfence.egress.inspection.wire import TlsWire, Wire, wire_of
from ringfence.egress.tls import Tls
from ringfence.values.network import NetworkDoor
from ringfence.values.network_event import NetworkEvent
from ringfence.values.verdict import Verdict

_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


class HttpInspector:
    """For every connection of every box of a manager's run."""

    def __init__(
        self, authority: Authority, desks: Callable[[str], SecretDesk], *, limits: Limits | None = None
    ) -> None:
        self._authority = authority
        self._desks = desks
        self._limits = limits or Limits()

    async def inspect(self, flow: Flow, client: Stream, first: bytes, *, tls: bool) -> None:
        """Carry the whole connection; never raises what its two ends do."""
        wire: Wire = Wire(client)
        try:
            if tls:
                if (ended := await self._end_tls(flow, client, first)) is None:
                    return
                wire, first = ended, b""
            await self._serve(flow, wire, first, tls=tls)
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            wire.close()

    async def _serve(self, flow: Flow, wire: Wire, first: bytes, *, tls: bool) -> None:
        limits = self._limits
        is_http2 = wire.alpn == "h2" or (not tls and first[:3] == _PREFACE[:3])
        upstream: Upstream
        if is_http2:
            upstream = AnyUpstream(flow, limits, tls=tls)
        else:

            async def dial() -> Wire:
                return wire_of(await flow.dial(tls=tls, alpn=("http/1.1",) if tls else ()))

            upstream = Http1Upstream(dial, limits)
        carrier = Carrier(flow, self._desks(flow.box), upstream, limits, tls=tls)
        watch = asyncio.create_task(_watch(wire, limits.times.stalled))
        try:
            if is_http2:
                await Http2Client(wire, flow.host, flow.port, limits, tls=tls).run(first, carrier.carry)
            else:
                # One connection to a proxy carries plain requests to many hosts, and this one is for one of them.
                stays = flow.door is not NetworkDoor.HTTP
                client = Http1Client(wire, flow.host, flow.port, limits, tls=tls, stays=stays)
                await client.run(first, carrier.carry)
        finally:
            watch.cancel()
            await upstream.close()
            with contextlib.suppress(asyncio.CancelledError):
                await watch

    async def _end_tls(self, flow: Flow, client: Stream, first: bytes) -> TlsWire | None:
        wire = TlsWire(client, Tls(self._authority.context_for(flow.host), server_side=True))
        try:
            async with asyncio.timeout(self._limits.times.handshake):
                await wire.handshake(first)
        except (ssl.SSLError, ConnectionError, TimeoutError) as error:
            flow.record(_no_handshake(flow, error))
            wire.cut()
            return None
        return wire


async def _watch(wire: Wire, stalled: float) -> None:
    """End a connection on which nothing moves."""
    while (quiet := time.monotonic() - wire.touched_at) < stalled:
        await asyncio.sleep(stalled - quiet)
    wire.abort()


def _no_handshake(flow: Flow, error: Exception) -> NetworkEvent:
    """A client that pins, or does not trust us, ends here: say what would help."""
    why = getattr(error, "reason", None) or str(error) or "it took too long"
    return NetworkEvent(
        box=flow.box,
        door=flow.door,
        host=flow.host.text,
        port=flow.port,
        verdict=Verdict.DENY,
        reason=f"the client did not accept inspection of TLS ({why}): it pins certificates, or trusts other roots only",
        allow_by=f"an opaque rule for {flow.host} (no paths, methods or secrets can be held there)",
        started_at=time.time(),
        inspected=True,
    )
