"""Collects findings, keeps the worst risk, and stays small however long the code is."""

from ringfence.policy.risk.patterns.base import RiskRow
from ringfence.values.risk import Assessment, Risk, RiskFinding

MAX_CODE = 100_000
"""Characters that are looked at: several times the longest script that a person would review."""
MAX_DEPTH = 200
"""Nesting that is followed; people stay below 30. Bounds our own recursion too."""
MAX_FINDINGS = 500
"""Kept for people; the risk counts all of them."""

FAULT = RiskRow(Risk.CRITICAL, "the analysis itself failed, so nothing is known about this code")
TOO_LONG = RiskRow(Risk.CRITICAL, f"longer than {MAX_CODE} characters, so it was not read")
TOO_DEEP = RiskRow(Risk.CRITICAL, f"nested deeper than {MAX_DEPTH} levels, so it was not read")
NO_SYNTAX = RiskRow(Risk.HIGH, "does not parse, so that what it does is not known")
NO_TEXT = RiskRow(Risk.HIGH, "holds characters that no file can, so that what would run is not known")
UNKNOWN_LANGUAGE = RiskRow(Risk.HIGH, "a language that this analysis does not read")


class Findings:
    """What was found so far. Only ever rises."""

    def __init__(self) -> None:
        self.risk = Risk.SAFE
        self._found: dict[RiskFinding, None] = {}

    def add(self, pattern: str, row: RiskRow, line: int, column: int) -> None:
        """A pattern with its row; a SAFE one is no finding."""
        if row.risk is Risk.SAFE:
            return
        if len(self._found) < MAX_FINDINGS or row.risk > self.risk:
            self._found[RiskFinding(row.risk, pattern, row.why, line, column)] = None
        self.risk = max(self.risk, row.risk)

    def assessment(self, language: str) -> Assessment:
        found = sorted(self._found, key=lambda finding: (finding.line, finding.column, -finding.risk))
        return Assessment(self.risk, tuple(found), language)
