"""Hands a new box's network to whoever serves it: listeners made inside, ports published, and all of it taken back."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, Protocol

from ringfence.egress.base import Listeners
from ringfence.engines.base import Attached, NetworkProvider, SocketMaker
from ringfence.engines.networking.publishing import Publisher
from ringfence.errors import InitializationFailed
from ringfence.values.network import PROXY_PORT, NetworkGrant

if TYPE_CHECKING:
    from ringfence.values.violation import Violation

_DNS_PORT: Final = 53
_numbers: Final = itertools.count(1)


def new_name() -> str:
    """A name that no other box of this process has."""
    return f"{os.getpid()}-{next(_numbers)}"


def no_provider() -> InitializationFailed:
    return InitializationFailed(
        "a network is granted, and there is nobody here who would serve it",
        hint="open boxes by SandboxManager or Sandbox, which bring the proxy, or grant no network",
    )


class EngineSocketMaker(SocketMaker, Protocol):
    """A `SocketMaker` as the engine has it."""

    @property
    def is_loopback(self) -> bool:
        """As `Listeners.is_loopback`."""

    @property
    def is_carried(self) -> bool:
        """As `Listeners.is_carried`."""

    async def datagrams(self, port: int) -> socket.socket:
        """A socket of UDP on that port of every address; it says where each packet was sent to.

        Raises:
            OSError: as `listen`.
        """

    def close(self) -> None: ...


class BoxNetwork:
    """The network of one box, as long as it stands."""

    def __init__(self, name: str, maker: EngineSocketMaker, attached: Attached, publisher: Publisher) -> None:
        self.name = name
        self._maker = maker
        self._attached = attached
        self._publisher = publisher

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        return self._attached.variables

    @property
    def published(self) -> tuple[tuple[int, int], ...]:
        return (*self._attached.published, *self._publisher.ports)

    async def settle(self) -> bool:
        return await self._attached.settle()

    def taken(self, until: float | None = None) -> tuple[Violation, ...]:
        return self._attached.taken(until)

    async def close(self) -> None:
        await self._publisher.close()
        await self._attached.close()
        self._maker.close()


async def attach(provider: NetworkProvider, network: NetworkGrant, maker: EngineSocketMaker) -> BoxNetwork:
    """Make the box's listeners, and hand them over.

    Raises:
        InitializationFailed: they cannot be made, nobody takes them, or a port cannot be published.
    """
    name = new_name()
    publisher = Publisher(maker)
    try:
        _check_published(network)
        listeners = await _listen(network, maker)
        try:
            attached = await provider.attach(name, network, listeners, maker)
        except BaseException:
            listeners.close()
            raise
        try:
            served = {inside for inside, _ in attached.published}
            publisher.publish(tuple(pair for pair in network.publish if pair[0] not in served))
        except BaseException:
            await attached.close()
            raise
    except BaseException:
        await publisher.close()
        maker.close()
        raise
    return BoxNetwork(name, maker, attached, publisher)


def _check_published(network: NetworkGrant) -> None:
    """Raises InitializationFailed for a port where the proxy listens: everybody of this machine who connects to it
    would be taken for the box, with all that it may reach."""
    taken = {PROXY_PORT, _DNS_PORT, *network.captured_ports}
    for inside, _ in network.publish:
        if inside in taken:
            raise InitializationFailed(
                f"port {inside} of the box leads to the proxy and cannot be published",
                hint="let the server inside listen at another port, such as 8000",
            )


async def _listen(network: NetworkGrant, maker: EngineSocketMaker) -> Listeners:
    ports = [port for port in network.captured_ports if port not in (PROXY_PORT, _DNS_PORT)]
    made: dict[str | int, socket.socket] = {}

    async def make(key: str | int, asked: Awaitable[socket.socket]) -> None:
        made[key] = await asked

    try:
        async with asyncio.TaskGroup() as all_at_once:
            all_at_once.create_task(make("proxy", maker.listen(PROXY_PORT)))
            all_at_once.create_task(make("dns", maker.datagrams(_DNS_PORT)))
            all_at_once.create_task(make("dns by tcp", maker.listen(_DNS_PORT)))
            for port in ports:
                all_at_once.create_task(make(port, maker.listen(port)))
    except BaseException as fault:
        for each in made.values():
            each.close()
        if isinstance(fault, BaseExceptionGroup) and (refused := fault.subgroup(OSError)) is not None:
            why = next(iter(refused.exceptions))
            raise InitializationFailed(f"the box's network could not be captured: {why}") from fault
        raise
    proxy, dns_udp, dns_tcp = (made.pop(key) for key in ("proxy", "dns", "dns by tcp"))
    return Listeners(
        proxy=proxy,
        dns_udp=dns_udp,
        dns_tcp=dns_tcp,
        tcp={port: made[port] for port in ports},
        is_loopback=maker.is_loopback,
        is_carried=maker.is_carried,
    )
