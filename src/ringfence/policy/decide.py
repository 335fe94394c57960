"""Decides: from a request, a grant and where it runs, to a decision. Pure: looks at values, never at the disk."""

import os
from dataclasses import dataclass
from pathlib import Path

from ringfence.policy.globs import compiled
from ringfence.values.grant import Grant
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Reason, Verdict

_ALLOWED = Reason(Verdict.ALLOW, "default", "nothing speaks against it")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request wants to run, with links resolved."""

    cwd: Path


def decide(request: Request, grant: Grant, place: Place) -> Decision:
    """All votes on a request; the strictest one counts."""
    reasons = [_ALLOWED]
    rules = compiled(grant.denied)
    cwd = os.fspath(place.cwd)
    if not any(_is_below(place.cwd, root) for root in (*grant.writable_roots, *grant.readable)):
        reasons.append(
            Reason(
                Verdict.DENY,
                "filesystem.whitelist",
                f"the working directory {cwd} is not in what is granted",
                f"add it to filesystem.whitelist, or run with --write {cwd}",
            )
        )
    row = rules.matches(cwd)
    if row is not None:
        reasons.append(
            Reason(
                Verdict.DENY,
                f"filesystem.blacklist {row}",
                f"the working directory {cwd} is blacklisted",
                "work in another directory; the blacklist cannot be widened",
            )
        )
    return Decision(tuple(reasons), grant)


def _is_below(path: Path, directory: Path) -> bool:
    return path == directory or directory in path.parents
