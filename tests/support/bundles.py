"""Bundles for tests: small modules from text, keys, and archives that are not what they should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.audit.signing import raw_public
from ringfence.bundles.archive import unpack
from ringfence.bundles.building import build_files, signed
from ringfence.bundles.store import BundleStore

if TYPE_CHECKING:
    from collections.abc import Mapping

HELLO = """
(module
  (import "wasi_snapshot_preview1" "fd_write" (func $write (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") 1)
  (data (i32.const 8) "hello\\n")
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 8))
    (i32.store (i32.const 4) (i32.const 6))
    (drop (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 20)))))
"""


def module(text: str = HELLO) -> bytes:
    """The module that a text says."""
    import wasmtime

    return bytes(wasmtime.wat2wasm(text))


def a_bundle(code: bytes | None = None, files: Mapping[str, bytes] | None = None, **changes: Any) -> dict[str, bytes]:
    """An unsigned bundle; whatever is given replaces its part."""
    manifest: dict[str, Any] = {"name": "acme/hello", "version": "1.0.0", "runtime": "wasm", "entry": "hello.wasm"}
    content = {"hello.wasm": module() if code is None else code} if files is None else dict(files)
    made = build_files({**content, "tool.json": json.dumps(manifest | changes).encode()})
    return unpack(made)


def a_signed(key: Ed25519PrivateKey, bundle: dict[str, bytes] | None = None) -> dict[str, bytes]:
    return unpack(signed(a_bundle() if bundle is None else bundle, key))


def a_store(directory: Path, key: Ed25519PrivateKey, *may_sign: str) -> BundleStore:
    """A store that trusts a key, called alice."""
    store = BundleStore(directory)
    store.trust.add("alice", raw_public(key.public_key()), may_sign or ("acme/*",))
    return store
