"""Finds programs in a box, among them the interpreter that runs Python code."""

import os
import shutil

_NAMES = ("python3", "python")


def find_python(path: str) -> str | None:
    """The first interpreter on the PATH inside.

    One that is a program comes before one that is a script: version managers put scripts in front, which take longer to
    find the interpreter than it takes to start.
    """
    scripts: list[str] = []
    for directory in path.split(":"):
        for name in _NAMES:
            candidate = os.path.join(directory, name)
            if not os.access(candidate, os.X_OK):
                continue
            if _is_program(candidate):
                return candidate
            scripts.append(candidate)
    return scripts[0] if scripts else None


def find_program(names: tuple[str, ...], path: str) -> str | None:
    """The first of these programs that a PATH reaches."""
    return next((found for name in names if (found := shutil.which(name, path=path)) is not None), None)


def _is_program(path: str) -> bool:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.read(descriptor, 4) == b"\x7fELF"
    except OSError:
        return False
    finally:
        os.close(descriptor)
