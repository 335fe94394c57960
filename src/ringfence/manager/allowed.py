"""Decisions that need not be taken again: an agent runs the same short lines again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.policy.decide import Place
    from ringfence.policy.given import Given
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
    from ringfence.values.verdict import Decision

    Judged = tuple[str, Place, str | None, Given]

_MOST = 256


class Allowed:
    """Decisions to allow, by text, place, language, and what it is given; the oldest first. What else they follow from
    is the same for all of them: whoever has another grant, other terms, or somebody to ask keeps others."""

    __slots__ = ("_asks", "_grant", "_kept", "_terms")

    def __init__(self, grant: Grant, terms: Terms | None, *, asks: bool = False) -> None:
        self._grant = grant
        self._terms = terms
        self._asks = asks
        self._kept: dict[Judged, Decision] = {}

    def holds_for(self, grant: Grant, terms: Terms | None, *, asks: bool) -> bool:
        return self._grant is grant and self._terms is terms and self._asks is asks

    def get(self, judged: Judged) -> Decision | None:
        return self._kept.get(judged)

    def keep(self, judged: Judged, decision: Decision) -> None:
        if len(self._kept) >= _MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[judged] = decision
