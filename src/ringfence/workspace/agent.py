"""`AgentWorkspace`: the files of one session, by one set of paths, whatever engine its commands run in.

A path is relative to the workspace or starts with `/workspace`, which is what the workspace is called inside every box;
the workspace's own path on the host is understood too. How a path is resolved, and what is refused, is told in `root`.
By default the built-in blacklist and the protected names hold (`policy/defaults.py`): `.env` is neither read nor made,
`.git/hooks` is not changed.

What this does not protect against is told in `root` and, for archives, in `archives/unpacking`.
"""

import io
import os
from collections.abc import Iterable
from typing import BinaryIO

from ringfence.errors import InvalidArgument, PathAccessDenied
from ringfence.policy.defaults import BLACKLIST, PROTECTED, UNMADE
from ringfence.policy.globs import compiled, escape
from ringfence.workspace import changing
from ringfence.workspace.archives.base import Archive, ArchiveLimits, Packed, Unpacked
from ringfence.workspace.archives.members import Readable
from ringfence.workspace.archives.packing import pack
from ringfence.workspace.archives.unpacking import unpack
from ringfence.workspace.beneath import Resolver
from ringfence.workspace.names import PathText
from ringfence.workspace.places import make_session_directory
from ringfence.workspace.reading import READ_LIMIT_BYTES
from ringfence.workspace.root import WorkspaceRoot
from ringfence.workspace.root_handle import Denied

_USUAL_ARCHIVE_LIMITS = ArchiveLimits()


class AgentWorkspace(WorkspaceRoot):
    """The files of a session.

        with AgentWorkspace("session_123") as workspace:
            workspace.write("output/result.txt", "Hello")
            workspace.read_text("/workspace/output/result.txt")
            workspace.write("../../etc/passwd", "hack")  # PathTraversalError

    Args:
        session_id: whose it is; without `root`, of up to 128 letters, digits, dots, dashes and underscores.
        root: the directory; without it the session's own below `~/.ringfence/workspaces` (RINGFENCE_WORKSPACES_DIR),
            which is made if it is not there and stays until somebody removes it.
        denied: asked about absolute paths, returns the rule that forbids one; the built-in blacklist if not given.
        protected: names that may be read and not changed; the built-in ones if not given.
        limit_bytes: of a file that is read or written in one call.
        archive_limits: of what is uploaded and downloaded.
        allow_hard_links: whether files with several names may be read.
        resolver: for tests; by default the best that the machine has.

    Raises:
        InvalidArgument: the id, or a root that is not a directory.
        PermissionDenied: the session's directory cannot be made.
    """

    def __init__(
        self,
        session_id: str,
        *,
        root: PathText | None = None,
        denied: Denied | None = None,
        protected: Iterable[str] | None = None,
        limit_bytes: int = READ_LIMIT_BYTES,
        archive_limits: ArchiveLimits = _USUAL_ARCHIVE_LIMITS,
        allow_hard_links: bool = False,
        resolver: Resolver | None = None,
    ) -> None:
        if limit_bytes <= 0:
            raise InvalidArgument(f"limit_bytes is {limit_bytes}", hint="give a size above zero")
        home = os.path.normpath(os.path.expanduser("~"))
        super().__init__(
            make_session_directory(session_id, os.environ, home) if root is None else root,
            denied=_blacklist(home) if denied is None else denied,
            protected=(*PROTECTED, *UNMADE) if protected is None else protected,
            allow_hard_links=allow_hard_links,
            resolver=resolver,
        )
        self.session_id = session_id
        self._limit_bytes = limit_bytes
        self._archive_limits = archive_limits

    # --- text and bytes -----------------------------------------------------------------------------------------------

    def read(self, path: PathText, *, limit_bytes: int | None = None) -> bytes:
        """Return the content of a regular file of at most `limit_bytes`; the workspace's limit if not given."""
        return super().read(path, limit_bytes=self._limit_bytes if limit_bytes is None else limit_bytes)

    def read_text(self, path: PathText, *, encoding: str = "utf-8", limit_bytes: int | None = None) -> str:
        """Return a file as text.

        Raises:
            InvalidArgument: it is not text in that encoding; says where it stops being one.
        """
        data = self.read(path, limit_bytes=limit_bytes)
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            why = f"is no {encoding} text: byte {error.start} is {data[error.start]:#04x}"
            raise InvalidArgument(why, source=repr(os.fsdecode(path)), hint="read it as bytes") from error

    def write(self, path: PathText, data: bytes | str, *, make_parents: bool = True, mode: int | None = None) -> None:
        """Replace or make a file, at once for every reader; text is written as UTF-8.

        Args:
            mode: permission bits (others are dropped); by default those of the replaced file, else the usual ones.
        """
        content = self._allowed(path, data)
        changing.write(self._ground, path, (content,), make_parents=make_parents, mode=mode)

    def write_text(self, path: PathText, text: str, *, encoding: str = "utf-8") -> None:
        """Replace or make a file with a text.

        Raises:
            InvalidArgument: the encoding cannot hold it.
        """
        try:
            self.write(path, text.encode(encoding))
        except UnicodeEncodeError as error:
            why = f"{encoding} cannot hold the text: character {error.start} is {text[error.start]!r}"
            raise InvalidArgument(why, source=repr(os.fsdecode(path)), hint="write it as bytes") from error

    read_file = read_text
    write_file = write
    """The names that the design document gives them."""

    def append(self, path: PathText, data: bytes | str, *, make_parents: bool = True) -> None:
        """Add to the end of a regular file, which is made if it is not there; text is written as UTF-8."""
        changing.append(self._ground, path, self._allowed(path, data), make_parents=make_parents)

    def _allowed(self, path: PathText, data: bytes | str) -> bytes:
        try:
            content = data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data
        except UnicodeEncodeError as error:
            why = f"the text contains an unpaired surrogate at {error.start}"
            raise InvalidArgument(why, source=repr(os.fsdecode(path)), hint="write it as bytes") from error
        if len(content) > self._limit_bytes:
            raise PathAccessDenied(
                os.fsdecode(path),
                f"would be written with {len(content)} bytes, and {self._limit_bytes} are allowed",
                rule="limit_bytes",
                hint="raise limit_bytes of the workspace, or append in parts",
            )
        return content

    # --- archives -----------------------------------------------------------------------------------------------------

    def upload(self, source: bytes | Readable, into: PathText = ".", *, form: Archive | str | None = None) -> Unpacked:
        """Unpack an archive into a directory, which is made if it is not there: all of it, or nothing.

        Args:
            source: the archive, or something to read it from; it is read as a stream and never held whole.
            form: `tar`, `tar.gz` or `zip`; by default what its first bytes say.

        Raises:
            PathTraversalError, PathAccessDenied: a member leads out, or is refused by a rule or a limit.
            InvalidArgument: it is no such archive, or a damaged one.
        """
        readable = io.BytesIO(source) if isinstance(source, bytes) else source
        return unpack(self._ground, readable, into, _form(form), self._archive_limits)

    def download(self, target: BinaryIO, path: PathText = ".", *, form: Archive | str = Archive.TAR_GZ) -> Packed:
        """Pack a directory into `target`, which is written as a stream; says what was left out, and why.

        Raises:
            PathAccessDenied: a limit, or a file that changed; the target then holds part of an archive.
        """
        return pack(self._ground, path, target, _form(form) or Archive.TAR_GZ, self._archive_limits)


def _blacklist(home: str) -> Denied:
    rows = (escape(home) + row[1:] if row.startswith("~/") else row for row in BLACKLIST)
    return compiled(tuple(rows)).matches


def _form(given: Archive | str | None) -> Archive | None:
    if given is None:
        return None
    try:
        return Archive(given)
    except ValueError:
        raise InvalidArgument(f"{given!r} is not a form of archive", hint=f"one of {', '.join(Archive)}") from None
