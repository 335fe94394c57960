"""Policy, limits and wall each hold by themselves (requirement C1): each test has one of them, and the others are as
loose as they can be."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence import Limits, PolicyEngine, Request, Sandbox, Verdict
from ringfence.limits.choose import choose
from ringfence.values.limits import Limit
from ringfence.values.outcome import LimitHit, Refused
from tests.integration.stage import SECRET, Place

HUGE = Limits(memory_bytes=8 << 30, wall_seconds=600.0, cpu_seconds=600.0, processes=4096)
POLICY = "policies: {default: {denied_commands: [dig]}}"


@pytest.mark.req("C1")
def test_the_policy_refuses_where_no_wall_can_be_built(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Judging needs no box: nothing is started, nothing is mounted."""
    engine = PolicyEngine.from_text(POLICY)

    def no_process(*_: object, **__: object) -> None:
        pytest.fail("something was started in order to judge")

    monkeypatch.setattr(subprocess, "Popen", no_process)
    monkeypatch.setattr(os, "posix_spawn", no_process)

    assert engine.decide(Request(command="dig example.com"), workspace=place.workspace).verdict is Verdict.DENY
    assert engine.decide(Request(command="ls"), workspace=place.workspace).verdict is Verdict.ALLOW


@pytest.mark.req("C1")
def test_the_wall_holds_without_a_policy_and_without_tight_limits(place: Place) -> None:
    result = place.run(f"cat {place.home}/.ssh/id_rsa; cat {place.top}/*; echo x > {place.top}/made", limits=HUGE)

    assert not isinstance(result.ending, Refused)
    assert SECRET not in result.stdout
    assert not (place.top / "made").exists()


@pytest.mark.req("C1")
def test_limits_hold_a_plain_process_that_no_wall_surrounds(tmp_path: Path) -> None:
    """The holder of a box, around a process of this test."""
    holder = choose(Limits(memory_bytes=64 << 20))
    if Limit.MEMORY not in holder.enforces:
        holder.close()
        pytest.skip("control groups cannot be made here: memory is watched by the box's own loop instead")
    joining = "".join(f"open({path!r}, 'w').write(str(__import__('os').getpid()));" for path in holder.joins)
    try:
        hog = subprocess.run(
            [sys.executable, "-c", f"{joining} x = bytearray(512 << 20)"],
            capture_output=True,
            timeout=60,
            check=False,
        )
        meek = subprocess.run([sys.executable, "-c", f"{joining} x = bytearray(1 << 20)"], timeout=60, check=False)
        kills = holder.memory_kills()
    finally:
        holder.close()

    assert hog.returncode == -9 and kills >= 1
    assert meek.returncode == 0


@pytest.mark.req("C1")
def test_limits_hold_without_a_policy(place: Place) -> None:
    result = place.run("tail /dev/zero", limits=Limits(memory_bytes=64 << 20))

    assert result.ending == LimitHit(Limit.MEMORY, 64 << 20)


@pytest.mark.req("C1")
def test_a_yes_of_the_policy_opens_no_hole_in_the_wall(place: Place) -> None:
    """The layers are asked one after the other, and none can speak for another."""
    engine = PolicyEngine.from_text("policies: {default: {allowed_commands: [cat]}}")

    async def work() -> tuple[Verdict, str]:
        async with Sandbox(place.workspace, policy=engine, limits=HUGE) as sandbox:
            told = sandbox.check_command(f"cat {place.top}/other").verdict
            return told, (await sandbox.shell(f"cat {place.top}/other")).stdout

    (place.top / "other").write_text(SECRET)
    told, said = asyncio.run(work())

    assert told is Verdict.ALLOW
    assert SECRET not in said
