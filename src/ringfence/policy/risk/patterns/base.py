"""The row that every language's table is made of, and how a dotted name finds its row."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass

if TYPE_CHECKING:
    from ringfence.values.risk import Risk


@dataclass(frozen=True, slots=True)
class RiskRow:
    """One pattern: how risky it is, and the reason in words that a person can weigh."""

    risk: Risk
    why: str


ANY: Final = frozenset({"*"})
"""Every public name of a module: for modules that are written in C and hold nothing but functions of numbers."""

Table = Mapping[str, RiskRow]


def first_match(rows: Table, name: str) -> tuple[str, RiskRow] | None:
    """The row of exactly this name, else the first one whose glob fits."""
    if (exact := rows.get(name)) is not None:
        return name, exact
    for pattern, row in rows.items():
        if "*" in pattern and fnmatchcase(name, pattern):
            return pattern, row
    return None


def spread(risk: Risk, why: str, names: str) -> dict[str, RiskRow]:
    """One row for each of several names that share their reason."""
    return {name: RiskRow(risk, why) for name in names.split()}


def words(names: str) -> frozenset[str]:
    """The names in a text, for tables that a person can scan."""
    return frozenset(names.split())
