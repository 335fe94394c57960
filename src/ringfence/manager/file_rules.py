"""What the rules say about one path of a box that is about to be read or changed: the policy (its lists of paths, and
sensitive files), the blacklist, what is protected. The wall stands behind all of them.

A path is judged as it was spelled, before anything is asked of the box, and again where it really leads, which the box
says before anything is given out or changed. Paths that only the box has (its own /tmp, home and /etc) need no grant.
"""

from __future__ import annotations

import os
from enum import Enum, auto
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass
from ringfence.errors import PathAccessDenied
from ringfence.manager.configuring import home_directory
from ringfence.policy.decide import on_file
from ringfence.policy.globs import compiled
from ringfence.values.paths import is_below
from ringfence.values.verdict import Reason, Verdict
from ringfence.workspace.protected import compiled as compiled_names

if TYPE_CHECKING:
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant


class Use(Enum):
    """What is done with a path."""

    READ = auto()
    MAKE = auto()
    """A directory is made there: one that is there stays as it is."""
    CHANGE = auto()
    """Written, removed, moved or moved over: whatever lies below it goes with it."""


_ALIAS = "/workspace"


def on_host(path: str, grant: Grant) -> str:
    """A path below `/workspace`, the workspace's second name in every box, by its first; any other as it is."""
    if path != _ALIAS and not path.startswith(f"{_ALIAS}/"):
        return path
    if any(is_below(os.fspath(shown), _ALIAS) for shown in (*grant.writable_roots, *grant.readable)):
        return path  # something else lies there
    return os.fspath(grant.workspace) + path[len(_ALIAS) :]


@dataclass(frozen=True, slots=True)
class FileRules:
    grant: Grant
    terms: Terms | None = None

    def check(self, path: str, use: Use) -> None:
        """
        Raises:
            PathAccessDenied: a rule objects; says which.
        """
        reason = self.objection(path, use)
        if reason is not None:
            why = reason.why.removeprefix(f"{path} ")
            raise PathAccessDenied(path, why, rule=reason.place or reason.rule, hint=reason.allow_by)

    def objection(self, path: str, use: Use) -> Reason | None:
        """Why not, if a rule objects. The path is absolute."""
        text = os.path.normpath(on_host(path, self.grant))
        return self._by_policy(text, use) or self._by_blacklist(text) or self._by_protection(text, use)

    def _by_policy(self, path: str, use: Use) -> Reason | None:
        if self.terms is None:
            return None
        home = home_directory(os.environ)
        votes = on_file(path, self.terms, self.grant, home, write=use is not Use.READ)
        return next((vote for vote in votes if vote.verdict is not Verdict.ALLOW), None)

    def _by_blacklist(self, path: str) -> Reason | None:
        """A rule on a directory is one on all that is below it."""
        rules = compiled(self.grant.denied)
        above = path
        while above != "/":
            row = rules.matches(above)
            if row is not None:
                return Reason(Verdict.DENY, f"filesystem.blacklist {row}", f"{path} is blacklisted")
            above = os.path.dirname(above)
        return None

    def _by_protection(self, path: str, use: Use) -> Reason | None:
        roots = () if use is Use.READ else self.grant.writable_roots
        for root in roots:
            if path == os.fspath(root) or not is_below(path, os.fspath(root)):
                continue
            names = compiled_names(self.grant.protected_in(root))
            relative = os.path.relpath(path, root)
            row = names.covering(relative)
            if row is not None:
                return Reason(Verdict.DENY, f"protected {row}", f"{path} is protected: it may be read, not changed")
            row = names.led_elsewhere_by(relative) if use is Use.CHANGE else None
            if row is not None:
                return Reason(Verdict.DENY, f"protected {row}", f"{path} holds something protected")
        return None
