"""git's own reader of settings, for texts that ours leaves to it.

The text is an agent's, and git parses it as the caller, outside of any box. So git gets it on its standard input and
nothing else of the agent's: no directory (it works in `/`), no repository, no configuration of the machine or the
person, no variable, no includes, no terminal to ask at, no descriptors; with limits of time, memory and files, and as
nobody where we are root. It is looked for where the system keeps its programs, never on PATH, which may lead into the
workspace.

What this does not protect against: a fault in git's parser that a text of at most 256 KiB can make use of.
"""

import os
import subprocess
from functools import cache
from typing import Any, Final

from ringfence.workspace.leftovers.gitkeys import Setting

_PLACES: Final = ("/usr/bin/git", "/usr/local/bin/git", "/bin/git", "/opt/homebrew/bin/git")
_NOBODY: Final = 65534
_SECONDS: Final = 5.0
_LIMITED: Final = 'ulimit -t 2 && ulimit -v 524288 && ulimit -f 0 && ulimit -c 0 && ulimit -n 32 && exec "$@"'
"""Two seconds of CPU, 512 MiB, no files to write: by a shell, since only some of root's could set them from outside."""
_OUTPUT_BYTES: Final = 4 * 1024 * 1024
_ENVIRONMENT: Final = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "XDG_CONFIG_HOME": "/nonexistent",
    "LC_ALL": "C",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CEILING_DIRECTORIES": "/",
    "GIT_DIR": "/nonexistent",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
}


def read_by_git(data: bytes) -> tuple[Setting, ...] | None:
    """All settings as git understands them; None if it does not, or if there is no git."""
    program = _program()
    if program is None or b"\0" in data:
        return None
    as_nobody: dict[str, Any] = {}
    if os.geteuid() == 0:
        as_nobody = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", _LIMITED, "sh", program, "config", "--file", "-", "--no-includes", "--null", "--list"],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=_ENVIRONMENT,
            timeout=_SECONDS,
            check=False,
            start_new_session=True,
            **as_nobody,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode != 0 or len(done.stdout) > _OUTPUT_BYTES:
        return None
    return _settings(done.stdout)


@cache
def _program() -> str | None:
    return next((place for place in _PLACES if os.access(place, os.X_OK)), None)


def _settings(listed: bytes) -> tuple[Setting, ...]:
    """`name LF value NUL`, or `name NUL` where there is no `=`."""
    found: list[Setting] = []
    for entry in listed.split(b"\0")[:-1]:
        name, has_value, value = entry.decode("utf-8", "surrogateescape").partition("\n")
        found.append((name, value if has_value else None))
    return tuple(found)
