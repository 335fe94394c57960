"""Whether what is installed is still what this process has loaded: a keeper of an old version serves nobody."""

import os
import sys
import sysconfig
from pathlib import Path

Stamp = dict[str, tuple[int, int, int] | None]


def watched_files() -> tuple[str, ...]:
    """An installer replaces whole directories, and their own times tell; in a checkout each file is looked at."""
    package = Path(__file__).parents[1]
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib", "stdlib")}
    files = {os.path.realpath(sys.executable), sys.executable, *places, *sys.path[1:]}
    if str(package.parent) in places:
        files |= {str(package), str(package / "__init__.py")}
        files |= {str(found) for found in package.parent.glob("ringfence-*.dist-info/RECORD")}
    else:
        for top, directories, names in os.walk(package):
            directories[:] = [name for name in directories if name != "__pycache__"]
            files |= {os.path.join(top, name) for name in names}  # no directories: they change with __pycache__
    return tuple(sorted(files))


def stamp(files: tuple[str, ...]) -> Stamp:
    found: Stamp = {}
    for path in files:
        try:
            status = os.stat(path)
            found[path] = (status.st_dev, status.st_ino, status.st_mtime_ns)
        except OSError:
            found[path] = None
    return found
