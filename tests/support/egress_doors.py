"""One request through each door of the proxy, and whether it got out.

Each door gives a socket that is open towards the host, or says that it is refused; what is said over it then is the
same for all. "Allow" is an answer of the server, seen by the client; "deny" is none, and nobody was dialled.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import dnslib  # type: ignore[import-untyped]  # it has no types

from tests.support.egress import Captured, World

CONNECT, SOCKS, HTTP, TRANSPARENT = "connect", "socks", "http", "transparent"
DOORS = (CONNECT, SOCKS, HTTP, TRANSPARENT)


class Refused(Exception):
    """The door does not open."""


class DoesNotApply(Exception):
    """This cannot be said at that door."""


@dataclass
class Request:
    host: str
    port: int
    method: str = "GET"
    path: str = "/"
    sni: str | None = None
    """None: the host."""
    first: str = ""
    """What is said first; empty: TLS at the ports of TLS, HTTP elsewhere."""
    host_header: str = ""


def parse_target(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host, int(port)


def through(door: str, network: Captured, world: World, request: Request) -> bool:
    """Whether the request was answered by the server."""
    if door == HTTP:
        return _by_url(network, request)
    try:
        opened = {CONNECT: _connect, SOCKS: _socks, TRANSPARENT: _transparent}[door](network, request)
    except Refused:
        return False
    with opened:
        try:
            return _speak(opened, world, request)
        except (OSError, ssl.SSLError):
            return False


# --- doors ------------------------------------------------------------------------------------------------------------


def _connect(network: Captured, request: Request) -> socket.socket:
    opened = network.connect("127.0.0.1", 3128)
    target = f"{request.host}:{request.port}"
    opened.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
    head = _head(opened)
    if not head.startswith(b"HTTP/1.1 200"):
        opened.close()
        raise Refused(head.decode())
    return opened


def _socks(network: Captured, request: Request) -> socket.socket:
    opened = network.connect("127.0.0.1", 3128)
    try:
        opened.sendall(b"\5\1\0")
        assert _exactly(opened, 2) == b"\5\0"
        opened.sendall(socks_request(request.host, request.port))
        if _exactly(opened, 10)[1] != 0:
            raise Refused("SOCKS")
    except BaseException:
        opened.close()
        raise
    return opened


def socks_request(host: str, port: int, command: int = 1) -> bytes:
    bare = host.strip("[]")
    try:
        packed = ipaddress.ip_address(bare).packed
        address = (b"\1" if len(packed) == 4 else b"\4") + packed
    except ValueError:
        raw = host.encode("utf-8")
        if len(raw) > 255:
            raise DoesNotApply("a name of more than 255 bytes") from None
        address = b"\3" + bytes((len(raw),)) + raw
    return bytes((5, command, 0)) + address + port.to_bytes(2, "big")


def _transparent(network: Captured, request: Request) -> socket.socket:
    bare = request.host.strip("[]")
    try:
        address = str(ipaddress.ip_address(bare))
    except ValueError:
        address = look_up(network, request.host)
    try:
        return network.connect(address, request.port)
    except ConnectionRefusedError as refused:
        if "Errno 111" not in str(refused):
            raise DoesNotApply("the kernel has no way there") from refused
        raise Refused(str(refused)) from refused


def look_up(network: Captured, name: str, kind: str = "A") -> str:
    """An address, as a program would ask for it."""
    labels = [label.encode("utf-8") for label in name.removesuffix(".").split(".")]
    if any(not 0 < len(label) < 64 for label in labels):
        raise DoesNotApply("a name that no look-up can hold")
    question = dnslib.DNSRecord(
        dnslib.DNSHeader(rd=1), q=dnslib.DNSQuestion(dnslib.DNSLabel(labels), getattr(dnslib.QTYPE, kind))
    )
    with network.udp("8.8.8.8", 53) as asking:
        asking.send(question.pack())
        answer = dnslib.DNSRecord.parse(asking.recv(4096))
    if not answer.rr:
        raise Refused(dnslib.RCODE[answer.header.rcode])
    return str(answer.rr[0].rdata)


def _by_url(network: Captured, request: Request) -> bool:
    if request.first:
        raise DoesNotApply("a URL is a request")
    url = f"http://{request.host}:{request.port}{request.path}"
    named = request.host_header or f"{request.host}:{request.port}"
    with network.connect("127.0.0.1", 3128) as opened:
        opened.sendall(f"{request.method} {url} HTTP/1.1\r\nHost: {named}\r\nConnection: close\r\n\r\n".encode())
        try:
            return b" 200 OK" in _head(opened)[:20]
        except OSError:
            return False


# --- what is said -----------------------------------------------------------------------------------------------------

_TLS_PORTS = (443, 8443)


def _speak(opened: socket.socket, world: World, request: Request) -> bool:
    kind = request.first or ("tls" if request.port in _TLS_PORTS else "http")
    host = request.host.strip("[]")
    if kind in ("tls", "split"):
        return _speak_tls(opened, world, request, split=kind == "split")
    if kind == "silent":
        return opened.recv(100).startswith(b"220")
    said = {
        "raw": b"\0\1\2\3hello\r\n\r\n",
        "ssh": b"SSH-2.0-test\r\n",
        "half": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "badtls": b"\x16\x03\x01\x00\x05\x02\x00\x00\x00\x00",
        "http": _request(request, host),
        "h2c": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "twohosts": _request(request, host).replace(b"\r\n\r\n", b"\r\nHost: evil.com\r\n\r\n"),
        "smuggle": b"POST / HTTP/1.1\r\nHost: "
        + host.encode()
        + b"\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    }[kind]
    opened.sendall(said)
    if kind == "half":
        opened.shutdown(socket.SHUT_WR)
    if kind == "raw":
        return b"220" in opened.recv(100)
    return b" 200 OK" in _head(opened)[:20]


def _speak_tls(opened: socket.socket, world: World, request: Request, *, split: bool) -> bool:
    context = ssl.create_default_context(cadata=world.roots.certificate_pem.decode())
    context.load_verify_locations(cadata=world.authority.certificate_pem.decode())
    context.check_hostname = False
    bare = request.host.strip("[]").rstrip(".")
    name: str | None = bare if request.sni is None else request.sni
    try:
        ipaddress.ip_address(bare)
        name = None
        context.verify_mode = ssl.CERT_NONE
    except ValueError:
        pass
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname=name or None)
    first = True

    def flush() -> None:
        nonlocal first
        data = outgoing.read()
        if first and split and data:
            body = data[5:]
            data = b"".join(b"\x16\x03\x01\x00\x01" + body[at : at + 1] for at in range(len(body)))
        if data:
            first = False
            opened.sendall(data)

    def step(act: Any) -> Any:
        while True:
            try:
                done = act()
                flush()
                return done
            except ssl.SSLWantReadError:
                flush()
                data = opened.recv(65536)
                if not data:
                    raise ConnectionResetError("ended") from None
                incoming.write(data)

    step(tls.do_handshake)
    step(lambda: tls.write(_request(request, bare)))
    return b" 200 OK" in step(lambda: tls.read(4096))[:20]


def _request(request: Request, host: str) -> bytes:
    named = request.host_header or (f"[{host}]" if ":" in host else host)
    default = (request.port == 80) or (request.port == 443)
    port = "" if default or request.host_header else f":{request.port}"
    return f"{request.method} {request.path} HTTP/1.1\r\nHost: {named}{port}\r\nConnection: close\r\n\r\n".encode()


def _head(opened: socket.socket) -> bytes:
    head = b""
    while b"\r\n\r\n" not in head:
        data = opened.recv(65536)
        if not data:
            break
        head += data
    return head


def _exactly(opened: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        data = opened.recv(count - len(got))
        if not data:
            raise ConnectionResetError("ended")
        got += data
    return got
