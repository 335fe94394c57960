"""A captured network whose listeners are carried out, as they are from behind a kernel of its own.

The carrier is the real one (`ringfence-box carry` and `carried`), without a wall between the two, so that every machine
can try it. Behind one, tests/integration/test_docker_network.py does.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ringfence.egress.base import Listeners
from ringfence.engines.boxes import helper, protocol
from ringfence.engines.boxes.protocol import MessageKind
from ringfence.values.network import PROXY_PORT
from tests.support.egress import Captured


class Carried(Captured):
    """PID 1 is in the captured network, and what it makes comes over the carrier."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self._numbers = itertools.count(1)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.settimeout(20)
        self.control = ours
        description = os.memfd_create("description")
        os.write(description, b"{}")
        inside = (*self.entering, helper.path(), "carried")
        words = (helper.path(), "carry", str(theirs.fileno()), str(description), str(directory), *inside)
        self.udp("127.0.0.1", 9).close()  # its network stands
        self.carrier = subprocess.Popen(words, pass_fds=(theirs.fileno(), description), env={"PATH": "/usr/bin:/bin"})
        theirs.close()
        os.close(description)
        protocol.send(ours, MessageKind.CONFIGURE, 0, ("umask", "18", "reaper"))
        assert protocol.receive(ours) is not None

    def make(self, kind: MessageKind, port: int) -> socket.socket:
        """What PID 1 makes.

        Raises:
            OSError: it cannot.
        """
        protocol.send(self.control, kind, next(self._numbers), (str(port),))
        received = protocol.receive(self.control)
        assert received is not None and received.reply.kind is MessageKind.MADE
        if error := received.reply.numbers[0]:
            raise OSError(error, os.strerror(error))
        return socket.socket(fileno=received.descriptor)

    def listen(self, kind: MessageKind, port: int) -> socket.socket:
        """A listener; those that somebody else had are gone a moment after he was."""
        deadline = time.monotonic() + 10
        while True:
            try:
                made = self.make(kind, port)
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)
                continue
            made.setblocking(False)
            return made

    def listeners(self, *ports: int) -> Listeners:
        return Listeners(
            proxy=self.listen(MessageKind.LISTEN, PROXY_PORT),
            dns_udp=self.listen(MessageKind.DATAGRAM, 53),
            dns_tcp=self.listen(MessageKind.LISTEN, 53),
            tcp={port: self.listen(MessageKind.LISTEN, port) for port in ports},
            is_carried=True,
        )

    def close(self) -> None:
        self.control.close()
        self.carrier.wait(10)
        super().close()


@contextlib.contextmanager
def carried() -> Iterator[Carried]:
    with tempfile.TemporaryDirectory(prefix="ringfence-carried-") as directory:
        made = Carried(Path(directory))
        try:
            yield made
        finally:
            made.close()
