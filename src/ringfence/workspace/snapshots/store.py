"""`SnapshotStore`: save a directory, look at what was saved, put it back.

    store/
      lock          shared by whoever reads or saves, held alone by whoever removes objects
      generation    how often objects were removed
      objects/      pieces of files and trees, by their SHA-256 (`objects`, `tree`)
      snapshots/    one manifest for each snapshot (`manifest`)
      cache/        what was seen in a tree that was saved, so that only changes are read again (`cache`)
      tmp/          what is being written

Order is what makes it safe to be killed at any moment: objects before the tree that names them, everything on the disk
before the manifest has its name; for a removal the manifest first, then the generation, then the objects.

What this does not protect against: whoever can write to the store (its owner, and root); files that an agent has a hard
link to from outside are saved as what they hold; extended attributes, access lists and owners are not kept, and the
times of directories and links neither; a process that is killed in `restore` leaves a directory `.*.ringfence-*.tmp`
beside the one that it was to restore.
"""

import errno
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringfence.dataclass import dataclass
from ringfence.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    PathAccessDenied,
    PermissionDenied,
    RingfenceError,
)
from ringfence.workspace.places import check_name, snapshots_directory
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.snapshots import manifest
from ringfence.workspace.snapshots.cache import Cache, read_cache
from ringfence.workspace.snapshots.comparing import Difference, changes
from ringfence.workspace.snapshots.manifest import Snapshot
from ringfence.workspace.snapshots.objects import Objects, sync_directory
from ringfence.workspace.snapshots.placing import (
    StrPath,
    build_beside,
    is_there,
    open_tree,
    owner_for,
    put_in_place,
    remove_or_tell,
)
from ringfence.workspace.snapshots.reaching import check, needed_by
from ringfence.workspace.snapshots.restoring import Restoring
from ringfence.workspace.snapshots.saving import Progress, Saving
from ringfence.workspace.snapshots.tree import DirectoryNode, FileNode, decode
from ringfence.workspace.swapping import rename_to_free_name

LIMIT_ENTRIES = 5_000_000
_SUFFIX = ".json"
_CACHE_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True)
class Freed:
    """What a collection of garbage removed."""

    objects: int
    total_bytes: int


class SnapshotStore:
    """Snapshots of directories, below one directory.

        store = SnapshotStore()
        store.save("project", "before")
        store.restore("before", "project")
        store.fork("before", "project-2")

    Several processes may use one store at a time. Methods block: on the disk, and on whoever removes a snapshot.

    Args:
        directory: where it is kept; `~/.ringfence/snapshots` (RINGFENCE_SNAPSHOTS_DIR) if not given. It is made for its
            owner alone if it is not there.
        durable: whether what is saved is on the disk when `save` returns, and not only safe from a killed process.

    Raises:
        PermissionDenied: the directory cannot be made or written.
    """

    def __init__(self, directory: StrPath | None = None, *, durable: bool = True) -> None:
        chosen = snapshots_directory(os.environ, os.path.expanduser("~")) if directory is None else Path(directory)
        self._directory = Path(os.path.abspath(chosen))
        self._durable = durable
        with self._translating():
            Objects(self._directory)
            for name in ("snapshots", "cache"):
                (self._directory / name).mkdir(mode=0o700, exist_ok=True)

    def __repr__(self) -> str:
        return f"<SnapshotStore {str(self._directory)!r}>"

    # --- saving -------------------------------------------------------------------------------------------------------

    def save(
        self,
        tree: StrPath,
        name: str,
        *,
        parent: str | None = None,
        overlay: bool = False,
        progress: Progress | None = None,
        limit_entries: int = LIMIT_ENTRIES,
    ) -> Snapshot:
        """Save a directory under a new name. Only files that changed since the last time are read.

        Args:
            parent: the snapshot that it comes after, for whoever wants to draw a history.
            overlay: keep whiteouts and the overlay's attributes, so that an upper directory can be put back.
            progress: told now and then how many files were looked at, and how many bytes of new objects written.

        Raises:
            InvalidArgument: the name is none.
            AlreadyExists: it is taken.
            NotFound, NotADirectory: there is no such parent, or the tree is not a directory.
            PathAccessDenied: more entries than `limit_entries`, or directories were moved while it was read.
            PermissionDenied: the system said no.
        """
        check_name(name, "name of a snapshot")
        with self._translating(), self._locked(fcntl.LOCK_SH):
            self._forbid_taken(name)
            if parent is not None:
                self._manifest(parent)
            top = open_tree(tree)
            try:
                self._forbid_own(top)
                cache_path = self._cache_path(top)
                generation = self._generation()
                known = read_cache(cache_path) or Cache(generation)
                saving = Saving(
                    Objects(self._directory),
                    known,
                    trusts_known=known.generation == generation,
                    overlay=overlay,
                    progress=progress,
                    limit_entries=limit_entries,
                    seen=Cache(generation),
                )
                root = saving.save(top)
            finally:
                os.close(top)
            return self._publish(name, parent, saving, root, cache_path)

    def _publish(
        self, name: str, parent: str | None, saving: Saving, root: DirectoryNode, cache_path: Path
    ) -> Snapshot:
        left_out, more = manifest.first_of(saving.left_out)
        snapshot = Snapshot(
            name=name,
            parent=parent,
            saved_at=time.time(),
            files=saving.files,
            total_bytes=saving.total_bytes,
            new_bytes=saving.objects.new_bytes,
            left_out=left_out,
            left_out_more=more,
            overlay=saving.overlay,
            root=root,
        )
        if self._durable:
            saving.objects.sync()
        if saving.seen.files != saving.known.files or saving.known.generation != saving.seen.generation:
            saving.objects.replace(cache_path, saving.seen.encode(), on_disk=False)
        if not saving.objects.publish(self._path(name), manifest.encode(snapshot)):
            self._forbid_taken(name)
        return snapshot

    # --- looking ------------------------------------------------------------------------------------------------------

    def list(self) -> tuple[Snapshot, ...]:
        """All snapshots, the oldest first.

        Raises:
            Damaged: a manifest is damaged; `verify` names it.
        """
        with self._translating(), self._locked(fcntl.LOCK_SH):
            return tuple(sorted((self._manifest(name) for name in self._names()), key=lambda one: one.saved_at))

    def get(self, name: str) -> Snapshot:
        """
        Raises:
            NotFound: there is no such snapshot.
        """
        with self._translating(), self._locked(fcntl.LOCK_SH):
            return self._manifest(name)

    def diff(self, old: str, new: str) -> tuple[Difference, ...]:
        """What differs between two snapshots, by path; times do not count.

        Raises:
            NotFound: one of them is not there.
            Damaged: an object is missing or damaged.
        """
        with self._translating(), self._locked(fcntl.LOCK_SH):
            objects = Objects(self._directory)
            return changes(objects, self._manifest(old).root, self._manifest(new).root)

    def read(self, name: str, file: str) -> bytes:
        """One file at the top of a snapshot.

        Raises:
            NotFound: there is no such snapshot, or no such file in it.
            Damaged: an object is missing or damaged.
        """
        with self._translating(), self._locked(fcntl.LOCK_SH):
            objects = Objects(self._directory)
            node = decode(objects.get(self._manifest(name).root.digest)).get(os.fsencode(file))
            if not isinstance(node, FileNode):
                raise NotFound(f"the snapshot {name!r} has no file {file!r}", hint="is it one of another kind?")
            data = bytearray(node.size)
            for piece in node.pieces:
                data[piece.offset : piece.offset + piece.length] = objects.get(piece.digest)
            return bytes(data)

    def verify(self, name: str | None = None) -> dict[str, str]:
        """Read every object of a snapshot, or of all of them; what is wrong, by the snapshot's name. Empty is good."""
        faults: dict[str, str] = {}
        checked: set[str] = set()
        with self._translating(), self._locked(fcntl.LOCK_SH):
            objects = Objects(self._directory)
            for one in self._names() if name is None else [name]:
                try:
                    check(objects, self._manifest(one).root, checked)
                except RingfenceError as fault:
                    if isinstance(fault, NotFound | InvalidArgument):
                        raise
                    faults[one] = fault.message
        return faults

    # --- putting back -------------------------------------------------------------------------------------------------

    def restore(self, name: str, into: StrPath, *, in_place: bool = False) -> str | None:
        """Make a directory equal to a snapshot.

        The whole is built beside the directory, and both trade places in one step: until then nothing has changed, and
        whoever looks sees the old or the new. With `in_place` the directory itself stays and only differences are
        written, which suits a workspace that a box has mounted; if that fails, the directory is a mixture, and doing
        it again mends it.

        Returns:
            Where the old content still lies, if it could not be removed; else None.

        Raises:
            NotFound: there is no such snapshot, or the directory above is not there.
            Damaged: an object is missing or damaged.
            PermissionDenied: the system said no.
        """
        target = Path(os.path.realpath(into))
        with self._translating(), self._locked(fcntl.LOCK_SH):
            snapshot = self._manifest(name)
            if in_place:
                self._make_equal(target, snapshot)
                return None
            built = build_beside(Objects(self._directory), target, snapshot.root)
            try:
                is_new = put_in_place(built, target)
            except BaseException:
                remove_tree(built)
                raise
        return None if is_new else remove_or_tell(built)

    def fork(self, name: str, into: StrPath) -> None:
        """Restore to a directory that is not there yet.

        Raises:
            NotFound: there is no such snapshot.
            AlreadyExists: something has that name.
            Damaged, PermissionDenied: as `restore`.
        """
        target = Path(os.path.abspath(into))
        with self._translating(), self._locked(fcntl.LOCK_SH):
            snapshot = self._manifest(name)
            if os.path.lexists(target):
                raise is_there(target)
            built = build_beside(Objects(self._directory), target, snapshot.root)
            try:
                rename_to_free_name(built, target)
            except FileExistsError:
                remove_tree(built)
                raise is_there(target) from None
            except BaseException:
                remove_tree(built)
                raise

    def _make_equal(self, target: Path, snapshot: Snapshot) -> None:
        top = open_tree(target)
        try:
            known = None if snapshot.overlay else read_cache(self._cache_path(top))
            objects, owner = Objects(self._directory), owner_for(target)
            Restoring(objects, owner, known, is_private=False).make_equal(top, snapshot.root)
        finally:
            os.close(top)

    # --- removing -----------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> Freed:
        """Remove a snapshot, and the objects that no other one needs.

        Raises:
            NotFound: there is no such snapshot.
            Damaged: another snapshot is damaged, so that nobody knows what it needs; no object was removed.
        """
        with self._translating(), self._locked(fcntl.LOCK_EX):
            check_name(name, "name of a snapshot")
            try:
                os.unlink(self._path(name))
            except FileNotFoundError:
                raise self._unknown(name) from None
            if self._durable:
                sync_directory(self._path(name).parent)
            return self._collect()

    def collect_garbage(self) -> Freed:
        """Remove what no snapshot needs, and what killed processes left.

        Raises:
            Damaged: a snapshot is damaged; no object was removed.
        """
        with self._translating(), self._locked(fcntl.LOCK_EX):
            return self._collect()

    def _collect(self) -> Freed:
        objects = Objects(self._directory)
        needed = needed_by(objects, [self._manifest(name).root for name in self._names()])
        objects.replace(self._directory / "generation", str(self._generation() + 1).encode(), on_disk=True)
        self._forget_old_trees()
        return Freed(*objects.sweep(needed))

    def _forget_old_trees(self) -> None:
        """Caches of trees that nobody has saved for long, which may be gone."""
        for entry in os.scandir(self._directory / "cache"):
            if entry.stat().st_mtime < time.time() - _CACHE_SECONDS:
                os.unlink(entry.path)

    # --- inside -------------------------------------------------------------------------------------------------------

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        lock = os.open(self._directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, how)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except RingfenceError:
            raise
        except OSError as error:
            if error.errno == errno.EAGAIN:
                raise PathAccessDenied(
                    ".", "directories were moved meanwhile", hint="try again when nothing runs in it"
                ) from error
            where = f" ({error.filename})" if error.filename else ""
            raise PermissionDenied(f"snapshots: {error.strerror or error}{where}") from error

    def _path(self, name: str) -> Path:
        return self._directory / "snapshots" / (name + _SUFFIX)

    def _cache_path(self, top: int) -> Path:
        """One cache for each directory that is saved, by where it lies and which it is."""
        status = os.fstat(top)
        identity = f"{os.readlink(f'/proc/self/fd/{top}')}\0{status.st_dev}\0{status.st_ino}"
        return self._directory / "cache" / hashlib.sha256(os.fsencode(identity)).hexdigest()[:32]

    def _names(self) -> tuple[str, ...]:
        names = os.listdir(self._directory / "snapshots")
        return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))

    def _manifest(self, name: str) -> Snapshot:
        check_name(name, "name of a snapshot")
        try:
            return manifest.decode(self._path(name).read_bytes(), name)
        except FileNotFoundError:
            raise self._unknown(name) from None

    def _unknown(self, name: str) -> NotFound:
        known = ", ".join(self._names()[:20]) or "none"
        return NotFound(f"there is no snapshot {name!r}", hint=f"there are: {known}")

    def _forbid_taken(self, name: str) -> None:
        if self._path(name).exists():
            raise AlreadyExists(f"there is a snapshot {name!r} already", hint="choose another name, or delete it")

    def _forbid_own(self, top: int) -> None:
        """A store that saved itself would have more to save each time."""
        tree = Path(os.readlink(f"/proc/self/fd/{top}"))
        if Path(os.path.realpath(self._directory)).is_relative_to(tree):
            raise InvalidArgument("holds the store itself", source=repr(str(tree)), hint="keep snapshots elsewhere")

    def _generation(self) -> int:
        with suppress(FileNotFoundError, ValueError):
            return int((self._directory / "generation").read_text())
        return 0
