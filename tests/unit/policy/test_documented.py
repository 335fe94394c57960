"""docs/configuration.md names every key, variable and default that there is."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from ringfence.policy.config import KEYS, parse_config
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.environment import ALIASES
from ringfence.policy.settings import ADAPTERS, ENGINES
from ringfence.values.limits import Limits

PAGE = (Path(__file__).parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("section", KEYS)
def test_every_key_is_documented(section: str) -> None:
    leaves = [f"{section}.{key}".lstrip(".") for key in KEYS[section] if key not in KEYS]

    assert [key for key in leaves if f"| `{key}` |" not in PAGE] == []


def test_the_defaults_of_the_limits_are_the_documented_ones() -> None:
    rows = re.findall(r"^\| `limits\.(\w+)` \| `(\w+)` \|", PAGE, re.MULTILINE)
    values = ", ".join(f'"{key}": {value if value.isdigit() else f"{chr(34)}{value}{chr(34)}"}' for key, value in rows)

    assert len(rows) == len(fields(Limits))
    assert parse_config(f'{{"limits": {{{values}}}}}', "page").limits == Limits()


@pytest.mark.parametrize(("name", "alias"), ALIASES.items())
def test_every_variable_is_documented_with_its_alias(name: str, alias: str) -> None:
    assert f"| `{name}` | `{alias}` |" in PAGE


def test_every_built_in_row_and_every_valid_word_is_documented() -> None:
    assert [word for word in (*BLACKLIST, *ADAPTERS, *ENGINES) if f"`{word}`" not in PAGE] == []


def test_the_example_is_a_valid_file() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)

    assert parse_config(example, "page").warnings == ()
