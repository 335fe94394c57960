"""The tools as models see them."""

import itertools

import pytest
from jsonschema import Draft202012Validator

from ringfence.mcp.catalog import EVERY, hints_of, tools_for
from ringfence.mcp.hints import Powers
from ringfence.mcp.tools import TOOLS


def test_there_are_eight_at_most_and_each_does_something() -> None:
    assert {tool.name for tool in EVERY} == set(TOOLS)
    for shadow, browser in itertools.product((False, True), repeat=2):
        names = [tool.name for tool in tools_for(with_shadow=shadow, with_browser=browser)]
        assert len(names) <= 8
        assert ("review" in names, "browser" in names) == (shadow, browser)
        assert ("fetch" in names) is not (shadow and browser)


@pytest.mark.parametrize("tool", EVERY, ids=lambda tool: tool.name)
def test_schemas_are_schemas_of_plain_types(tool: object) -> None:
    for schema in (tool.input_schema, tool.output_schema):  # type: ignore[attr-defined]
        Draft202012Validator.check_schema(schema)
        assert all(isinstance(each["type"], str) for each in schema["properties"].values())


def test_only_what_can_change_and_reach_nothing_is_called_reading() -> None:
    def bash(powers: Powers) -> bool:
        return next(hints_of(tool, powers).read_only for tool in EVERY if tool.name == "bash")

    assert bash(Powers(changes_project=False, reaches_network=False))
    assert not bash(Powers(changes_project=False, reaches_network=True))
    assert not bash(Powers(changes_project=True, reaches_network=False))
