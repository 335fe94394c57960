"""What a sandbox hides: the rows of the configuration, the policy and the caller, as paths and globs of the host."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.dataclass import dataclass
from ringfence.manager.placing import find_places
from ringfence.policy.expanding import expand
from ringfence.policy.globs import compiled, escape
from ringfence.values.grant import Grant
from ringfence.values.paths import INSIDE, is_below

if TYPE_CHECKING:
    from ringfence.policy.config import SandboxConfig
    from ringfence.policy.terms import Terms


@dataclass(frozen=True, slots=True)
class Caller:
    """Where the caller stands: its environment, home and state."""

    environ: Mapping[str, str]
    home: str
    state: Path


def blacklist_of(config: SandboxConfig, caller: Caller, terms: Terms | None, workspace: str) -> Grant:
    """A grant that holds no more than what is hidden in a workspace, which need not be there: for judging only."""
    hidden = hidden_rows(terms, workspace) if terms else ()
    return Grant(
        workspace=Path(workspace),
        denied=denied_rows(config.blacklist, hidden, caller),
        places=find_places(config, terms, as_granted(config.blacklist, caller), hidden_places(terms, Path(workspace))),
    )


def denied_rows(rows: Iterable[str], ready: Iterable[str], caller: Caller) -> tuple[str, ...]:
    """The blacklist, expanded, and rows that are so already; a row that names a link also hides its target.

    Our own state is always in it, and the key that signs it.
    """
    expanded = [expand(row, caller.environ, caller.home, glob=True) for row in rows]
    expanded += ready
    expanded.append(escape(os.path.realpath(caller.state)))
    key = caller.environ.get("RINGFENCE_AUDIT_KEY", "").strip()
    if key:
        expanded.append(escape(os.path.realpath(key)))
    literals = compiled(tuple(expanded)).literals
    real = (escape(real) for path in literals if (real := os.path.realpath(path)) != path)
    return tuple(dict.fromkeys((*expanded, *real)))


def as_granted(rows: Iterable[str], caller: Caller) -> dict[str, str]:
    """Rows of a blacklist by what they become in a grant."""
    return {expand(row, caller.environ, caller.home, glob=True): row for row in rows}


def hidden_places(terms: Terms | None, workspace: Path) -> dict[str, str]:
    if terms is None:
        return {}
    rows = hidden_rows(terms, os.fspath(workspace))
    return {row: str(rule.mark) for row, rule in zip(rows, terms.hidden, strict=True)}


def hidden_rows(terms: Terms, workspace: str) -> tuple[str, ...]:
    """What the policy hides, as paths of the host; `/workspace` in it stands for the workspace."""
    rows = (rule.row for rule in terms.hidden)
    return tuple(escape(workspace) + row[len(INSIDE) :] if is_below(row, INSIDE) else row for row in rows)
