"""What runs us: the interpreter, its library, the packages and this one, wherever they lie.

In a workspace (a virtual environment there, a checkout, an interpreter that a tool keeps below a granted directory) it
stays readable, but what we run next must not be the agent's code.

What this does not protect against: modules that Python finds first in a directory that is writable on purpose, such as
one that PYTHONPATH or another project's editable install names. Those are said, not frozen: the agent works there.
"""

import os
import sys
import sysconfig
from collections.abc import Iterator
from functools import cache

import ringfence.errors
from ringfence.values.paths import is_inside

_PACKAGE = os.path.dirname(os.path.realpath(ringfence.errors.__file__))
_LIBRARIES = ("stdlib", "platstdlib", "purelib", "platlib")
_PARTS = ("bin", "lib", "lib64", "pyvenv.cfg")


@cache
def own_code() -> tuple[str, ...]:
    """Absolute, resolved, each there; and the links by which the interpreter was started."""
    return tuple(dict.fromkeys(path for path in _code() if os.path.lexists(path)))


_seen: list[tuple[object, ...]] = []


def forget_if_changed() -> None:
    """Look for it anew, if something on the way there is another."""
    starts = filter(None, (sys.executable, getattr(sys, "_base_executable", None)))
    ways = (_PACKAGE, sys.prefix, sys.base_prefix, *starts, *filter(_is_library, sys.path))
    now = tuple(map(_version, ways))
    if _seen[:1] != [now]:
        own_code.cache_clear()
        _seen[:] = [now]


def _version(path: str) -> tuple[object, ...]:
    """What it leads to, and what it is itself."""
    try:
        target, itself = os.stat(path), os.lstat(path)
    except OSError:
        return ()
    return target.st_dev, target.st_ino, itself.st_dev, itself.st_ino


def _code() -> Iterator[str]:
    yield _PACKAGE
    prefixes = dict.fromkeys((sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix))
    for prefix in map(os.path.realpath, prefixes):
        yield prefix
        # Where the prefix itself is the writable directory, which cannot be frozen whole.
        yield from (os.path.join(prefix, part) for part in _PARTS)
    for started in filter(None, (sys.executable, getattr(sys, "_base_executable", None))):
        # The link itself, in its real directory: `../env/bin/python` is started as `/project/../env/bin/python`.
        yield os.path.join(os.path.realpath(os.path.dirname(started)), os.path.basename(started))
        yield os.path.realpath(started)
    yield from (os.path.realpath(sysconfig.get_path(name)) for name in _LIBRARIES)
    # A person's own packages, and what a launcher's `-m` or a distribution adds; but for what somebody works in.
    yield from (os.path.realpath(path) for path in sys.path if _is_library(path))


def _is_library(path: str) -> bool:
    return os.path.isabs(path) and os.path.basename(path) in ("site-packages", "dist-packages", "lib-dynload")


def own_notes(writable: tuple[str, ...]) -> tuple[str, ...]:
    """What somebody should know whose writable directories hold something of that, or something that we would load."""
    frozen = tuple(path for path in own_code() if _is_below(path, writable))
    tops = (path for path in frozen if not any(_is_below(path, (other,)) for other in frozen))
    looked_in = dict.fromkeys(map(os.path.realpath, filter(os.path.isabs, sys.path)))
    loose = (path for path in looked_in if _at_or_below(path, writable) and not _at_or_below(path, frozen))
    return (
        *(
            f"Ringfence itself runs from {path}: inside it may be read, not changed, so that nothing can be installed "
            "into it; give the project an environment of its own, or install Ringfence elsewhere"
            for path in tops
        ),
        *(
            f"the interpreter that runs Ringfence looks for modules in {path}, which may be written inside: what is "
            "put there could be loaded by it the next time; start Ringfence from an environment of its own"
            for path in loose
            if os.path.isdir(path)
        ),
    )


def _at_or_below(path: str, directories: tuple[str, ...]) -> bool:
    return path in directories or _is_below(path, directories)


def _is_below(path: str, directories: tuple[str, ...]) -> bool:
    return any(is_inside(path, directory) for directory in directories)
