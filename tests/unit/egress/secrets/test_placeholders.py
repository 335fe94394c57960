"""Placeholders keep the shape of a value and hold nothing of it."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.secrets.placeholders import (
    SHAPES,
    companion,
    make_placeholder,
    placeholders_of,
    shaped_like,
    signer_placeholder,
    variables_of,
)
from ringfence.values.network import SecretGrant, SecretStyle


def shared(one: str, other: str) -> set[str]:
    return {one[at : at + 4] for at in range(len(one) - 3)} & {other[at : at + 4] for at in range(len(other) - 3)}


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.prefix)
def test_a_placeholder_has_the_prefix_the_letters_and_the_length_of_its_value(shape) -> None:
    rest = (shape.alphabet * 5)[3 : 3 + shape.length - len(shape.prefix)]

    made = shaped_like((shape.prefix + rest).encode())

    assert made.startswith(shape.prefix)
    assert len(made) == shape.length
    assert set(made.removeprefix(shape.prefix)) <= set(shape.alphabet)
    assert not shared(made.removeprefix(shape.prefix), rest)


def test_two_placeholders_of_one_value_differ() -> None:
    assert shaped_like(b"ghp_" + b"a" * 36) != shaped_like(b"ghp_" + b"a" * 36)


@given(st.binary(min_size=8, max_size=300))
def test_any_value_gets_a_placeholder_of_its_length_that_holds_nothing_of_it(value: bytes) -> None:
    made = shaped_like(value)

    assert len(made.encode("ascii")) == len(value)
    assert made.isprintable()
    assert not shared(made, value.decode("latin-1"))


@given(st.text("0123456789abcdef", min_size=8, max_size=4000))
def test_a_value_in_hex_stays_in_hex(value: str) -> None:
    made = shaped_like(value.encode())

    assert set(made) <= set("0123456789abcdef")
    assert len(made) == len(value)
    assert not shared(made, value)


def test_a_uuid_stays_one() -> None:
    made = shaped_like(b"0d2c1a9e-1111-4222-8333-0123456789ab")

    assert [len(part) for part in made.split("-")] == [8, 4, 4, 4, 12]


@pytest.mark.parametrize("claims", [{"sub": "somebody", "exp": 1790000000}, {"a": 1}, {"x": "y" * 900}])
def test_a_jwt_can_still_be_parsed_and_does_not_end(claims: dict[str, object]) -> None:
    def segment(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    value = f"{segment({'alg': 'RS256', 'typ': 'JWT', 'kid': 'k1'})}.{segment(claims)}.{'Abc_-' * 68}"

    made = shaped_like(value.encode())

    assert [len(part) for part in made.split(".")] == [len(part) for part in value.split(".")]
    for part in made.split(".")[:2]:
        if len(part) > 30:
            json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    assert not shared(made.split(".")[2], value.split(".")[2])


def test_a_signer_has_a_placeholder_without_a_value() -> None:
    assert signer_placeholder("github-app").startswith("ghs_")
    assert len(signer_placeholder("aws-sigv4")) == 20
    assert len(signer_placeholder("oauth-refresh")) == 64


def test_variables_hold_placeholders_and_a_pair_for_aws() -> None:
    plain = SecretGrant(name="gh", hosts=("github.com",), variable="GH_TOKEN", placeholder="ghp_x")
    aws = SecretGrant(name="aws", hosts=("*.amazonaws.com",), signer="aws-sigv4", placeholder="AKIAX")

    assert variables_of(plain) == (("GH_TOKEN", "ghp_x"),)
    assert variables_of(aws) == (("AWS_ACCESS_KEY_ID", "AKIAX"), ("AWS_SECRET_ACCESS_KEY", companion("AKIAX")))
    assert len(companion("AKIAX")) == 40
    assert placeholders_of(aws) == ("AKIAX", companion("AKIAX"))
    assert variables_of(SecretGrant(name="nothing", hosts=("a.example",), variable="X")) == ()


def test_a_secret_that_is_injected_has_a_placeholder_only_for_a_variable() -> None:
    injected = SecretGrant(name="x", hosts=("a.example",), style=SecretStyle.INJECT)
    insisted = SecretGrant(name="x", hosts=("a.example",), style=SecretStyle.INJECT, variable="X")
    minted = SecretGrant(name="x", hosts=("a.example",), signer="github-app")

    assert make_placeholder(injected, b"0123456789") == ""
    assert len(make_placeholder(insisted, b"0123456789")) == 10
    assert make_placeholder(minted, b"{}").startswith("ghs_")
