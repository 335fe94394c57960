"""docs/policy.md and docs/policy.schema.json say what the code does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from ringfence.policy.editors import key_table, schema_text
from ringfence.policy.load import load_policy
from ringfence.policy.presets import PRESETS
from ringfence.policy.schema import HANDLING, SETTINGS, STRUCTURE, TOOLS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")


def test_every_setting_is_documented() -> None:
    missing = [row for row in key_table().splitlines() if row not in PAGE]

    assert missing == [], "write what `key_table()` gives into docs/policy.md"
    assert all(key.doc and key.why and key.example for key in SETTINGS)


def test_every_part_of_the_structure_mode_tool_and_risk_is_documented() -> None:
    words = (*STRUCTURE, *PRESETS, *TOOLS, *HANDLING)

    assert [word for word in words if f"`{word}`" not in PAGE] == []
    assert [meaning for meaning in HANDLING.values() if meaning not in PAGE] == []


def test_the_schema_for_editors_is_up_to_date() -> None:
    assert (ROOT / "docs" / "policy.schema.json").read_text(encoding="utf-8") == schema_text(), (
        "write what `schema_text()` gives into docs/policy.schema.json"
    )


def test_the_examples_on_the_page_are_valid() -> None:
    blocks = re.findall(r"```yaml\n(policies:.*?)```", PAGE, re.DOTALL)

    assert len(blocks) == 3
    for block in blocks:
        load_policy(block, "docs/policy.md")


FILES = sorted((*(ROOT / "examples" / "policies").glob("*.yaml"), *(ROOT / "tests" / "corpus").glob("*_policy.yaml")))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_schema_knows_every_key_of_the_worked_policies(path: Path) -> None:
    """A small reading of the schema: keys, and nothing else; a full validator is not among our dependencies."""

    def check(value: object, schema: dict[str, object], where: str) -> None:
        if not isinstance(value, dict) or schema.get("type") != "object":
            return
        properties: dict[str, dict[str, object]] = schema.get("properties", {})  # type: ignore[assignment]
        others = schema.get("additionalProperties", True)
        for key, inner in value.items():
            assert key in properties or isinstance(others, dict), f"{where}.{key}"
            check(inner, properties.get(key) or others, f"{where}.{key}")  # type: ignore[arg-type]

    check(yaml.safe_load(path.read_text(encoding="utf-8")), json.loads(schema_text()), path.name)
