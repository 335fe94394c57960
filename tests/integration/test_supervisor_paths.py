"""The supervisor sees where a path leads, whichever way it is written, and the record says what really happened."""

from __future__ import annotations

import os
import shutil
import sys
import time

import pytest

from ringfence import Result
from tests.integration.stage import Place

pytestmark = pytest.mark.req("C7", "B9")

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
HOOK = "nested/.git/hooks/pre-commit"


def script(place: Place, code: str) -> list[str]:
    (place.workspace / "way.py").write_text(code)
    return [PYTHON, "way.py"]


def written(result: Result) -> set[str]:
    assert result.observed is not None
    return set(result.observed.written)


_WAYS = {
    "a descriptor's name": "f'/dev/fd/{here}/{name}'",
    "a descriptor in /proc": "f'/proc/self/fd/{here}/{name}'",
    "a descriptor by pid": "f'/proc/{os.getpid()}/fd/{here}/{name}'",
    "a thread's descriptor": "f'/proc/thread-self/fd/{here}/{name}'",
    "a task's descriptor": "f'/proc/self/task/{os.getpid()}/fd/{here}/{name}'",
    "the working directory": "f'/proc/self/cwd/{name}'",
    "another process's working directory": "f'/proc/{child()}/cwd/{name}'",
    "the root": "f'/proc/self/root{os.getcwd()}/{name}'",
    "the root, again and again": "'/proc/self/root' * 20 + f'{os.getcwd()}/{name}'",
    "a link that leads there": "(os.symlink('/proc/self/cwd', 'away'), f'away/{name}')[1]",
    "links to links": "[os.symlink(f'l{n-1}' if n else '/proc/self/cwd', f'l{n}') for n in range(9)] and f'l8/{name}'",
    "up and down": "f'nested/../nested/../{name}'",
    "a dangling link": "(os.symlink(name, 'dangling'), 'dangling')[1]",
    "a link out of the directory": "(os.symlink(os.getcwd(), 'nested/out'), f'nested/out/{name}')[1]",
}


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("trace", ["changes", "full"])
def test_what_is_made_is_recorded_by_its_own_path_whatever_it_was_called(place: Place, way: str, trace: str) -> None:
    code = f"""
import os, time
child = lambda: os.fork() or (time.sleep(5), os._exit(0))
os.makedirs('nested/.git/hooks')
here, name = os.open('.', os.O_RDONLY), {HOOK!r}
fd = os.open({_WAYS[way]}, os.O_WRONLY | os.O_CREAT, 0o755)
os.write(fd, b'#!/bin/sh')
"""
    result = place.run(script(place, code), trace=trace)

    assert result.ok, result.stderr
    assert f"{place.workspace}/{HOOK}" in written(result)
    assert result.observed is not None and result.observed.is_complete
    assert any(".git/hooks" in violation.what for violation in result.violations)


@pytest.mark.parametrize(
    "call",
    [
        "os.mkdir(at('made'))",
        "os.symlink('x', at('made'))",
        "os.link('file', at('made'))",
        "os.rename('file', at('made'))",
        "os.mkfifo(at('made'))",
        "socket.socket(socket.AF_UNIX).bind(at('made'))",
        "os.open('made', os.O_WRONLY | os.O_CREAT, dir_fd=os.open(at('.'), os.O_RDONLY))",
        "os.mkdir('made', dir_fd=os.open('/proc/self/cwd', os.O_PATH))",
        "tmp = os.open('.', os.O_TMPFILE | os.O_WRONLY); "
        "libc.linkat(-100, b'/proc/self/fd/%d' % tmp, -100, b'made', 0x400)",
        "os.chdir(at('sub')), os.mkdir('../made')",
        "os.mkdir('sub/x'), os.chdir('sub/x'), os.rename(top + '/sub', top + '/bus'), os.mkdir('made')",
    ],
)
def test_every_call_that_makes_a_name_is_seen_through_a_descriptor(place: Place, call: str) -> None:
    code = f"""
import ctypes, os, socket
libc = ctypes.CDLL(None)
os.mkdir('sub'); open('file', 'w').close()
here, top = os.open('.', os.O_RDONLY), os.getcwd()
at = lambda name: f'/proc/self/fd/{{here}}/{{name}}'
{call}
"""
    result = place.run(script(place, code))

    assert result.ok, result.stderr
    assert f"{place.workspace}/made" in written(result) or f"{place.workspace}/bus/x/made" in written(result)


def test_a_protected_path_is_named_whatever_it_was_called(repository: Place) -> None:
    code = "import os; here = os.open('.git', os.O_RDONLY); open(f'/dev/fd/{here}/hooks/pre-commit', 'w')"

    result = repository.run(script(repository, code))

    assert not result.ok
    assert [violation.rule for violation in result.violations] == ["protected .git/hooks"]


@pytest.mark.parametrize("trace", ["changes", "full"])
def test_a_path_that_nobody_can_name_makes_the_record_incomplete(place: Place, trace: str) -> None:
    """A working directory deeper than a path may be long."""
    code = """
import os
for _ in range(25):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
os.mkdir('.git')
"""
    result = place.run(script(place, code), trace=trace)

    assert result.ok, result.stderr
    assert result.observed is not None and not result.observed.is_complete


def test_a_program_that_may_not_be_read_makes_the_record_incomplete_or_is_seen(place: Place) -> None:
    """Its memory is closed to an ordinary user's guardian; root's can read it."""
    result = place.run("cp /bin/mkdir m && chmod 111 m && ./m secretly")

    assert result.ok, result.stderr
    assert result.observed is not None
    assert f"{place.workspace}/secretly" in written(result) or not result.observed.is_complete


@pytest.mark.parametrize(
    "command",
    [
        "mkdir sub",
        "mkdir -p sub",
        "touch -r file file2 && rm file2; mkdir sub; ln file file; ln -s x file",
        "rm nothing",
        "mv nothing else",
        "chmod 600 nothing",
        "echo x > missing/file",
        "truncate -s 3 nothing -c",
        ": >> file",
        "chmod 444 locked",
        "echo x > locked",
    ],
)
def test_what_failed_or_changed_nothing_is_not_in_the_record(place: Place, command: str) -> None:
    (place.workspace / "sub").mkdir()
    (place.workspace / "file").write_text("x")
    locked = place.workspace / "locked"
    locked.write_text("x")
    locked.chmod(0o444)
    if os.getuid() == 0:  # what its workspace's owner may not write, the box may not
        owner = place.workspace.stat()
        for each in (place.workspace / "sub", place.workspace / "file", locked):
            os.chown(each, owner.st_uid, owner.st_gid)

    time.sleep(0.05)  # what was changed just before may be changed again at the same time, as file times go
    result = place.run(f"{command}; exit 0")

    assert written(result) == set()


def test_what_was_removed_renamed_and_changed_is_in_the_record(place: Place) -> None:
    for name in ("gone", "old", "changed", "mode"):
        (place.workspace / name).write_text("x")
        (place.workspace / name).chmod(0o666)
    place.workspace.chmod(0o777)

    result = place.run("rm gone; mv old new; echo y >> changed; mkdir made; chmod 755 mode || true")

    here = f"{place.workspace}/"
    assert {f"{here}{name}" for name in ("gone", "old", "new", "changed", "made")} <= written(result)


def test_the_places_where_a_program_was_looked_for_are_no_programs_that_ran(place: Place) -> None:
    result = place.run("PATH=/nowhere:/usr/local/sbin:/opt:/usr/bin:/bin env true")

    assert result.ok and result.observed is not None
    assert all(os.path.exists(program) for program in result.observed.executed)
    assert any(program.endswith("/true") for program in result.observed.executed)


def test_what_is_there_already_may_be_made_again_without_an_alarm(repository: Place) -> None:
    result = repository.run("mkdir .git; mkdir -p .git/hooks; mkdir /usr; ln -sT x .git/hooks; exit 0")

    assert result.violations == ()


@pytest.mark.parametrize("path", ["/nothing/../etc/hostname", "nothing/../file", "/etc/nothing/../../etc/shadow"])
def test_a_way_through_a_directory_that_is_not_there_is_a_missing_file_and_no_violation(
    place: Place, path: str
) -> None:
    (place.workspace / "file").write_text("x")

    result = place.run(f"cat {path}")

    assert (result.exit_code, result.violations) == (1, ())
    assert "No such file or directory" in result.stderr


def test_the_same_way_through_a_directory_that_is_there_is_judged(place: Place) -> None:
    result = place.run("mkdir something; cat something/../../../../../../../../../../etc/shadow")

    assert [violation.target for violation in result.violations] == ["/etc/shadow"]
