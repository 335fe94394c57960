"""Runs the service: one process, one loop, on a Unix socket and, when asked, on an address of loopback or with TLS."""

from __future__ import annotations

import asyncio
import fcntl
import os
import resource
import signal
import socket
import ssl
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvicorn
from starlette.routing import BaseRoute
from uvicorn.protocols.http.h11_impl import H11Protocol

from ringfence.audit.metrics import MetricsObserver
from ringfence.audit.telemetry import OpenTelemetryObserver
from ringfence.dataclass import dataclass
from ringfence.errors import AlreadyExists, Busy, FileError, InvalidArgument, InvalidConfig, NotInstalled
from ringfence.server import console
from ringfence.server.app import make_app
from ringfence.server.joining import JoiningTransport
from ringfence.server.service import Service
from ringfence.server.settings import Settings
from ringfence.server.store import Store

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from ringfence.audit.events import Observer

LOCK_FILE: Final = "server.lock"
SOCKET_FILE: Final = "server.sock"
_BACKLOG: Final = 1024
_LEAVE_SECONDS: Final = 5
"""What connections get when nothing runs any more."""
_CANNOT_START: Final = 3
"""What uvicorn exits with, too."""
_CONNECTIONS: Final = 4096
_WS_BYTES: Final = 1024 * 1024
_PEER: Final = struct.Struct("3i")


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Where a server listens."""

    socket: Path
    host: str | None = None
    port: int = 0
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    """Whether something in front of it ends TLS, which the operator says in so many words."""

    def check(self) -> None:
        """
        Raises:
            InvalidArgument: it would be open to others without TLS.
        """
        if self.host is None or _is_loopback(self.host) or self.behind_proxy:
            return
        if self.certificate is None or self.key is None:
            raise InvalidArgument(
                f"{self.host} is not loopback, and there is no TLS",
                hint="give --tls-cert and --tls-key, or --behind-proxy if something in front of it ends TLS",
            )


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")


class StateLock:
    """Held for as long as a server uses a state directory.

    Raises:
        Busy: another one does.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._descriptor)
            raise Busy(
                f"another server uses the state directory {directory}",
                hint="stop it, or give this one another --state",
            ) from None

    def release(self) -> None:
        os.close(self._descriptor)


class _Protocol(H11Protocol):
    """Looks at who connects to the Unix socket: its owner and root, nobody else."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        found = transport.get_extra_info("socket")
        if found is not None and found.family == socket.AF_UNIX:
            _, uid, _ = _PEER.unpack(found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            if uid not in (0, os.geteuid()):
                transport.abort()
                return
        super().connection_made(JoiningTransport(transport))  # type: ignore[arg-type]  # all of one that uvicorn uses


def bind_unix(path: Path) -> socket.socket:
    """A listener that its owner alone can connect to; takes the place of one that nobody listens at any more.

    Raises:
        AlreadyExists: something else is there.
        FileError: it cannot be made there.
    """
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise AlreadyExists("something that is no socket is there", path=str(path))
        os.unlink(path)  # the state directory's lock is held, so that nobody listens there
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        listener.bind(str(path))
        listener.listen(_BACKLOG)
    except OSError as fault:
        listener.close()
        raise FileError.of(fault.errno or 0, str(path), hint="a socket's path has at most 107 bytes") from fault
    finally:
        os.umask(before)
    return listener


def bind_tcp(host: str, port: int) -> socket.socket:
    """
    Raises:
        FileError: the address cannot be had.
    """
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # By its number: asyncio switches Nagle's algorithm off only for sockets that say so, else answers wait 40 ms.
        listener = socket.socket(family, kind, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as fault:
        raise FileError(f"cannot listen at {host}:{port}: {fault.strerror}", number=fault.errno) from fault
    return listener


class Server(uvicorn.Server):
    """Says when it listens, and ends by itself when it is told to."""

    def __init__(
        self, config: uvicorn.Config, service: Service, tls: ssl.SSLContext | None, ready: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self._service = service
        self._tls = tls
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As uvicorn's, but a signal that was heeded is not raised again: what is ours is put away first."""
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """What runs gets its time and is ended first, so that whoever waits for it is answered."""
        for server in self.servers:
            server.close()
        await self._service.stop()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn's for sockets that are there, but TLS is for those of the network only."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(_CANNOT_START)
        loop, config = asyncio.get_running_loop(), self.config

        def make_protocol() -> asyncio.Protocol:
            return _Protocol(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        self.servers = [
            await loop.create_server(
                make_protocol, sock=each, ssl=None if each.family == socket.AF_UNIX else self._tls, backlog=_BACKLOG
            )
            for each in sockets or ()
        ]
        self.started = True
        self._ready()


def serve(
    service: Service,
    sockets: list[socket.socket],
    listening: Listening,
    ready: Callable[[], None],
    routes: Sequence[BaseRoute] = (),
) -> None:
    """Serve until a signal says to end; returns when nothing is left.

    Args:
        ready: called when it listens.
        routes: of other front doors that are served beside ours.
    """
    _raise_descriptors()
    config = uvicorn.Config(
        make_app(service, routes=[*routes, *console.ROUTES]),
        http=_Protocol,
        ws="wsproto",
        ws_max_size=_WS_BYTES,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_LEAVE_SECONDS,
        limit_concurrency=_CONNECTIONS,
        backlog=_BACKLOG,
    )
    config.load()
    Server(config, service, tls_context(listening), ready).run(sockets=sockets)


def tls_context(listening: Listening) -> ssl.SSLContext | None:
    """
    Raises:
        InvalidConfig: certificate and key cannot be used.
    """
    if listening.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(listening.certificate, listening.key)
    except OSError as fault:
        raise InvalidConfig(
            f"certificate and key cannot be used: {fault}", source=str(listening.certificate)
        ) from fault
    return context


def _raise_descriptors() -> None:
    """As many descriptors as may be had: each connection and each box needs some."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, 1 << 20) if hard != resource.RLIM_INFINITY else 1 << 20
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def open_service(settings: Settings) -> tuple[Service, StateLock]:
    """
    Raises:
        Busy: another server uses the state directory.
        Damaged, FileError: its state cannot be used.
    """
    lock = StateLock(settings.state)
    try:
        observers, registry = _observers()
        return Service(settings, Store(settings.state), observers, registry), lock
    except BaseException:
        lock.release()
        raise


def _observers() -> tuple[tuple[Observer, ...], CollectorRegistry | None]:
    """Metrics and traces, as far as their packages are there."""
    found: list[Observer] = []
    registry = None
    with suppress(ImportError):
        from prometheus_client import CollectorRegistry

        registry = CollectorRegistry()
        found.append(MetricsObserver(registry))
    with suppress(NotInstalled):
        found.append(OpenTelemetryObserver())
    return tuple(found), registry
