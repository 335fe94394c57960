"""Addresses of names that are allowed: asked once, all answers kept, none asked for again before it is dialled.

Nothing is asked before the verdict, because a question is a message too. `getaddrinfo` blocks, so it runs in threads of
its own, few of them, each look-up bounded; one that hangs costs a thread and nobody else's time.
"""

import asyncio
import ipaddress
import socket
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from ringfence.dataclass import dataclass
from ringfence.values.hosts import Address, Host

_GOOD_SECONDS: Final = 15.0  # short: a name may move; long enough for the connections of one page
_BAD_SECONDS: Final = 2.0
_LOOKUP_SECONDS: Final = 8.0
_THREADS: Final = 64  # a box has at most eight look-ups at once (`flow.py`), of which each may hang for half a minute
_KEPT: Final = 2048


class NotResolved(OSError):
    """A name has no address, or nobody says which."""


class Resolver(Protocol):
    async def addresses(self, host: Host) -> tuple[Address, ...]:
        """All of them, in the order in which they are to be tried.

        Raises:
            NotResolved: there is none, or no answer in time.
        """


@dataclass(frozen=True, slots=True)
class _Kept:
    answers: tuple[Address, ...]
    until: float
    fault: str = ""


class SystemResolver:
    """Asks as every program of this machine does (`getaddrinfo`)."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="resolve")
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._asking: dict[str, asyncio.Task[tuple[Address, ...]]] = {}

    async def addresses(self, host: Host) -> tuple[Address, ...]:
        if host.address is not None:
            return (host.address,)
        kept = self._kept.get(host.text)
        if kept is not None and kept.until > time.monotonic():
            if kept.fault:
                raise NotResolved(kept.fault)
            return kept.answers
        task = self._asking.get(host.text)
        if task is None:
            task = self._asking[host.text] = asyncio.create_task(self._ask(host))
            task.add_done_callback(lambda done: self._asked(host.text, done))
        return await asyncio.shield(task)

    async def _ask(self, host: Host) -> tuple[Address, ...]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_LOOKUP_SECONDS):
                answers = await loop.run_in_executor(self._threads, _look_up, host.text)
        except TimeoutError:
            self._keep(host, (), f"nobody said in {_LOOKUP_SECONDS:g} s which address {host} has")
        except OSError as fault:
            self._keep(host, (), f"{host} has no address ({fault.strerror or fault})")
        else:
            self._keep(host, answers, "" if answers else f"{host} has no address")
        kept = self._kept[host.text]
        if kept.fault:
            raise NotResolved(kept.fault)
        return kept.answers

    def _keep(self, host: Host, answers: tuple[Address, ...], fault: str) -> None:
        self._kept[host.text] = _Kept(answers, time.monotonic() + (_BAD_SECONDS if fault else _GOOD_SECONDS), fault)
        self._kept.move_to_end(host.text)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)

    def _asked(self, name: str, done: asyncio.Task[tuple[Address, ...]]) -> None:
        self._asking.pop(name, None)
        if not done.cancelled():
            done.exception()  # seen by whoever waits; if nobody does any longer, it is no fault of ours

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(name: str) -> tuple[Address, ...]:
    # As bytes, so that Python does not translate what is canonical already. Without a final dot, which /etc/hosts does
    # not know; that no search list makes another name of it is seen to by the process's environment (LOCALDOMAIN).
    found = socket.getaddrinfo(name.encode("ascii"), None, type=socket.SOCK_STREAM)
    answers: dict[Address, None] = {}
    for family, _, _, _, address in found:
        if family in (socket.AF_INET, socket.AF_INET6):
            answers[ipaddress.ip_address(str(address[0]).partition("%")[0])] = None
    return tuple(answers)
