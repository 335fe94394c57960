"""The lightest wall: what the advice calls SAFE and is not reads, writes, starts and reaches nothing of the host.

Each attempt is run twice: as a plain process, where it works, and by the executor and the manager, where it must not.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import (
    CommandNotAllowed,
    ExecutionRequest,
    InvalidArgument,
    LimitHit,
    Limits,
    Result,
    SandboxManager,
    SandboxType,
    SecurityMode,
    SubprocessExecutor,
    TimedOut,
    assess,
)
from ringfence.manager import executor as module
from ringfence.manager.options import LIGHT
from ringfence.values.risk import Assessment, Risk
from tests.integration.stage import SECRET, Place, eventually, processes_with

pytestmark = pytest.mark.req("E2", "E7")

# Three ways to any attribute by its name that reading the code does not find. Each leaves `open_file` and, where it
# reaches the interpreter's own names, `names_of`.
BY_MATCH = """
class Kind(type):
    pass
def attribute(name, thing):
    Any = Kind("Any", (type,), {"__match_args__": (name,), "__instancecheck__": lambda cls, other: True})
    Thing = Any("Thing", (), {})
    match thing:
        case Thing(found):
            return found
def f():
    pass
own = attribute("__builtins__", f)
open_file = own["open"]
def names_of(module):
    return attribute("__dict__", own["__import__"](module))
"""
BY_WRAPS = """
import functools
class Kind(type):
    pass
def attribute(name, thing):
    taken = []
    class Sink:
        def update(self, value):
            taken.append(value)
    functools.wraps(thing, assigned=(), updated=(name,))(Kind("Fake", (), {name: Sink()})())
    return taken[0]
def f():
    pass
own = attribute("__builtins__", f)
open_file = own["open"]
def names_of(module):
    return attribute("__dict__", own["__import__"](module))
"""
BY_RAW = """
import sys
FileIO = type(sys.stdout.buffer.raw)
def open_file(path, mode="r"):
    return FileIO(path, mode)
"""
WAYS = {"match": BY_MATCH, "wraps": BY_WRAPS, "raw": BY_RAW}
READS = "print('READ', open_file({path!r}).read())\n"
WRITES = "open_file({path!r}, 'w').write({data})\n"
STARTS = "names_of('os')['system']('sleep 300 {mark} >/dev/null 2>&1 &')\n"
CALLS = "names_of('socket')['create_connection'](('127.0.0.1', {port}), 2)\nprint('REACHED')\n"


def bare(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The attempt without a wall; what it starts is ended by whoever asks."""
    return subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, timeout=30, cwd=cwd, env={}, check=False
    )


def light(*codes: str, limits: Limits | None = None) -> list[Result]:
    async def whole() -> list[Result]:
        async with asyncio.timeout(60), SubprocessExecutor(limits=limits) as executor:
            return [await executor.execute(ExecutionRequest(code=code)) for code in codes]

    return asyncio.run(whole())


def permissive(*codes: str) -> list[Result]:
    async def whole() -> list[Result]:
        manager = SandboxManager(security_mode=SecurityMode.PERMISSIVE, pool_size=1)
        async with asyncio.timeout(60), manager:
            return [await manager.execute_code("python", code) for code in codes]

    return asyncio.run(whole())


RUNNERS = {"executor": light, "permissive manager": permissive}


@pytest.fixture
def listener() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("way", WAYS)
def test_the_ways_past_the_advice_are_still_called_safe(way: str) -> None:
    """If one day they are not, the tests below no longer show what they are for."""
    assert assess("python", WAYS[way] + READS.format(path="/x")).risk is Risk.SAFE


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("way", WAYS)
def test_safe_code_that_is_not_reads_nothing_of_the_host(place: Place, way: str, runner: str) -> None:
    code = WAYS[way] + READS.format(path=str(place.home / "diary"))
    assert SECRET in bare(code, place.workspace).stdout, "without a wall it is read"

    (done,) = RUNNERS[runner](code)

    assert not done.success and SECRET not in done.stdout + done.stderr
    assert done.sandbox_type is SandboxType.SUBPROCESS


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("way", WAYS)
def test_safe_code_that_is_not_writes_nothing_of_the_host(place: Place, way: str, runner: str) -> None:
    for name in ("diary", "new"):
        target = place.home / name
        code = WAYS[way] + WRITES.format(path=str(target), data="b'spoiled'" if way == "raw" else "'spoiled'")
        RUNNERS[runner](code)  # inside, the home is a private one: it may well write there
        assert target.read_text() == SECRET if name == "diary" else not target.exists()
        assert bare(code, place.workspace).returncode == 0 and target.read_text() == "spoiled", "without a wall it is"


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("way", ["match", "wraps"])
def test_what_safe_code_starts_is_not_of_the_host_and_ends_with_it(place: Place, way: str, runner: str) -> None:
    mark = f"1{time.monotonic_ns()}"
    code = WAYS[way] + STARTS.format(mark=mark)
    bare(code, place.workspace)
    started = processes_with(mark)
    assert started, "without a wall it goes on"
    for pid in started:
        os.kill(pid, 9)
    assert eventually(lambda: not processes_with(mark))

    (done,) = RUNNERS[runner](code + "print('uid', names_of('os')['getuid']())\n")

    assert eventually(lambda: not processes_with(mark))
    assert done.stdout.startswith("uid ") and not done.stdout.startswith("uid 0")


@pytest.mark.parametrize("way", ["match", "wraps"])
def test_safe_code_that_is_not_reaches_no_port_of_the_host(place: Place, way: str, listener: int) -> None:
    code = WAYS[way] + CALLS.format(port=listener)
    assert "REACHED" in bare(code, place.workspace).stdout

    (done,) = light(code)

    assert not done.success and "REACHED" not in done.stdout


def test_the_wall_stands_where_the_advice_is_fooled_altogether(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "assess", lambda language, code: Assessment(Risk.SAFE, (), "python"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    read, env, shadow, kill, uid = light(
        f"print(open({str(place.home / 'diary')!r}).read())",
        "import os; print(dict(os.environ))",
        "print(open('/etc/shadow').read())",
        f"import os; os.kill({os.getpid()}, 0)",
        "print([line for line in open('/proc/self/status') if line.startswith(('CapEff', 'NoNewPrivs'))])",
    )

    assert not read.success and not shadow.success and not kill.success
    assert SECRET not in read.stdout + read.stderr + env.stdout
    assert uid.stdout == "['CapEff:\\t0000000000000000\\n', 'NoNewPrivs:\\t1\\n']\n"


def test_two_executions_share_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "assess", lambda language, code: Assessment(Risk.SAFE, (), "python"))

    leaves = "x = 1\nfor at in ('/tmp', '.', '/dev/shm'): open(f'{at}/left', 'w').write('mine')"
    looks = "import os\nprint('x' in globals(), [os.path.exists(f'{at}/left') for at in ('/tmp', '.', '/dev/shm')])"
    first, second = light(leaves, looks)

    assert first.success and second.stdout == "False [False, False, False]\n"


def test_the_wall_of_the_executor_says_what_it_guarantees(place: Place) -> None:
    (done,) = light("print(6 * 7)")

    assert done.stdout == "42\n" and done.sandbox_type is SandboxType.SUBPROCESS
    assert done.wall is not None and done.wall.guarantees >= LIGHT


def test_what_is_not_harmless_is_refused_and_what_takes_too_much_is_ended(place: Place) -> None:
    async def work() -> None:
        limits = Limits(wall_seconds=30, memory_bytes=300 * 1024**2, output_bytes=1000)
        async with SubprocessExecutor(limits=limits) as executor:
            for code, language in (("open('/etc/passwd')", "python"), ("console.log(1)", "js")):
                with pytest.raises(CommandNotAllowed, match="harmless"):
                    await executor.execute(ExecutionRequest(code=code, language=language))
            for more in ({"session_id": "s"}, {"context": "c"}, {"files": {"a": "b"}}, {"collect": True}):
                with pytest.raises(InvalidArgument, match="no state and takes no files"):
                    await executor.execute(ExecutionRequest(code="1", **more))  # type: ignore[arg-type]
            endless = await executor.execute(ExecutionRequest(code="while True:\n    pass", timeout=1))
            assert isinstance(endless.ending, TimedOut)
            hog = await executor.execute(ExecutionRequest(code="x = 'x' * 10**9"))
            assert isinstance(hog.ending, LimitHit) or "MemoryError" in hog.stderr
            loud = await executor.execute(ExecutionRequest(code="while True: print('y')"))
            assert isinstance(loud.ending, LimitHit) and len(loud.stdout) <= 1000
            assert (await executor.execute(ExecutionRequest(code="x = 2\nx + 2"))).success

    asyncio.run(work())


def test_an_organisation_s_policy_is_in_force_in_the_executor(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    named = place.top / "policy.yaml"
    named.write_text("policies: {default: {supported_languages: [bash]}}")
    monkeypatch.setenv("RINGFENCE_POLICY", str(named))

    (done,) = light("print(6 * 7)")

    assert done.blocked and done.stdout == ""
