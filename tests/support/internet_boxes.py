"""Runs boxes on the machine of a small internet (`internet.py`): an order a line, an answer a line."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from ringfence import Network, Result, Sandbox

_VENV = Path(sys.prefix)


class Machine:
    def __init__(self, root: Path) -> None:
        self._root = root

    async def answer(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        before = len(self._records())
        answers = [self._ringfence(order["words"])] if "words" in order else await self._run(order)
        found = [each for each in self._records()[before:] if each.get("event_type") == "network_request"]
        return [{**each, "records": found} for each in answers]

    async def _run(self, order: dict[str, Any]) -> list[dict[str, Any]]:
        async with (
            asyncio.timeout(90),
            # One of its own for each: when it is closed, everything that it did is in the journal.
            Sandbox(self._root / "work", network=Network(**order["network"]), read=[_VENV]) as box,
        ):
            answers = [_told(await box.shell(command)) for command in order["commands"]]
            while _violations(answers) < order["violations"]:
                answers.append(_told(await box.shell("sleep 0.05")))
            return answers

    def _ringfence(self, words: list[str]) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "ringfence.cli.app", *words],
            cwd=self._root / "work",
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        return {"exit": done.returncode, "stdout": done.stdout, "stderr": done.stderr, "violations": []}

    def _records(self) -> list[dict[str, Any]]:
        path = self._root / "home/.ringfence/state/journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _told(done: Result) -> dict[str, Any]:
    violations = [
        {"kind": str(each.kind), "severity": str(each.severity), "target": each.target, "count": each.count}
        for each in done.violations
    ]
    return {"exit": done.exit_code, "stdout": done.stdout, "stderr": done.stderr, "violations": violations}


def _violations(answers: list[dict[str, Any]]) -> int:
    return sum(int(each["count"]) for answer in answers for each in answer["violations"])


async def main() -> None:
    machine = Machine(Path(sys.argv[1]))
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        print(json.dumps(await machine.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
