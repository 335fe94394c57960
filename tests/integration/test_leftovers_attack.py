"""The attack PRT-07 by its own check: a hook in a repository that was made during the run, until it is disarmed.

The command runs bare here, as its control does: what is tested is what happens after a run.
"""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from ringfence.workspace.leftovers.disarm import disarm
from ringfence.workspace.leftovers.scan import Since, find_leftovers

CASES = Path(__file__).parents[1] / "attacks/data/escapes.jsonl"


@pytest.mark.req("A3", "C7")
def test_the_hook_of_a_new_repository_is_gone_after_disarming(tmp_path: Path) -> None:
    case = next(row for row in map(json.loads, CASES.read_text().splitlines()) if row["id"] == "PRT-07")
    (tmp_path / "ws").mkdir()
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "WS": str(tmp_path / "ws"), "OUT": str(tmp_path / "out")}

    def is_safe() -> bool:
        return subprocess.run(["bash", "-c", case["check"]], env=environment, check=False).returncode == 0

    begin = time.clock_gettime_ns(5)  # CLOCK_REALTIME_COARSE, which file times are taken from
    with (tmp_path / "out").open("wb") as out:
        subprocess.run(["bash", "-c", case["command"]], cwd=tmp_path / "ws", env=environment, stdout=out, check=True)
    assert not is_safe()

    scan = find_leftovers(tmp_path / "ws", Since(ns=begin))
    assert [violation.rule for violation in scan.violations()] == ["leftover git-hook"]
    assert disarm(tmp_path / "ws", scan.leftovers) == scan.leftovers
    assert is_safe()
