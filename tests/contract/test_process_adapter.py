"""One suite for every adapter of a single command line: what it shows, hides, and passes on. Each is really run.

An adapter that cannot be used on this machine is left out with its own reason; what the others do, a bare run does not.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.confinement.adapter import Mount, ProcessAdapter
from ringfence.confinement.choose import process_adapters
from ringfence.values.guarantee import Guarantee
from tests.support.users import me

pytestmark = pytest.mark.req("D4")
ADAPTERS = {adapter.name: adapter for adapter in process_adapters()}
REMAPS = frozenset({"bwrap", "nsjail", "unshare"})


@pytest.fixture(params=ADAPTERS)
def adapter(request: pytest.FixtureRequest) -> ProcessAdapter:
    found = ADAPTERS[request.param]
    if not found.probe().usable:
        pytest.skip(f"{found.name}: {found.probe().missing}")
    return found


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that every adapter can show: not below a home, nor below what firejail makes its own."""
    path = Path("/opt" if me().uid == 0 else "/var/tmp") / f"ringfence-adapter-{os.getpid()}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


def _needs(adapter: ProcessAdapter, guarantee: Guarantee) -> None:
    if guarantee not in adapter.probe().guarantees:
        pytest.skip(f"{adapter.name} does not claim: {guarantee}")


def _mount(adapter: ProcessAdapter, place: Path, *, writable: bool = True) -> Mount:
    return Mount(str(place), "/workspace" if adapter.name in REMAPS else str(place), writable)


def _run(adapter: ProcessAdapter | None, script: str, *mounts: Mount, **more: str) -> subprocess.CompletedProcess[str]:
    command, arguments = ("/bin/sh", ("-c", script))
    if adapter is not None:
        command, arguments = adapter.wrap("/bin/sh", ("-c", script), mounts)
    return subprocess.run(
        [command, *arguments], capture_output=True, text=True, timeout=60, env={**os.environ, **more}, check=False
    )


def test_the_command_runs_with_its_arguments_input_and_exit_code(adapter: ProcessAdapter, place: Path) -> None:
    command, arguments = adapter.wrap(
        "/bin/sh", ("-c", 'cat; printf "%s|" "$@"; exit 7', "x", "a b", "$HOME", "--"), ()
    )
    done = subprocess.run([command, *arguments], input="in;", capture_output=True, text=True, timeout=60, check=False)

    assert (done.stdout, done.returncode) == ("in;a b|$HOME|--|", 7), done.stderr


def test_a_writable_mount_is_written_and_a_readable_one_is_not(adapter: ProcessAdapter, place: Path) -> None:
    written = _run(adapter, "echo new > made && cat made", _mount(adapter, place))
    refused = _run(adapter, "echo other > made", _mount(adapter, place, writable=False))

    assert written.stdout == "new\n", written.stderr
    assert (place / "made").read_text() == "new\n"
    assert refused.returncode != 0


def test_paths_of_the_host_become_those_inside(adapter: ProcessAdapter, place: Path) -> None:
    (place / "data").write_text("here\n")
    command, arguments = adapter.wrap("/bin/cat", (f"{place}/data",), (_mount(adapter, place),))
    done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=60, check=False)

    assert done.stdout == "here\n", done.stderr
    if adapter.name in REMAPS:
        assert arguments[-1] == "/workspace/data"


def test_a_file_of_the_host_that_is_no_mount_cannot_be_read(
    adapter: ProcessAdapter, place: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hunter2\n")
    assert _run(None, f"cat {secret}").stdout == "hunter2\n", "without the wall it can"
    _needs(adapter, Guarantee.HOST_FILES_HIDDEN)

    assert "hunter2" not in _run(adapter, f"cat {secret} /proc/1/root{secret}", _mount(adapter, place)).stdout


def test_variables_of_the_host_stay_outside(adapter: ProcessAdapter, place: Path) -> None:
    assert "hunter2" in _run(None, "env", SECRET="hunter2").stdout, "without the wall they do not"

    done = _run(adapter, "env; cat /proc/self/environ", _mount(adapter, place), SECRET="hunter2")

    assert "PATH=" in done.stdout and "hunter2" not in done.stdout


def test_there_is_no_network(adapter: ProcessAdapter, place: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = f"exec 3<>/dev/tcp/127.0.0.1/{listener.getsockname()[1]} && echo reached"
        line = ("/bin/bash", ("-c", script))
        bare = subprocess.run([line[0], *line[1]], capture_output=True, text=True, timeout=60, check=False)
        assert bare.stdout == "reached\n", "without the wall it is"
        command, arguments = adapter.wrap(*line, (_mount(adapter, place),))
        done = subprocess.run([command, *arguments], capture_output=True, text=True, timeout=60, check=False)

    assert "reached" not in done.stdout


def _everything_that_runs() -> str:
    return subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout


def test_what_is_left_behind_dies_with_the_command(adapter: ProcessAdapter, place: Path) -> None:
    _needs(adapter, Guarantee.TREE_DIES)
    script = "(sleep 30; touch late) >/dev/null 2>&1 & echo started"

    assert _run(adapter, script, _mount(adapter, place)).stdout == "started\n"
    until = time.monotonic() + 5  # bwrap does not wait until the last one is gone
    while "(sleep 30; touch late)" in _everything_that_runs():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_processes_of_the_host_are_not_seen(adapter: ProcessAdapter, place: Path) -> None:
    _needs(adapter, Guarantee.HOST_PROCESSES_HIDDEN)
    bare, walled = (_run(each, "ls /proc | grep -c '^[0-9]'", _mount(adapter, place)) for each in (None, adapter))

    assert int(walled.stdout) < 15 < int(bare.stdout)


def test_variables_of_the_host_are_in_no_process_that_the_command_sees(adapter: ProcessAdapter, place: Path) -> None:
    """The program that builds the wall stays inside as PID 1, with what it was started with."""
    script = "cat /proc/1/environ /proc/[0-9]*/environ"
    if Guarantee.HOST_PROCESSES_HIDDEN not in adapter.probe().guarantees:
        script = "cat /proc/self/environ"
    assert "hunter2" in _run(None, "cat /proc/self/environ", SECRET="hunter2").stdout, "without the wall it is"

    assert "hunter2" not in _run(adapter, script, _mount(adapter, place), SECRET="hunter2").stdout


def test_settings_of_the_kernel_cannot_be_written(adapter: ProcessAdapter, place: Path) -> None:
    """Root of the host needs no capability for it, and core_pattern names a program that the kernel runs as root."""
    _needs(adapter, Guarantee.WRITES_CONFINED)
    script = "(: >>/proc/sys/kernel/core_pattern) && echo opened; (: >>/proc/sys/kernel/domainname) && echo opened"
    if me().uid == 0:
        assert "opened" in _run(None, script).stdout, "without the wall they can"

    assert "opened" not in _run(adapter, f"{script}; echo ran", _mount(adapter, place)).stdout


def test_a_file_that_is_shown_over_another_leaves_that_as_it_is(adapter: ProcessAdapter, place: Path) -> None:
    """The place may be one that an earlier command has chosen: a link to a file of the host."""
    if adapter.name not in REMAPS:
        pytest.skip(f"{adapter.name} shows everything where it is")
    outside = place / "outside"
    workspace = place / "workspace"
    workspace.mkdir()
    for path, text in ((outside, "kept\n"), (workspace / "plain", "kept\n"), (place / "shown", "shown\n")):
        path.write_text(text)
    (workspace / "linked").symlink_to(outside)
    (workspace / "dangling").symlink_to(place / "made")
    for name in ("plain", "linked", "dangling"):
        over = Mount(str(place / "shown"), f"/workspace/{name}")
        done = _run(adapter, f"cat {name}", Mount(str(workspace), "/workspace", writable=True), over)
        assert name != "plain" or done.stdout == "shown\n", done.stderr

    assert (outside.read_text(), (workspace / "plain").read_text()) == ("kept\n", "kept\n")
    assert not (place / "made").exists()


def _on_a_terminal(adapter: ProcessAdapter | None, script: str) -> str:
    """What a command says that was started on a terminal of its own."""
    line = ("/bin/sh", ("-c", script)) if adapter is None else adapter.wrap("/bin/sh", ("-c", script))
    ours, theirs = os.openpty()
    try:
        with open(theirs, "rb+", buffering=0) as terminal:
            holding = ["setsid", "--ctty", "--wait", line[0], *line[1]]
            done = subprocess.run(holding, stdin=terminal, stdout=subprocess.PIPE, timeout=60, check=False, text=True)
        return done.stdout
    finally:
        os.close(ours)


def test_the_command_cannot_type_into_the_terminal_of_who_started_it(adapter: ProcessAdapter) -> None:
    """TIOCSTI takes the controlling terminal of one's own session; where there is none, it takes nothing."""
    if adapter.name == "landlock":
        pytest.skip(f"{adapter.name} makes no session; its filter of system calls is what holds this")
    script = "read -r line </proc/self/stat; set -- $line; echo terminal=$7"
    assert _on_a_terminal(None, script) != "terminal=0\n", "without the wall there is one"

    assert _on_a_terminal(adapter, script) == "terminal=0\n"


def test_a_mount_in_a_home_opens_nothing_else_of_it(adapter: ProcessAdapter) -> None:
    if adapter.name == "landlock" and me().uid == 0:
        pytest.skip("for ordinary users only")
    home = Path.home() / f"ringfence-adapter-{os.getpid()}"
    (home / "project").mkdir(parents=True)
    try:
        (home / "secret").write_text("hunter2\n")
        assert _run(None, f"cat {home}/secret").stdout == "hunter2\n", "without the wall it can be read"
        mount = _mount(adapter, home / "project")
        done = _run(adapter, f"cat {home}/secret; echo new > made && cat made", mount)

        assert done.stdout == "new\n", done.stderr
    finally:
        shutil.rmtree(home)
