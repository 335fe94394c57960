"""Decides recorded requests anew, by another policy: what would have been different?

Only command lines can be: of code the record has no more than its hash. A secret in a command is not in the record, so
that a rule about it cannot vote; and what a request was granted besides (directories, hosts) is what the
configuration says today.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidConfig
from ringfence.values.request import Request

if TYPE_CHECKING:
    from ringfence.manager.policing import PolicyEngine

_EXECUTION = "sandbox_execution"


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A request that would be decided otherwise."""

    run: str
    timestamp: str
    command: str
    before: str
    after: str
    rule: str
    """The deciding one now, with its place."""
    why: str


@dataclass(frozen=True, slots=True)
class Replayed:
    looked_at: int
    passed_over: int
    """Records that cannot be decided anew: code, and tools that the policy does not know."""
    different: tuple[Otherwise, ...]


def replay(records: Iterable[Mapping[str, Any]], engine: PolicyEngine, role: str | None = None) -> Replayed:
    """
    Raises:
        InvalidConfig: no policy knows the role.
    """
    engine.terms(role=role)
    looked_at = passed_over = 0
    different = []
    for record in records:
        command, before = record.get("command"), record.get("verdict")
        if record.get("event_type") != _EXECUTION or not isinstance(command, str) or not isinstance(before, str):
            passed_over += 1
            continue
        cwd = record.get("cwd")
        try:
            request = Request(command=command, cwd=Path(cwd) if isinstance(cwd, str) else None)
            decision = engine.decide(request, str(record.get("tool") or "shell_exec"), role)
        except InvalidConfig:
            passed_over += 1
            continue
        looked_at += 1
        deciding = decision.deciding
        after = deciding.verdict.name.lower()
        if after != before:
            told = (str(record.get("run", "")), str(record.get("timestamp", "")), command, before, after)
            different.append(Otherwise(*told, deciding.place, deciding.why))
    return Replayed(looked_at, passed_over, tuple(different))
