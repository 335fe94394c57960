"""What was touched in a copy: whatever is not as the manifest says."""

import os
import stat
from collections.abc import Iterable, Iterator

from ringfence.values.change import NodeKind
from ringfence.workspace.both_trees import MOST_TOUCHED, BothTrees, TouchedPath, too_many
from ringfence.workspace.copying import Copied, copy_content, digest_of, read_manifest, write_manifest
from ringfence.workspace.tree import join, kind_of, split


class CopyReading:
    """See `layers.Reading`."""

    def __init__(self, trees: BothTrees) -> None:
        """
        Raises:
            Damaged: there is no manifest that could be read.
        """
        self._trees = trees
        self._lower, self._upper = trees.lower, trees.upper
        self._manifest = read_manifest(trees.shadow.directory)

    def touched(self) -> Iterator[TouchedPath]:
        seen: set[str] = set()
        waiting = [""]
        while waiting:
            directory = waiting.pop()
            deeper: list[str] = []
            for name in self._upper.names(directory):
                path = join(directory, name)
                status = self._upper.status(path)
                if status is None:
                    continue
                seen.add(path)
                if len(seen) > MOST_TOUCHED + len(self._manifest):
                    raise too_many(self._trees.shadow)
                refused = self._trees.why_refused(path, status)
                entry = self._manifest.get(path)
                if entry is None or not entry.is_copy(status):
                    yield TouchedPath(path, status, entry is not None, refused)
                if stat.S_ISDIR(status.st_mode) and not refused:
                    deeper.append(path)
            waiting += reversed(deeper)
        for path in self._manifest.keys() - seen:
            yield from self._missing(path)

    def _missing(self, path: str) -> Iterator[TouchedPath]:
        """Removed in the shadow; only what it once had, so that a directory may have to stay."""
        held = next((one for one in self._trees.gone(path) if one.path == path), None)
        if held is not None:
            yield held

    def knows(self, path: str, status: os.stat_result) -> bool:
        if self._trees.is_known(status):
            return True
        entry = self._manifest.get(path)
        if entry is None or entry.kind != kind_of(status.st_mode).value:
            return False
        if entry.is_host(status) or entry.kind == NodeKind.DIRECTORY:
            return True
        if entry.mode != stat.S_IMODE(status.st_mode) or entry.size_bytes != status.st_size:
            return False
        if entry.kind == NodeKind.LINK:
            return entry.target == self._lower.target(path)
        with self._lower.opened(path) as descriptor:
            return digest_of(descriptor) == entry.digest

    def has_vanished(self, path: str) -> bool:
        return True  # the manifest tells for certain what began as the host's

    def is_quiet(self, directory: str) -> bool:
        return True

    def settle(self, applied: Iterable[str], merged: Iterable[str] = ()) -> None:
        for path in merged:
            self._take_over(path)
        for path in applied:
            host, status = self._lower.status(path), self._upper.status(path)
            self._manifest.pop(path, None)
            if host is not None and status is not None and kind_of(host.st_mode) is kind_of(status.st_mode):
                self._manifest[path] = self._entry(path, host, status)
        write_manifest(self._trees.shadow.directory, self._manifest)

    def _take_over(self, path: str) -> None:
        """Let the shadow have the host's content."""
        above, name = split(path)
        with self._lower.opened(path) as source:
            flags = os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            target = os.open(name, flags, dir_fd=self._upper.directory(above))
            try:
                copy_content(source, target)
            finally:
                os.close(target)

    def _entry(self, path: str, host: os.stat_result, status: os.stat_result) -> Copied:
        kind, digest = kind_of(host.st_mode), ""
        if kind is NodeKind.FILE:
            with self._lower.opened(path) as descriptor, self._upper.opened(path) as other:
                digest = digest_of(descriptor)
                same = digest == digest_of(other)
        else:
            same = True
        return Copied(
            kind.value,
            stat.S_IMODE(host.st_mode),
            host.st_size,
            host.st_mtime_ns,
            host.st_ctime_ns,
            host.st_ino,
            self._lower.target(path) if kind is NodeKind.LINK else "",
            digest,
            status.st_ino if same else 0,  # some hunks only: the rest is still to be seen
            status.st_ctime_ns if same else 0,
        )
