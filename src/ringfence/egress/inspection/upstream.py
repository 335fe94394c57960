"""Towards a server whose version of HTTP is known once it has been dialled: HTTP/2 if it has it, HTTP/1.1 else."""

import asyncio

from ringfence.egress.base import Flow, RequestHead
from ringfence.egress.inspection.base import Limits, Outgoing
from ringfence.egress.inspection.http1_server import Http1Upstream
from ringfence.egress.inspection.http2_server import Http2Upstream
from ringfence.egress.inspection.wire import Wire, wire_of


class AnyUpstream:
    """For a client that speaks HTTP/2 (`Upstream`)."""

    def __init__(self, flow: Flow, limits: Limits, *, tls: bool) -> None:
        self._flow = flow
        self._limits = limits
        self._tls = tls
        self._http1: Http1Upstream | None = None
        self._http2: Http2Upstream | None = None
        self._dialling = asyncio.Lock()

    async def open(self, head: RequestHead, spelled: dict[bytes, bytes], *, chunked: bool, ended: bool) -> Outgoing:
        upstream = await self._chosen()
        return await upstream.open(head, spelled, chunked=chunked, ended=ended)

    async def _chosen(self) -> Http1Upstream | Http2Upstream:
        if self._http1 is not None:
            return self._http1
        async with self._dialling:
            if self._http2 is not None and self._http2.is_usable:
                return self._http2
            if self._http1 is not None:
                return self._http1
            wire = wire_of(await self._flow.dial(tls=self._tls, alpn=("h2", "http/1.1") if self._tls else ()))
            # Without TLS nothing is agreed on: whoever begins with HTTP/2's first bytes knows that the server has it.
            if wire.alpn == "h2" or not self._tls:
                self._http2 = Http2Upstream(wire, self._limits, scheme=b"https" if self._tls else b"http")
                return self._http2
            self._http1 = Http1Upstream(self._dial_http1, self._limits)
            self._http1.adopt(wire)
            return self._http1

    async def _dial_http1(self) -> Wire:
        return wire_of(await self._flow.dial(tls=self._tls, alpn=("http/1.1",) if self._tls else ()))

    async def close(self) -> None:
        for upstream in (self._http1, self._http2):
            if upstream is not None:
                await upstream.close()
