"""Remove a directory that an agent filled: as deep as it liked, without permissions, full of links.

Nothing is followed, nothing recurses, no path grows, and one directory is open at a time; `..` leads back up, for
nobody moves anything any more.
"""

import os
import stat

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove_tree(path: str | os.PathLike[str]) -> None:
    """Remove a directory that nobody uses any more.

    Raises:
        OSError: something in it cannot be removed, even after we gave ourselves the permission.
    """
    way: list[str] = []
    os.chmod(path, stat.S_IRWXU)  # the agent may have closed it to us, who are no more than its owner
    here = os.open(path, _DIRECTORY)
    try:
        while True:
            below = _unlink_files(here)
            if below is not None:
                os.chmod(below, stat.S_IRWXU, dir_fd=here)
                way.append(below)
            elif not way:
                break
            left, here = here, os.open(below or "..", _DIRECTORY, dir_fd=here)
            os.close(left)
            if below is None:
                os.rmdir(way.pop(), dir_fd=here)
    finally:
        os.close(here)
    os.rmdir(path)


def _unlink_files(directory: int) -> str | None:
    """Remove what is no directory, up to the first one; its name, or None if all is gone."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                return entry.name
            os.unlink(entry.name, dir_fd=directory)
    return None
