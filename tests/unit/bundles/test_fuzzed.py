"""Whatever bytes come as a manifest, a signature, an archive or a module: a refusal with a code, or the same bundle."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.bundles.archive import pack, unpack
from ringfence.bundles.canonical import NotCanonical, canonical, parse
from ringfence.bundles.manifest import read_manifest
from ringfence.bundles.modules import look_into
from ringfence.bundles.reasons import Reason
from ringfence.bundles.verifying import verify
from ringfence.errors import BundleRefused
from tests.support.bundles import a_signed, a_store, module

pytestmark = pytest.mark.req("D2")
KEY = Ed25519PrivateKey.generate()
GOOD = a_signed(KEY)
MODULE = module()
REASONS = frozenset(map(str, Reason))

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def refused(work: Any, *arguments: Any) -> bool:
    try:
        work(*arguments)
    except BundleRefused as fault:
        assert fault.reason in REASONS
        return True
    return False


@settings(max_examples=150)
@given(st.sampled_from(sorted(json.loads(GOOD["tool.json"]))), plain)
def test_a_manifest_with_any_value_is_read_or_refused(key: str, value: Any) -> None:
    data = canonical(json.loads(GOOD["tool.json"]) | {key: value})

    if not refused(read_manifest, data):
        assert canonical(parse(data)) == data


@settings(max_examples=150)
@given(st.sampled_from(["tool.json", "tool.sig", "hello.wasm"]), st.data())
def test_a_bundle_with_any_byte_changed_is_refused(name: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(GOOD[name]) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != GOOD[name][place]))
    bad = bytearray(GOOD[name])
    bad[place] = other
    with tempfile.TemporaryDirectory() as directory:
        store = a_store(Path(directory), KEY)

        assert not refused(verify, GOOD, store.trust)
        assert refused(verify, {**GOOD, name: bytes(bad)}, store.trust)


@settings(max_examples=150)
@given(st.data())
def test_an_archive_with_any_byte_changed_is_refused_or_the_content_differs(data: st.DataObject) -> None:
    good = pack(GOOD)
    place = data.draw(st.integers(0, len(good) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != good[place]))
    bad = bytearray(good)
    bad[place] = other

    assert refused(unpack, bytes(bad)) or unpack(bytes(bad)) != GOOD


@settings(max_examples=150)
@given(st.binary(max_size=200) | st.binary(max_size=60).map(lambda tail: MODULE[:40] + tail))
def test_any_bytes_are_a_module_or_refused(data: bytes) -> None:
    refused(look_into, data)


@settings(max_examples=100)
@given(plain)
def test_the_one_form_is_read_back_as_it_was(value: Any) -> None:
    try:
        data = canonical(value)
    except NotCanonical:
        return
    assert parse(data) == value
