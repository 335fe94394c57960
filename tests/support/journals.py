"""Journals to look at and to tamper with."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from ringfence.audit.journal import Journal
from ringfence.policy.audit_settings import AuditSettings


def a_journal(directory: Path, count: int, settings: AuditSettings | None = None, **fields: object) -> None:
    """Write so many records, numbered from 1 by their run."""
    journal = Journal(directory, settings)
    for number in range(1, count + 1):
        journal.open(f"r{number}", {"command": f"echo {number}", "tool": "shell_exec", **fields}).close(
            {"result": "success", "ending": "exited with 0", "exit_code": 0, "execution_time_ms": 1.5}
        )
    journal.close()


def fork(work: Callable[[], None]) -> int:
    """Run `work` in a process of its own that dies without a word afterwards; returns its pid."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child
