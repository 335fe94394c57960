"""Which programs there are in a box, as far as we have to know before one is started."""

import os
import shutil
from functools import lru_cache
from typing import Protocol

_PYTHONS = ("python3", "python")


class Programs(Protocol):
    """What the PATH of a box reaches."""

    def find(self, names: tuple[str, ...]) -> str | None:
        """Where the first of these programs lies, inside; None if there is none of them."""

    def has(self, word: str) -> bool:
        """Whether a shell that is given this word as a command would become a program. No, if in doubt."""


class HostPrograms:
    """Of a box that shows the host's own directories under their names."""

    def __init__(self, path: str) -> None:
        self._path = path

    def find(self, names: tuple[str, ...]) -> str | None:
        return next((found for name in names if (found := shutil.which(name, path=self._path)) is not None), None)

    def has(self, word: str) -> bool:
        return _is_program(word, self._path)


def find_python(path: str) -> str | None:
    """The first interpreter on the host's PATH.

    One that is a program comes before one that is a script: version managers put scripts in front, which take longer to
    find the interpreter than it takes to start.
    """
    scripts: list[str] = []
    for directory in path.split(":"):
        for name in _PYTHONS:
            candidate = os.path.join(directory, name)
            if not os.access(candidate, os.X_OK):
                continue
            if _begins_with(candidate) == b"\x7fELF":
                return candidate
            scripts.append(candidate)
    return scripts[0] if scripts else None


@lru_cache(maxsize=256)
def _is_program(word: str, path: str) -> bool:
    """Whether it is a program, or says which one runs it; anything else a shell would read as a script."""
    found = shutil.which(word, path=path)
    return found is not None and _begins_with(found)[:2] in (b"\x7fE", b"#!")


def forget_programs() -> None:
    """Look at what lies on PATH anew."""
    _is_program.cache_clear()


def _begins_with(path: str) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, 4)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
