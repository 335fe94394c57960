"""What a developer's machine has by accident is not needed: each is taken away here, and a command still runs.

CONTRIBUTING.md lists them. Where something really is needed, whoever lacks it is told what, in one line.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.integration.stage import SYSTEM_PATH, Place
from tests.support import users

pytestmark = pytest.mark.req("X1")

RINGFENCE = (sys.executable, "-c", "from ringfence.cli.app import main; main()")
HI = "run -- echo hi"


def run(place: Place, line: str, **env: str | None) -> subprocess.CompletedProcess[str]:
    """A line of a shell in which $R is our command, with an environment that holds no more than is said here."""
    given = {"HOME": str(place.home), "PATH": SYSTEM_PATH, "TMPDIR": os.environ["TMPDIR"]} | env
    words = " ".join(map(shlex.quote, RINGFENCE))
    return subprocess.run(
        ["/bin/bash", "-c", f'r() {{ {words} "$@"; }}; {line}'],
        cwd=place.workspace,
        env={name: value for name, value in given.items() if value is not None},
        capture_output=True,
        text=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        timeout=60,
        check=False,
    )


NOTHING: dict[str, dict[str, str | None]] = {
    "no variables but HOME": {"PATH": None, "TMPDIR": None},
    "an empty PATH": {"PATH": ""},
    "a PATH of places that are not there": {"PATH": f".::/nonexistent:bin:{SYSTEM_PATH}"},
    "no place for temporary files": {"TMPDIR": "/nonexistent"},
    "no runtime, state, cache or configuration directory": {
        name: "/nonexistent" for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME")
    },
    "a locale that is not installed": {"LANG": "xx_YY.ISO-8859-1", "LC_ALL": "xx_YY"},
    "output in ASCII": {"PYTHONIOENCODING": "ascii", "LC_ALL": "POSIX"},
    "bytecode may not be written": {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONOPTIMIZE": "2"},
    "a broken configuration of git": {"GIT_CONFIG_GLOBAL": "/nonexistent", "GIT_DIR": "/nonexistent"},
    "an odd terminal": {"TERM": "nonexistent", "COLUMNS": "0"},
}


@pytest.mark.parametrize("env", NOTHING.values(), ids=NOTHING)
def test_a_command_runs_without_what_others_have_in_their_environment(place: Place, env: dict[str, str | None]) -> None:
    done = run(place, f"r {HI}", **env)

    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


SURROUNDINGS = {
    "umask 077": f"umask 077; r {HI}",
    "umask 777": f"umask 777; r {HI}",
    "umask 0": f"umask 0; r {HI}",
    "few open files": f"ulimit -n 100; r {HI}",
    "an endless stack": f"ulimit -s unlimited 2>/dev/null; r {HI}",
    "little processor time": f"ulimit -t 20; r {HI}",
    "signals that are ignored": f"trap '' INT PIPE HUP; r {HI}",
    "no input": f"r {HI} <&-",
    "no complaints": f"r {HI} 2>&-",
    "no output": "r run -- sh -c 'echo hi > made' >&-; cat made; rm made",
    "none of them": "r run -- sh -c 'echo hi > made' <&- >&- 2>&-; cat made; rm made",
}


@pytest.mark.parametrize("line", SURROUNDINGS.values(), ids=SURROUNDINGS)
def test_a_command_runs_whatever_started_us(place: Place, line: str) -> None:
    if "umask 777" in line and os.geteuid():
        pytest.skip("only root can use what it makes with this umask")
    done = run(place, line)

    assert (done.returncode, done.stdout) == (0, "hi\n"), done.stderr


NEEDED: dict[str, tuple[str, dict[str, str | None], str]] = {
    "a home that can be written": (f"r {HI}", {"HOME": "/proc"}, "RINGFENCE_STATE_DIR"),
    "a directory to be in": (
        f"mkdir gone; cd gone; rmdir ../gone; r {HI}",
        {},
        "the current directory cannot be found",
    ),
    "more than 64 open files": (f"ulimit -n 64; r {HI}", {}, "ulimit -n"),
    "files of more than some bytes": (f"ulimit -f 50; r {HI}", {}, "ulimit -f"),
}


@pytest.mark.parametrize(("line", "env", "said"), NEEDED.values(), ids=NEEDED)
def test_who_lacks_what_is_needed_is_told_so(place: Place, line: str, env: dict[str, str | None], said: str) -> None:
    done = run(place, line, **env)

    assert done.returncode == 125, done
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_printed_with_stdout_closed_lands_in_no_file(place: Place) -> None:
    """The next file that is opened would get its number."""
    assert run(place, "r run -- echo canary-of-stdout >&-").returncode == 0

    journal = (place.state / "journal.jsonl").read_text()
    assert all(line.startswith("{") for line in journal.splitlines())


@pytest.mark.root
def test_a_machine_without_tools_groups_and_shared_memory_is_enough() -> None:
    """As an ordinary user without an entry anywhere, on a machine that lacks all that is not essential."""
    user = users.unused(3)
    home = Path(tempfile.mkdtemp())  # where another user can get to
    try:
        os.chown(home, user.uid, user.gid)
        done = in_a_bare_machine(user, home, "echo hi; python3 -c 'print(6 * 7)'; touch made")

        assert (done.returncode, done.stdout) == (0, "hi\n42\n"), done.stderr
        assert (home / "project" / "made").stat().st_uid == user.uid
    finally:
        shutil.rmtree(home)


def in_a_bare_machine(user: users.User, home: Path, work: str) -> subprocess.CompletedProcess[str]:
    workspace = home / "project"
    workspace.mkdir()
    os.chown(workspace, user.uid, user.gid)
    names = (
        "git",
        "curl",
        "jq",
        "node",
        "cc",
        "gcc",
        "make",
        "ps",
        "strace",
        "gdb",
        "docker",
        "runsc",
        "bwrap",
        "nsenter",
    )
    tools = {os.path.realpath(found) for name in names if (found := shutil.which(name, path=SYSTEM_PATH))}
    away = [f"mount --bind /dev/null {shlex.quote(tool)}" for tool in sorted(tools)]
    away += [
        f"if [ -d {path} ]; then mount -t tmpfs -o mode=0 tmpfs {path}; fi"
        for path in ("/dev/shm", "/run", "/media", "/srv")
    ]
    plain = [*users.argv_as(user, ["env", "-i", f"HOME={home}", *RINGFENCE])]
    line = "; ".join(("set -e", *away, f"cd {workspace}", f"exec {shlex.join([*plain, 'run', work])}"))

    return subprocess.run(
        ["unshare", "--mount", "--propagation", "private", "sh", "-c", line],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": SYSTEM_PATH},
    )
