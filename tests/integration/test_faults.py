"""A box that comes to a bad end: what its command was refused and what it left behind are known all the same."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest

from ringfence import Result, Sandbox
from ringfence.errors import Internal
from tests.integration.stage import Place, processes_with

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
MARK = "ringfence-test-of-faults"
_PLANT = f"""
import os, time
{MARK!r}
os.makedirs('nested/.git/hooks')
with open('nested/.git/hooks/pre-commit', 'w') as hook:
    hook.write('#!/bin/sh')
os.chmod('nested/.git/hooks/pre-commit', 0o755)
try:
    open('/etc/made', 'w')
except OSError:
    pass
open('planted', 'w').close()
time.sleep(60)
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


@pytest.mark.req("C7", "B9")
def test_what_a_command_did_is_known_though_its_box_died(place: Place) -> None:
    async def work(box: Sandbox) -> Internal:
        call = asyncio.create_task(box.exec([PYTHON, "-c", _PLANT]))
        while not (place.workspace / "planted").exists():
            await asyncio.sleep(0.02)
        [pid, *_] = processes_with(MARK)
        os.kill(parent_of(pid), signal.SIGKILL)
        with pytest.raises(Internal) as raised:
            await call
        return raised.value

    fault = place.in_box(work)

    rules = [violation.rule for violation in fault.violations]
    assert "filesystem.whitelist" in rules
    assert any(rule.startswith("leftover") for rule in rules)
    hook = place.workspace / "nested/.git/hooks/pre-commit"
    assert not hook.exists() and hook.with_name("pre-commit.disarmed").exists()


@pytest.mark.req("C7", "B9")
def test_what_a_command_did_is_known_though_its_caller_gave_up(place: Place) -> None:
    async def work(box: Sandbox) -> list[str]:
        call = asyncio.create_task(box.exec([PYTHON, "-c", _PLANT]))
        while not (place.workspace / "planted").exists():
            await asyncio.sleep(0.02)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        return [each.violation.rule for each in box.violations.query()]

    rules = place.in_box(work)

    assert "filesystem.whitelist" in rules
    assert any(rule.startswith("leftover") for rule in rules)
    assert not (place.workspace / "nested/.git/hooks/pre-commit").exists()


_LIMIT_THE_FIRST = """
import ctypes, os, struct
libc = ctypes.CDLL(None, use_errno=True)
nothing = struct.pack('QQ', 0, 0)
print([libc.prlimit(1, which, nothing, None) for which in range(16)])
print(libc.setpriority(0, 1, 19), libc.sched_setscheduler(1, 5, struct.pack('i', 0)))
print([libc.setpriority(2, who, 19) for who in (0, os.getuid())], libc.getpriority(0, 1) == libc.getpriority(0, 0))
print(libc.prlimit(os.getpid(), 4, struct.pack('QQ', 0, 0), None), libc.prlimit(0, 4, nothing, None))
"""


@pytest.mark.req("B6", "C1")
def test_the_first_process_cannot_be_limited_from_inside(place: Place) -> None:
    """Without descriptors it would fail while it cleans up."""

    async def twice(box: Sandbox) -> tuple[Result, Result]:
        return await box.exec([PYTHON, "-c", _LIMIT_THE_FIRST]), await box.shell("echo lives")

    limited, after = place.in_box(twice)

    assert limited.stdout.splitlines() == [str([-1] * 16), "-1 -1", "[-1, -1] True", "0 0"]
    assert after.stdout == "lives\n"
