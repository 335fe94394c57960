"""Addresses that the proxy has to know: those of this machine, which are never dialled, and those that stand for names.

A box that asks for a name is told an address of 198.18.0.0/15, one for each name and box; a connection to it is led
back to the name. The network is reserved for measurements, so that no real host has it. A box whose routes lead nowhere
but to its own loopback, as in a container, is told one of 127.64.0.0/10.
"""

import ipaddress
import os
import socket
import struct
import time
from collections import OrderedDict
from typing import Final

from ringfence.values.hosts import Address, Host

_FRESH_SECONDS: Final = 5.0
_ROUTED: Final = ipaddress.IPv4Network("198.18.0.0/15")
_LOCAL: Final = ipaddress.IPv4Network("127.64.0.0/10")
_SPARE: Final = 256  # the first ones are the box's own
_NAMES: Final = 8192  # of a box; the one that was not asked for longest gives up its address

# From linux/netlink.h, linux/rtnetlink.h and linux/if_addr.h.
_GET_ADDRESSES: Final = 22
_NEW_ADDRESS: Final = 20
_DONE: Final = 3
_ERROR: Final = 2
_REQUEST_DUMP: Final = 0x301
_IFA_ADDRESS: Final = 1
_IFA_LOCAL: Final = 2


class OwnAddresses:
    """The addresses of this machine's interfaces, looked at every few seconds: networks change."""

    def __init__(self) -> None:
        self._known: frozenset[Address] = frozenset()
        self._looked_at = float("-inf")

    def __call__(self) -> frozenset[Address]:
        now = time.monotonic()
        if now - self._looked_at > _FRESH_SECONDS:
            self._known = own_addresses()
            self._looked_at = now
        return self._known


def own_addresses() -> frozenset[Address]:
    """Every address of every interface, asked of the kernel.

    Raises:
        OSError: it does not say; nothing may be dialled then.
    """
    found: set[Address] = set()
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as link:
        link.settimeout(2)
        link.send(struct.pack("=IHHIIB3x", 20, _GET_ADDRESSES, _REQUEST_DUMP, 1, 0, socket.AF_UNSPEC))
        while True:
            data = link.recv(65536)
            while len(data) >= 16:
                length, kind = struct.unpack_from("=IH", data)
                if kind == _DONE:
                    return frozenset(found)
                if kind == _ERROR or length < 16:
                    raise OSError("the kernel does not tell the addresses of this machine")
                if kind == _NEW_ADDRESS:
                    found.update(_addresses_in(data[16:length]))
                data = data[(length + 3) & ~3 :]


def _addresses_in(message: bytes) -> list[Address]:
    family = message[0]
    width = {socket.AF_INET: 4, socket.AF_INET6: 16}.get(socket.AddressFamily(family), 0)
    found: list[Address] = []
    rest = message[8:]
    while width and len(rest) >= 4:
        length, kind = struct.unpack_from("=HH", rest)
        if length < 4:
            break
        if kind in (_IFA_ADDRESS, _IFA_LOCAL) and length == 4 + width:
            found.append(ipaddress.ip_address(rest[4:length]))
        rest = rest[(length + 3) & ~3 :]
    return found


class StandIns:
    """Which address stands for which name inside one box."""

    def __init__(self, *, names: int = _NAMES, on_loopback: bool = False) -> None:
        self._names = names
        network = _LOCAL if on_loopback else _ROUTED
        self._first = int(network.network_address) + _SPARE
        self._last = int(network.broadcast_address) - 1
        self._by_host: OrderedDict[str, ipaddress.IPv4Address] = OrderedDict()
        self._by_address: dict[ipaddress.IPv4Address, Host] = {}
        # Not the same in two boxes, so that nobody writes one down and counts on it.
        self._next = self._first + int.from_bytes(os.urandom(2), "big")

    def address_of(self, host: Host) -> ipaddress.IPv4Address:
        known = self._by_host.get(host.text)
        if known is not None:
            self._by_host.move_to_end(host.text)
            return known
        if len(self._by_host) >= self._names:
            _, freed = self._by_host.popitem(last=False)
            del self._by_address[freed]
        address = ipaddress.IPv4Address(self._next)
        self._next = self._next + 1 if self._next < self._last else self._first
        while address in self._by_address:
            address = ipaddress.IPv4Address(self._next)
            self._next = self._next + 1 if self._next < self._last else self._first
        self._by_host[host.text] = address
        self._by_address[address] = host
        return address

    def host_at(self, address: Address) -> Host | None:
        return self._by_address.get(address) if isinstance(address, ipaddress.IPv4Address) else None
