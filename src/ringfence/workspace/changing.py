"""Change what lies beneath a root: write, append, move, remove, make directories.

Nothing is written in place but by `append`: a new file is filled beside the old one and renamed over the name, both
within the descriptor of the parent directory. What is removed or moved whole is judged whole first, so that a refusal
leaves everything as it was.
"""

import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress

from ringfence.errors import AlreadyExists, PathAccessDenied
from ringfence.workspace.beneath import O_PATH
from ringfence.workspace.faults import require_file, translating
from ringfence.workspace.names import Asked, PathText, join
from ringfence.workspace.root_handle import RootHandle, Slot, reopened, status_of

PERMISSION_BITS = 0o777
"""Neither set-uid, set-gid nor sticky."""

_MAX_DEPTH = 200
"""Of a directory that is removed whole: each level holds a descriptor, and 1024 is a usual limit of them."""
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def write(ground: RootHandle, path: PathText, chunks: Iterable[bytes], *, make_parents: bool, mode: int | None) -> None:
    asked = ground.ask(path)
    with translating(asked), ground.slot(asked, make_parents=make_parents, follow=True) as slot:
        _forbid(ground, asked, slot)
        if slot.status is not None:
            require_file(asked, slot.status)
        _replace(ground, slot, chunks, mode)


def append(ground: RootHandle, path: PathText, data: bytes, *, make_parents: bool) -> None:
    asked = ground.ask(path)
    with translating(asked), ground.slot(asked, make_parents=make_parents, follow=True) as slot:
        _forbid(ground, asked, slot)
        if slot.status is None:
            _replace(ground, slot, (data,), None)
            return
        descriptor = os.open(slot.name, O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=slot.parent)
        try:
            status = os.fstat(descriptor)
            require_file(asked, status)
            if status.st_nlink > 1:
                raise PathAccessDenied(
                    asked.text,
                    "has a second name (hard link), which would change too",
                    rule="hard links",
                    hint="write the whole file: it then becomes a file of its own",
                )
            with reopened(descriptor, os.O_WRONLY | os.O_APPEND) as opened:
                if status.st_mode & ~PERMISSION_BITS & 0o7777:
                    os.fchmod(opened, status.st_mode & PERMISSION_BITS)  # root's writes do not clear set-uid
                write_all(opened, data)
        finally:
            os.close(descriptor)


def delete(ground: RootHandle, path: PathText, *, recursive: bool) -> None:
    asked = ground.ask(path)
    with translating(asked), ground.slot(asked, make_parents=False, follow=False) as slot:
        _forbid(ground, asked, slot)
        if slot.status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not stat.S_ISDIR(slot.status.st_mode):
            os.unlink(slot.name, dir_fd=slot.parent)
            return
        if recursive:
            # All of it is judged before any of it goes, so that a refusal leaves the directory whole.
            _each_below(ground, asked, slot, lambda parent, name, place, is_directory: None)
            _each_below(ground, asked, slot, _remove)
        os.rmdir(slot.name, dir_fd=slot.parent)


def move(ground: RootHandle, source: PathText, target: PathText) -> None:
    asked, wanted = ground.ask(source), ground.ask(target)
    with translating(asked), ground.slot(asked, make_parents=False, follow=False) as old:
        _forbid(ground, asked, old)
        if old.status is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        with translating(wanted), ground.slot(wanted, make_parents=True, follow=False) as new:
            _forbid(ground, wanted, new)
            if new.status is not None:
                raise AlreadyExists("exists already", path=wanted.text, hint="delete it first")
            if stat.S_ISDIR(old.status.st_mode):

                def judge_at_target(parent: int, name: bytes, place: bytes, is_directory: bool) -> None:
                    ground.forbid_change(wanted, join(new.place, place.removeprefix(old.place + b"/")))

                _each_below(ground, asked, old, judge_at_target)
            try:
                os.rename(old.name, new.name, src_dir_fd=old.parent, dst_dir_fd=new.parent)
            except OSError as error:
                if error.errno == errno.EXDEV:  # here, and only here, it does not mean "leads out"
                    raise PathAccessDenied(wanted.text, "lies on another file system") from error
                raise


def make_dir(ground: RootHandle, path: PathText) -> None:
    asked = ground.ask(path)
    with translating(asked):
        descriptor = ground.directory(asked, asked.relative, make=True)
        try:
            ground.forbid_denied(asked, ground.place(asked, descriptor) or b"")
        finally:
            os.close(descriptor)


def fill_new(
    ground: RootHandle,
    parent: int,
    name: bytes,
    chunks: Iterable[bytes],
    mode: int | None,
    replaced: os.stat_result | None = None,
) -> None:
    """Make a file that is not there yet; what fails leaves nothing.

    Args:
        replaced: what the file will take the place of, whose owner it gets.
    """
    descriptor = os.open(name, _NEW_FILE, 0o666 if mode is None else 0o600, dir_fd=parent)
    try:
        for chunk in chunks:
            write_all(descriptor, chunk)
        ground.give_to_owner(descriptor, replaced)
        if mode is not None:
            os.fchmod(descriptor, mode & PERMISSION_BITS)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(descriptor)


def temporary_name() -> bytes:
    return f".ringfence-{secrets.token_hex(8)}.tmp".encode()


def write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _forbid(ground: RootHandle, asked: Asked, slot: Slot) -> None:
    ground.forbid_change(asked, slot.place)
    ground.forbid_change_behind_links(asked, slot.place)


def _replace(ground: RootHandle, slot: Slot, chunks: Iterable[bytes], mode: int | None) -> None:
    """Fill a new file beside the name, then rename it over the name."""
    if mode is None and slot.status is not None:
        mode = slot.status.st_mode
    temporary = temporary_name()
    fill_new(ground, slot.parent, temporary, chunks, mode, slot.status)
    try:
        os.rename(temporary, slot.name, src_dir_fd=slot.parent, dst_dir_fd=slot.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=slot.parent)
        raise


def _each_below(
    ground: RootHandle, asked: Asked, slot: Slot, visit: Callable[[int, bytes, bytes, bool], None], depth: int = 0
) -> None:
    """Judge and visit everything below a directory, contents first; a link is visited, never entered."""
    if depth > _MAX_DEPTH:
        raise PathAccessDenied(asked.text, f"is nested deeper than {_MAX_DEPTH} directories", hint="remove it in parts")
    here = os.open(slot.name, _OPEN_DIRECTORY, dir_fd=slot.parent)
    try:
        for text in os.listdir(here):
            name = os.fsencode(text)
            place = join(slot.place, name)
            ground.forbid_denied(asked, place)
            ground.forbid_change(asked, place)
            status = status_of(here, name)
            if status is None:
                continue
            is_directory = stat.S_ISDIR(status.st_mode)
            if is_directory:
                _each_below(ground, asked, Slot(here, name, place, status), visit, depth + 1)
            visit(here, name, place, is_directory)
    finally:
        os.close(here)


def _remove(parent: int, name: bytes, place: bytes, is_directory: bool) -> None:
    if is_directory:
        os.rmdir(name, dir_fd=parent)
    else:
        os.unlink(name, dir_fd=parent)
