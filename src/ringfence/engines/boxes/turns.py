"""How many commands of one box run at once; the rest wait for their turn.

Calls of a box are independent processes and run side by side. What bounds them is what they share: the box's limit on
processes, and this process's descriptors. A call that would find either used up waits, and fails only by time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from ringfence.engines.room import OF_A_CALL, WAIT_SECONDS, descriptor_room
from ringfence.errors import Busy

_PROCESSES_OF_A_CALL: Final = 4
"""A shell, and a pipe's programs; what a call starts beyond that comes from the share of those who start less."""
_FEWEST: Final = 4
"""Side by side in the smallest box: agents' frameworks make this many calls at once and take it for granted."""


class Turns:
    def __init__(self, processes: int, seconds: float = WAIT_SECONDS) -> None:
        self.at_once = max(_FEWEST, processes // _PROCESSES_OF_A_CALL)
        self._free = asyncio.Semaphore(self.at_once)
        self._seconds = seconds
        self._running = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Runs one call when it is its turn, in the order in which they came.

        Raises:
            Busy: it did not come in time.
        """
        await self._wait_free()
        try:
            room = descriptor_room()
            # One call of a box at least goes on whatever others hold, so that the box is never stuck.
            hold = room.take_now(OF_A_CALL)
            if hold is None and self._running:
                hold = await room.take(OF_A_CALL, "another command", seconds=self._seconds)
            self._running += 1
            try:
                yield
            finally:
                self._running -= 1
                if hold is not None:
                    hold.give_back()
        finally:
            self._free.release()

    async def _wait_free(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError:
            raise Busy(
                f"{self.at_once} commands run in this sandbox, and none of them ended within {self._seconds:g} s",
                hint="use a second sandbox, raise the limit on processes, or do less at once",
            ) from None
