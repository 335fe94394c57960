"""Read a directory into objects.

The tree may be hostile and may be changing. Nothing in it is followed (`walking`); a file is opened by the descriptor
of its directory, and only if it is a plain one. If its size or times are not the same after it was read as before, it
is read again, and after a few times left out and named: a snapshot never holds a mixture of two contents. Sockets,
fifos and devices are left out and named.
"""

import os
import stat
import time
from collections.abc import Callable, Iterator
from typing import Final

from ringfence.dataclass import dataclass, field
from ringfence.errors import PathAccessDenied
from ringfence.workspace.faults import kind_in_words
from ringfence.workspace.snapshots.cache import Cache, key_of
from ringfence.workspace.snapshots.objects import Objects
from ringfence.workspace.snapshots.tree import (
    OVERLAY_ATTRIBUTES,
    Attributes,
    DirectoryNode,
    FileNode,
    LinkNode,
    Node,
    Piece,
    WhiteoutNode,
    encode,
)
from ringfence.workspace.walking import LeftOut, Level, Walk

PIECE_BYTES: Final = 4 * 1024 * 1024
"""Files are cut here, so that a change in a large one costs a piece of it; most files are smaller and stay whole."""
_TRIES = 3
_PROGRESS_FILES = 256
"""Progress is told after so many."""
_OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Progress = Callable[[int, int], None]
"""Told how many files were looked at, and how many bytes of new objects were written."""


@dataclass(slots=True)
class Saving:
    """One run over a tree; what it found is in its fields."""

    objects: Objects
    known: Cache
    """What an earlier run saw."""
    trusts_known: bool
    """Whether the objects of what is known are surely still there."""
    overlay: bool
    progress: Progress | None
    limit_entries: int
    seen: Cache = field(default_factory=lambda: Cache(0))
    left_out: list[LeftOut] = field(default_factory=list)
    files: int = 0
    total_bytes: int = 0
    _begin_ns: int = field(default_factory=time.time_ns)

    def save(self, top: int) -> DirectoryNode:
        """Read the tree below a directory that is open.

        Raises:
            PathAccessDenied: it has more entries than `limit_entries`.
            OSError: EAGAIN, a directory was moved while we were in it; else what the system said.
        """
        walk = Walk(top, self.limit_entries)
        directories: list[tuple[bytes, int, Attributes, dict[bytes, Node]]] = []
        for level in walk:
            status = os.fstat(level.descriptor)
            attributes = self._attributes(f"/proc/self/fd/{level.descriptor}", follow=True)
            directories.append((level.path, stat.S_IMODE(status.st_mode), attributes, self._nodes(level)))
        if walk.is_cut:
            raise PathAccessDenied(
                ".", f"holds more than {self.limit_entries} entries", rule="limit_entries", hint="raise limit_entries"
            )
        self.left_out += walk.unread
        if self.progress is not None:
            self.progress(self.files, self.objects.new_bytes)
        return self._tie(directories)

    def _tie(self, directories: list[tuple[bytes, int, Attributes, dict[bytes, Node]]]) -> DirectoryNode:
        """Make trees of the directories, the deepest first, since each is named in the one above it."""
        made: dict[bytes, DirectoryNode] = {}
        by_path = {path: nodes for path, _, _, nodes in directories}
        for path, mode, attributes, nodes in reversed(directories):
            made[path] = DirectoryNode(mode, self.objects.put(encode(nodes)), attributes)
            if path:
                above, _, name = path.rpartition(b"/")
                by_path[above][name] = made[path]
        return made[b""]

    def _nodes(self, level: Level) -> dict[bytes, Node]:
        """What is in a directory, but for the directories in it."""
        nodes: dict[bytes, Node] = {}
        above = os.fsdecode(level.path + b"/") if level.path else ""
        for entry in level.entries:
            name = os.fsencode(entry.name)
            path = above + entry.name
            try:
                node = self._node(level.descriptor, name, path, entry.stat(follow_symlinks=False))
            except FileNotFoundError:  # gone meanwhile, as if we had come later
                continue
            except OSError as fault:
                self.left_out.append(LeftOut(path, f"cannot be read: {fault.strerror}"))
                continue
            if node is not None:
                nodes[name] = node
        return nodes

    def _node(self, parent: int, name: bytes, path: str, status: os.stat_result) -> Node | None:
        if stat.S_ISREG(status.st_mode):
            return self._file(parent, name, path, status)
        if stat.S_ISLNK(status.st_mode):
            return LinkNode(os.readlink(name, dir_fd=parent))
        if stat.S_ISDIR(status.st_mode):
            return None
        if self.overlay and stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            return WhiteoutNode()
        self.left_out.append(LeftOut(path, f"is {kind_in_words(status.st_mode)}"))
        return None

    def _file(self, parent: int, name: bytes, path: str, status: os.stat_result) -> FileNode | None:
        pieces = self._known_pieces(path, status)
        if pieces is None:
            read = self._read(parent, name)
            if isinstance(read, str):
                self.left_out.append(LeftOut(path, read))
                return None
            status, pieces = read
        self.seen.remember(path, status, pieces, self._begin_ns)
        self.files += 1
        self.total_bytes += status.st_size
        if self.progress is not None and self.files % _PROGRESS_FILES == 0:
            self.progress(self.files, self.objects.new_bytes)
        place = f"/proc/self/fd/{parent}/{os.fsdecode(name)}" if self.overlay else ""
        attributes = self._attributes(place, follow=False)
        mode = stat.S_IMODE(status.st_mode)
        return FileNode(mode, status.st_mtime_ns, status.st_size, pieces, attributes)

    def _known_pieces(self, path: str, status: os.stat_result) -> tuple[Piece, ...] | None:
        pieces = self.known.get(path, status)
        if pieces is None or self.trusts_known:
            return pieces
        return pieces if all(self.objects.has(piece.digest, piece.length) for piece in pieces) else None

    def _read(self, parent: int, name: bytes) -> tuple[os.stat_result, tuple[Piece, ...]] | str:
        """What the file is and holds; or why it is left out."""
        descriptor = os.open(name, _OPEN_FILE, dir_fd=parent)
        try:
            for _ in range(_TRIES):
                before = os.fstat(descriptor)
                if not stat.S_ISREG(before.st_mode):
                    return "changed its kind while it was read"
                pieces = self._pieces(descriptor, before)
                if pieces is not None and key_of(os.fstat(descriptor)) == key_of(before):
                    return before, pieces
            return "kept changing while it was read"
        finally:
            os.close(descriptor)

    def _pieces(self, descriptor: int, status: os.stat_result) -> tuple[Piece, ...] | None:
        """The pieces of a file; None if it became shorter meanwhile."""
        pieces: list[Piece] = []
        for offset, length in _stretches(descriptor, status):
            data = os.pread(descriptor, length, offset)
            if len(data) != length:
                return None
            pieces.append(Piece(offset, length, self.objects.put(data)))
        return tuple(pieces)

    def _attributes(self, path: str, *, follow: bool) -> Attributes:
        if not self.overlay:
            return ()
        names = [name for name in os.listxattr(path, follow_symlinks=follow) if name.startswith(OVERLAY_ATTRIBUTES)]
        return tuple((name, os.getxattr(path, name, follow_symlinks=follow)) for name in sorted(names))


def _stretches(descriptor: int, status: os.stat_result) -> Iterator[tuple[int, int]]:
    """Where a file has data, cut at every multiple of the size of a piece."""
    for begin, end in _data(descriptor, status):
        while begin < end:
            cut = min(end, (begin // PIECE_BYTES + 1) * PIECE_BYTES)
            yield begin, cut - begin
            begin = cut


def _data(descriptor: int, status: os.stat_result) -> Iterator[tuple[int, int]]:
    size = status.st_size
    if status.st_blocks * 512 >= size:  # as many blocks as it needs: no holes worth looking for
        if size:
            yield 0, size
        return
    end = 0
    while end < size:
        try:
            begin = os.lseek(descriptor, end, os.SEEK_DATA)
        except OSError:  # ENXIO: a hole to the end
            return
        end = min(os.lseek(descriptor, begin, os.SEEK_HOLE), size)
        if begin >= end:
            return
        yield begin, end
