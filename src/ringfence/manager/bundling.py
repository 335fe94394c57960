"""Bundles as the command line, and whoever else is in front, handle them: build, sign, trust, install, prepare."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringfence.audit.signing import make_keys, raw_public, read_private, read_public
from ringfence.bundles.archive import SUFFIX, read_bundle
from ringfence.bundles.building import build, signed
from ringfence.bundles.manifest import Manifest
from ringfence.bundles.private import replace_file
from ringfence.bundles.store import BundleStore
from ringfence.bundles.verifying import Verified, verify
from ringfence.confinement.choose import confiners
from ringfence.engines.native.engine import NativeEngine
from ringfence.engines.wasi.cache import Cache
from ringfence.engines.wasi.engine import WasiEngine, engine_environ
from ringfence.engines.wasi.guests import PythonGuest
from ringfence.engines.wasi.places import WasiPlaces, wasi_places
from ringfence.manager.configuring import home_directory
from ringfence.policy.settings import read_settings

if TYPE_CHECKING:
    from ringfence.bundles.store import Installed
    from ringfence.bundles.trust import TrustedKey

Told = Callable[[str], None]
_KEYGEN = "ringfence bundle keygen"


class Bundles:
    """What a person has of bundles.

    Args:
        environ: says where that lies; the process's own if not given.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._home = home_directory(self._environ)

    @property
    def _places(self) -> WasiPlaces:
        return wasi_places(self._environ, self._home)

    @property
    def store(self) -> BundleStore:
        return BundleStore(self._places.bundles)

    def build(self, directory: Path, target: Path | None = None) -> Path:
        """Write the bundle of a directory; where it went.

        Raises:
            BundleRefused, FileError: what is there is no tool, or cannot be read.
        """
        data = build(directory)
        path = target or Path(f"{os.fspath(directory).rstrip('/')}{SUFFIX}")
        replace_file(path, data, 0o644)
        return path

    def sign(self, path: Path, key: Path, target: Path | None = None) -> Path:
        """Put this key's signature into a bundle; where it went.

        Raises:
            BundleRefused: it is no bundle that could be run.
            InvalidConfig: the key cannot be used.
        """
        written = target or path
        replace_file(written, signed(read_bundle(path), read_private(key, _KEYGEN), os.fspath(path)), 0o644)
        return written

    def keygen(self, path: Path) -> Path:
        """Make a key; where its public half went."""
        return make_keys(path)

    def verify(self, path: Path) -> Verified:
        """A bundle that could be installed.

        Raises:
            BundleRefused: it could not.
        """
        return verify(read_bundle(path), self.store.trust, os.fspath(path))

    def install(self, path: Path, *, allow_downgrade: bool = False, allow_key_change: bool = False) -> Verified:
        """Install it.

        Raises:
            BundleRefused: it is not trusted, not whole, or a step back.
        """
        files = read_bundle(path)
        return self.store.install(
            files, os.fspath(path), allow_downgrade=allow_downgrade, allow_key_change=allow_key_change
        )

    def installed(self) -> tuple[Installed, ...]:
        return tuple(row for row in self.store.installed() if row.digest)

    def manifests(self) -> tuple[Manifest, ...]:
        """Of what is installed, each verified.

        Raises:
            BundleRefused: one of them may not run.
        """
        return tuple(self.store.load(row.name).manifest for row in self.installed())

    def trust(self, name: str, public_key: Path, may_sign: tuple[str, ...]) -> TrustedKey:
        """From now on signatures of this key count, for tools of these names."""
        return self.store.trust.add(name, raw_public(read_public(public_key)), may_sign)

    async def prepare(self, told: Told = lambda _: None) -> tuple[str, ...]:
        """Build and compile what comes with the engine; the languages that are there then.

        Raises:
            InitializationFailed, NotInstalled: it cannot be done here.
        """
        cache = Cache(self._places.cache)
        PythonGuest(cache).build(told)
        told("compiling what modules need")
        settings = read_settings(self._environ)
        walls = confiners(bwrap_path=settings.bwrap_path)
        native = NativeEngine(walls, engine_environ(self._environ), self._home)
        found = await WasiEngine(native, self._places).programs()
        names = (("tools", found.userland), ("javascript", found.javascript), ("python", found.python))
        return tuple(name for name, code in names if code)


def described(manifest: Manifest) -> dict[str, Any]:
    """A manifest as a person asks for it."""
    return {
        "name": manifest.name,
        "version": manifest.version,
        "description": manifest.description,
        "runtime": manifest.runtime,
        "entry": manifest.entry,
        "input": manifest.input,
        "arguments": dict(manifest.arguments),
        "mounts": [{"guest": mount.guest, "mode": mount.mode} for mount in manifest.mounts],
        "environment": list(manifest.environment),
        "imports": {module: list(names) for module, names in manifest.imports.items()},
        "files": {name: {"sha256": entry.sha256, "size": entry.size} for name, entry in manifest.files.items()},
        "examples": len(manifest.examples),
    }
