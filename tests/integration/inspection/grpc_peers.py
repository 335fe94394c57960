"""A gRPC server and a client of it, each a program of its own: gRPC's library keeps threads and descriptors."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc


def unary(request: bytes, context: grpc.ServicerContext) -> bytes:
    context.set_trailing_metadata((("x-sum", "42"),))
    if request == b"fail":
        context.abort(grpc.StatusCode.NOT_FOUND, "there is none")
    return request.upper()


def count(requests: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
    return b"%d" % sum(map(len, requests))


def many(request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
    for number in range(int(request)):
        yield b"%d" % number


def chat(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
    for request in requests:
        yield b"you said " + request


def serve(pem: Path) -> None:
    server = grpc.server(ThreadPoolExecutor(16))
    methods = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Denied": grpc.unary_unary_rpc_method_handler(unary),
        "Count": grpc.stream_unary_rpc_method_handler(count),
        "Many": grpc.unary_stream_rpc_method_handler(many),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("test.Peer", methods),))
    chain = pem.read_bytes()
    port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(chain, chain)]))
    server.start()
    print(port, flush=True)
    sys.stdin.read()
    server.stop(None)


def call(port: str, authority: Path) -> None:
    got: dict[str, object] = {}
    options = [("grpc.ssl_target_name_override", "api.test"), ("grpc.default_authority", "api.test")]
    credentials = grpc.ssl_channel_credentials(authority.read_bytes())
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
        plain = channel.unary_unary("/test.Peer/Unary")
        answer, told = plain.with_call(b"hello", timeout=20, metadata=(("authorization", "Bearer stand-in"),))
        got["unary"] = [answer.decode(), dict(told.trailing_metadata()).get("x-sum")]
        for name, method, request in (
            ("fail", plain, b"fail"),
            ("denied", channel.unary_unary("/test.Peer/Denied"), b""),
        ):
            try:
                method(request, timeout=20)
            except grpc.RpcError as error:
                got[name] = [error.code().name, error.details()]
        got["count"] = channel.stream_unary("/test.Peer/Count")(
            (b"x" * 100_000 for _ in range(40)), timeout=30
        ).decode()
        got["many"] = sum(1 for _ in channel.unary_stream("/test.Peer/Many")(b"500", timeout=30))
        got["chat"] = chatted(channel)
        stream = channel.unary_stream("/test.Peer/Many")(b"100000000", timeout=30)
        next(stream)
        stream.cancel()
        time.sleep(0.2)
        got["after"] = plain(b"still here", timeout=20).decode()
    print(json.dumps(got))


def chatted(channel: grpc.Channel) -> list[str]:
    """Each word is sent after the answer to the one before has come: both directions at once."""
    came = threading.Semaphore(1)

    def words() -> Iterator[bytes]:
        for word in (b"one", b"two", b"three"):
            assert came.acquire(timeout=20)
            yield word

    heard = []
    for answer in channel.stream_stream("/test.Peer/Chat")(words(), timeout=30):
        heard.append(answer.decode())
        came.release()
    return heard


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(Path(sys.argv[2]))
    else:
        call(sys.argv[2], Path(sys.argv[3]))
