"""Opens files below the workspace as modules do: step by step, and never through a link that leads out.

openat2 would do it in one call; behind our own filter it is not there, because nobody outside could read its arguments.
"""

import errno
import os
import stat

_MAGIC = frozenset("*?[")
_LINKS_MAX = 40  # in a row, as the kernel has it


def open_beneath(top: int, path: str, flags: int, mode: int = 0o666) -> int:
    """A descriptor of what lies at a path below `top`.

    Raises:
        OSError: what the kernel says; EXDEV for what leads out.
    """
    todo = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    above = [os.dup(top)]
    links = 0
    try:
        while todo:
            part = todo.pop()
            if part == "..":
                if len(above) == 1:
                    raise OSError(errno.EXDEV, "it leads out of the workspace", path)
                os.close(above.pop())
                continue
            target = _link(part, above[-1])
            if target is not None:
                links += 1
                if links > _LINKS_MAX:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                if target.startswith("/"):
                    raise OSError(errno.EXDEV, "it leads out of the workspace", path)
                todo += [piece for piece in reversed(target.split("/")) if piece not in ("", ".")]
                continue
            if not todo:
                return _open(part, flags, mode, above[-1], path)
            above.append(_open(part, os.O_PATH | os.O_DIRECTORY, 0, above[-1], path))
        return _open(".", flags, mode, above[-1], path)
    finally:
        for descriptor in above:
            os.close(descriptor)


def _open(name: str, flags: int, mode: int, directory: int, path: str) -> int:
    # Never waits for the other end of a pipe that somebody has put there, and never follows what became a link.
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=directory)
    except OSError as fault:
        raise OSError(fault.errno, fault.strerror, path) from None
    if flags & (os.O_PATH | os.O_DIRECTORY) or stat.S_ISREG(os.fstat(opened).st_mode):
        return opened
    os.close(opened)
    raise OSError(errno.EACCES, "it is no regular file", path)


def _link(name: str, directory: int) -> "str | None":
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:
        return None


def expand(top: int, directory: str, pattern: str) -> "list[str]":
    """The names that a pattern stands for, in order; the pattern itself if there is none, as a shell has it."""
    import fnmatch

    absolute = pattern.startswith("/")
    found = [""]
    for part in pattern.split("/"):
        if not part:
            continue
        if not _MAGIC & set(part):
            found = [f"{each}{part}/" for each in found]
            continue
        found = [
            f"{each}{name}/"
            for each in found
            for name in _names(top, directory, each, absolute=absolute)
            if fnmatch.fnmatchcase(name, part) and (not name.startswith(".") or part.startswith("."))
        ]
    shown = sorted(("/" if absolute else "") + each.rstrip("/") for each in found)
    return shown or [pattern]


def _names(top: int, directory: str, below: str, *, absolute: bool) -> "list[str]":
    place = f"/{below}".removeprefix("/workspace").lstrip("/") if absolute else os.path.join(directory, below)
    try:
        descriptor = open_beneath(top, place, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        return os.listdir(descriptor)
    finally:
        os.close(descriptor)
