"""Says where a rule that the wall holds was written: the file and line, so that somebody can look it up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ringfence.policy.decide import BUILT_IN_PLACE
from ringfence.values.limits import Limit

if TYPE_CHECKING:
    from ringfence.policy.config import SandboxConfig
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
    from ringfence.values.violation import Violation

BUILT_IN: Final = BUILT_IN_PLACE
_CONFIG_LIMITS: Final = {Limit.OPEN_FILES: "openFiles", Limit.FILE_SIZE: "fileSize"}
"""Limits that the configuration spells in another way."""


def find_places(
    config: SandboxConfig, terms: Terms | None, configured: Mapping[str, str], hidden: Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Where each rule of a grant was written.

    Args:
        configured: rows of the configuration's blacklist, by what they became in the grant.
        hidden: the policy's rows likewise, with their places.
    """
    return tuple(_places(config, terms, configured, hidden))


def _places(
    config: SandboxConfig, terms: Terms | None, configured: Mapping[str, str], hidden: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    written = dict(config.places)
    for row, as_written in configured.items():
        yield f"filesystem.blacklist {row}", written.get(as_written, BUILT_IN)
    for row, place in hidden.items():
        yield f"filesystem.blacklist {row}", place
    said = _said(terms, "filesystem.write", "filesystem_access")
    yield "filesystem.whitelist", said or written.get("filesystem.whitelist", BUILT_IN)
    yield "network.allowNetwork", _said(terms, "network_access", "network.default") or BUILT_IN
    yield "protected", BUILT_IN
    for limit in Limit:
        key = f"limits.{limit.replace(' ', '_')}"
        usual = written.get(f"limits.{_CONFIG_LIMITS.get(limit, limit)}", BUILT_IN)
        yield f"limits.{limit}", _said(terms, key) or usual


def _said(terms: Terms | None, *names: str) -> str:
    """Where the first of these settings was made that there is."""
    found = (terms.get(name) for name in names) if terms is not None else ()
    return next((str(setting.mark) for setting in found if setting is not None), "")


def place_of(violation: Violation, grant: Grant) -> str:
    """Where the rule of a violation was written; empty if nobody knows."""
    places = dict(grant.places)
    return places.get(violation.rule) or places.get(violation.rule.partition(" ")[0], "")
