"""Arguments of tools: what a model gave, against the schema."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from ringfence import InvalidArgument
from ringfence.tools.world.arguments import check_schema, wrong_with
from ringfence.tools.world.browser import BROWSER, BROWSER_TOOLS
from ringfence.tools.world.interface import EVERY

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
        "on": {"type": "boolean"},
        "form": {"type": "string", "enum": ["a", "b"]},
        "paths": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    },
    "required": ["text"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "text is missing"),
        ({"text": ""}, "text: at least 1 characters"),
        ({"text": 3}, "text: 3 is no string"),
        ({"text": "x", "count": True}, "count: True is no integer"),
        ({"text": "x", "count": 0}, "count: at least 1 and at most 9"),
        ({"text": "x", "seconds": 0}, "seconds: 0 is not greater than 0"),
        ({"text": "x", "seconds": float("nan")}, "seconds: nan is no number that can be used"),
        ({"text": "x", "on": 1}, "on: 1 is no boolean"),
        ({"text": "x", "form": "c"}, "form: 'c' is none of a, b"),
        ({"text": "x", "paths": ["a", 1]}, "paths[1]: 1 is no string"),
        ({"text": "x", "paths": ["a", "b", "c"]}, "paths: at most 2 items"),
        ({"text": "x", "other": 1}, "there is no 'other'; there are text, count"),
        ([], "[] is no object"),
    ],
)
def test_what_is_wrong_is_said(arguments: Any, said: str) -> None:
    assert said in wrong_with(arguments, SCHEMA)


def test_what_fits_passes() -> None:
    full = {"text": "x", "count": 9, "seconds": 0.5, "on": True, "form": "b", "paths": []}

    assert wrong_with(full, SCHEMA) == ""


_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 12),
    st.sampled_from(["", "a", "b", "xyz"]),
    st.lists(st.text(max_size=2), max_size=3),
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from([*SCHEMA["properties"], "other"]), _VALUES, max_size=4))
def test_it_agrees_with_a_full_validator(arguments: dict[str, Any]) -> None:
    assert (wrong_with(arguments, SCHEMA) == "") == Draft202012Validator(SCHEMA).is_valid(arguments)


def test_a_schema_that_would_not_be_checked_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="pattern"):
        check_schema({"type": "object", "properties": {"a": {"type": "string", "pattern": "x+"}}})
    with pytest.raises(InvalidArgument, match="type"):
        check_schema({"type": "object", "properties": {"a": {"type": ["string", "null"]}}})


@pytest.mark.parametrize("tool", (*EVERY, *BROWSER_TOOLS, BROWSER), ids=lambda tool: tool.name)
def test_schemas_of_the_tools_are_schemas_and_checked(tool: Any) -> None:
    Draft202012Validator.check_schema(tool.spec.input_schema)
    Draft202012Validator.check_schema(tool.spec.output_schema)
    check_schema(tool.spec.input_schema)
