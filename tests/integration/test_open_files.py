"""With the limit of open files that a login has, everything works; where it ends, that is said, and nothing is lost."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.req("B6", "C10")

MANY_BOXES = """
import asyncio, os, resource, tempfile
from contextlib import AsyncExitStack
import ringfence
import ringfence.engines.room

resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
ringfence.engines.room.WAIT_SECONDS = 0.3  # nobody will give one back

async def fill(stack, top):
    boxes = []
    for number in range(200):
        workspace = os.path.join(top, str(len(os.listdir(top))))
        os.mkdir(workspace)
        box = ringfence.Sandbox(workspace=workspace)
        try:
            await stack.enter_async_context(box)
            await box.shell("true")
        except ringfence.Busy as fault:
            return boxes, fault
        boxes.append(box)

async def main():
    with tempfile.TemporaryDirectory() as top:
        async with ringfence.Sandbox(workspace=top) as box:
            await box.shell("true")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3 if LIMIT < 500 else 1):  # what a failure left open would be missing the next time
            async with AsyncExitStack() as stack:
                boxes, fault = await fill(stack, top)
                print(len(boxes), fault)
                assert "no room for another sandbox within 0.3 s" in fault.message, fault
                assert str(LIMIT) in fault.message, fault
                assert "ulimit -n" in fault.hint
                held = []
                try:
                    while True:
                        held.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    pass
                for use in (lambda: boxes[0].exec(["/bin/true"]), lambda: boxes[0].start("true")):
                    try:
                        await use()
                    except ringfence.SpawnFailed as fault:
                        assert "Too many open files" in str(fault) and "ulimit" in fault.hint, fault
                    else:
                        raise AssertionError("it ran without a descriptor")
                for descriptor in held:
                    os.close(descriptor)
                for box in boxes:
                    assert (await box.exec(["/bin/echo", "hi"])).stdout == "hi\\n"
        assert len(os.listdir("/proc/self/fd")) <= before, (before, os.listdir("/proc/self/fd"))

asyncio.run(main())
print("well")
"""


@pytest.mark.parametrize("limit", [1024, 256])
def test_boxes_up_to_the_limit_of_open_files_work_and_the_next_one_says_what_to_do(
    ringfence_process: Callable[[str], subprocess.Popen[str]], limit: int
) -> None:
    child = ringfence_process(f"LIMIT = {limit}\n{MANY_BOXES}")

    said = child.communicate(timeout=120)[0].splitlines()

    assert said[-1:] == ["well"], said
    counts = [int(line.split()[0]) for line in said[:-1]]
    assert min(counts) > limit / 25
    # One more or less is a box's own start that is still under way; that nothing stays open is looked at inside.
    assert max(counts) - min(counts) <= 1, "fewer fit the second time"


INSIDE = """
import resource
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD if most == resource.RLIM_INFINITY else min(HARD, most)))
import ringfence
done = ringfence.run("ulimit -Sn; ulimit -Hn", workspace=".", limits=ringfence.Limits(open_files=600))
print(*done.stdout.split(), "well")
"""


@pytest.mark.parametrize(
    ("soft", "hard", "inside"), [(256, 4096, "600 600"), (1024, 1024, "600 600"), (300, 300, "300 300")]
)
def test_a_box_has_its_own_limit_of_open_files_whatever_ours_is(
    ringfence_process: Callable[[str], subprocess.Popen[str]], soft: int, hard: int, inside: str
) -> None:
    child = ringfence_process(f"SOFT, HARD = {soft}, {hard}\n{INSIDE}")

    assert child.communicate(timeout=60)[0] == f"{inside} well\n"
