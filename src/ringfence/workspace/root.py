"""Read and write files beneath one directory, with paths that nobody on our side vouches for.

Theory of operation. The paths come from an agent, the tree beneath the root too, and the agent may change the tree
while a call is under way. So each call goes through the same steps, and text decides only the first:

1. The path is parsed (`names`): no NUL, not empty, not too long. An absolute path must start with the root's own path
   (as given, or real) or with `/workspace`, compared by whole names; what remains is relative.
2. The rest is resolved by descriptor (`beneath`), to an O_PATH descriptor: nothing is opened yet, and what the
   descriptor stands for cannot be swapped any more.
3. The kernel is asked where this descriptor lies (/proc/self/fd), and the answer is compared with the root once more
   and given to the rules (`ground`): `denied` (no access at all) and `protected` (no change). A rule therefore sees the
   real place, by whatever link or spelling it was reached.
4. The kind is looked at. Only then is a file opened for reading (`reading`), through the descriptor, with O_NONBLOCK.

Nothing is ever written in place but by `append` (`changing`): `write` fills a new file beside the old one and renames
it over the name, both within the descriptor of the parent directory. A rename replaces a link or a hard link and does
not follow it, and a reader sees the old content or the new. A link at the end of the path that stays inside is followed
by hand, so that writing to it changes its target, as an editor would; one that leads out is refused.

Files with several names (hard links) are refused for reading unless allowed, because the other name may be outside.

Raises, from every method: PathTraversalError (leads out), PathAccessDenied (a rule, the wrong kind, too large),
InvalidArgument (a path that makes no sense), NotFound, AlreadyExists, IsADirectory, NotADirectory, PermissionDenied and
other FileErrors (the system said no). The system's own
error, where there was one, is the `__cause__`.

What this does not protect against:

- a file system that is mounted beneath the root: it counts as inside;
- the other names of a file, when hard links are allowed;
- someone who may rename beyond the root and moves a directory out of it while a call holds it;
- someone who moves a directory to a protected place between our check and our change, and so could have done it alone;
- loss of extended attributes and access lists, which `write` does not carry over to the new file;
- a temporary file (`.ringfence-*.tmp`) that stays when this process is killed within `write`.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Self

from ringfence.errors import Closed, InitializationFailed, NotADirectory, NotFound
from ringfence.workspace import changing, reading
from ringfence.workspace.beneath import Resolver
from ringfence.workspace.faults import require_directory, translating
from ringfence.workspace.names import ALIAS, PathText, join
from ringfence.workspace.protected import compiled
from ringfence.workspace.reading import (
    GLOB_LIMIT_ENTRIES,
    LIST_LIMIT_ENTRIES,
    READ_LIMIT_BYTES,
    DirectoryEntry,
    NodeType,
)
from ringfence.workspace.root_handle import Denied, RootHandle, path_of

__all__ = ["ALIAS", "LIST_LIMIT_ENTRIES", "READ_LIMIT_BYTES", "DirectoryEntry", "NodeType", "PathText", "WorkspaceRoot"]


def nothing_denied(_path: str) -> None:
    """The empty rule."""
    return None


class WorkspaceRoot:
    """Owns the descriptor of the root; close it, or use it in a `with`, and not while another thread is in a call.

    Args:
        path: The directory; may itself be reached by links, since the caller chose it.
        denied: Called with absolute real paths, and with each directory above them up to the root; returns the rule
            that forbids the path, or None.
        protected: Names that may be read but not written, made, moved or removed, with all below them, in any letter
            case. `.git/hooks` means everywhere in the tree, `/.profile` at the top only; `*` stands for any part of
            one name.
        allow_hard_links: Whether files with several names may be read.
        resolver: For tests; by default the best that the machine has.

    Raises:
        NotFound, NotADirectory: the path is not a directory.
        InvalidArgument: it is `/`.
        InitializationFailed: the machine lacks what this needs.
    """

    def __init__(
        self,
        path: PathText,
        *,
        denied: Denied = nothing_denied,
        protected: Iterable[str] = (),
        allow_hard_links: bool = False,
        resolver: Resolver | None = None,
    ) -> None:
        if sys.platform != "linux":
            raise InitializationFailed("the file API needs Linux", hint="run Ringfence on Linux or in a container")
        names = compiled(tuple(protected))
        self._opened: RootHandle | None = RootHandle.open(
            path, denied, names, allow_hard_links=allow_hard_links, resolver=resolver
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._opened is None else os.fsdecode(path_of(self._opened.descriptor))
        return f"<{type(self).__name__} {state!r}>"

    def close(self) -> None:
        """Give the descriptor back; a second time does nothing."""
        opened, self._opened = self._opened, None
        if opened is not None:
            os.close(opened.descriptor)

    @property
    def _ground(self) -> RootHandle:
        if self._opened is None:
            raise Closed("the workspace is closed", hint="open it again")
        return self._opened

    def read(self, path: PathText, *, limit_bytes: int = READ_LIMIT_BYTES) -> bytes:
        """Return the content of a regular file of at most `limit_bytes`."""
        return reading.read(self._ground, path, limit_bytes)

    def write(self, path: PathText, data: bytes, *, make_parents: bool = True, mode: int | None = None) -> None:
        """Replace or make a file, at once for every reader.

        Args:
            mode: Permission bits (others are dropped); by default those of the replaced file, else the usual ones.
        """
        changing.write(self._ground, path, (data,), make_parents=make_parents, mode=mode)

    def append(self, path: PathText, data: bytes, *, make_parents: bool = True) -> None:
        """Add to the end of a regular file, which is made if it is not there."""
        changing.append(self._ground, path, data, make_parents=make_parents)

    def list(self, path: PathText = ".", *, limit_entries: int = LIST_LIMIT_ENTRIES) -> tuple[DirectoryEntry, ...]:
        """Return what is in a directory, by name; what a rule denies is left out."""
        return reading.entries(self._ground, path, limit_entries)

    def glob(self, pattern: PathText, *, limit_entries: int = GLOB_LIMIT_ENTRIES) -> tuple[str, ...]:
        """Return the paths, relative to the root, that match a pattern, sorted; what a rule denies is left out.

        `*`, `?` and `[...]` stay within one name and match a leading dot; `**` stands for any number of directories.
        Links are matched and never entered.

        Args:
            limit_entries: How many names are looked at before it is refused.
        """
        return reading.glob(self._ground, pattern, limit_entries)

    def stat(self, path: PathText) -> DirectoryEntry:
        """Say what a path is; a link at its end is not followed."""
        return reading.status(self._ground, path)

    def exists(self, path: PathText) -> bool:
        """Whether something is there; a link counts, wherever it leads. A path that leads out is refused as usual."""
        try:
            reading.status(self._ground, path)
        except (NotFound, NotADirectory):
            return False
        return True

    def delete(self, path: PathText, *, recursive: bool = False) -> None:
        """Remove a file, a link (never its target) or a directory: an empty one, or with `recursive` all of it."""
        changing.delete(self._ground, path, recursive=recursive)

    def move(self, source: PathText, target: PathText) -> None:
        """Rename a file, link or directory to a name that is not taken."""
        changing.move(self._ground, source, target)

    def make_dir(self, path: PathText) -> None:
        """Make a directory and those above it; one that exists already is fine."""
        changing.make_dir(self._ground, path)

    def resolve_dir(self, path: PathText) -> Path:
        """Return the real path of a directory inside, for use as a working directory within a box."""
        asked = self._ground.ask(path)
        with translating(asked), self._ground.opened(asked) as found:
            require_directory(asked, found.status)
            return Path(os.fsdecode(join(path_of(self._ground.descriptor), found.place)))
