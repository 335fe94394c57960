"""Hundreds of calls at once work as a plain `asyncio.gather`, also with the 1,024 open files of an ordinary login.

What is bounded is time: nobody is refused because many others wait. Nothing here looks at a clock but to have an end.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.req("B6", "B7")

LONG = 240
Start = Callable[[str], "subprocess.Popen[str]"]

HEAD = """
import asyncio, os, resource, sys, threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
import ringfence, ringfence.engines.room, ringfence.sync

resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))

def open_now():
    return len(os.listdir("/proc/self/fd"))

def said(results):
    return Counter(str(done.ending) if isinstance(done, ringfence.Result) else str(done) for done in results)
"""

NOTHING_HELD = """
assert open_now() <= 16, os.listdir("/proc/self/fd")
assert ringfence.engines.room.descriptor_room().held == 0
print("well")
"""

CALLS = {
    "fresh boxes of a manager": """
async def main():
    async with ringfence.SandboxManager() as manager:
        calls = (manager.execute_code("python", "1 + 1") for _ in range(COUNT))
        print(said(await asyncio.gather(*calls, return_exceptions=True)))
asyncio.run(main())
""",
    "a manager that may have more boxes than descriptors": """
async def main():
    async with ringfence.SandboxManager(max_instances=COUNT) as manager:
        calls = (manager.execute_shell("true") for _ in range(COUNT))
        print(said(await asyncio.gather(*calls, return_exceptions=True)))
asyncio.run(main())
""",
    "sandboxes of their own": """
async def one(number):
    os.mkdir(str(number))
    async with ringfence.Sandbox(workspace=str(number)) as sandbox:
        return await sandbox.shell("true")

async def main():
    print(said(await asyncio.gather(*map(one, range(COUNT)), return_exceptions=True)))
asyncio.run(main())
""",
    "commands in one sandbox": """
async def main():
    async with ringfence.Sandbox(workspace=".") as sandbox:
        calls = (sandbox.shell("sleep 0.01; /bin/true") for _ in range(COUNT))
        print(said(await asyncio.gather(*calls, return_exceptions=True)))
asyncio.run(main())
""",
    "calls of one interpreter": """
async def main():
    async with ringfence.Sandbox(workspace=".") as sandbox:
        await sandbox.python("count = 0")
        calls = (sandbox.python("count += 1") for _ in range(COUNT))
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert (await sandbox.python("count")).results[0].text == str(COUNT)
        print(said(results))
asyncio.run(main())
""",
    "threads, a blocking manager": """
with ringfence.sync.SandboxManager() as manager, ThreadPoolExecutor(COUNT) as threads:
    print(said(threads.map(lambda _: manager.execute_shell("true"), range(COUNT))))
""",
    "threads, one blocking sandbox": """
with ringfence.sync.Sandbox(workspace=".") as sandbox, ThreadPoolExecutor(COUNT) as threads:
    print(said(threads.map(lambda _: sandbox.shell("/bin/true"), range(COUNT))))
""",
    "threads, each with a run of its own": """
with ThreadPoolExecutor(COUNT) as threads:
    print(said(threads.map(lambda _: ringfence.run("true", workspace="."), range(COUNT))))
""",
}


@pytest.mark.parametrize(("limit", "count"), [(1024, 500), (256, 150)])
@pytest.mark.parametrize("calls", CALLS.values(), ids=CALLS.keys())
def test_hundreds_at_once_all_end_well(ringfence_process: Start, calls: str, limit: int, count: int) -> None:
    child = ringfence_process(f"LIMIT, COUNT = {limit}, {count}\n{HEAD}{calls}{NOTHING_HELD}")

    said = child.communicate(timeout=LONG)[0].splitlines()

    assert said == [f"Counter({{'exited with 0': {count}}})", "well"]


WITHOUT = """
async def main():
    room = ringfence.engines.room.DescriptorRoom(limit=lambda: 1 << 30)
    ringfence.engines.room._room = room
    async with ringfence.SandboxManager(max_instances=500) as manager:
        calls = (manager.execute_shell("true") for _ in range(500))
        results = await asyncio.gather(*calls, return_exceptions=True)
        print(sum(isinstance(done, ringfence.Result) for done in results))
        sys.stdout.flush()
        os._exit(0)
asyncio.run(main())
"""


def test_without_waiting_for_room_the_same_calls_fail(ringfence_process: Start) -> None:
    child = ringfence_process(f"LIMIT = 256\n{HEAD}{WITHOUT}")

    assert int(child.communicate(timeout=LONG)[0]) < 500


SIDE_BY_SIDE = """
async def main():
    async with ringfence.Sandbox(workspace=".") as sandbox:
        # Each waits for the file of the next one, and makes its own: in turn, the first would wait for ever.
        line = "touch {0}; while ! test -e {1}; do sleep 0.01; done"
        calls = (sandbox.shell(line.format(number, (number + 1) % 32), timeout=100) for number in range(32))
        results = await asyncio.gather(*calls, return_exceptions=True)
        print(said(results), min(done.overlapped for done in results) > 0)
asyncio.run(main())
"""


def test_commands_of_one_sandbox_run_side_by_side(ringfence_process: Start) -> None:
    child = ringfence_process(f"LIMIT = 1024\n{HEAD}{SIDE_BY_SIDE}")

    assert child.communicate(timeout=LONG)[0] == "Counter({'exited with 0': 32}) True\n"


BOUNDED = """
async def main():
    limits = ringfence.Limits(processes=16)
    async with ringfence.Sandbox(workspace=".", limits=limits) as sandbox:
        sandbox_box = (await sandbox._runners.first.holder.acquire(None)).box
        sandbox_box._turns._seconds = SECONDS
        calls = (sandbox.shell("while ! test -e go; do sleep 0.01; done", timeout=100) for _ in range(40))
        tasks = [asyncio.ensure_future(call) for call in calls]
        if SECONDS > 10:
            await sandbox.write_file("go", "")
        else:
            await asyncio.wait(tasks[sandbox_box._turns.at_once:])
            await sandbox.write_file("go", "")
        print(said(await asyncio.gather(*tasks, return_exceptions=True)))
asyncio.run(main())
"""


def test_commands_wait_for_a_turn_where_the_box_has_few_processes(ringfence_process: Start) -> None:
    child = ringfence_process(f"LIMIT, SECONDS = 1024, 200\n{HEAD}{BOUNDED}")

    assert child.communicate(timeout=LONG)[0] == "Counter({'exited with 0': 40})\n"


def test_a_turn_that_does_not_come_in_time_is_an_error_that_says_so(ringfence_process: Start) -> None:
    child = ringfence_process(f"LIMIT, SECONDS = 1024, 0.5\n{HEAD}{BOUNDED}")

    said = child.communicate(timeout=LONG)[0]

    assert "'exited with 0': 4" in said
    assert "4 commands run in this sandbox, and none of them ended within 0.5 s" in said and "second sandbox" in said


NO_CONFIG = """
os.makedirs(os.path.expanduser("~/.ringfence"), exist_ok=True)
with open(os.path.expanduser("~/.ringfence/sandbox.json"), "w") as file:
    file.write('{"limits": {"wall": "7s"}}')
sandbox = ringfence.Sandbox(workspace=".")
print(sandbox.grant.limits.wall_seconds)
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
try:
    ringfence.Sandbox(workspace=".")
except ringfence.InitializationFailed as fault:
    for descriptor in held:
        os.close(descriptor)
    print(fault)
"""


def test_a_configuration_that_cannot_be_read_for_want_of_descriptors_is_not_replaced_by_the_defaults(
    ringfence_process: Start,
) -> None:
    child = ringfence_process(f"LIMIT = 64\n{HEAD}{NO_CONFIG}")

    first, second = child.communicate(timeout=LONG)[0].splitlines()

    assert float(first) == 7
    assert "sandbox.json: cannot be read: Too many open files" in second and "ulimit" in second
