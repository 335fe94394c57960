"""Files of a session, by the paths that its commands see."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import AsyncIterator
from typing import IO, TYPE_CHECKING

import msgspec
from starlette.responses import Response, StreamingResponse

from ringfence.errors import FileError
from ringfence.server import wire
from ringfence.server.calling import timely, too_large
from ringfence.server.endpoint import BodyKind, Call, Endpoint, Media
from ringfence.server.pages import page
from ringfence.server.problems import http_fault
from ringfence.server.streaming import NO_BUFFERING, PING_SECONDS
from ringfence.server.tenants import Scope

if TYPE_CHECKING:
    from ringfence.manager.files import BoxFiles
    from ringfence.values.files import FileStat


def _files(call: Call) -> BoxFiles:
    return call.service.session(call.caller, call["session"]).sandbox.files


ATTACHMENT = {"Content-Disposition": "attachment", "Cache-Control": "no-store", "Accept-Ranges": "bytes"}
"""What a box holds is never shown as a page of ours."""


async def read(call: Call) -> Response:
    """In pieces, so that no file is too large; with `Range`, a part of it."""
    files, path = _files(call), call.query.path
    if call.query.limit is not None:
        whole = await files.read(path, limit=call.query.limit)
        return Response(whole, headers=ATTACHMENT, media_type=Media.BYTES.value)
    found = await files.stat(path)
    part = read_range(call.request.headers.get("range"), found.size_bytes)
    begin, size = (0, None) if part is None else (part[0], part[1] - part[0] + 1)
    pieces = files.stream(path, offset=begin, size=size)
    first = await anext(pieces, b"")  # what cannot be read is an error, and no answer that breaks off
    headers = dict(ATTACHMENT)
    if part is not None:
        headers["Content-Range"] = f"bytes {part[0]}-{part[1]}/{found.size_bytes}"
    return StreamingResponse(
        _joined(first, pieces), 206 if part is not None else 200, headers, media_type=Media.BYTES.value
    )


async def _joined(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in rest:
        yield piece


def read_range(header: str | None, size: int) -> tuple[int, int] | None:
    """The first and last byte of a `Range`; None for the whole, also where more than one part is asked for.

    Raises:
        HttpFault: none of it is there.
    """
    match = None if header is None else _RANGE.fullmatch(header.strip())
    if match is None or not (match[1] or match[2]):
        return None
    if match[1]:
        begin, end = int(match[1]), min(int(match[2]) if match[2] else size - 1, size - 1)
    else:
        begin, end = max(0, size - int(match[2])), size - 1
    if begin > end:
        raise http_fault("range_not_satisfiable", f"the file has {size} bytes")
    return begin, end


_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


async def download(call: Call) -> Response:
    """A directory of the workspace as one archive; what rules hide is left out."""
    sandbox = call.service.session(call.caller, call["session"]).sandbox
    form = call.query.form or "tar.gz"
    target = tempfile.TemporaryFile()  # noqa: SIM115  closed when it is sent

    def pack() -> int:
        with sandbox.host_files() as workspace:
            workspace.download(target, call.query.path, form=form)
        return target.seek(0, os.SEEK_END)

    try:
        await asyncio.to_thread(pack)
    except BaseException:
        target.close()
        raise
    headers = {**ATTACHMENT, "Content-Disposition": f'attachment; filename="files.{form}"'}
    return StreamingResponse(_from_file(target), headers=headers, media_type=Media.BYTES.value)


async def _from_file(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        file.seek(0)
        while piece := await asyncio.to_thread(file.read, _PIECE_BYTES):
            yield piece


_PIECE_BYTES = 1024 * 1024


async def upload(call: Call) -> wire.Unpacked:
    """All of the archive, or nothing: one that is cut off changes nothing."""
    sandbox = call.service.session(call.caller, call["session"]).sandbox
    with tempfile.TemporaryFile() as file:
        async for piece in _upload(call):
            await asyncio.to_thread(file.write, piece)
        file.seek(0)

        def unpack() -> wire.Unpacked:
            with sandbox.host_files() as workspace:
                done = workspace.upload(file, call.query.path, form=call.query.form)
            return wire.Unpacked(files=len(done.paths), total_bytes=done.total_bytes)

        return await asyncio.to_thread(unpack)


async def watch(call: Call) -> Response:
    files = _files(call)
    await files.list(call.query.path)  # what cannot be watched is an error
    return StreamingResponse(
        _changes(files, call.query.path, deep=call.query.recursive), headers=NO_BUFFERING, media_type=Media.EVENTS.value
    )


async def _changes(files: BoxFiles, path: str, *, deep: bool) -> AsyncIterator[bytes]:
    """By looking again and again: what a box does to its files tells nobody outside."""
    before, quiet = await _seen(files, path, deep=deep), 0.0
    yield b"event: watching\ndata: {}\n\n"
    while True:
        await asyncio.sleep(_WATCH_SECONDS)
        now = await _seen(files, path, deep=deep)
        told = [("created", name) for name in now.keys() - before.keys()]
        told += [("removed", name) for name in before.keys() - now.keys()]
        told += [("modified", name) for name in now.keys() & before.keys() if now[name] != before[name]]
        quiet = 0.0 if told else quiet + _WATCH_SECONDS
        if quiet >= PING_SECONDS:
            quiet = 0.0
            yield b": still there\n\n"
        for kind, name in sorted(told, key=lambda each: each[1]):
            yield b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode({"path": _shown(name)}))
        before = now


async def _seen(files: BoxFiles, path: str, *, deep: bool) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    left = [path]
    while left and len(found) < _WATCHED_MAX:
        try:
            entries = await files.list(left.pop())
        except FileError:
            continue  # it went while we looked
        for entry in entries:
            found[entry.path] = (entry.kind, entry.size_bytes, entry.modified_seconds, entry.inode, entry.mode)
            if deep and entry.is_directory:
                left.append(entry.path)
    return found


_WATCH_SECONDS = 0.5
_WATCHED_MAX = 20_000
"""Names that are watched; more than that is the whole machine."""


async def write(call: Call) -> wire.FileInfo:
    query: wire.WriteQuery = call.query
    files = _files(call)
    await files.write(query.path, _upload(call), mode=query.mode, append=query.append, parents=query.parents)
    return info(await files.stat(query.path))


async def _upload(call: Call) -> AsyncIterator[bytes]:
    settings, size = call.service.settings, 0
    async for piece in timely(call.request, settings.body_seconds):
        size += len(piece)
        if size > settings.upload_bytes:
            raise too_large(settings.upload_bytes)
        yield piece


async def remove(call: Call) -> None:
    await _files(call).remove(call.query.path, recursive=call.query.recursive)


async def stat(call: Call) -> wire.FileInfo:
    return info(await _files(call).stat(call.query.path, follow=call.query.follow))


async def list_directory(call: Call) -> wire.FileList:
    found, cursor = page(await _files(call).list(call.query.path), call.query, lambda each: _shown(each.path))
    return wire.FileList(items=[info(each) for each in found], next_cursor=cursor)


async def realpath(call: Call) -> wire.RealPath:
    return wire.RealPath(path=_shown(await _files(call).realpath(call.query.path, strict=call.query.follow)))


async def move(call: Call) -> wire.FileInfo:
    files = _files(call)
    await files.rename(call.body.source, call.body.target)
    return info(await files.stat(call.body.target, follow=False))


async def make_directory(call: Call) -> wire.FileInfo:
    body: wire.DirectoryCreate = call.body
    files = _files(call)
    await files.mkdir(body.path, mode=body.mode, parents=body.parents, exist_ok=body.exist_ok)
    return info(await files.stat(body.path))


def info(found: FileStat) -> wire.FileInfo:
    return wire.FileInfo(
        path=_shown(found.path),
        kind=found.kind.value,
        size_bytes=found.size_bytes,
        mode=found.mode,
        modified_at=found.modified_seconds,
        uid=found.uid,
        gid=found.gid,
        links=found.links,
        inode=found.inode,
        target=None if found.target is None else _shown(found.target),
    )


def _shown(path: str) -> str:
    """A name that is no UTF-8 has its odd bytes as `\\xff`: JSON has no lone surrogates."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


_TAG = "files"
_FILES = "/v1/sessions/{session}/files"
ROUTES = (
    Endpoint(
        method="GET",
        path=_FILES,
        name="read_file",
        does="A file's content, of any size; with `Range`, a part of it.",
        handler=read,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.ReadQuery,
        media=(Media.BYTES,),
        waits=True,
    ),
    Endpoint(
        method="PUT",
        path=_FILES,
        name="write_file",
        does="Write a file: the body is its content, of any size.",
        handler=write,
        scope=Scope.RUN,
        tag=_TAG,
        query=wire.WriteQuery,
        kind=BodyKind.STREAM,
        answer=wire.FileInfo,
        waits=True,
    ),
    Endpoint(
        method="DELETE",
        path=_FILES,
        name="remove_file",
        does="Remove a file, a link or an empty directory; with `recursive`, a directory with all that is in it.",
        handler=remove,
        scope=Scope.RUN,
        tag=_TAG,
        query=wire.RemoveQuery,
        status=204,
    ),
    Endpoint(
        method="GET",
        path=_FILES + "/stat",
        name="stat_file",
        does="What a path is.",
        handler=stat,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.StatQuery,
        answer=wire.FileInfo,
    ),
    Endpoint(
        method="GET",
        path=_FILES + "/list",
        name="list_files",
        does="What is in a directory, by name.",
        handler=list_directory,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.ListQuery,
        answer=wire.FileList,
    ),
    Endpoint(
        method="GET",
        path=_FILES + "/realpath",
        name="real_path",
        does="Where a path leads inside; without `follow`, also one of which a part is missing.",
        handler=realpath,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.StatQuery,
        answer=wire.RealPath,
    ),
    Endpoint(
        method="POST",
        path=_FILES + "/move",
        name="move_file",
        does="Give a file, link or directory another name.",
        handler=move,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.FileMove,
        kind=BodyKind.JSON,
        answer=wire.FileInfo,
    ),
    Endpoint(
        method="POST",
        path=_FILES + "/mkdir",
        name="make_directory",
        does="Make a directory.",
        handler=make_directory,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.DirectoryCreate,
        kind=BodyKind.JSON,
        answer=wire.FileInfo,
        status=201,
    ),
    Endpoint(
        method="GET",
        path=_FILES + "/watch",
        name="watch_files",
        does="What is made, changed and removed in a directory, as events.",
        handler=watch,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.WatchQuery,
        media=(Media.EVENTS,),
        waits=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/sessions/{session}/archive",
        name="download_archive",
        does="A directory of the workspace as a tar or zip.",
        handler=download,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.ArchiveQuery,
        media=(Media.BYTES,),
        waits=True,
    ),
    Endpoint(
        method="PUT",
        path="/v1/sessions/{session}/archive",
        name="upload_archive",
        does="Unpack a tar or zip into a directory of the workspace: all of it, or nothing.",
        handler=upload,
        scope=Scope.RUN,
        tag=_TAG,
        query=wire.ArchiveQuery,
        kind=BodyKind.STREAM,
        answer=wire.Unpacked,
        waits=True,
    ),
)
