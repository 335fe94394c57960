"""`connect`: a server, and the sandboxes and managers that it makes."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, Self, Unpack

from ringfence.client.address import (
    CA_FILE_VARIABLE,
    URL_VARIABLE,
    checked_token,
    parse_address,
    server_token,
    server_url,
)
from ringfence.client.calls import Calls
from ringfence.client.manager import RemoteManager
from ringfence.client.sandbox import RemoteSandbox
from ringfence.errors import InvalidArgument
from ringfence.manager.options import OptionFields, SandboxOptions, StrPath
from ringfence.policy.environment import lookup


def connect(url: str | None = None, token: str | None = None, *, ca_file: StrPath | None = None) -> Server:
    """A Ringfence server, as a place for sandboxes.

        server = ringfence.connect("unix:///run/user/1000/ringfence.sock")
        async with server.Sandbox() as box:
            done = await box.shell("pytest -q")

    Nothing is sent before something is asked of it.

    Args:
        url: `unix:///PATH`, `http://127.0.0.1:PORT` or `https://HOST`; RINGFENCE_URL if not given.
        token: who asks; RINGFENCE_TOKEN, or what the private file RINGFENCE_TOKEN_FILE holds, if not given. The owner
            of a server needs none on its Unix socket.
        ca_file: whose signature a server's certificate has to have, instead of those that the system trusts;
            RINGFENCE_CA_FILE if not given.

    Raises:
        InvalidArgument: no URL is given, or it is none that can be used.
        InvalidConfig, NotFound, PermissionDenied: the environment's token cannot be used.
    """
    chosen = url or server_url(os.environ)
    if chosen is None:
        raise InvalidArgument("no server is named", argument="url", hint=f"give its URL, or set {URL_VARIABLE}")
    given = server_token(os.environ) if token is None else checked_token(token, "token")
    named = lookup(os.environ, CA_FILE_VARIABLE)
    trusted = os.fspath(ca_file) if ca_file is not None else None if named is None else named.value
    return Server(Calls(parse_address(chosen), given, trusted))


class Server:
    """A Ringfence server, from `connect`. Close it, or use it in an `async with`, to let go of its connections."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    @property
    def url(self) -> str:
        return str(self._calls.address)

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine, by its Unix socket: paths mean the same there."""
        return bool(self._calls.address.socket)

    def Sandbox(  # the name that it stands for
        self, options: SandboxOptions | StrPath | None = None, **fields: Unpack[OptionFields]
    ) -> RemoteSandbox:
        """A sandbox on the server; arguments as `ringfence.Sandbox`.

        Raises:
            InvalidArgument: what was asked for makes no sense, or cannot leave this process. What the server does not
                grant is raised when the sandbox is entered.
        """
        return RemoteSandbox(self._calls, options, **fields)

    def SandboxManager(self, *args: Any, **fields: Any) -> RemoteManager:
        """A manager whose boxes are on the server; arguments as `ringfence.SandboxManager`."""
        return RemoteManager(self._calls, *args, **fields)

    def for_one_call(
        self, options: SandboxOptions | StrPath | None = None, **fields: Unpack[OptionFields]
    ) -> RemoteSandbox:
        """A sandbox for a single call; see `ringfence.Sandbox.for_one_call`."""
        return RemoteSandbox(self._calls, options, once=True, **fields)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Let go of the connections. Sandboxes that are open stay so, and connect anew."""
        await self._calls.close()

    def __repr__(self) -> str:
        return f"<Server {self._calls.address}>"
