"""Waits for the box's first process to connect, and makes sure that it is the one.

Nothing else can: nothing else runs in the container yet, and outside only we may enter the socket's directory. The
kernel is asked all the same who it is. There is no second connection: the socket is closed and removed after the first.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.engines.docker import verify
from ringfence.errors import InitializationFailed

if TYPE_CHECKING:
    from ringfence.engines.docker.daemon import Daemon

_CONNECT_SECONDS = 20.0
_PEER = struct.Struct("=iII")


async def accept(daemon: Daemon, container: str, listener: socket.socket) -> socket.socket:
    """The first connection, or why there will be none.

    Raises:
        InitializationFailed: the container has ended, or nobody connects.
    """
    loop = asyncio.get_running_loop()
    seconds = min(_CONNECT_SECONDS, daemon.seconds_left)
    connecting = asyncio.ensure_future(loop.sock_accept(listener))
    ending = asyncio.ensure_future(daemon.wait_ended(container))
    try:
        await asyncio.wait((connecting, ending), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if connecting.done():
            control, _ = connecting.result()
            control.setblocking(False)
            control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            return control
        why = ending.result() if ending.done() else f"nobody connected within {seconds:.0f} s"
        raise InitializationFailed(
            f"our helper did not come up in the container: {why}",
            hint="the daemon has to run on this machine, with an image for its kind of processor",
        )
    finally:
        for task in (connecting, ending):
            task.cancel()
        await asyncio.wait((connecting, ending))


def peer(control: socket.socket, uid: int, container: str, said_pid: int | None = None) -> int:
    """The process at the other end, by the kernel's word.

    Args:
        uid: whose it has to be.
        said_pid: which one the daemon says it is, where containers may be in no control group of their own.

    Raises:
        InitializationFailed: it is not of our container.
    """
    pid: int
    pid, peer_uid, _ = _PEER.unpack(control.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    status = groups = ""
    with suppress(OSError):
        status = Path(f"/proc/{pid}/status").read_text()
        groups = Path(f"/proc/{pid}/cgroup").read_text()
    is_said = said_pid is not None and verify.is_first_process(status, said_pid)
    if pid <= 0 or peer_uid != uid or not (is_said or verify.belongs_to(groups, container)):
        raise InitializationFailed(
            "somebody else than the container's first process connected to its control socket",
            hint="the daemon has to run on this machine, in a pid namespace that we can see",
        )
    return pid
