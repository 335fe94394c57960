"""`ringfence serve`: the service that many agents and people use."""

import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from ringfence.cli.exits import Finished
from ringfence.cli.say import print_line, print_note
from ringfence.errors import InvalidArgument, NotInstalled
from ringfence.manager.configuring import home_directory, state_directory

PRINTED_LIFE_SECONDS = 24 * 3600.0


def server_state(given: Path | None) -> Path:
    """Where a server keeps its state."""
    return given or state_directory(os.environ, home_directory(os.environ)) / "server"


def serve(
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Listen there too, and print a token; default: the Unix socket only."),
    ] = None,
    socket: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The Unix socket; default: server.sock in the state directory.")
    ] = None,
    config: Annotated[Path | None, typer.Option(metavar="FILE", help="Tenants, presets and webhooks.")] = None,
    state: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where the server keeps its state; default: server, in ours.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(metavar="FILE", help="The certificate, in PEM.")] = None,
    tls_key: Annotated[Path | None, typer.Option(metavar="FILE", help="Its key, in PEM.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="Listen off loopback without TLS: something in front ends it.")
    ] = False,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="With --listen, print no token: there are others already.")
    ] = False,
    socket_tokens: Annotated[
        bool, typer.Option("--socket-tokens", help="Ask for a token on the Unix socket too.")
    ] = False,
    json_logs: Annotated[bool, typer.Option("--json-logs", help="Log as JSON also on a terminal.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Look whether it could serve here, and exit with 0 or 1.")
    ] = False,
) -> None:
    """Serve sandboxes over HTTP: on a Unix socket of yours alone and, when asked, on an address.

    Examples:

        ringfence serve

        ringfence serve --listen 127.0.0.1:8080

        ringfence serve --listen 0.0.0.0:8443 --tls-cert cert.pem --tls-key key.pem
    """
    try:  # packages of the extra, and only here
        from ringfence.cli.serving_mcp import mcp_routes
        from ringfence.server import logs
        from ringfence.server.checking import check_all
        from ringfence.server.serving import Listening, bind_tcp, bind_unix, open_service
        from ringfence.server.serving import serve as serve_until_told
        from ringfence.server.settings import read_settings
        from ringfence.server.tenants import ALL_SCOPES, DEFAULT_TENANT
    except ImportError as fault:
        raise NotInstalled("the server needs packages", hint="pip install 'ringfence[server]'") from fault
    host, port = (None, 0) if listen is None else _address(listen)
    place = server_state(state)
    listening = Listening(
        socket=socket or place / "server.sock",
        host=host,
        port=port,
        certificate=tls_cert,
        key=tls_key,
        behind_proxy=behind_proxy,
    )
    listening.check()
    settings = read_settings(config, place)
    if check:
        found = check_all(settings, listening)
        for line in found:
            print_line(
                f"{'ok' if line.ok else 'FAULT'}: {line.name}: {line.found}" + (f" ({line.hint})" if line.hint else "")
            )
        raise Finished(0 if all(line.ok for line in found) else 1)
    logs.set_up(as_json=json_logs or not sys.stderr.isatty())
    with ExitStack() as stack:
        service, lock = open_service(settings)
        stack.callback(lock.release)
        stack.callback(service.store.close)
        service.trusts_socket = not socket_tokens
        sockets = [bind_unix(listening.socket)]
        stack.callback(listening.socket.unlink, missing_ok=True)
        stack.callback(sockets[0].close)
        addresses = [str(listening.socket)]
        if host is not None:
            sockets.append(bind_tcp(host, port))
            stack.callback(sockets[1].close)
            shown = f"[{host}]" if ":" in host else host
            addresses.append(f"http{'s' if tls_cert is not None else ''}://{shown}:{sockets[1].getsockname()[1]}")

        def ready() -> None:
            for address in addresses:
                print_note(f"listening at {address}")
            if host is not None and not no_token:
                text, token = service.tokens.create(
                    tenant=DEFAULT_TENANT,
                    name="printed at start",
                    scopes=ALL_SCOPES,
                    lives_seconds=PRINTED_LIFE_SECONDS,
                )
                code = service.logins.make_code(token)
                print_note(f"open {addresses[1]}/console/#code={code} within five minutes; it works once")
                print(text, flush=True)

        serve_until_told(service, sockets, listening, ready, mcp_routes(service))


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise InvalidArgument(f"{text!r} is not an address", argument="--listen", hint="such as 127.0.0.1:8080")
    return host.strip("[]") or "127.0.0.1", int(port)
