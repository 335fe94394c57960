"""`SandboxOptions`: one value for everybody who makes sandboxes, converted and checked where it is made."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ringfence import Docker, Limits, NetworkMode, SandboxOptions, SecurityMode, Trace
from ringfence.errors import RingfenceError
from ringfence.manager.options import OptionFields, OptionFieldsButMode, make_options


@pytest.mark.req("B1")
def test_the_keywords_are_exactly_the_fields() -> None:
    names = {field.name for field in dataclasses.fields(SandboxOptions)}

    assert OptionFields.__annotations__.keys() | OptionFieldsButMode.__annotations__.keys() == names
    assert names - OptionFieldsButMode.__annotations__.keys() == {"security_mode"}


def test_sequences_and_mappings_are_kept_as_tuples_and_words_as_what_they_name() -> None:
    made = SandboxOptions(
        read=["a", Path("b")], deny=["*.pem"], env={"A": "1"}, trace="full", security_mode="strict", network="off"
    )

    assert (made.read, made.deny, made.variables) == (("a", Path("b")), ("*.pem",), (("A", "1"),))
    assert (made.trace, made.security_mode, made.network) == (Trace.FULL, SecurityMode.STRICT, NetworkMode.OFF)
    assert hash(made) == hash(dataclasses.replace(made))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"read": "one"}, "list"),
        ({"deny": Path("x")}, "list"),
        ({"preload": 3}, "list"),
        ({"env": {"A=B": "1"}}, "A=B"),
        ({"trace": "loud"}, "changes"),
        ({"security_mode": "soft"}, "permissive"),
        ({"network": "on"}, "off"),
        ({"engine": "wasm"}, "native"),
        ({"limits": 3}, "Limits"),
        ({"shadow_bytes": 7}, "shadow"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_said(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(RingfenceError) as caught:
        SandboxOptions(**wrong)
    assert said in f"{caught.value.message} {caught.value.hint}"


def test_keywords_change_single_fields_and_an_unknown_one_names_the_nearest() -> None:
    options = SandboxOptions(workspace="w", limits=Limits(processes=7))

    assert make_options(options, {"role": "r"}) == dataclasses.replace(options, role="r")
    assert make_options("w", {"engine": Docker()}).workspace == "w"
    with pytest.raises(TypeError, match="did you mean 'trace'"):
        make_options(None, {"trce": "off"})  # type: ignore[typeddict-unknown-key]
    with pytest.raises(TypeError, match="twice"):
        make_options("w", {"workspace": "v"})
