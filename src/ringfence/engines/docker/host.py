"""What stands around PID 1 of a box in a container: the container, the stage it was made from, and its guardian."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING

from ringfence.engines.boxes.waiting import wait_readable
from ringfence.engines.docker import pending_removals
from ringfence.engines.docker.daemon import Daemon
from ringfence.errors import Internal, RingfenceError

if TYPE_CHECKING:
    from ringfence.engines.boxes.base import Supervision
    from ringfence.engines.docker.relay import Relay
    from ringfence.engines.docker.stage import Stage

_GRACE_SECONDS = 3.0
"""How long the first process may take to see that it was let go; one that does not has been frozen."""
_REMOVE_SECONDS = 8.0
"""How long the daemon may take to end a container, and to say that it is gone: whoever closes the box waits for it."""

_frozen: set[asyncio.Task[None]] = set()
"""Those that wait for the guardians of boxes that do not end; kept, so that none is collected before its end."""


class DockerHost:
    def __init__(
        self,
        *,
        url: str,
        container: str,
        stage: Stage,
        control: socket.socket,
        first_process: int,
        configure: tuple[str, ...],
        seccomp: bytes,
        owner: tuple[int, int] | None,
        relay: Relay | None = None,
    ) -> None:
        """Takes over the stage, the socket, the descriptor of the first process and the ferry."""
        self.control = control
        self.owner = owner
        self.container = container
        self.configure = ("complain", *configure, "filter")
        self._url = url
        self._stage = stage
        self._first_process = first_process
        self._relay = relay
        self._complaints, self._complaints_end = os.pipe()
        self._filter = os.memfd_create("ringfence-seccomp", os.MFD_CLOEXEC)
        with open(self._filter, "wb", closefd=False) as file:
            file.write(seccomp)
        self._killing: asyncio.Task[None] | None = None

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (self._complaints_end, self._filter)

    def complaints(self) -> str:
        os.set_blocking(self._complaints, False)
        with suppress(OSError):
            if said := os.read(self._complaints, 4096).decode(errors="replace").strip():
                return said
        return "" if self._relay is None else self._relay.complaints()

    def supervise(self, listener: int) -> Supervision:
        raise Internal("a container's first process sent a listener that nobody asked for")

    def kill(self, first_pid: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(first_pid, signal.SIGKILL)
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._thaw())

    async def _thaw(self) -> None:
        """What is frozen does not even die."""
        with suppress(RingfenceError, TimeoutError):
            async with asyncio.timeout(_REMOVE_SECONDS), Daemon(self._url) as daemon:
                await daemon.thaw_and_kill(self.container)

    def release(self) -> None:
        self.control.close()
        self._stage.release()
        for descriptor in (self._complaints, self._complaints_end, self._filter):
            os.close(descriptor)

    async def wait_closed(self) -> None:
        """The first process has ended, the guardian has cleaned up, and the daemon has removed the container, if it can
        still be asked.

        One that is frozen does not end, and only its daemon can thaw it. If that does not answer, the container is
        owed, and the guardian waits on without us."""
        if not await wait_readable(self._first_process, _GRACE_SECONDS):
            await self._thaw()
        if self._killing is not None:
            await asyncio.wait((self._killing,))
        has_ended = await wait_readable(self._first_process, _GRACE_SECONDS)
        os.close(self._first_process)
        if self._relay is not None:
            await self._relay.wait_closed()
        if not has_ended:
            pending_removals.owe(self._url, self.container)
            waiting = asyncio.get_running_loop().create_task(self._stage.wait_closed())
            _frozen.add(waiting)
            waiting.add_done_callback(_frozen.discard)
            return
        await self._stage.wait_closed()
        with suppress(RingfenceError, TimeoutError):
            async with asyncio.timeout(_REMOVE_SECONDS), Daemon(self._url) as daemon:
                if not await daemon.wait_removed(self.container, _GRACE_SECONDS):
                    await daemon.remove(self.container)
