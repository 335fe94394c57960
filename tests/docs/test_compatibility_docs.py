"""docs/compatibility.md names everything that the modules of `ringfence.compat` export, and maps it to what exists."""

from __future__ import annotations

import importlib
import re
from functools import reduce
from pathlib import Path

import pytest

from ringfence.policy.environment import ALIASES

PAGE = (Path(__file__).parents[2] / "docs" / "compatibility.md").read_text(encoding="utf-8")
WITHOUT = ("none", "not yet")
"""What stands where nothing of ours is named."""


def sections() -> dict[str, list[tuple[str, str, str]]]:
    """By module: what the document has, what we have, and why it differs."""
    found: dict[str, list[tuple[str, str, str]]] = {}
    for part in PAGE.split("\n## ")[1:]:
        module = re.search(r"Module: `([\w.]+)`", part)
        assert module is not None, part.splitlines()[0]
        rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("| ")]
        found[module[1]] = [(theirs.strip(), ours.strip(), why.strip()) for theirs, ours, why in rows[1:]]
    return found


SECTIONS = sections()
ROWS = [(module, *row) for module, rows in SECTIONS.items() for row in rows]


def is_there(module: str, name: str) -> bool:
    """Whether a dotted name leads to something: below the module, or in full."""
    parts = (name if name.startswith("ringfence.") else f"{module}.{name}").split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        try:
            reduce(getattr, parts[length:], found)
        except AttributeError:
            return False
        return True
    return False


def test_every_document_has_its_section() -> None:
    assert len(SECTIONS) == 5


@pytest.mark.parametrize(("module", "theirs", "ours", "why"), ROWS, ids=[f"{row[0]}-{row[1]}" for row in ROWS])
def test_what_a_name_is_mapped_to_exists(module: str, theirs: str, ours: str, why: str) -> None:
    assert theirs
    if ours in WITHOUT:
        assert why, "nothing of ours, and no reason"
        return
    (name,) = re.findall(r"^`([^`]+)`$", ours)
    assert name in ALIASES or is_there(module, name), name
    if name in ALIASES:
        assert ALIASES[name] in theirs


@pytest.mark.parametrize("module", SECTIONS)
def test_everything_that_a_module_exports_is_on_the_page(module: str) -> None:
    exported = importlib.import_module(module).__all__
    mapped = {ours.strip("`").split(".")[0] for _, ours, _ in SECTIONS[module]}

    assert [name for name in exported if name not in mapped] == []


@pytest.mark.parametrize("module", SECTIONS)
def test_every_public_method_and_field_of_a_class_of_the_module_is_on_the_page(module: str) -> None:
    named = {name for row in SECTIONS[module] for cell in row for name in re.findall(r"`([^`]+)`", cell)}
    missing = []
    for name in importlib.import_module(module).__all__:
        value = getattr(importlib.import_module(module), name)
        if not isinstance(value, type) or not value.__module__.startswith(module):
            continue  # what is only repeated there is documented where it is made
        members = [each for each in vars(value) if not each.startswith("_") and each not in ("of", "full", "source")]
        if hasattr(value, "__members__"):
            members = []  # the words of an enum are in the row of its class
        # A class that is one of the module's protocols has its methods in the rows of that.
        above = [other for other in ("Sandbox",) if name == "DefaultSandbox"]
        missing += [
            f"{name}.{each}" for each in members if not any(f"{known}.{each}" in named for known in (name, *above))
        ]

    assert missing == []
    assert [variable for variable in ALIASES.values() if f"`{variable}`" not in PAGE] == []


def test_a_name_that_is_not_there_is_noticed() -> None:
    assert not is_there("ringfence.compat.layered", "SandboxConfig.no_such_field")
    assert not is_there("ringfence.compat.layered", "NoSuchClass")
    assert is_there("ringfence.compat.layered", "SandboxConfig.timeout")
