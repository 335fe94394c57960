"""Which helper is used, and how it is started: the one in C, or the same in Python where no compiler was there.

The one in Python needs an interpreter in the box's view, because PID 1 runs inside. It is looked for where the agent
cannot have written: our own, the system's, then those that PATH reaches. The same one runs the launcher outside.
"""

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from ringfence.confinement.base import View
from ringfence.errors import InitializationFailed, InvalidConfig

VARIABLE = "RINGFENCE_HELPER"
"""`c` or `python`; unset, the one in C is used if it was built."""
_HERE = os.path.dirname(os.path.realpath(__file__))
_NATIVE = os.path.realpath(os.path.join(_HERE, "..", "..", "_native", "ringfence-box"))
_RUNNER = os.path.join(_HERE, "runner")
_MODULES = ("words", "kernel", "launch", "init")
_TEXT_MAX = 1 << 20
# Neither site nor variables nor the working directory; nothing written. The text is read without moving its offset.
_RUN = ("-ISB", "-c", f"import os,sys;exec(os.pread(int(sys.argv.pop(1)),{_TEXT_MAX},0))")
_PROBE = "import sys,ctypes,errno,fcntl,resource,select,stat,struct,_signal,_socket;sys.exit(sys.version_info<(3,9))"
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Helper:
    path: str
    interpreter: tuple[str, ...] = ()
    """For the one in Python: what runs it, when the number of the descriptor of its text follows."""

    def open(self) -> int:
        """A descriptor of the program, or of its text; the caller closes it."""
        if not self.interpreter:
            return os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        descriptor = os.memfd_create("ringfence-box", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(descriptor, "wb", closefd=False) as file:
            file.write(_text())
        sealed = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, sealed)
        return descriptor

    def argv(self, descriptor: int) -> tuple[str, ...]:
        """How it is started outside, where that descriptor is open."""
        return (*self.interpreter, str(descriptor)) if self.interpreter else (self.path,)


def is_python() -> bool:
    """Whether the helper in Python is used.

    Raises:
        InvalidConfig: the variable makes no sense.
        InitializationFailed: the one in C is asked for, and was not built.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "c", "python"):
        raise InvalidConfig(f"{VARIABLE} is {wanted!r}, which is neither 'c' nor 'python'", hint=f"unset {VARIABLE}")
    built = os.access(_NATIVE, os.X_OK)
    if wanted == "c" and not built:
        raise InitializationFailed(
            f"the native helper is missing ({_NATIVE})",
            hint="install Ringfence where a C compiler is at hand: pip install --force-reinstall ringfence",
        )
    return wanted == "python" or not built


def path() -> str:
    """Where the helper lies: a program, or a directory of Python modules.

    Raises:
        InvalidConfig, InitializationFailed: as `is_python`.
    """
    return _RUNNER if is_python() else _NATIVE


def choose(view: View | None = None, search_path: str = "") -> Helper:
    """The helper for a box with this view; without one, for outside only.

    Raises:
        InitializationFailed: the helper in Python is used, and the view shows no interpreter that could run it.
        InvalidConfig: as `is_python`.
    """
    if not is_python():
        return Helper(_NATIVE)
    for candidate in dict.fromkeys(_interpreters(view, search_path)):
        if (view is None or _is_shown(candidate, view)) and _runs(candidate):
            return Helper(_RUNNER, (candidate, *_RUN))
    raise InitializationFailed(
        "the pure-Python helper finds no Python 3.9 or later with ctypes that the box can see",
        hint="install python3 in /usr, put one on PATH outside the workspace, or install Ringfence with a C compiler",
    )


def _interpreters(view: View | None, search_path: str) -> Iterator[str]:
    if sys.executable:
        yield os.path.realpath(sys.executable)
    writable = () if view is None else view.writable
    for directory in f"{_SYSTEM_PATH}:{search_path}".split(":"):
        # A link in a workspace may be the agent's, whatever it leads to.
        if os.path.isabs(directory) and not _is_below(os.path.realpath(directory), writable):
            for name in ("python3", "python"):
                yield os.path.realpath(os.path.join(directory, name))


def _is_shown(program: str, view: View) -> bool:
    return _is_below(program, (*view.system, *view.readable)) and not _is_below(program, (*view.writable, *view.hidden))


def _is_below(path: str, directories: tuple[str, ...]) -> bool:
    return any(path == directory or path.startswith(directory.rstrip("/") + "/") for directory in directories)


@cache
def _runs(program: str) -> bool:
    """Whether it is an interpreter that has what the helper needs. A script in front of one is not."""
    try:
        with open(program, "rb") as file:
            if file.read(4) != b"\x7fELF":
                return False
        line = [program, "-ISB", "-c", _PROBE]
        return subprocess.run(line, capture_output=True, timeout=10, env={}, check=False, cwd="/").returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


@cache
def _text() -> bytes:
    sources: dict[str, str] = {}
    for name in ("main", *_MODULES):
        with open(os.path.join(_RUNNER, f"{name}.py"), encoding="utf-8") as file:
            sources[name] = file.read()
    text = f"{sources.pop('main')}\nmain({sources!r})\n".encode()
    if len(text) > _TEXT_MAX:
        raise AssertionError("the helper's text is longer than what is read of it")
    return text
