"""The way into a container that has a kernel of its own: over its stdin and stdout, as the daemon lets us at them.

    manager  --control socket-->  ringfence-box ferry  --connection to the daemon-->  ringfence-box carried, inside

Nothing else leads in there, neither a socket nor a descriptor; native/carry.c says how both are carried. The connection
has to be made before the container is started, so that nothing is lost. When it ends, whoever ends it, the container's
stdin does, and with that the container.

What this does not protect against: a daemon that dies takes its connections along, and so the box, which a container on
the host's kernel would survive.
"""

import asyncio
import http.client
import os
import socket
import subprocess
from contextlib import ExitStack, suppress
from urllib.parse import quote

from ringfence.engines.boxes import helper
from ringfence.engines.boxes.waiting import wait_child
from ringfence.engines.docker.address import connect
from ringfence.errors import InitializationFailed

_ATTACH_SECONDS = 10.0


class Relay:
    """Made by `attach`; `control` is the caller's to close, and with it the ferry ends."""

    def __init__(self, process: subprocess.Popen[bytes], control: socket.socket, complaints: int) -> None:
        self.control = control
        self._process = process
        self._complaints = complaints

    def complaints(self) -> str:
        """What it, or the first process before it had a control socket, said went wrong."""
        with suppress(OSError):
            return os.read(self._complaints, 4096).decode(errors="replace").strip()
        return ""

    async def wait_closed(self) -> None:
        await wait_child(self._process)
        os.close(self._complaints)

    async def abort(self) -> None:
        """End it before anybody has used it."""
        self.control.close()
        await self.wait_closed()


async def attach(url: str, container: str) -> Relay:
    """Attach to a container that was made and not started.

    Raises:
        InitializationFailed: the daemon does not let us, or our helper does not start.
    """
    stream = await asyncio.to_thread(_attach, url, container)
    with stream, ExitStack() as undo, ExitStack() as passed:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(ours.close)
        passed.callback(theirs.close)
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        complaints, complaints_end = os.pipe()
        undo.callback(os.close, complaints)
        passed.callback(os.close, complaints_end)
        os.set_blocking(complaints, False)
        try:
            process = subprocess.Popen(
                [helper.path(), "ferry", str(theirs.fileno()), str(stream.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints_end,
                env={},
                cwd="/",
                pass_fds=[theirs.fileno(), stream.fileno()],
            )
        except OSError as fault:
            raise InitializationFailed(f"cannot start our helper: {fault.strerror}") from fault
        undo.pop_all()
        return Relay(process, ours, complaints)


def _attach(url: str, container: str) -> socket.socket:
    """A connection that is the container's stdin one way, and its stdout and stderr, in pieces, the other."""
    wanted = f"/containers/{quote(container)}/attach?stream=1&stdin=1&stdout=1&stderr=1"
    try:
        connection = connect(url, _ATTACH_SECONDS)
        try:
            connection.request("POST", wanted, headers={"Host": "docker", "Connection": "Upgrade", "Upgrade": "tcp"})
            answer = connection.getresponse()
            if answer.status != http.HTTPStatus.SWITCHING_PROTOCOLS:
                raise ValueError(f"it answered {answer.status} {answer.read(500).decode(errors='replace').strip()}")
            stream = socket.socket(fileno=os.dup(connection.sock.fileno()))
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as fault:
        raise InitializationFailed(
            f"the Docker daemon does not let us at the container's stdin and stdout: {fault}",
            hint="a proxy before it has to let POST /containers/ID/attach through, with its upgrade",
        ) from fault
    stream.settimeout(None)
    return stream
