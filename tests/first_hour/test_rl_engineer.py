"""The first hour of somebody who trains a model: many attempts in boxes that wait, none of which sees another."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.req("B1", "B7")

SCRIPT = """
import asyncio
import ringfence

ATTEMPTS = (
    "print(6 * 7)",
    "print(41)",
    "1 / 0",
    "while True: pass",
    "x = 'x' * (1 << 33)",
    "import os; os._exit(0)",
    "import socket; socket.create_connection(('192.0.2.1', 80), 1)",
    "open('mark', 'w').write('I was here')",
    "import os; print(42 if not os.path.exists('mark') else 'seen')",
)


async def main() -> None:
    limits = ringfence.Limits(memory_bytes=512 << 20)
    async with ringfence.SandboxManager(pool_size=2, limits=limits) as manager:
        for attempt in ATTEMPTS:
            done = await manager.execute_code("python", attempt, timeout=3)
            print(f"{int(done.ok and done.stdout == '42' + chr(10))} {type(done.ending).__name__} {done.error}")
        await manager.execute_code("python", "steps = [1]", session_id="episode")
        kept = await manager.execute_code("python", "steps.append(2); steps", session_id="episode")
        print(kept.results[0].text)
        batch = await asyncio.gather(*(manager.execute_code("python", f"print({n})") for n in range(6)))
        print("".join(done.stdout.strip() for done in batch))


asyncio.run(main())
"""


def test_attempts_are_scored_by_evidence_and_do_not_meet(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"], "LANG": "C.UTF-8"}

    done = subprocess.run(
        [sys.executable, "train.py"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=100, check=False
    )

    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines[:9]] == ["1", "0", "0", "0", "0", "0", "0", "0", "1"], done.stdout
    assert "ZeroDivisionError" in lines[2]
    assert lines[3].split()[1] == "TimedOut"
    assert lines[9] == "[1, 2]"
    assert lines[10] == "012345"
