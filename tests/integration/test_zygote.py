"""Boxes that are forked from a zygote: the same wall, the same interpreter, nothing of each other."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ringfence import SandboxManager
from ringfence.confinement.linux.unshare import Unshare
from ringfence.engines.native import zygote
from tests.integration.stage import Place, eventually

PYTHON = "/usr/bin/python3"
FACTS = """
import json, locale, os, resource, signal, site, sys, time
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
kept = "Name Umask PPid Groups SigBlk SigIgn SigCgt CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Threads"
print(json.dumps([
    {name: status[name].strip() for name in (*kept.split(), "Seccomp_filters")},
    {name: resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name.startswith("RLIMIT_")},
    sys.path, list(sys.flags), sys.executable, sys.prefix, sys.argv, sys.getrecursionlimit(), sys.stdout.encoding,
    sorted(os.environ), os.getsid(0) == os.getpid(), os.getuid(), os.getgid(), os.get_inheritable(9),
    sorted(os.listdir("/proc/self/fd")), open("/proc/self/uid_map").read(), open("/proc/self/oom_score_adj").read(),
    site.ENABLE_USER_SITE, site.USER_SITE, time.tzname, locale.getpreferredencoding(),
    [str(signal.getsignal(number)) for number in (13, 25)],
]))
"""


@pytest.fixture(autouse=True)
def workspaces(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if Unshare().probe().missing:
        pytest.skip(f"no wall to fork boxes behind: {Unshare().probe().missing}")
    monkeypatch.setenv("RINGFENCE_WORKSPACES_DIR", str(place.top / "workspaces"))
    if not zygote.can_stand_ready(PYTHON, ()):
        pytest.skip("the interpreter of these tests is not the system's")
    yield


def managed(work: Callable[[SandboxManager], Awaitable[Any]], **options: Any) -> Any:
    async def run() -> Any:
        async with SandboxManager(pool_size=2, python=PYTHON, **options) as manager:
            return await work(manager)

    return asyncio.run(run())


async def said(manager: SandboxManager, code: str, session: str | None = None) -> str:
    done = await manager.execute_code("python", code, session_id=session)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def zygotes() -> list[int]:
    """Those of this process: they have the library in them, and are our children."""
    found = []
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            if "ringfence_zygote" in Path(f"/proc/{child}/cmdline").read_text():
                name = Path(f"/proc/{child}/comm").read_text().strip()
                found += [int(child)] if name != "ringfence-box" else []
    return found


def without_zygotes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "can_stand_ready", lambda *_: False)


def test_a_forked_interpreter_is_confined_and_set_up_as_one_that_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def facts(manager: SandboxManager) -> Any:
        assert bool(zygotes()) == is_forked
        return json.loads(await said(manager, FACTS))

    is_forked = True
    forked = managed(facts)
    is_forked = False
    without_zygotes(monkeypatch)
    started = managed(facts)

    assert forked == started


def test_a_homes_own_packages_come_where_they_would_have_come(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    packages = place.home / f".local/lib/python{version}/site-packages"
    packages.mkdir(parents=True)

    async def where(manager: SandboxManager) -> Any:
        return json.loads(await said(manager, "import json, sys; print(json.dumps(sys.path))"))

    forked = managed(where, read=[packages])
    without_zygotes(monkeypatch)

    assert forked == managed(where, read=[packages])
    assert str(packages) in forked


def test_boxes_of_one_zygote_have_nothing_of_each_other() -> None:
    async def work(manager: SandboxManager) -> None:
        leave = "import os; left = 'mine'; open('mine', 'w').write('x'); os.environ['MINE'] = '1'"
        await said(manager, leave, "a")
        other = await said(
            manager,
            "import os; print('left' in globals(), os.listdir('.'), 'MINE' in os.environ,"
            " [p for p in os.listdir('/proc') if p.isdigit() and p not in ('1', str(os.getpid()))])",
            "b",
        )
        assert other.startswith("False [] False")
        first = await said(manager, "import random, uuid; print(random.random(), uuid.uuid4())", "a")
        assert first != await said(manager, "import random, uuid; print(random.random(), uuid.uuid4())", "b")

    managed(work)


def test_a_box_holds_neither_the_plan_of_its_wall_nor_a_way_to_those_who_made_it() -> None:
    """What the launcher was told lies in no memory that code in the box could read; words of its own it does find."""
    look = """
import os, re, stat
own = b"\\0".join([b"lifeline", b"77", b""])
plan = re.compile(b"lifeline\\0([0-9]+)\\0")
found = set()
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        span, mode = line.split()[:2]
        if "r" in mode and "[v" not in line:
            low, high = (int(part, 16) for part in span.split("-"))
            memory.seek(low)
            found.update(plan.findall(memory.read(high - low)))
paths = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
sockets = [path[-1] for path in paths if os.path.exists(path) and stat.S_ISSOCK(os.stat(path).st_mode)]
print(sorted(found), sockets)
"""

    async def work(manager: SandboxManager) -> str:
        return await said(manager, look)

    assert managed(work) == "[b'77'] ['9']\n"


FIND = """
import re
found = set()
with open("/proc/self/mem", "rb", 0) as memory:
    for line in open("/proc/self/maps"):
        span, mode = line.split()[:2]
        if "r" in mode and "[v" not in line:
            low, high = (int(part, 16) for part in span.split("-"))
            memory.seek(low)
            found.update(re.findall(b"hunter2-" + b"([a-z]+)", memory.read(high - low)))
print(sorted(found))
"""


def test_an_interpreter_that_starts_later_has_nothing_of_the_commands_before() -> None:
    """PID 1, which it is forked from, was told them; one is too long for a message, and comes in a file."""

    async def work(manager: SandboxManager) -> str:
        for name, size in (("short", 5_000), ("long", 60_000)):
            assert (await manager.execute_shell(f": {'x' * size} hunter2-{name}", session_id="a")).exit_code == 0
        assert (await manager.execute_code("python", "import os; os._exit(3)", session_id="a")).exit_code == 3
        assert zygotes()
        return await said(manager, f"own = b'hunter2-own'\n{FIND}", "a")

    assert managed(work) == "[b'own']\n"


def test_no_name_of_a_file_outside_is_in_a_box() -> None:
    """The kernel says where each mapped file lies: those of the interpreter are in the view, the library is not."""
    code = """
import os
names = {line.split(None, 5)[5].strip() for line in open("/proc/self/maps") if line.count("/")}
print(os.path.realpath("/proc/self/exe") in names, sorted(name for name in names if not os.path.exists(name)))
"""

    async def work(manager: SandboxManager) -> str:
        assert zygotes()
        return await said(manager, code)

    assert managed(work) == "True ['/memfd:ringfence-zygote (deleted)']\n"


def test_code_in_a_box_that_calls_the_library_itself_gains_nothing() -> None:
    """The library is in the interpreter's memory: from inside it can do no more than any program."""
    code = """
import ctypes, os
library = ctypes.CDLL(None)
for flags in (0x10000000, 0x20000, 0x20000000, 0x40000000):
    assert library.unshare(flags) == -1, hex(flags)
assert library.mount(b"none", b"/tmp", b"tmpfs", 0, None) == -1
assert library.setns(os.open("/proc/1/status", os.O_RDONLY), 0) == -1
try:
    open("/proc/1/mem", "rb")
    print("read")
except OSError:
    print("refused")
"""

    async def work(manager: SandboxManager) -> str:
        return await said(manager, code)

    assert managed(work) == "refused\n"


@pytest.mark.parametrize("name", ["PYTHONPATH", "PYTHONHASHSEED", "LC_ALL", "LD_LIBRARY_PATH"])
def test_what_changes_how_an_interpreter_starts_starts_one(name: str) -> None:
    async def work(manager: SandboxManager) -> str:
        assert not zygotes()
        return await said(manager, f"import os; print(os.environ[{name!r}])")

    assert managed(work, env={name: "0"}) == "0\n"


def test_after_some_boxes_there_is_another_zygote_with_other_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zygote, "BOXES_EACH", 4)

    async def work(manager: SandboxManager) -> set[str]:
        return {await said(manager, "print(id(object), hash('x'))") for _ in range(16)}

    assert 2 <= len(managed(work)) <= 6


def test_boxes_are_made_without_a_zygote_that_was_killed() -> None:
    async def work(manager: SandboxManager) -> None:
        (first,) = zygotes()
        os.kill(first, signal.SIGKILL)
        for number in range(6):
            assert await said(manager, f"print({number})") == f"{number}\n"

    managed(work)


def test_no_zygote_outlives_its_pool() -> None:
    async def work(manager: SandboxManager) -> list[int]:
        return zygotes()

    (pid,) = managed(work)
    assert eventually(lambda: not os.path.exists(f"/proc/{pid}"))


def test_an_interpreter_of_a_virtual_environment_is_started(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(PYTHON)
    assert zygote.can_stand_ready(str(tmp_path / "bin" / "python3"), ())
    (tmp_path / "pyvenv.cfg").write_text("home = /usr/bin\n")
    zygote._is_ours.cache_clear()
    assert not zygote.can_stand_ready(str(tmp_path / "bin" / "python3"), ())


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers come in the order of what was asked, so that after one that is missing none can be told apart."""
    monkeypatch.setattr(zygote, "_ANSWER_SECONDS", 0.1)
    made = zygote.Zygote(PYTHON)
    assert asyncio.run(made.wait_ready())
    os.kill(made._process.pid, signal.SIGSTOP)
    with open(os.devnull) as nothing:
        first, second = (made.launch(nothing.fileno(), nothing.fileno(), ()) for _ in range(2))
    try:
        assert first.pid == 0
        os.kill(made._process.pid, signal.SIGCONT)
        assert eventually(lambda: bool(select.select([made._socket], [], [], 0)[0]))

        assert second.pid == 0
    finally:
        made.close()


def test_a_zygote_that_was_stopped_is_ended_all_the_same() -> None:
    made = zygote.Zygote(PYTHON)
    assert asyncio.run(made.wait_ready())
    os.kill(made._process.pid, signal.SIGSTOP)
    closing = threading.Thread(target=made.close)
    closing.start()
    closing.join(5)
    is_stuck = closing.is_alive()
    with suppress(ProcessLookupError):
        os.kill(made._process.pid, signal.SIGCONT)
    closing.join()

    assert not is_stuck


def test_a_launcher_is_known_by_its_own_pid() -> None:
    made = zygote.Zygote(PYTHON)
    try:
        assert asyncio.run(made.wait_ready())
        with open(os.devnull) as nothing:
            first, second = (made.launch(nothing.fileno(), nothing.fileno(), ()) for _ in range(2))
        assert 0 < second.pid != first.pid > 0
        assert (first.wait(), second.wait()) == (125, 125)
    finally:
        made.close()


@pytest.mark.root
@pytest.mark.parametrize("mode", [0o755, 0o775, 0o757])
def test_an_interpreter_that_others_may_write_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    """A fork's /proc/self/exe leads to the file on the host's own mount, which is not read-only as that in the view."""
    python = tmp_path / "python3"
    python.touch()
    python.chmod(mode)
    monkeypatch.setattr(sys, "_base_executable", str(python))

    assert zygote.can_stand_ready(str(python), ()) == (mode == 0o755)
