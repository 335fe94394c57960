"""Is this bundle what it says, and signed by somebody who may: the one place that answers, for every way in."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ringfence.bundles.archive import content_of
from ringfence.bundles.manifest import MANIFEST, SIGNATURE, Manifest, read_manifest
from ringfence.bundles.modules import check_module
from ringfence.bundles.reasons import Reason
from ringfence.bundles.signing import read_signature
from ringfence.dataclass import dataclass
from ringfence.errors import BundleRefused

if TYPE_CHECKING:
    from ringfence.bundles.trust import TrustedKey, TrustStore


@dataclass(frozen=True, slots=True)
class Verified:
    """A bundle that may run."""

    manifest: Manifest
    digest: str
    """SHA-256 of its manifest, and so of all of it."""
    key: TrustedKey
    files: Mapping[str, bytes]


def verify(files: Mapping[str, bytes], trust: TrustStore, source: str = "") -> Verified:
    """A bundle that is whole, and signed by a key that may sign it.

    The signature is looked at before anything in the manifest is believed, but for the name, which says whose it has
    to be.

    Raises:
        BundleRefused: it is not.
        Damaged: the trust store cannot be believed.
    """
    data = files.get(MANIFEST)
    if data is None:
        raise BundleRefused(Reason.NOT_A_BUNDLE, f"holds no {MANIFEST}", source=source)
    signature = read_signature(files.get(SIGNATURE), source)
    manifest = read_manifest(data, f"{source}: {MANIFEST}" if source else MANIFEST)
    key = trust.find(signature.key, manifest.name)
    if not signature.covers(key.public, data):
        raise BundleRefused(
            Reason.BAD_SIGNATURE,
            f"the signature of {key.name!r} is not over this manifest: one of them was changed",
            source=source,
            hint="get the bundle again from whoever made it",
        )
    check_content(manifest, files, source)
    return Verified(manifest, hashlib.sha256(data).hexdigest(), key, files)


def check_content(manifest: Manifest, files: Mapping[str, bytes], source: str = "") -> None:
    """Whether the files are those that the manifest names, and its module imports what it says.

    Raises:
        BundleRefused: they are not.
    """
    found = content_of(files)
    for name in sorted(found.keys() | manifest.files.keys()):
        if name not in manifest.files:
            raise BundleRefused(Reason.TAMPERED, f"{name!r} is in it, and the manifest does not name it", source=source)
        if name not in found:
            raise BundleRefused(Reason.TAMPERED, f"{name!r} is missing", source=source)
        entry = manifest.files[name]
        if len(found[name]) != entry.size or hashlib.sha256(found[name]).hexdigest() != entry.sha256:
            raise BundleRefused(
                Reason.TAMPERED,
                f"{name!r} is not the file that the manifest names",
                source=source,
                hint="get the bundle again from whoever made it",
            )
    if manifest.runtime == "wasm":
        check_module(found[manifest.entry], manifest.imports, f"{source}: {manifest.entry}" if source else "")
