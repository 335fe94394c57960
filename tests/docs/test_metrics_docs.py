"""docs/metrics.md and docs/cli.md name every metric, event, type and command that there is."""

from __future__ import annotations

import re
from pathlib import Path

from ringfence.audit.events import Event, Outcome, Status
from ringfence.audit.metrics import MOST_LANGUAGES, MOST_SANDBOXES, MOST_TOOLS, NAMES
from ringfence.audit.violations import MOST_KEPT
from ringfence.cli.lazy import COMMANDS
from ringfence.values.annotate import MOST_LINES
from ringfence.values.violation import USUAL_SEVERITY

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_every_metric_is_documented_with_its_labels() -> None:
    rows = dict(re.findall(r"^\| `(sandbox_\w+)` \| ([^|]*)\|", PAGE, re.MULTILINE))

    assert {name: tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows.items()} == NAMES


def test_every_type_is_documented_with_its_severity() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \| (low|medium|high|critical) \|", PAGE, re.MULTILINE))

    assert rows == {str(kind): str(severity) for kind, severity in USUAL_SEVERITY.items()}


def test_every_event_status_outcome_and_bound_is_documented() -> None:
    events = [kind.__name__ for kind in Event.__args__]

    assert [word for word in (*events, *Status, *Outcome) if f"`{word}`" not in PAGE] == []
    assert f"{MOST_KEPT:,}" in PAGE and MOST_LINES == 10
    assert f"first {MOST_TOOLS}\ntools and {MOST_LANGUAGES} languages" in PAGE and f"at most {MOST_SANDBOXES}" in PAGE


def test_violations_and_the_checklists_are_among_the_commands() -> None:
    page = (DOCS / "cli.md").read_text(encoding="utf-8")

    assert "violations" in COMMANDS
    assert "## `ringfence violations" in page and "--checklist" in page
