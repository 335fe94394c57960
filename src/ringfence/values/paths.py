"""Which path lies below which, by their text alone: nothing is looked up, and no link is followed."""

import posixpath

INSIDE = "/workspace"
"""Where the workspace is for whoever looks from inside, and for whoever writes a policy."""


def is_below(path: str, directory: str) -> bool:
    """Whether a path is the directory or lies in it; both absolute, or both relative to the same place."""
    path, directory = _tidy(path), _tidy(directory)
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def is_inside(path: str, directory: str) -> bool:
    """Whether a path lies in a directory, and is not the directory itself."""
    path, directory = _tidy(path), _tidy(directory)
    return path != directory and path.startswith(directory.rstrip("/") + "/")


def _tidy(path: str) -> str:
    """Without `.`, `..` and empty parts; most paths have none, and are not looked at more closely."""
    return posixpath.normpath(path) if "/." in path or "//" in path else path.rstrip("/") or path[:1]
