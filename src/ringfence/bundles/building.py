"""Makes a bundle of a directory: hashes and imports are found out, the rest is what `tool.json` there says.

The same directory gives the same bytes, on every machine and whenever it is built.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.bundles.archive import content_of, pack, read_bundle
from ringfence.bundles.manifest import FORMAT, MANIFEST, SIGNATURE, make_manifest, manifest_bytes, read_manifest
from ringfence.bundles.modules import declared_imports
from ringfence.bundles.reasons import Reason
from ringfence.bundles.signing import sign
from ringfence.bundles.verifying import check_content
from ringfence.errors import BundleRefused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def build(directory: str | os.PathLike[str]) -> bytes:
    """The archive of a directory with a `tool.json`, unsigned.

    `format`, `files` and, if it is not there, `imports` are filled in. A manifest that declares its imports itself is
    held to them.

    Raises:
        BundleRefused: what is there is no tool.
        FileError: it cannot be read.
    """
    source = os.fspath(directory)
    if not Path(source).is_dir():
        raise BundleRefused(Reason.NOT_A_BUNDLE, "is no directory", source=source)
    return build_files(read_bundle(directory), source)


def build_files(files: dict[str, bytes], source: str = "") -> bytes:
    """The same of files that are in memory."""
    where = os.path.join(source, MANIFEST)
    try:
        given: Any = json.loads(files[MANIFEST].decode("utf-8"))
    except (KeyError, ValueError, RecursionError) as fault:
        raise BundleRefused(Reason.BAD_MANIFEST, f"is not JSON: {fault}", source=where) from None
    if not isinstance(given, dict):
        raise BundleRefused(Reason.BAD_MANIFEST, "has to be an object", source=where)
    content = content_of(files)
    given["format"] = given.get("format", FORMAT)
    given["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)} for name, data in content.items()
    }
    entry = given.get("entry")
    if given.get("runtime") == "wasm" and "imports" not in given and isinstance(entry, str) and entry in content:
        given["imports"] = declared_imports(content[entry])
    data = manifest_bytes(given)
    check_content(make_manifest(given, where), content, source)
    return pack({**content, MANIFEST: data})


def signed(files: dict[str, bytes], key: Ed25519PrivateKey, source: str = "") -> bytes:
    """The archive of a bundle with this key's signature, in the place of any that it has.

    Raises:
        BundleRefused: it is no bundle that could be run.
    """
    data = files.get(MANIFEST)
    if data is None:
        raise BundleRefused(Reason.NOT_A_BUNDLE, f"holds no {MANIFEST}", source=source)
    check_content(read_manifest(data, source or MANIFEST), files, source)
    return pack({**content_of(files), MANIFEST: data, SIGNATURE: sign(data, key)})
