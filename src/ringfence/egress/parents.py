"""Goes out through the parent proxy of the person's own network: CONNECT, with credentials that no box sees.

The host is named to the parent, not an address: whom the parent lets through, and where a name leads, is its own to
say, and often only it can. What is judged here before: a name that is a non-global address, or that this machine's own
resolver gives one for, is refused unless a rule names it; a name that is not known here is left to the parent.
"""

import asyncio
import contextlib
import re
import socket
import time
from typing import Final

from ringfence.egress.dialing import Dialer
from ringfence.egress.resolve import NotResolved, Resolver
from ringfence.egress.wording import visible
from ringfence.values.hosts import Address, BadHost, Host, canonical_host
from ringfence.values.parent_proxy import ParentProxy

LOOK_SECONDS: Final = 2.0
"""How long the own resolver may take for a name that the parent resolves anyway."""
_ANSWER_SECONDS: Final = 15.0  # the parent itself looks the name up and dials
_LONGEST: Final = 64 * 1024
_UNKNOWN_SECONDS: Final = 30.0
_UNKNOWN_KEPT: Final = 1024
_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-5][0-9][0-9])(?: ([^\r\n]*))?\r?\n")
_END: Final = re.compile(rb"\r?\n\r?\n")


class UnknownNames:
    """Names that this machine's resolver did not know a moment ago: only the parent may, and nobody waits again."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def __contains__(self, host: Host) -> bool:
        return self._until.get(host.text, 0.0) > time.monotonic()

    def add(self, host: Host) -> None:
        if len(self._until) >= _UNKNOWN_KEPT:
            self._until.clear()
        self._until[host.text] = time.monotonic() + _UNKNOWN_SECONDS


class ParentRefused(OSError):
    """The parent does not carry it on; the message says why."""


async def connect_by(
    parent: ParentProxy, host: Host, port: int, resolver: Resolver, dialer: Dialer
) -> tuple[socket.socket, Address]:
    """A socket that leads to a host through the parent, and the address of the parent.

    Raises:
        ParentRefused: the parent cannot be reached, does not answer, or refuses.
    """
    who = f"the parent proxy {parent.shown}"
    try:
        connected, address = await dialer.connect(await resolver.addresses(canonical_host(parent.host)), parent.port)
    except (BadHost, NotResolved) as fault:
        raise ParentRefused(f"{who} cannot be found: {fault}") from fault
    except TimeoutError as fault:
        raise ParentRefused(f"{who} does not answer") from fault
    except OSError as fault:
        raise ParentRefused(f"{who} cannot be reached: {fault.strerror or fault}") from fault
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            await ask_through(connected, parent, host, port)
    except TimeoutError as fault:
        connected.close()
        raise ParentRefused(f"{who} does not answer") from fault
    except BaseException:
        connected.close()
        raise
    return connected, address


async def ask_through(connected: socket.socket, parent: ParentProxy, host: Host, port: int) -> None:
    """Have the parent lead a connection on; not a byte behind its answer is read.

    Raises:
        ParentRefused: it does not.
    """
    target = f"{host.in_url}:{port}"
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if parent.authorization:
        lines.append(f"Proxy-Authorization: {parent.authorization}")
    who = f"the parent proxy {parent.shown}"
    try:
        await asyncio.get_running_loop().sock_sendall(connected, "\r\n".join((*lines, "", "")).encode("ascii"))
        head = await _head(connected)
    except TimeoutError:
        raise
    except OSError as fault:
        raise ParentRefused(f"{who} ended the connection: {fault.strerror or fault}") from fault
    said = _STATUS.match(head)
    if said is None:
        raise ParentRefused(f"{who} does not answer as a proxy does")
    status, reason = int(said[1]), visible((said[2] or b"").decode("latin-1"))[:60].strip()
    if 200 <= status < 300:
        return
    if status == 407:
        has = "other credentials than it is given" if parent.authorization else "credentials, and has none"
        raise ParentRefused(f"{who} wants {has} (407)")
    raise ParentRefused(f"{who} refuses {target} ({status}{' ' if reason else ''}{reason})")


async def _head(connected: socket.socket) -> bytes:
    """The head of the answer, and no byte more: a server may have spoken already."""
    head = b""
    while len(head) < _LONGEST:
        await _readable(connected)
        try:
            seen = connected.recv(_LONGEST, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            continue
        if not seen:
            raise ConnectionResetError("it ended before it answered")
        end = _END.search(head + seen)
        taken = connected.recv(len(seen) if end is None else end.end() - len(head))
        head += taken
        if end is not None:
            return head
    raise OSError("its answer is too long")


async def _readable(connected: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(connected, ready.set)
    try:
        await ready.wait()
    finally:
        with contextlib.suppress(ValueError, OSError):
            loop.remove_reader(connected)
