"""A browser in a box of its own, beside the session's: how it is started, what it is granted, and its files.

Nothing of the wall is different. What is: its limits are for something that lives long (no CPU time that ends it;
memory by what it uses itself, as for every box), nothing looks at its system calls for reasons, and all that it may
write is a directory that is made for it and gone with it. It is spoken to over a socket that only this process and it
have.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import TYPE_CHECKING, Final

from ringfence.browser import flags
from ringfence.browser.base import Running
from ringfence.browser.finding import BrowserKind, find_program
from ringfence.browser.wire import PipeWire
from ringfence.dataclass import dataclass, replace
from ringfence.errors import PathTraversalError
from ringfence.manager.network_options import Network
from ringfence.manager.options import SandboxOptions
from ringfence.manager.sandbox import Sandbox
from ringfence.values.grant import Trace
from ringfence.values.limits import Limits
from ringfence.values.network import PROXY_PORT
from ringfence.values.request import Overflow, Request

if TYPE_CHECKING:
    from ringfence.manager.local_servers import LocalServers

BROWSER_TOOL: Final = "browser_automation"
EXTERNAL_TOOL: Final = "browser_external"
"""As which of the policy's tools the two browsers are judged."""
_MIB: Final = 1024 * 1024
LIMITS: Final = Limits(
    wall_seconds=10**9,
    cpu_seconds=10**9,  # thirty years: it lives as long as its session
    memory_bytes=3072 * _MIB,  # some tens of tabs
    processes=1024,  # about 60 threads for the first tab of the small one, twice that for the other
    file_bytes=256 * _MIB,
    disk_bytes=1024 * _MIB,
    files=20_000,
    output_bytes=_MIB,
)
_SAID: Final = 64 * 1024
_CLOSE_SECONDS: Final = 2.0
_SPEAK: Final = 'exec "$@" 3<&9 4>&9 9>&- </dev/null'
"""The browser reads at descriptor 3 and writes at 4; both are the one socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserSettings:
    """Which browser, where."""

    kind: BrowserKind | None = None
    """Of the sandboxed one and of a host's; the small one, where there is one, if not given."""
    program: str | None = None
    """A program of the caller's own."""
    endpoint: str | None = None
    """The external browser, as `ws://...` or `http://host:port`; a Chromium of this machine, if not given."""
    limits: Limits = LIMITS
    start_seconds: float = 30.0
    """How long it may take to come up."""


OpenSandbox = Callable[[], AbstractAsyncContextManager[Sandbox]]
"""The session's own sandbox, for one use."""


class SessionFiles:
    """The session's workspace for its browser (`browser.base.Workspace`), under the rules and the record of files."""

    def __init__(self, open: OpenSandbox) -> None:
        self._open = open

    async def read(self, path: str) -> bytes:
        """What is handed to a page leaves: so it has to lie in the workspace, not just anywhere in the box."""
        async with self._open() as sandbox:
            return await sandbox.files.read(await _within(sandbox, path))

    async def write(self, path: str, data: bytes) -> None:
        async with self._open() as sandbox:
            await sandbox.files.write(await _within(sandbox, path), data, parents=True)

    async def exists(self, path: str) -> bool:
        async with self._open() as sandbox:
            return await sandbox.files.exists(path)


async def _within(sandbox: Sandbox, path: str) -> str:
    """Where a path leads.

    Raises:
        PathTraversalError: out of the workspace.
    """
    root, real = await sandbox.files.realpath("."), await sandbox.files.realpath(path, strict=False)
    if not real.startswith(f"{root}/"):
        raise PathTraversalError(
            path, "it leads out of the workspace", rule="browser", hint="name a file of the workspace"
        )
    return real


class BoxStore:
    """The files of a browser in its box (`browser.base.Store`): read and written inside, as its user."""

    def __init__(self, sandbox: Sandbox, root: str) -> None:
        self._sandbox = sandbox
        self._root = root
        self._count = 0
        self.downloads: str | None = f"{root}/downloads"

    async def put(self, name: str, data: bytes) -> str:
        self._count += 1
        path = f"{self._root}/handed/{self._count}/{name}"
        await self._sandbox.files.write(path, data, parents=True)
        return path

    async def take(self, name: str, most: int) -> bytes:
        data = await self._sandbox.files.read(f"{self.downloads}/{os.path.basename(name)}", limit=most)
        with suppress(OSError):
            await self._sandbox.files.remove(f"{self.downloads}/{os.path.basename(name)}")
        return data


def browser_options(options: SandboxOptions, workspace: str, limits: Limits) -> SandboxOptions:
    """What is asked of the browser's own sandbox: the session's policy, people and network, and none of its files."""
    network = options.network
    if isinstance(network, Network):
        network = replace(network, publish=())
    return replace(
        options,
        workspace=workspace,
        read=(),
        write=(),
        read_only=False,
        env=None,
        limits=limits,
        network=network,
        tool=BROWSER_TOOL,
        trace=Trace.OFF,
        mediate_opens=False,
        python=None,
        preload=(),
        shadow=None,
        shadow_bytes=0,
    )


async def launch_boxed(
    options: SandboxOptions, settings: BrowserSettings, local: LocalServers | None = None
) -> Running:
    """Start a browser in a box of its own.

    Args:
        local: lets it see the servers of the session's box.

    Raises:
        NotInstalled: there is no browser.
        RingfenceError: as `Sandbox`.
    """
    program = find_program(settings.kind, settings.program)
    directory = tempfile.mkdtemp(prefix="ringfence-browser-")
    asked = browser_options(options, directory, settings.limits)
    if not program.path.startswith("/usr/"):
        asked = replace(asked, read=(os.path.dirname(program.path),))
    sandbox: Sandbox | None = None
    ours, theirs = socket.socketpair()
    try:
        sandbox = await asyncio.to_thread(Sandbox, asked)
        await sandbox.__aenter__()
        lease = await sandbox.lend()
        root = await sandbox.files.realpath(".")
        store = BoxStore(sandbox, root)
        await sandbox.files.mkdir(f"{root}/downloads", parents=True)
        proxy, authority = "", b""
        if lease.grant.network is not None:
            proxy = f"http://127.0.0.1:{PROXY_PORT}"
            authority = await sandbox.network_authority()
        relayed = await local.start(lease.box, has_network=bool(proxy)) if local is not None else ""
        words = flags.boxed("/tmp/browser", proxy=relayed or proxy, authority=authority, direct_loopback=not relayed)
        request = Request(
            argv=("/bin/sh", "-c", _SPEAK, "sh", program.path, *words), overflow=Overflow.KEEP_ENDS, output_limit=_SAID
        )
        await lease.box.start(request, channel=theirs.fileno())
    except BaseException:
        ours.close()
        await _close(sandbox, local, directory)
        raise
    finally:
        theirs.close()
    standing = sandbox

    async def refused() -> tuple[str, ...]:
        return tuple(str(each.what or each.target) for each in await standing.network_refusals())

    return Running(
        wire=PipeWire(ours),
        store=store,
        kind="sandboxed",
        walled=True,
        close=lambda: _close(standing, local, directory),
        refused=refused,
        start_seconds=settings.start_seconds,
    )


async def _close(sandbox: Sandbox | None, local: LocalServers | None, directory: str) -> None:
    try:
        if local is not None:
            await local.close()
    finally:
        try:
            if sandbox is not None:
                await sandbox.close()
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
