"""A browser that no wall holds: one that somebody runs (a CDP endpoint), or a Chromium of this machine.

It sees what its user sees: files, the network, other logins of its profile. Only our own checks of addresses and the
words that it is started with are between a page and that.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from typing import Final

from ringfence.browser import flags
from ringfence.browser.base import Running
from ringfence.browser.finding import BrowserKind, find_program
from ringfence.browser.websocket import connect
from ringfence.browser.wire import PipeWire
from ringfence.errors import BrowserError, BrowserGone, FileError

NO_WALL: Final = "no wall holds this browser: it has the rights, the files and the network of whoever runs it"
_REMOTE: Final = f"{NO_WALL}; downloads and uploads do not pass to where it runs"
_END_SECONDS: Final = 3.0
_TERM_SECONDS: Final = 1.0
_KEPT_VARIABLES: Final = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "FONTCONFIG_PATH")
"""Of ours; keys and tokens that lie in the others are none of its business."""


class _NoStore:
    """A browser on another machine has no files in common with us."""

    downloads = None

    async def put(self, name: str, data: bytes) -> str:
        raise BrowserError("files cannot be handed to a browser that runs elsewhere", hint="use the sandboxed one")

    async def take(self, name: str, most: int) -> bytes:
        raise BrowserError("there are no downloads of a browser that runs elsewhere", hint="use the sandboxed one")


class DirectoryStore:
    """Files of a browser of this machine, in a directory of its own."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._count = 0
        self.downloads: str | None = os.path.join(directory, "downloads")
        os.mkdir(self.downloads)

    async def put(self, name: str, data: bytes) -> str:
        self._count += 1
        place = os.path.join(self._directory, f"handed-{self._count}")
        os.mkdir(place)
        path = os.path.join(place, name)
        with open(path, "xb") as file:
            file.write(data)
        return path

    async def take(self, name: str, most: int) -> bytes:
        assert self.downloads is not None
        path = os.path.join(self.downloads, os.path.basename(name))
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as fault:
            raise FileError.of(fault.errno or 0, path) from None
        with open(descriptor, "rb") as file:
            data = file.read(most + 1)
        if len(data) > most:
            raise BrowserError(f"the download is larger than {most} bytes")
        return data


async def connect_to(endpoint: str) -> Running:
    """A browser that somebody runs.

    Raises:
        InvalidArgument, BrowserGone, BrowserTimeout: it cannot be reached.
    """
    wire = await connect(endpoint)

    async def close() -> None:
        """It is not ours to end."""

    return Running(wire=wire, store=_NoStore(), kind="external", walled=False, notes=(_REMOTE,), close=close)


async def launch(kind: BrowserKind | None = None, path: str | None = None, proxy: str = "") -> Running:
    """A Chromium of this machine, with a profile of its own that is gone afterwards.

    Raises:
        NotInstalled: there is none.
        BrowserGone: it does not start.
    """
    program = find_program(kind, path)
    directory = tempfile.mkdtemp(prefix="ringfence-browser-")
    ours, theirs = socket.socketpair()
    is_root = os.geteuid() == 0
    words = flags.external(os.path.join(directory, "profile"), proxy=proxy, may_sandbox=not is_root)
    try:
        store = DirectoryStore(directory)
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            'exec "$@" 3<&0 4>&0 </dev/null',
            "sh",
            program.path,
            *words,
            stdin=theirs.fileno(),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
            start_new_session=True,
        )
    except BaseException as fault:
        ours.close()
        shutil.rmtree(directory, ignore_errors=True)
        if isinstance(fault, OSError):
            raise BrowserGone(f"{program.path} cannot be started: {fault.strerror}") from None
        raise
    finally:
        theirs.close()

    async def close() -> None:
        await _end(process)
        await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)

    notes = (NO_WALL, "it runs as root, without Chromium's own sandbox") if is_root else (NO_WALL,)
    return Running(wire=PipeWire(ours), store=store, kind="external", walled=False, notes=notes, close=close)


async def _end(process: asyncio.subprocess.Process) -> None:
    """End it with all that it started: they are one process group, and nobody else's."""
    for signal, seconds in ((15, _TERM_SECONDS), (9, _END_SECONDS)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), seconds)
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)
