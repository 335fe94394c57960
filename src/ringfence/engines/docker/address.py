"""A plain connection to a daemon, by the standard library: for questions before the client is loaded, and for what
becomes another protocol afterwards."""

import http.client
import socket
from urllib.parse import urlsplit


def connect(url: str, seconds: float) -> http.client.HTTPConnection:
    """A connection that gives up after so many seconds without an answer; the caller closes it.

    Raises:
        OSError: nobody answers there.
        ValueError: it is behind TLS.
    """
    parts = urlsplit(url)
    if parts.scheme == "https":
        raise ValueError("daemons behind TLS are not spoken to in this way")
    connection = http.client.HTTPConnection(parts.hostname or "docker", parts.port or 2375, timeout=seconds)
    if parts.scheme == "unix":
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(seconds)
        try:
            connection.sock.connect(parts.path)
        except OSError:
            connection.sock.close()
            raise
    return connection
