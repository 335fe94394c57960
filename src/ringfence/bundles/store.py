"""The bundles that are installed: which version of each, by which key; and each verified anew whenever it is loaded.

    DIRECTORY/trust.json            whose signatures count
    DIRECTORY/installed.json        by name: version, digest, key; and the highest version that was ever installed
    DIRECTORY/bundles/DIGEST.rfb    the archive as it came

What lies here belongs to one person and is believed no more than a download: a file that was changed, exchanged or
renamed is refused when it is loaded, and so is one whose key was revoked since.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

from ringfence.bundles.archive import SUFFIX, pack, unpack
from ringfence.bundles.canonical import NotCanonical, canonical, parse
from ringfence.bundles.private import locked, make_private, replace_file
from ringfence.bundles.reasons import Reason
from ringfence.bundles.trust import TrustStore
from ringfence.bundles.verifying import Verified, verify
from ringfence.dataclass import dataclass
from ringfence.errors import BundleRefused, Damaged, FileError

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Installed:
    """A row of what is installed."""

    name: str
    version: str
    digest: str
    key: str
    """The id of the key that signed it."""
    highest: str
    """The highest version that was installed so far: below it nothing is taken."""


class BundleStore:
    """
    Args:
        directory: where everything lies; it need not be there.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.trust = TrustStore(directory / "trust.json")
        self._index = directory / "installed.json"
        self._bundles = directory / "bundles"

    def installed(self) -> tuple[Installed, ...]:
        """What is installed, by name.

        Raises:
            Damaged: the list of it cannot be read.
        """
        try:
            value = parse(self._index.read_bytes())
            rows = tuple(_row(name, row) for name, row in value["tools"].items())
        except FileNotFoundError:
            return ()
        except OSError as fault:
            raise FileError.of(fault.errno or 0, os.fspath(self._index)) from None
        except (NotCanonical, KeyError, TypeError, ValueError) as fault:
            raise Damaged(
                f"it cannot be read: {fault}", source=os.fspath(self._index), hint="remove it, and install again"
            ) from None
        return rows

    def install(
        self,
        files: dict[str, bytes],
        source: str = "",
        *,
        allow_downgrade: bool = False,
        allow_key_change: bool = False,
    ) -> Verified:
        """Take a bundle in, if it is whole, trusted, and no step back.

        Args:
            allow_downgrade: take an older version, or another content of the same version, because the person says so.
            allow_key_change: take one that another trusted key has signed.

        Raises:
            BundleRefused: it is not.
        """
        checked = verify(files, self.trust, source)
        manifest = checked.manifest
        make_private(self.directory)
        make_private(self._bundles)
        with locked(self.directory):
            rows = {row.name: row for row in self.installed()}
            before = rows.get(manifest.name)
            highest = manifest.version
            if before is not None:
                highest = max(before.highest, manifest.version, key=_order)
                if not allow_key_change:
                    _check_key(before, checked, source)
                if not allow_downgrade:
                    _check_version(before, checked, source)
            replace_file(self._bundles / f"{checked.digest}{SUFFIX}", pack(files), 0o600)
            rows[manifest.name] = Installed(manifest.name, manifest.version, checked.digest, checked.key.id, highest)
            self._write(rows)
        return checked

    def remove(self, name: str) -> None:
        """Forget a tool, but for the highest version that it had.

        Raises:
            BundleRefused: there is none of this name.
        """
        row = self._row(name)
        with locked(self.directory):
            rows = {each.name: each for each in self.installed()}
            rows[name] = Installed(name, "", "", row.key, row.highest)
            self._write(rows)
        (self._bundles / f"{row.digest}{SUFFIX}").unlink(missing_ok=True)

    def load(self, name: str) -> Verified:
        """An installed bundle, verified now.

        Raises:
            BundleRefused: there is none of this name, or it is not what was installed, or no longer trusted.
        """
        row = self._row(name)
        path = self._bundles / f"{row.digest}{SUFFIX}"
        try:
            data = path.read_bytes()
        except OSError as fault:
            raise BundleRefused(
                Reason.TAMPERED, f"{name}: cannot be read: {fault.strerror}", hint="install it again"
            ) from None
        checked = verify(unpack(data, name), self.trust, name)
        if checked.manifest.name != name:
            raise BundleRefused(
                Reason.RENAMED, f"what is installed as {name} says that it is {checked.manifest.name}", hint=_AGAIN
            )
        if checked.digest != row.digest or checked.key.id != row.key:
            raise BundleRefused(Reason.TAMPERED, f"{name} is not the bundle that was installed", hint=_AGAIN)
        return checked

    def _row(self, name: str) -> Installed:
        rows = {row.name: row for row in self.installed() if row.digest}
        if name not in rows:
            raise BundleRefused(
                Reason.NOT_INSTALLED,
                f"no tool {name!r} is installed",
                hint=f"there are {', '.join(sorted(rows))}" if rows else "ringfence bundle install FILE",
            )
        return rows[name]

    def _write(self, rows: dict[str, Installed]) -> None:
        tools = {
            row.name: {"version": row.version, "digest": row.digest, "key": row.key, "highest": row.highest}
            for row in rows.values()
        }
        replace_file(self._index, canonical({"format": 1, "tools": tools}), 0o600)


_AGAIN: Final = "install it again from whoever made it"


def _check_key(before: Installed, new: Verified, source: str) -> None:
    if before.key != new.key.id:
        raise BundleRefused(
            Reason.KEY_CHANGED,
            f"{before.name} was signed by another key until now ({before.key[:16]})",
            source=source,
            hint="if its maker has told you of the new key: --allow-key-change",
        )


def _check_version(before: Installed, new: Verified, source: str) -> None:
    manifest = new.manifest
    if _order(manifest.version) < _order(before.highest):
        raise BundleRefused(
            Reason.DOWNGRADE,
            f"{manifest.name} {manifest.version} is older than {before.highest}, which was installed before",
            source=source,
            hint="an old version may have a fault that was mended since; --allow-downgrade takes it anyway",
        )
    if manifest.version == before.version and new.digest != before.digest:
        raise BundleRefused(
            Reason.SAME_VERSION,
            f"{manifest.name} {manifest.version} is installed with another content",
            source=source,
            hint="whoever made it has to give it a version of its own; --allow-downgrade takes it anyway",
        )


def _order(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _row(name: str, given: Any) -> Installed:
    row = Installed(name, *(str(given[each]) for each in ("version", "digest", "key", "highest")))
    if row.digest and not _DIGEST.fullmatch(row.digest):
        raise ValueError(f"{name} has no digest")
    _order(row.highest)
    return row
