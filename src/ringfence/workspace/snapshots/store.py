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
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ringfence.errors import InvalidConfig, PathAccessDenied, PermissionDenied, RingfenceError
from ringfence.workspace.places import check_name, snapshots_directory
from ringfence.workspace.removing import remove_tree
from ringfence.workspace.snapshots import manifest
from ringfence.workspace.snapshots.cache import Cache, read_cache
from ringfence.workspace.snapshots.comparing import Change, changes
from ringfence.workspace.snapshots.manifest import Snapshot
from ringfence.workspace.snapshots.objects import Objects, sync_directory
from ringfence.workspace.snapshots.restoring import Owner, Restoring
from ringfence.workspace.snapshots.saving import Progress, Saving
from ringfence.workspace.snapshots.tree import DirectoryNode, FileNode, damaged, decode
from ringfence.workspace.swapping import exchange, rename_to_free_name

LIMIT_ENTRIES = 5_000_000
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SUFFIX = ".json"
_CACHE_SECONDS = 30 * 24 * 3600

StrPath = str | os.PathLike[str]


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
            InvalidConfig: the name is taken or none, the parent is not there, or the tree is no directory.
            PathAccessDenied: more entries than `limit_entries`, or directories were moved while it was read.
            PermissionDenied: the system said no.
        """
        check_name(name, "name of a snapshot")
        with self._translating(), self._locked(fcntl.LOCK_SH):
            self._forbid_taken(name)
            if parent is not None:
                self._manifest(parent)
            top = _open_tree(tree)
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
            Internal: a manifest is damaged; `verify` names it.
        """
        with self._translating(), self._locked(fcntl.LOCK_SH):
            return tuple(sorted((self._manifest(name) for name in self._names()), key=lambda one: one.saved_at))

    def get(self, name: str) -> Snapshot:
        """
        Raises:
            InvalidConfig: there is no such snapshot.
        """
        with self._translating(), self._locked(fcntl.LOCK_SH):
            return self._manifest(name)

    def diff(self, old: str, new: str) -> tuple[Change, ...]:
        """What differs between two snapshots, by path; times do not count.

        Raises:
            InvalidConfig: one of them is not there.
            Internal: an object is missing or damaged.
        """
        with self._translating(), self._locked(fcntl.LOCK_SH):
            objects = Objects(self._directory)
            return changes(objects, self._manifest(old).root, self._manifest(new).root)

    def verify(self, name: str | None = None) -> dict[str, str]:
        """Read every object of a snapshot, or of all of them; what is wrong, by the snapshot's name. Empty is good."""
        faults: dict[str, str] = {}
        checked: set[str] = set()
        with self._translating(), self._locked(fcntl.LOCK_SH):
            for one in self._names() if name is None else [name]:
                try:
                    self._check(self._manifest(one).root, checked)
                except RingfenceError as fault:
                    if isinstance(fault, InvalidConfig):
                        raise
                    faults[one] = fault.message
        return faults

    def _check(self, root: DirectoryNode, checked: set[str]) -> None:
        objects = Objects(self._directory)
        todo = [root.digest]
        while todo:
            digest = todo.pop()
            if digest in checked:
                continue
            for node in decode(objects.get(digest)).values():
                if isinstance(node, DirectoryNode):
                    todo.append(node.digest)
                elif isinstance(node, FileNode):
                    for piece in node.pieces:
                        if piece.digest not in checked:
                            if len(objects.get(piece.digest)) != piece.length:
                                raise damaged(f"the object {piece.digest} has another size than its file says")
                            checked.add(piece.digest)
            checked.add(digest)

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
            InvalidConfig: there is no such snapshot, or the directory above is not there.
            Internal: an object is missing or damaged.
            PermissionDenied: the system said no.
        """
        target = Path(os.path.realpath(into))
        with self._translating(), self._locked(fcntl.LOCK_SH):
            snapshot = self._manifest(name)
            if in_place:
                self._make_equal(target, snapshot)
                return None
            built = self._build_beside(target, snapshot)
            try:
                is_new = _put_in_place(built, target)
            except BaseException:
                remove_tree(built)
                raise
        return None if is_new else _remove_or_tell(built)

    def fork(self, name: str, into: StrPath) -> None:
        """Restore to a directory that is not there yet.

        Raises:
            InvalidConfig: there is no such snapshot, or something has that name already.
            Internal, PermissionDenied: as `restore`.
        """
        target = Path(os.path.abspath(into))
        with self._translating(), self._locked(fcntl.LOCK_SH):
            snapshot = self._manifest(name)
            if os.path.lexists(target):
                raise _is_there(target)
            built = self._build_beside(target, snapshot)
            try:
                rename_to_free_name(built, target)
            except FileExistsError:
                remove_tree(built)
                raise _is_there(target) from None
            except BaseException:
                remove_tree(built)
                raise

    def _build_beside(self, target: Path, snapshot: Snapshot) -> Path:
        built = target.parent / f".{target.name}.ringfence-{secrets.token_hex(8)}.tmp"
        try:
            built.mkdir(mode=0o700)
        except FileNotFoundError:
            raise InvalidConfig("there is no such directory", source=str(target.parent), hint="make it first") from None
        try:
            top = os.open(built, _OPEN_DIRECTORY)
            try:
                objects, owner = Objects(self._directory), _owner_for(target)
                Restoring(objects, owner, None, is_private=True).make_equal(top, snapshot.root)
            finally:
                os.close(top)
        except BaseException:
            remove_tree(built)
            raise
        return built

    def _make_equal(self, target: Path, snapshot: Snapshot) -> None:
        top = _open_tree(target)
        try:
            known = None if snapshot.overlay else read_cache(self._cache_path(top))
            objects, owner = Objects(self._directory), _owner_for(target)
            Restoring(objects, owner, known, is_private=False).make_equal(top, snapshot.root)
        finally:
            os.close(top)

    # --- removing -----------------------------------------------------------------------------------------------------

    def delete(self, name: str) -> Freed:
        """Remove a snapshot, and the objects that no other one needs.

        Raises:
            InvalidConfig: there is no such snapshot.
            Internal: another snapshot is damaged, so that nobody knows what it needs; no object was removed.
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
            Internal: a snapshot is damaged; no object was removed.
        """
        with self._translating(), self._locked(fcntl.LOCK_EX):
            return self._collect()

    def _collect(self) -> Freed:
        objects = Objects(self._directory)
        needed: set[str] = set()
        todo = [self._manifest(name).root.digest for name in self._names()]
        while todo:
            digest = todo.pop()
            if digest in needed:
                continue
            needed.add(digest)
            for node in decode(objects.get(digest)).values():
                if isinstance(node, DirectoryNode):
                    todo.append(node.digest)
                elif isinstance(node, FileNode):
                    needed.update(piece.digest for piece in node.pieces)
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

    def _unknown(self, name: str) -> InvalidConfig:
        known = ", ".join(self._names()[:20]) or "none"
        return InvalidConfig(f"there is no snapshot {name!r}", hint=f"there are: {known}")

    def _forbid_taken(self, name: str) -> None:
        if self._path(name).exists():
            raise InvalidConfig(f"there is a snapshot {name!r} already", hint="choose another name, or delete it")

    def _forbid_own(self, top: int) -> None:
        """A store that saved itself would have more to save each time."""
        tree = Path(os.readlink(f"/proc/self/fd/{top}"))
        if Path(os.path.realpath(self._directory)).is_relative_to(tree):
            raise InvalidConfig("holds the store itself", source=repr(str(tree)), hint="keep snapshots elsewhere")

    def _generation(self) -> int:
        with suppress(FileNotFoundError, ValueError):
            return int((self._directory / "generation").read_text())
        return 0


def _open_tree(path: StrPath) -> int:
    try:
        return os.open(path, _OPEN_DIRECTORY)
    except OSError as error:
        raise InvalidConfig(f"is no directory to read: {error.strerror}", source=repr(os.fspath(path))) from error


def _owner_for(target: Path) -> Owner | None:
    """Run by root, what is restored belongs to the owner of the directory, or of the one above it."""
    if os.geteuid() != 0:
        return None
    status = os.stat(target if target.is_dir() else target.parent)
    return Owner(status.st_uid, status.st_gid)


def _put_in_place(built: Path, target: Path) -> bool:
    """Give the new tree its name; True if there was nothing before, else the old one is where the new one was."""
    try:
        rename_to_free_name(built, target)
    except FileExistsError:
        if target.is_symlink() or not target.is_dir():
            raise InvalidConfig("is no directory", source=str(target), hint="name a directory") from None
        try:
            exchange(built, target)
        except OSError as error:
            if error.errno in (errno.EBUSY, errno.EXDEV):
                raise PermissionDenied(
                    f"{target} cannot be exchanged: something is mounted on it", hint="restore it in_place"
                ) from error
            raise
        return False
    return True


def _remove_or_tell(old: Path) -> str | None:
    try:
        remove_tree(old)
    except OSError:
        return str(old)
    return None


def _is_there(target: Path) -> InvalidConfig:
    return InvalidConfig("is there already", source=str(target), hint="choose another name, or use restore")
