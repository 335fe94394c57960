"""A parent proxy as companies have them: CONNECT with Basic credentials, names that only it knows, and moods."""

from __future__ import annotations

import base64
import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

USER, PASSWORD = "ann@corp", "p:ss w/rd"
AUTHORIZATION = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
CREDENTIALS = "ann%40corp:p%3Ass%20w%2Frd"
"""As they are written in a URL."""
GREETING = b"220 hello\r\n"
_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\nVia: 1.1 corp\r\n\r\n"


@dataclass
class Parent:
    """Leads every host to one server of this machine's loopback; with port 0, to a greeting that it says itself.

    Moods: "works"; "refuses" (403); "hangs"; "dies" (ends without an answer); "babbles" (no HTTP); "endless" (a head
    without end); "chatty" (the greeting comes in one piece with the answer).
    """

    to_port: int
    mood: str = "works"
    needs: str = AUTHORIZATION
    asked: list[str] = field(default_factory=list)
    """The targets of CONNECT that came with the right credentials."""
    heads: list[str] = field(default_factory=list)
    port: int = 0

    def serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            head = b""
            while b"\r\n\r\n" not in head:
                data = connection.recv(1)  # not a byte of what comes after it
                if not data:
                    return
                head += data
            text = head.decode("latin-1")
            self.heads.append(text)
            target = text.split(" ")[1]
            if self.needs and f"Proxy-Authorization: {self.needs}\r\n" not in text:
                connection.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n")
                return
            self.asked.append(target)
            self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        if self.mood == "refuses":
            connection.sendall(b"HTTP/1.1 403 Blocked by\x07 the firm\r\n\r\n")
        elif self.mood == "hangs":
            connection.recv(1)  # until the other side gives up
        elif self.mood == "babbles":
            connection.sendall(b"220 mail.corp ESMTP\r\n\r\n")
        elif self.mood == "endless":
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                connection.sendall(b"X-More: of it\r\n" * 100)
        elif self.mood == "chatty":
            connection.sendall(_ESTABLISHED + GREETING)
            connection.recv(1)
        elif self.mood == "works" and not self.to_port:
            connection.sendall(_ESTABLISHED)
            connection.sendall(GREETING)
            connection.recv(1)
        elif self.mood == "works":
            with socket.create_connection(("127.0.0.1", self.to_port), 10) as server:
                connection.sendall(_ESTABLISHED)
                _relay(connection, server)


def _relay(one: socket.socket, other: socket.socket) -> None:
    while True:
        ready, _, _ = select.select((one, other), (), (), 30)
        for source in ready:
            data = source.recv(65536)
            if not data:
                return
            (other if source is one else one).sendall(data)
        if not ready:
            return


@contextlib.contextmanager
def parent_proxy(to_port: int = 0) -> Iterator[Parent]:
    listener = socket.create_server(("127.0.0.1", 0))
    parent = Parent(to_port, port=int(listener.getsockname()[1]))
    threads: list[threading.Thread] = []
    taken: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            taken.append(connection)
            thread = threading.Thread(target=parent.serve, args=(connection,))
            thread.start()
            threads.append(thread)

    accepting = threading.Thread(target=accept)
    accepting.start()
    try:
        yield parent
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        accepting.join()
        for each in taken:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in threads:
            thread.join(35)
        for each in taken:
            each.close()
