"""The blocking face of a server: the same sandboxes and managers, without asyncio."""

from typing import Any, cast

from ringfence.client.connecting import Server as AsyncServer
from ringfence.client.connecting import connect as async_connect
from ringfence.manager.manager import SandboxManager as AsyncManager
from ringfence.manager.options import StrPath
from ringfence.manager.sandbox import Sandbox as AsyncSandbox
from ringfence.sync.facade import Opened
from ringfence.sync.managing import SandboxManager as BlockingManager
from ringfence.sync.sandbox import Sandbox as BlockingSandbox


def connect(url: str | None = None, token: str | None = None, *, ca_file: StrPath | None = None) -> "Server":
    """A Ringfence server, as a place for sandboxes; arguments as `ringfence.connect`.

    with ringfence.sync.connect("unix:///run/user/1000/ringfence.sock") as server, server.Sandbox() as box:
        print(box.shell("ls").stdout)
    """
    return Server(async_connect(url, token, ca_file=ca_file))


class Server(Opened[AsyncServer]):
    """A Ringfence server, from `connect`, for code that does not use asyncio."""

    @property
    def url(self) -> str:
        return self._wrapped.url

    def Sandbox(self, *args: Any, **fields: Any) -> BlockingSandbox:
        """A sandbox on the server; arguments as `ringfence.Sandbox`."""
        return cast("BlockingSandbox", _opened(BlockingSandbox, self._wrapped.Sandbox(*args, **fields)))

    def for_one_call(self, *args: Any, **fields: Any) -> BlockingSandbox:
        """A sandbox for a single call; see `ringfence.Sandbox.for_one_call`."""
        return cast("BlockingSandbox", _opened(BlockingSandbox, self._wrapped.for_one_call(*args, **fields)))

    def SandboxManager(self, *args: Any, **fields: Any) -> BlockingManager:
        """A manager whose boxes are on the server; arguments as `ringfence.SandboxManager`."""
        return cast("BlockingManager", _opened(BlockingManager, self._wrapped.SandboxManager(*args, **fields)))

    def close(self) -> None:
        """Let go of the connections."""
        self._close()


def _opened(face: type[Opened[AsyncSandbox]] | type[Opened[AsyncManager]], wrapped: Any) -> Any:
    """The blocking face, which asks of what it wraps no more than the names that both kinds have."""
    made: Any = face.__new__(face)
    Opened.__init__(made, wrapped)
    return made
