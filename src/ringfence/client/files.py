"""The files of a sandbox on a server, as its commands see them: the face of `ringfence.BoxFiles`."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from ringfence.client.calls import Calls, Query, target
from ringfence.client.executions import Told
from ringfence.errors import InvalidArgument, NotADirectory, NotFound, RingfenceError, WrongType
from ringfence.manager.files import PIECE_BYTES, READ_LIMIT_BYTES, Content, StrPath, content_pieces
from ringfence.values.files import FileKind, FileStat
from ringfence.values.sizes import parse_size

_MODE_MAX = 0o777


class RemoteFiles:
    """The files that a sandbox's commands see, by any path. See `ringfence.BoxFiles`."""

    def __init__(
        self, calls: Calls, session: Callable[[], Awaitable[str]], workspace: Callable[[], Path], told: Told
    ) -> None:
        self._calls = calls
        self._session = session
        self._workspace = workspace
        self._told = told

    @property
    def workspace(self) -> Path:
        """What relative paths start at."""
        return self._workspace()

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, path: StrPath, *, limit: int | str = READ_LIMIT_BYTES) -> bytes:
        """A file's content; see `ringfence.BoxFiles.read`."""
        query: Query = {"path": _text(path), "limit": int(parse_size(limit))}
        return bytes(await self._do(lambda at: self._calls.fetch(f"{at}/files", query=query)))

    async def read_for_search(self, path: StrPath) -> bytes:
        """The same, for whoever looks through many files; see `ringfence.BoxFiles.read_for_search`."""
        return await self.read(path)

    async def read_text(self, path: StrPath, *, encoding: str = "utf-8", limit: int | str = READ_LIMIT_BYTES) -> str:
        """The same as text.

        Raises:
            UnicodeDecodeError: it is none. Otherwise as `read`.
        """
        return (await self.read(path, limit=limit)).decode(encoding)

    async def stream(
        self, path: StrPath, *, offset: int = 0, size: int | None = None, piece_bytes: int = PIECE_BYTES
    ) -> AsyncIterator[bytes]:
        """A file's content in pieces, whatever its size; see `ringfence.BoxFiles.stream`. The server chooses how large
        the pieces are."""
        if offset < 0 or (size is not None and size < 0):
            raise InvalidArgument(f"a part of {size} bytes from {offset} on", argument="offset")
        if offset >= (await self.stat(path)).size_bytes or size == 0:
            return
        last = "" if size is None else str(offset + size - 1)
        at = target(f"{await self._session()}/files", {"path": _text(path)})
        headers = [("Range", f"bytes={offset}-{last}")] if offset or size is not None else []
        async with self._calls.stream("GET", at, accept="*/*", headers=headers) as pieces:
            async for piece in pieces:
                yield bytes(piece)

    async def stat(self, path: StrPath, *, follow: bool = True) -> FileStat:
        """What a path is; with `follow=False`, the link itself if it is one."""
        return _stat(await self._ask("GET", "/files/stat", {"path": _text(path), "follow": follow}))

    async def exists(self, path: StrPath, *, follow: bool = True) -> bool:
        """Whether something is there."""
        try:
            await self.stat(path, follow=follow)
        except (NotFound, NotADirectory):
            return False
        return True

    async def list(self, path: StrPath = ".") -> tuple[FileStat, ...]:
        """What is in a directory, by name; links are shown as links."""
        found: list[FileStat] = []
        cursor: str | None = None
        while True:
            page = await self._ask("GET", "/files/list", {"path": _text(path), "cursor": cursor})
            found += map(_stat, page["items"])
            cursor = page["next_cursor"]
            if cursor is None:
                return tuple(found)

    async def realpath(self, path: StrPath, *, strict: bool = True) -> str:
        """Where a path leads inside, with all links followed."""
        said = await self._ask("GET", "/files/realpath", {"path": _text(path), "follow": strict})
        return str(said["path"])

    # --- changing -----------------------------------------------------------------------------------------------------

    async def write(
        self, path: StrPath, data: Content, *, mode: int | None = None, append: bool = False, parents: bool = False
    ) -> None:
        """Write a file; see `ringfence.BoxFiles.write`."""
        query: Query = {"path": _text(path), "mode": _mode(mode), "append": append, "parents": parents}
        await self._do(lambda at: self._calls.send("PUT", f"{at}/files", content_pieces(data), query=query))

    async def mkdir(
        self, path: StrPath, *, mode: int | None = None, parents: bool = False, exist_ok: bool = False
    ) -> None:
        """Make a directory; see `ringfence.BoxFiles.mkdir`."""
        body = {"path": _text(path), "parents": parents, "exist_ok": exist_ok, "mode": _mode(mode)}
        await self._ask("POST", "/files/mkdir", body={k: v for k, v in body.items() if v is not None})

    async def remove(self, path: StrPath, *, recursive: bool = False) -> None:
        """Remove a file, a link or a directory; see `ringfence.BoxFiles.remove`."""
        await self._ask("DELETE", "/files", {"path": _text(path), "recursive": recursive})

    async def rename(self, old: StrPath, new: StrPath) -> None:
        """Give a file, link or directory another name; a file that has that name is replaced."""
        await self._ask("POST", "/files/move", body={"source": _text(old), "target": _text(new)})

    # --- one operation ------------------------------------------------------------------------------------------------

    async def _ask(self, method: str, path: str, query: Query | None = None, *, body: Any = None) -> Any:
        return await self._do(lambda at: self._calls.ask(method, at + path, body, query=query))

    async def _do(self, work: Callable[[str], Awaitable[Any]]) -> Any:
        try:
            return await work(await self._session())
        except RingfenceError as fault:
            self._told(fault)
            raise


def _text(path: StrPath) -> str:
    text = os.fspath(path)
    if not isinstance(text, str):
        raise WrongType("path", path, "a string or a path")
    if not text or "\0" in text:
        raise InvalidArgument("a path is empty or holds a NUL byte", argument="path")
    return text


def _mode(mode: int | None) -> int | None:
    if mode is not None and not 0 <= mode <= _MODE_MAX:
        raise InvalidArgument(f"mode {mode:#o} is not between 0 and 0o777", argument="mode")
    return mode


def _stat(said: dict[str, Any]) -> FileStat:
    return FileStat(
        path=said["path"],
        kind=FileKind(said["kind"]),
        size_bytes=said["size_bytes"],
        mode=said["mode"],
        modified_seconds=said["modified_at"],
        uid=said["uid"],
        gid=said["gid"],
        links=said["links"],
        inode=said["inode"],
        target=said.get("target"),
    )
