"""Shadows of projects: made, listed, locked and thrown away.

A shadow is a directory of our own beside which the project, the *lower*, stays as it is. Two kinds:

- OVERLAY: `upper` holds what was changed, and whoever runs the box mounts overlayfs over both, with `userxattr`. Made
  in the time that one look at the names takes. What the blacklist names is covered by whiteouts from the start.
- COPY: `upper` holds a copy of everything that is not hidden, and `manifest` says what was copied. For projects that
  overlayfs cannot take; `why` says what stood against it.

    <store>/<id>/ shadow.json   what it is; written once
                  lock          whoever uses the shadow holds it (flock), also over the life of a mount
                  upper/ work/  as overlayfs wants them
                  known.json    which states of the host's files are this shadow's own doing
                  base/         the host's old contents, as far as they were kept
                  commit.json   a commit that is under way, or was interrupted

A new shadow is built under another name and renamed when it is whole; a discarded one is renamed before it is removed.
What a killed process leaves of either is removed by the next one that opens the store.

`born_ns` is the kernel's own time of the shadow's directory. What the host changes afterwards has a later one, which
nobody can set back; `new` returns only after the clock has moved on, so that this is strict.

What this does not protect against: somebody with the same uid, to whom the store belongs as much as to us; file systems
whose clock is another machine's.
"""

import os
import secrets
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from ringfence.errors import (
    Busy,
    Damaged,
    InitializationFailed,
    InvalidArgument,
    NotADirectory,
    NotFound,
    PermissionDenied,
    RingfenceError,
)
from ringfence.policy.globs import compiled
from ringfence.workspace.copying import Progress, copy_tree, no_progress
from ringfence.workspace.mounted import file_system, takes_attributes, why_not_lower, why_not_upper
from ringfence.workspace.protected import compiled as protecting
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.scan import TreeOwner, TreeScan, scan
from ringfence.workspace.shadow import (
    DISCARD_IT,
    SHADOW_ID,
    STATE_FILE,
    Shadow,
    ShadowKind,
    check_name,
    decoded,
    encoded,
)
from ringfence.workspace.shadow_lock import JOURNAL_FILE, ShadowLock, lock_shadow, locked_file
from ringfence.workspace.statefile import read_json, write_json
from ringfence.workspace.tree import ancestors, split

_UNFINISHED: Final = (".new-", ".gone-")
_MAKING_SECONDS: Final = 10.0


class ShadowStore:
    """The directory that shadows lie in; made if it is missing.

    Raises:
        PermissionDenied: it cannot be made, or it is not ours alone.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            self.directory = Path(os.path.realpath(directory))
            status = os.stat(self.directory)
        except OSError as fault:
            raise PermissionDenied(
                f"no shadows can be kept in {os.fspath(directory)!r}: {fault.strerror}", hint="name another directory"
            ) from fault
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise PermissionDenied(
                f"{self.directory} is open to others, or belongs to one", hint="chmod 700, or name another directory"
            )
        self._remove_unfinished()

    def new(
        self,
        lower: str | os.PathLike[str],
        *,
        denied: Iterable[str] = (),
        protected: Iterable[str] = (),
        name: str = "",
        kind: ShadowKind | None = None,
        progress: Callable[[Progress], None] = no_progress,
    ) -> Shadow:
        """Make a shadow of a project, which is only read.

        Args:
            denied: rows of the blacklist, expanded.
            protected: rows of protected names.
            kind: by default an overlay where that works, else a copy.
            progress: told now and then how far a copy has come.

        Raises:
            InvalidArgument, NotADirectory: the project, the name or a row makes no sense.
            InitializationFailed: the kind that was asked for does not work here.
            PermissionDenied: the project cannot be read, or nothing can be written.
        """
        project = self._checked_lower(lower)
        rows, guarded = tuple(denied), tuple(protected)
        rules = compiled(rows)
        protecting(guarded)
        check_name(name)
        number = _new_id()
        making = self.directory / f"{_UNFINISHED[0]}{number}"
        try:
            making.mkdir(mode=0o700)
            born_ns = os.stat(making).st_ctime_ns
            with locked_file(making):
                top = os.stat(project)
                found = scan(str(project), rules, owner=_mapped_owner(top))
                chosen, why = self._choose(project, making, kind, found)
                shadow = Shadow(
                    id=number,
                    name=name,
                    lower=project,
                    directory=making,
                    kind=chosen,
                    why=why,
                    lower_inode=top.st_ino,
                    born_ns=born_ns,
                    denied=rows,
                    protected=guarded,
                    hidden=found.hidden,
                )
                _make_like(shadow.upper, top)
                shadow.work.mkdir(mode=0o700)
                left_out: tuple[tuple[str, str], ...] = ()
                if chosen is ShadowKind.OVERLAY:
                    _hide(shadow)
                else:
                    left_out = copy_tree(shadow.lower, making, hidden=found.hidden, progress=progress)
                write_json(making / STATE_FILE, encoded(shadow) | {"left_out": left_out})
                _wait_for_the_clock(making, born_ns)
                os.rename(making, self.directory / number)
        except RingfenceError:
            self._remove(making)
            raise
        except OSError as fault:
            self._remove(making)
            raise PermissionDenied(f"cannot make a shadow of {project}: {fault}") from fault
        except BaseException:
            self._remove(making)
            raise
        return self.open(number)

    def adopt(self, fill: Callable[[Path], None], *, name: str = "") -> Shadow:
        """A shadow from the saved directory of another, with an id of its own.

        Args:
            fill: makes the directory that it is given, as it was saved.

        Raises:
            Damaged: what was saved is no shadow.
            PermissionDenied: it cannot be made.
        """
        check_name(name)
        number = _new_id()
        making = self.directory / f"{_UNFINISHED[0]}{number}"
        try:
            fill(making)
            with locked_file(making):
                fields = read_json(making / STATE_FILE)
                write_json(making / STATE_FILE, fields | {"id": number, "name": name})
                os.rename(making, self.directory / number)
            return self.open(number)
        except RingfenceError:
            self._remove(making)
            raise
        except OSError as fault:
            self._remove(making)
            raise PermissionDenied(f"cannot make a shadow from what was saved: {fault}") from fault
        except BaseException:
            self._remove(making)
            raise

    def list(self) -> tuple[Shadow, ...]:
        """All shadows, the oldest first, without those that `broken` names."""
        return tuple(found for number in self._ids() if isinstance(found := self._look(number), Shadow))

    def broken(self) -> tuple[tuple[str, str], ...]:
        """The ids whose state cannot be read, each with the fault."""
        looks = ((number, self._look(number)) for number in self._ids())
        return tuple((number, str(fault)) for number, fault in looks if isinstance(fault, Damaged))

    def open(self, shadow_id: str) -> Shadow:
        """The shadow of that id.

        Raises:
            InvalidArgument: it is no id.
            NotFound: there is none.
            Damaged: its state makes no sense.
        """
        if not SHADOW_ID.fullmatch(shadow_id):
            raise InvalidArgument(f"{shadow_id!r} is not an id of a shadow", hint="list the shadows")
        directory = self.directory / shadow_id
        source = str(directory / STATE_FILE)
        try:
            fields = read_json(directory / STATE_FILE)
        except FileNotFoundError:
            if directory.is_dir():
                raise Damaged("there is no state", source=source, hint=DISCARD_IT) from None
            raise NotFound(f"there is no shadow {shadow_id!r}", hint="list the shadows") from None
        except (OSError, ValueError) as fault:
            raise Damaged(f"is not the state of a shadow: {fault}", source=source, hint=DISCARD_IT) from fault
        shadow = decoded(fields, directory, source)
        if shadow.id != shadow_id:
            raise Damaged(f"calls itself {shadow.id!r}", source=source, hint=DISCARD_IT)
        return shadow

    def lock(self, shadow: Shadow) -> ShadowLock:
        """Take a shadow for this process: to mount it, to commit it.

        Raises:
            Busy: another one has it, or a commit was interrupted and nobody has recovered it.
            NotFound: it is gone.
        """
        return lock_shadow(shadow)

    def discard(self, shadow: Shadow) -> None:
        """Remove a shadow with all that was done in it; the project is not touched.

        Raises:
            Busy: it is in use.
            PermissionDenied: something in it cannot be removed.
        """
        with self.lock(shadow):
            gone = self.directory / f"{_UNFINISHED[1]}{shadow.id}"
            os.rename(shadow.directory, gone)
            try:
                remove_tree(gone)
            except OSError as fault:
                raise PermissionDenied(f"cannot remove {gone}: {fault.strerror}") from fault

    def discard_broken(self, shadow_id: str) -> None:
        """Remove a shadow whose state cannot be read.

        Raises:
            InvalidArgument: there is none, or it is whole.
            Busy: the project needs it, since a commit was interrupted.
        """
        if shadow_id not in dict(self.broken()):
            raise InvalidArgument(f"{shadow_id!r} is not a broken shadow", hint="discard it as a whole one")
        if (self.directory / shadow_id / JOURNAL_FILE).exists():
            raise Busy(
                f"{shadow_id} holds the journal of an interrupted commit", hint=f"repair its {STATE_FILE}, then recover"
            )
        remove_tree(self.directory / shadow_id)

    def _ids(self) -> tuple[str, ...]:
        return tuple(sorted(name for name in os.listdir(self.directory) if SHADOW_ID.fullmatch(name)))

    def _look(self, number: str) -> Shadow | Damaged | None:
        try:
            return self.open(number)
        except NotFound:
            return None  # another process has discarded it meanwhile
        except Damaged as fault:
            return fault

    def _checked_lower(self, lower: str | os.PathLike[str]) -> Path:
        real = Path(os.path.realpath(lower))
        if not real.is_dir():
            raise NotADirectory("is not a directory", path=os.fspath(lower), hint="name the project's directory")
        if real == Path("/"):
            raise InvalidArgument(
                "the root directory cannot be a project", source="'/'", hint="name the project's directory"
            )
        for one, other in ((real, self.directory), (self.directory, real)):
            if one.is_relative_to(other):
                raise InvalidArgument(
                    f"{one} lies in {other}: a shadow of it would hold itself", hint="keep shadows elsewhere"
                )
        return real

    def _choose(self, lower: Path, making: Path, wanted: ShadowKind | None, found: TreeScan) -> tuple[ShadowKind, str]:
        """Which kind it becomes, and why not an overlay."""
        if wanted is ShadowKind.COPY:
            return ShadowKind.COPY, "asked for"
        why = _against_overlay(lower, making, found)
        if not why:
            return ShadowKind.OVERLAY, ""
        if wanted is ShadowKind.OVERLAY:
            raise InitializationFailed(f"no overlay of {lower}: {why}", hint="leave the kind open, or ask for a copy")
        return ShadowKind.COPY, why

    def _remove(self, directory: Path) -> None:
        with suppress(OSError):
            remove_tree(directory)

    def _is_abandoned(self, name: str) -> bool:
        """Whether it has lain there for a while: who is making one locks it only after the first moment."""
        try:
            return time.time() - os.stat(self.directory / name).st_mtime > _MAKING_SECONDS
        except FileNotFoundError:
            return False

    def _remove_unfinished(self) -> None:
        for name in os.listdir(self.directory):
            if name.startswith(_UNFINISHED) and self._is_abandoned(name):
                with suppress(OSError), locked_file(self.directory / name):  # else another process is still at it
                    remove_tree(self.directory / name)


def _new_id() -> str:
    """Sorts by time, to the microsecond: of two that are made within a second, the later one is the latest."""
    seconds, rest = divmod(time.time_ns(), 1_000_000_000)
    return f"{seconds:08x}-{rest // 1000:05x}{secrets.randbelow(0x1000):03x}"


# --- making -----------------------------------------------------------------------------------------------------------


def _against_overlay(lower: Path, making: Path, found: TreeScan) -> str:
    below, above = file_system(str(lower)), file_system(str(making))
    if why := why_not_lower(below):
        return f"the project lies on {below}, which {why}"
    if why := why_not_upper(above):
        return f"the store lies on {above or 'an unknown file system'}: {why}"
    if not takes_attributes(making):
        return "the store's file system takes no extended attributes"
    if found.foreign is not None:
        other = found.foreign
        more = f" and {other.count - 1} more" if other.count > 1 else ""
        return f"{other.path!r}{more} belongs to {other.owner.uid}:{other.owner.gid}, whom the box does not know"
    return ""


def _mapped_owner(top: os.stat_result) -> TreeOwner:
    """The one owner that exists in the box: the caller, or for root whoever has the project."""
    return TreeOwner(top.st_uid, top.st_gid) if os.geteuid() == 0 else TreeOwner(os.geteuid(), os.getegid())


def _make_like(path: Path, model: os.stat_result) -> None:
    """A directory with the mode and owner of another: overlayfs shows those of the upper one."""
    path.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(path, model.st_uid, model.st_gid)
    os.chmod(path, stat.S_IMODE(model.st_mode))


def _hide(shadow: Shadow) -> None:
    """Put a whiteout, which is what overlayfs takes for "not there", in place of everything hidden."""
    made = {""}
    for path, _ in shadow.hidden:
        for above in reversed(tuple(ancestors(path))):
            if above not in made:
                with _writable(shadow.upper / split(above)[0]):
                    _make_like(shadow.upper / above, os.stat(shadow.lower / above))
                made.add(above)
        with _writable(shadow.upper / split(path)[0]):
            os.mknod(shadow.upper / path, stat.S_IFCHR)


class _writable:
    """A directory of ours that may be closed to us by the mode that it copies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._mode = stat.S_IMODE(os.stat(path).st_mode)

    def __enter__(self) -> None:
        os.chmod(self._path, self._mode | stat.S_IRWXU)

    def __exit__(self, *_: object) -> None:
        os.chmod(self._path, self._mode)


def _wait_for_the_clock(directory: Path, born_ns: int) -> None:
    """Until a change that is made now has a later time than `born_ns`: the kernel's clock ticks every few ms."""
    while True:
        os.utime(directory)
        if os.stat(directory).st_ctime_ns > born_ns:
            return
        time.sleep(0.001)
