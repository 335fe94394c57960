"""A bundle runs only if it is whole, canonical, and signed by a key that may sign it: each refusal, with its twin."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.audit.signing import raw_public
from ringfence.bundles.archive import pack, read_bundle, unpack
from ringfence.bundles.building import build, build_files
from ringfence.bundles.canonical import NotCanonical, canonical, parse
from ringfence.bundles.manifest import BYTES_MAX
from ringfence.bundles.modules import check_module, declared_imports, look_into
from ringfence.bundles.reasons import Reason
from ringfence.bundles.signing import PREFIX, sign
from ringfence.bundles.store import BundleStore
from ringfence.bundles.verifying import verify
from ringfence.errors import AlreadyExists, BundleRefused, Damaged, InvalidArgument
from tests.support.bundles import HELLO, a_bundle, a_signed, a_store, module

pytestmark = pytest.mark.req("D2")
KEY, OTHER = Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()


def refusal(work: Any, *arguments: Any, **options: Any) -> str:
    with pytest.raises(BundleRefused) as caught:
        work(*arguments, **options)
    assert f"[{caught.value.reason}]" in caught.value.message
    return caught.value.reason


def changed(bundle: dict[str, bytes], **values: Any) -> dict[str, bytes]:
    """The same bundle with another manifest, whose signature stays what it was."""
    return {**bundle, "tool.json": canonical(json.loads(bundle["tool.json"]) | values)}


# --- whole and signed -------------------------------------------------------------------------------------------------


def test_a_signed_bundle_of_a_trusted_key_is_taken(tmp_path: Path) -> None:
    done = a_store(tmp_path, KEY).install(a_signed(KEY))

    assert (done.manifest.name, done.key.name) == ("acme/hello", "alice")
    assert a_store(tmp_path, KEY).load("acme/hello").digest == done.digest


def test_what_is_signed_is_a_prefix_and_the_bytes_of_the_manifest(tmp_path: Path) -> None:
    files = a_signed(KEY)
    import base64

    KEY.public_key().verify(
        base64.b64decode(json.loads(files["tool.sig"])["signature"]), b"ringfence tool bundle 1\n" + files["tool.json"]
    )
    assert PREFIX == b"ringfence tool bundle 1\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda files: {name: data for name, data in files.items() if name != "tool.sig"}, Reason.UNSIGNED),
        (lambda files: {**files, "tool.sig": b"{}"}, Reason.BAD_SIGNATURE),
        (lambda files: {**files, "tool.sig": files["tool.sig"] + b" "}, Reason.BAD_SIGNATURE),
        (lambda files: {**files, "tool.sig": b"x" * 5000}, Reason.BAD_SIGNATURE),
        (lambda files: changed(files, version="2.0.0"), Reason.BAD_SIGNATURE),
        (lambda files: changed(files, name="acme/other"), Reason.BAD_SIGNATURE),
        (lambda files: changed(files, name="evil/hello"), Reason.KEY_NOT_FOR_NAME),
        (lambda files: {**files, "tool.json": files["tool.json"] + b"\n"}, Reason.NOT_CANONICAL),
        (lambda files: {**files, "hello.wasm": files["hello.wasm"] + b"\0"}, Reason.TAMPERED),
        (lambda files: {**files, "more.txt": b"x"}, Reason.TAMPERED),
        (lambda files: {name: data for name, data in files.items() if name != "hello.wasm"}, Reason.TAMPERED),
        (lambda files: {name: data for name, data in files.items() if name != "tool.json"}, Reason.NOT_A_BUNDLE),
        (lambda files: {**files, "tool.sig": sign(files["tool.json"], OTHER)}, Reason.UNKNOWN_KEY),
    ],
)
def test_anything_changed_after_signing_is_refused(tmp_path: Path, change: Any, reason: Reason) -> None:
    store, files = a_store(tmp_path, KEY), a_signed(KEY)

    verify(files, store.trust)
    assert refusal(verify, change(files), store.trust) == reason


def test_a_signature_for_something_else_does_not_count(tmp_path: Path) -> None:
    store, files = a_store(tmp_path, KEY), a_signed(KEY)
    bare = json.loads(files["tool.sig"]) | {
        "signature": __import__("base64").b64encode(KEY.sign(files["tool.json"])).decode()
    }

    assert refusal(verify, {**files, "tool.sig": canonical(bare)}, store.trust) == Reason.BAD_SIGNATURE


# --- trust ------------------------------------------------------------------------------------------------------------


def test_a_revoked_key_counts_for_nothing_that_it_ever_signed(tmp_path: Path) -> None:
    store = a_store(tmp_path, KEY)
    store.install(a_signed(KEY))
    store.load("acme/hello")

    store.trust.revoke("alice", "stolen")

    assert refusal(store.load, "acme/hello") == Reason.REVOKED_KEY
    with pytest.raises(AlreadyExists, match="revoked"):
        store.trust.add("alice2", raw_public(KEY.public_key()), ("acme/*",))


def test_a_key_signs_what_it_may_and_nothing_else(tmp_path: Path) -> None:
    store = a_store(tmp_path, KEY, "acme/hel*")

    store.install(a_signed(KEY))
    other = a_signed(KEY, a_bundle(name="acme/other"))
    assert refusal(store.install, other) == Reason.KEY_NOT_FOR_NAME
    store.trust.add("alice", raw_public(KEY.public_key()), ("acme/other",))
    store.install(other)


@pytest.mark.parametrize("pattern", ["*", "acme", "a/b/c", "../x", "ACME/*", ""])
def test_a_pattern_that_is_none_is_refused(tmp_path: Path, pattern: str) -> None:
    with pytest.raises(InvalidArgument):
        a_store(tmp_path, KEY, pattern)


def test_a_star_does_not_reach_over_the_publisher(tmp_path: Path) -> None:
    key = a_store(tmp_path, KEY, "ac*/hello").trust.keys()[0]

    assert key.may("acme/hello")
    assert not key.may("acme/x/hello")


def test_a_trust_store_that_others_can_write_is_not_believed(tmp_path: Path) -> None:
    store = a_store(tmp_path, KEY)
    assert store.trust.keys()

    os.chmod(tmp_path / "trust.json", 0o666)

    with pytest.raises(Damaged, match="others"):
        store.trust.keys()


# --- versions ---------------------------------------------------------------------------------------------------------


def test_an_older_version_is_refused_also_after_the_newer_was_removed(tmp_path: Path) -> None:
    store = a_store(tmp_path, KEY)
    old, new = (a_signed(KEY, a_bundle(version=version)) for version in ("1.9.0", "1.10.0"))
    store.install(old)
    store.install(new)

    assert refusal(store.install, old) == Reason.DOWNGRADE
    store.remove("acme/hello")
    assert refusal(store.load, "acme/hello") == Reason.NOT_INSTALLED
    assert refusal(store.install, old) == Reason.DOWNGRADE
    assert store.install(old, allow_downgrade=True).manifest.version == "1.9.0"


def test_another_content_of_the_same_version_and_another_key_are_refused(tmp_path: Path) -> None:
    store = a_store(tmp_path, KEY)
    store.trust.add("bob", raw_public(OTHER.public_key()), ("acme/*",))
    store.install(a_signed(KEY))
    store.install(a_signed(KEY))  # the very same is no step

    assert refusal(store.install, a_signed(KEY, a_bundle(description="x"))) == Reason.SAME_VERSION
    assert refusal(store.install, a_signed(OTHER, a_bundle(version="2.0.0"))) == Reason.KEY_CHANGED
    assert store.install(a_signed(OTHER, a_bundle(version="2.0.0")), allow_key_change=True).key.name == "bob"


def test_an_installed_bundle_that_was_exchanged_or_renamed_does_not_load(tmp_path: Path) -> None:
    store = a_store(tmp_path, KEY)
    first = store.install(a_signed(KEY))
    second = store.install(a_signed(KEY, a_bundle(name="acme/other")))
    places = {done.digest: tmp_path / "bundles" / f"{done.digest}.rfb" for done in (first, second)}

    places[first.digest].write_bytes(places[second.digest].read_bytes())
    assert refusal(store.load, "acme/hello") == Reason.RENAMED
    places[first.digest].write_bytes(pack(a_signed(KEY, a_bundle(description="x"))))
    assert refusal(store.load, "acme/hello") == Reason.TAMPERED
    places[first.digest].write_bytes(b"PK")
    assert refusal(store.load, "acme/hello") == Reason.NOT_A_BUNDLE
    places[first.digest].unlink()
    assert refusal(store.load, "acme/hello") == Reason.TAMPERED
    assert store.load("acme/other").manifest.name == "acme/other"


# --- archives ---------------------------------------------------------------------------------------------------------


def test_a_build_is_the_same_bytes_whenever_and_in_whatever_order(tmp_path: Path) -> None:
    files = {"a.txt": b"1", "b/c.txt": b"2", "hello.wasm": module()}
    made = []
    for number, names in enumerate((sorted(files), sorted(files, reverse=True))):
        top = tmp_path / str(number)
        for name in names:
            (top / name).parent.mkdir(parents=True, exist_ok=True)
            (top / name).write_bytes(files[name])
            os.utime(top / name, (number * 1000, number * 1000))
        manifest = {"name": "acme/hello", "version": "1.0.0", "runtime": "wasm", "entry": "hello.wasm"}
        (top / "tool.json").write_text(json.dumps(dict(sorted(manifest.items(), reverse=bool(number))), indent=number))
        made.append(build(top))

    assert made[0] == made[1]
    assert sorted(unpack(made[0])) == ["a.txt", "b/c.txt", "hello.wasm", "tool.json"]


def _zip(*entries: tuple[str, bytes], compress: int = zipfile.ZIP_STORED, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compress) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.compress_type = compress
            info.external_attr = 0o100644 << 16
            archive.writestr(info, data)
        archive.comment = comment
    return buffer.getvalue()


def test_tricks_of_archives_are_refused() -> None:
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = _zip(("tool.json", b"{}"), ("tool.json", b"[]"))
    link = bytearray(pack({"a": b"/etc/passwd", "tool.json": b"{}"}))
    at = link.index(b"PK\x01\x02") + 38
    link[at : at + 4] = (0o120777 << 16).to_bytes(4, "little")
    good = pack({"a": b"1", "tool.json": b"{}"})
    central = bytearray(good)
    central[central.index(b"a", central.index(b"PK\x01\x02"))] = ord("b")

    assert unpack(good) == {"a": b"1", "tool.json": b"{}"}
    for data, reason in [
        (twice, Reason.NOT_CANONICAL),
        (_zip(("tool.json", b"{}"), compress=zipfile.ZIP_DEFLATED), Reason.NOT_CANONICAL),
        (_zip(("tool.json", b"{}"), comment=b"x"), Reason.NOT_CANONICAL),
        (_zip(("tool.json", b"{}"), ("a", b"1")), Reason.NOT_CANONICAL),  # not in order
        (b"#!/bin/sh\n" + good, Reason.NOT_CANONICAL),
        (bytes(link), Reason.NOT_CANONICAL),
        (_zip(("../x", b"")), Reason.BAD_NAME),
        (_zip(("/x", b"")), Reason.BAD_NAME),
        (_zip(("a\\b", b"")), Reason.BAD_NAME),
        (_zip(("con.txt", b"")), Reason.BAD_NAME),
        (_zip((".hidden", b"")), Reason.BAD_NAME),
        (good[:-10], Reason.NOT_A_BUNDLE),
        (good[: len(good) // 2], Reason.NOT_A_BUNDLE),
        (b"", Reason.NOT_A_BUNDLE),
        (bytes(central), Reason.NOT_A_BUNDLE),
        (_zip(*((f"f{number}", b"") for number in range(1100))), Reason.TOO_LARGE),
    ]:
        assert refusal(unpack, data) == reason, data[:40]


def test_a_huge_archive_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    huge = tmp_path / "huge.rfb"
    with huge.open("wb") as file:
        file.truncate(1 << 30)

    assert refusal(read_bundle, huge) == Reason.TOO_LARGE


def test_links_and_pipes_in_a_directory_are_refused(tmp_path: Path) -> None:
    (tmp_path / "tool.json").write_text("{}")
    assert read_bundle(tmp_path) == {"tool.json": b"{}"}

    (tmp_path / "link").symlink_to("/etc/passwd")
    assert refusal(read_bundle, tmp_path) == Reason.BAD_NAME
    (tmp_path / "link").unlink()
    os.mkfifo(tmp_path / "pipe")
    assert refusal(read_bundle, tmp_path) == Reason.BAD_NAME


# --- the manifest -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": 2}, "this version reads 1"),
        ({"name": "Acme/x"}, "name"),
        ({"name": "x"}, "publisher/tool"),
        ({"name": "../x"}, "name"),
        ({"version": "1.0"}, "three numbers"),
        ({"version": "01.0.0"}, "three numbers"),
        ({"runtime": "native"}, "use one of"),
        ({"entry": "nothing.wasm"}, "not one of the files"),
        ({"mounts": [{"guest": "/etc", "mode": "read-only"}]}, "nothing to see but /workspace"),
        ({"mounts": [{"guest": "/workspace", "mode": "rw"}]}, "mode"),
        ({"limits": {"memory": 1}}, "unknown key 'memory'"),
        ({"limits": {"memory_bytes": -1}}, "from 0"),
        ({"limits": {"memory_bytes": True}}, "whole number"),
        ({"environment": ["A=B"]}, "variable"),
        ({"imports": {"wasi_snapshot_preview1": ["fd_write", "fd_read"]}}, "in order"),
        ({"extra": 1}, "unknown key"),
        ({"input": "json"}, "arguments"),
        ({"arguments": {"properties": {}}}, "argv"),
        ({"runtime": "python", "imports": {"x": []}}, "has none"),
        ({"examples": [{"arguments": {}, "files": {"../x": ""}}]}, "files"),
    ],
)
def test_a_manifest_is_read_strictly(change: dict[str, Any], words: str) -> None:
    with pytest.raises(BundleRefused, match="bad_manifest") as caught:
        a_bundle(**change)
    assert words in str(caught.value)


def test_files_that_are_too_large_together_are_refused() -> None:
    entry = {"sha256": "0" * 64, "size": BYTES_MAX}
    files = changed(a_bundle(), files={"a": entry, "b": entry, "hello.wasm": entry})

    assert (
        refusal(verify, {**files, "tool.sig": sign(files["tool.json"], KEY)}, BundleStore(Path("/nowhere")).trust)
        == Reason.TOO_LARGE
    )


def test_names_that_are_one_on_some_systems_are_refused() -> None:
    assert refusal(a_bundle, files={"hello.wasm": module(), "A": b"", "a": b""}) == Reason.BAD_NAME


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}\n',
        b'{"b":1,"a":2}\n',
        b'{"a": 1}\n',
        b'{"a":1}',
        b'{"a":1.0}\n',
        b"\xff\n",
        b'{"a":1e2}\n',
        b'"\\u0041"\n',
        b'{"a":9007199254740993}\n',
        b"NaN\n",
        b"[" * 100 + b"]" * 100 + b"\n",
    ],
)
def test_json_in_another_form_is_refused(data: bytes) -> None:
    with pytest.raises(NotCanonical):
        parse(data)


def test_the_one_form_is_that_of_the_documents() -> None:
    assert canonical({"b": [1, True, None], "a": 'é"\n', "\U0001f600": 0, "\uffff": 1}) == (
        '{"a":"é\\"\\n","b":[1,true,null],"\U0001f600":0,"\uffff":1}\n'.encode()
    )


# --- modules ----------------------------------------------------------------------------------------------------------


def test_a_module_imports_what_is_declared_and_nothing_else() -> None:
    code = module()
    declared = {"wasi_snapshot_preview1": ("fd_write",)}

    check_module(code, declared)
    assert declared_imports(code) == {"wasi_snapshot_preview1": ["fd_write"]}
    assert refusal(check_module, code, {}) == Reason.UNDECLARED_IMPORT
    assert refusal(a_bundle, imports={}) == Reason.UNDECLARED_IMPORT


@pytest.mark.parametrize(
    "line",
    [
        '(import "env" "system" (func (param i32)))',
        '(import "wasi_snapshot_preview1" "sock_open" (func (param i32)))',
        '(import "wasi_snapshot_preview1" "sock_accept" (func (param i32)))',
        '(import "env" "memory" (memory 1))',
        '(import "wasi" "thread-spawn" (func (param i32) (result i32)))',
    ],
)
def test_an_import_that_no_runner_has_is_refused_declared_or_not(line: str) -> None:
    code = module(
        f'(module {line} (memory (export "memory") 1) (func (export "_start")))'.replace(
            '(memory (export "memory") 1)', "" if "(memory 1)" in line else '(memory (export "memory") 1)'
        )
    )

    assert refusal(a_bundle, code) == Reason.UNKNOWN_IMPORT


@pytest.mark.parametrize("text", ['(module (memory (export "memory") 1))', '(module (func (export "_start")))'])
def test_a_module_that_cannot_be_started_is_refused(text: str) -> None:
    assert refusal(a_bundle, module(text)) == Reason.BAD_MODULE


def test_a_module_that_is_cut_off_anywhere_is_refused_or_has_other_imports() -> None:
    code = module()
    for size in range(len(code)):
        try:
            found = look_into(code[:size])
        except BundleRefused as fault:
            assert fault.reason == Reason.BAD_MODULE
        else:
            assert found != look_into(code) or size > len(code) - 70  # what is missing is code, which the compiler sees


def test_components_and_other_files_are_no_modules() -> None:
    for data in (b"\0asm\x0d\0\x01\0", b"\x7fELF", b"", b"\0asm", b"#!/bin/sh\n"):
        assert refusal(a_bundle, data) == Reason.BAD_MODULE


def test_a_directory_without_a_manifest_is_no_bundle(tmp_path: Path) -> None:
    assert refusal(build, tmp_path) == Reason.NOT_A_BUNDLE
    assert refusal(build_files, {"tool.json": b"[]"}) == Reason.BAD_MANIFEST
    assert HELLO.startswith("\n(module")
