"""`BoxFiles`: the files of a sandbox as its commands see them.

Every operation is done inside the box, as its user and behind its wall (`engines/boxes/files.py`): a mode or a cover
that stops a command stops it too, and a link leads where it leads there. Before that the rules are asked about the path
as it was given and as it really is (`file_rules.py`). What reads or changes something, and what is refused, is written
into the journal.

What this does not protect against: whatever runs in the box sees and changes the same files, also between two of these
operations. What is read is what the box says.
"""

from __future__ import annotations

import errno
import os
import posixpath
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.audit import file_records
from ringfence.audit.redact import Redactor
from ringfence.dataclass import replace
from ringfence.errors import (
    FileError,
    InvalidArgument,
    NotADirectory,
    NotFound,
    PathAccessDenied,
    RingfenceError,
    WrongType,
)
from ringfence.manager.file_rules import FileRules, Use, on_host
from ringfence.policy.violating import type_of
from ringfence.values.files import FileFlag, FileOperation, FileStat, Performed
from ringfence.values.sizes import parse_size
from ringfence.values.violation import USUAL_SEVERITY, Operation, Violation

if TYPE_CHECKING:
    from ringfence.audit.journal import Entry, Journal
    from ringfence.engines.base import Box
    from ringfence.manager.reporting import Reporting

StrPath = str | os.PathLike[str]
Content = bytes | str | AsyncIterable[bytes]

READ_LIMIT_BYTES = 64 * 1024 * 1024
"""A file is read into memory whole, and the box decides how large it is."""
LIST_LIMIT_ENTRIES = 100_000
"""The same for a directory."""
PIECE_BYTES = 4 * 1024 * 1024
"""What is read at once of a file that is streamed."""
_MODE_MAX = 0o777
_USES = {
    "read": Use.READ,
    "stat": Use.READ,
    "list": Use.READ,
    "realpath": Use.READ,
    "mkdir": Use.MAKE,
    "write": Use.CHANGE,
    "remove": Use.CHANGE,
    "rename": Use.CHANGE,
}
_RECORDED = frozenset({"read", "write", "mkdir", "remove", "rename"})
_HINTS = {
    errno.EFBIG: "it is larger than the limit; read(limit=...) takes more",
    errno.EOPNOTSUPP: "only plain files are read and written: no pipes, devices or sockets",
    errno.ENOTEMPTY: "remove(recursive=True) takes a directory with all that is in it",
    errno.EXDEV: "read it, write it to the other place, and remove it",
    errno.EOVERFLOW: f"more than {LIST_LIMIT_ENTRIES} names; list it with a command",
    errno.EMLINK: "the tree is too deep; remove it with a command",
    errno.EACCES: "the file's mode, or the wall, does not let the box's user",
    errno.EROFS: "it may be read, not changed, inside the box",
}


class BoxFiles:
    """The files that a sandbox's commands see, by any path: the workspace, /tmp, the home directory, /etc.

        await box.files.write("src/a.py", "print(1)")      # relative to the workspace
        await box.files.read_text("/tmp/made-by-a-command")
        for entry in await box.files.list("."):
            print(entry.name, entry.kind, entry.size_bytes)

    The box's own permissions hold: a file of mode 444 is not replaced, one of mode 000 is not read. Links are followed
    as they are inside. Missing files and the like are errors that Python knows (`NotFound` is a FileNotFoundError),
    with the `errno` that the box's kernel gave.
    """

    def __init__(
        self,
        acquire: Callable[[], Awaitable[Box]],
        rules: FileRules,
        journal: Journal,
        reporting: Reporting,
    ) -> None:
        self._acquire = acquire
        self._rules = rules
        self._journal = journal
        self._reporting = reporting
        self._who = reporting.who
        self._workspace = os.fspath(rules.grant.workspace)
        self._redact = Redactor(journal.settings.redact, rules.grant.env)

    @property
    def workspace(self) -> Path:
        """What relative paths start at."""
        return self._rules.grant.workspace

    # --- reading ------------------------------------------------------------------------------------------------------

    async def read(self, path: StrPath, *, limit: int | str = READ_LIMIT_BYTES) -> bytes:
        """A file's content.

        Args:
            limit: how large it may be, as a number of bytes or such as `10MB`.

        Raises:
            NotFound, IsADirectory, NotADirectory, PermissionDenied, FileError: what the kernel said, inside.
            PathAccessDenied: a rule denies the path.
        """
        return (await self._perform(self._on("read", path, limit=parse_size(limit)))).content

    async def read_for_search(self, path: StrPath) -> bytes:
        """A file's content under the same rules, without a record of its own: the search that it is for has one.

        Raises:
            PathAccessDenied: a rule denies the path, which nobody has asked for by name. Otherwise as `read`.
        """
        operation = self._on("read", path, limit=parse_size(READ_LIMIT_BYTES))
        self._rules.check(operation.path, _USES["read"])
        box = await self._acquire()
        return (await _done(box, operation, lambda place: self._rules.check(place, _USES["read"]), None)).content

    async def read_text(self, path: StrPath, *, encoding: str = "utf-8", limit: int | str = READ_LIMIT_BYTES) -> str:
        """The same as text.

        Raises:
            UnicodeDecodeError: it is none. Otherwise as `read`.
        """
        return (await self.read(path, limit=limit)).decode(encoding)

    async def stream(
        self, path: StrPath, *, offset: int = 0, size: int | None = None, piece_bytes: int = PIECE_BYTES
    ) -> AsyncIterator[bytes]:
        """A file's content in pieces, whatever its size; recorded as one read. A file that changes meanwhile is read as
        it is at the time of each piece.

        Args:
            offset: where to begin.
            size: how much at most; all that there is if not given.

        Raises:
            As `read`.
        """
        if offset < 0 or (size is not None and size < 0):
            raise InvalidArgument(f"a part of {size} bytes from {offset} on", argument="offset")
        left, is_first = size, True
        while left is None or left > 0 or is_first:
            wanted = piece_bytes if left is None else min(piece_bytes, left)
            operation = replace(self._on("read", path, flags=FileFlag.PART, limit=wanted), offset=offset)
            data = (await self._perform(operation, recorded=is_first)).content
            is_first = False
            if data:
                yield data
            if len(data) < wanted:
                return
            offset += len(data)
            left = None if left is None else left - len(data)

    async def stat(self, path: StrPath, *, follow: bool = True) -> FileStat:
        """What a path is; with `follow=False`, the link itself if it is one.

        Raises:
            As `read`.
        """
        flags = FileFlag.FOLLOW if follow else FileFlag.NONE
        performed = await self._perform(self._on("stat", path, flags=flags))
        (found,) = performed.entries
        return replace(found, path=os.fspath(path))

    async def exists(self, path: StrPath, *, follow: bool = True) -> bool:
        """Whether something is there.

        Raises:
            PermissionDenied, PathAccessDenied, FileError: as `read`.
        """
        try:
            await self.stat(path, follow=follow)
        except (NotFound, NotADirectory):
            return False
        return True

    async def list(self, path: StrPath = ".") -> tuple[FileStat, ...]:
        """What is in a directory, by name; links are shown as links.

        Raises:
            As `read`.
        """
        performed = await self._perform(self._on("list", path, limit=LIST_LIMIT_ENTRIES))
        shown = os.fspath(path)
        entries = (replace(entry, path=posixpath.join(shown, entry.name)) for entry in performed.entries)
        return tuple(sorted(entries, key=lambda entry: entry.path))

    async def realpath(self, path: StrPath, *, strict: bool = True) -> str:
        """Where a path leads inside, with all links followed; with `strict=False`, also one of which a part is missing.

        Raises:
            NotFound: nothing is there. Otherwise as `read`.
        """
        flags = _flag(not strict, FileFlag.MISSING_OK)
        return (await self._perform(self._on("realpath", path, flags=flags))).places[0]

    # --- changing -----------------------------------------------------------------------------------------------------

    async def write(
        self, path: StrPath, data: Content, *, mode: int | None = None, append: bool = False, parents: bool = False
    ) -> None:
        """Write a file: a new one, or into the one that is there, which keeps its owner and its links.

        Args:
            data: bytes, text (as UTF-8), or pieces of bytes as they come.
            mode: permission bits, of a file that is there too; by default a new one has what the umask leaves of 666.
            append: add to what is there, instead of replacing it.
            parents: make the directories that are missing.

        Raises:
            As `read`. What was written before something failed stays.
        """
        flags = FileFlag.FOLLOW | _flag(append, FileFlag.APPEND) | _flag(parents, FileFlag.PARENTS)
        operation = self._on("write", path, flags=flags, mode=mode)
        await self._perform(operation, content_pieces(data))

    async def mkdir(
        self, path: StrPath, *, mode: int | None = None, parents: bool = False, exist_ok: bool = False
    ) -> None:
        """Make a directory.

        Raises:
            AlreadyExists: something is there; with `exist_ok`, something else than a directory. Otherwise as `read`.
        """
        flags = _flag(parents, FileFlag.PARENTS) | _flag(exist_ok, FileFlag.EXIST_OK)
        await self._perform(self._on("mkdir", path, flags=flags, mode=mode))

    async def remove(self, path: StrPath, *, recursive: bool = False) -> None:
        """Remove a file, a link or an empty directory; with `recursive`, a directory with all that is in it.

        Raises:
            FileError: the directory is not empty. Otherwise as `read`.
        """
        await self._perform(self._on("remove", path, flags=_flag(recursive, FileFlag.RECURSIVE)))

    async def rename(self, old: StrPath, new: StrPath) -> None:
        """Give a file, link or directory another name; a file that has that name is replaced.

        Raises:
            FileError: the two lie on different file systems. Otherwise as `read`.
        """
        await self._perform(self._on("rename", old, second=new))

    # --- one operation ------------------------------------------------------------------------------------------------

    def _on(
        self,
        name: str,
        path: StrPath,
        *,
        second: StrPath | None = None,
        flags: FileFlag = FileFlag.NONE,
        mode: int | None = None,
        limit: int = 0,
    ) -> FileOperation:
        if mode is not None:
            if not 0 <= mode <= _MODE_MAX:
                raise InvalidArgument(f"mode {mode:#o} is not between 0 and 0o777", argument="mode")
            flags |= FileFlag.WITH_MODE
        inside = self._inside(path)
        other = "" if second is None else self._inside(second)
        return FileOperation(name=name, path=inside, second=other, flags=flags, mode=mode or 0, limit=limit)

    def _inside(self, path: StrPath) -> str:
        """As the box names it; `/workspace` is understood behind walls that cannot give it a second name, too."""
        text = os.fspath(path)
        if not isinstance(text, str):
            raise WrongType("path", path, "a string or a path")
        if not text or "\0" in text:
            raise InvalidArgument("a path is empty or holds a NUL byte", argument="path")
        try:
            os.fsencode(text)
        except UnicodeEncodeError:
            raise InvalidArgument("a path contains an unpaired surrogate", argument="path") from None
        return posixpath.join(self._workspace, on_host(text, self._rules.grant))

    async def _perform(
        self, operation: FileOperation, data: AsyncIterator[bytes] | None = None, *, recorded: bool = True
    ) -> Performed:
        use = _USES[operation.name]
        paths = (operation.path, operation.second) if operation.second else (operation.path,)
        is_recorded = recorded and operation.name in _RECORDED
        entry = self._open(operation.name, paths) if is_recorded else None
        try:
            for path in paths:
                self._rules.check(path, use)
            box = await self._acquire()
            performed = await _done(box, operation, lambda place: self._rules.check(place, use), data)
        except BaseException as fault:
            if isinstance(fault, PathAccessDenied):
                entry = entry or self._open(operation.name, paths)
                self._report(fault, operation, entry.run)
            if entry is not None:
                entry.close(file_records.failed(fault, self._redact))
            raise
        if entry is not None:
            entry.close(file_records.done(operation.name, performed.places, self._redact))
        return performed

    def _report(self, fault: PathAccessDenied, operation: FileOperation, run_id: str) -> None:
        """Keep a refusal with those of commands."""
        kind, about = type_of(fault.rule), self._reporting
        tried = Operation.WRITE if operation.changes else Operation.READ
        found = Violation(
            kind, USUAL_SEVERITY[kind], fault.message, fault.rule, fault.hint, operation=tried, target=fault.path
        )
        fault.violations = (found,)
        about.violations.record(found, session=about.session, tool=about.tool, run_id=run_id)

    def _open(self, what: str, paths: tuple[str, ...]) -> Entry:
        """
        Raises:
            PermissionDenied: the journal cannot be written, so nothing is done.
        """
        fields = file_records.beginning(what, paths, self._who, self._workspace, self._redact)
        return self._journal.open(os.urandom(8).hex(), fields)


async def _done(
    box: Box, operation: FileOperation, agree: Callable[[str], None], data: AsyncIterator[bytes] | None
) -> Performed:
    """With what the box's kernel said as an error of the family."""
    try:
        return await box.perform(operation, agree, data)
    except RingfenceError:
        raise
    except OSError as fault:
        number = fault.errno or 0
        hint = _HINTS.get(number, "")
        raise FileError.of(number, operation.path, hint=hint) from None


def _flag(is_set: bool, flag: FileFlag) -> FileFlag:
    return flag if is_set else FileFlag.NONE


async def content_pieces(data: Content) -> AsyncIterator[bytes]:
    if isinstance(data, str):
        yield data.encode("utf-8", "surrogateescape")
    elif isinstance(data, bytes | bytearray | memoryview):
        yield bytes(data)
    else:
        async for piece in data:
            yield piece
