"""docs/egress.md says what the code does: every preset, every key of a rule, every place of a secret."""

from __future__ import annotations

import re
from pathlib import Path

from ringfence.policy.load import load_policy
from ringfence.policy.network_presets import PRESETS
from ringfence.policy.network_reading import BUDGET_KEYS, RULE_KEYS
from ringfence.policy.secret_reading import SIGNERS
from ringfence.values.network import SecretPlace, SecretStyle

PAGE = (Path(__file__).parents[2] / "docs" / "egress.md").read_text(encoding="utf-8")


def test_every_preset_is_in_the_table_with_its_hosts_reason_and_risk() -> None:
    rows = {line.split("|")[1].strip(" `").split()[0]: line for line in PAGE.splitlines() if line.startswith("| `")}

    for preset in PRESETS:
        row = rows[preset.name]
        assert preset.reason in row and preset.risk in row, preset.name
        assert all(f"`{rule.host}`" in row for rule in preset.rules), preset.name
        assert all(f"`{alias}`" in row for alias in preset.aliases), preset.name


def test_every_key_of_a_rule_and_every_word_about_secrets_is_documented() -> None:
    words = (*RULE_KEYS, *BUDGET_KEYS, *SecretPlace, *SecretStyle, *SIGNERS)

    assert [word for word in words if f"`{word}`" not in PAGE] == []


def test_the_policy_on_the_page_is_valid() -> None:
    (text,) = re.findall(r"```yaml\n(network:.*?)```", PAGE, re.DOTALL)

    policy = load_policy(text, "docs/egress.md")
    assert len(policy.default) > 8
