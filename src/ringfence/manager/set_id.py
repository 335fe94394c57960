"""Finds the set-uid and set-gid programs of an image, from outside: in the archive that the daemon gives out.

The image's own `find` is not asked: it need not be there, may not enter every directory, and says what the image wants.
An archive holds one archive for each layer. They are read as they come, in whatever order, and put on top of each other
at the end, in the order that the manifest gives: what a layer holds covers the ones below, a whiteout takes away.
"""

import json
import stat
import tarfile
from collections.abc import Iterator
from typing import IO, Any, Final, Protocol

from ringfence.dataclass import dataclass, field
from ringfence.errors import InitializationFailed

_MANIFEST: Final = "manifest.json"
_MANIFEST_MAX: Final = 1 << 20
_WHITEOUT: Final = ".wh."
_OPAQUE: Final = ".wh..wh..opq"
_ENTRIES_MAX: Final = 5_000_000
"""Of all layers together: a hundred times a large image, and still in memory."""
_READ_AHEAD: Final = 1 << 20
"""Each read crosses from one thread to another, so there should be few."""
_CAPABILITY: Final = "SCHILY.xattr.security.capability"
"""Where an archive keeps the capabilities that a file gives to who runs it: as good as set-uid."""


class ReadableBinary(Protocol):
    def read(self, count: int, /) -> bytes: ...


@dataclass(slots=True)
class _Layer:
    present: dict[str, bool] = field(default_factory=dict)
    """Each entry's path, and whether running it makes you somebody else."""
    removed: set[str] = field(default_factory=set)
    emptied: set[str] = field(default_factory=set)
    """Directories of which nothing below this layer is left."""


def set_id_programs(archive: ReadableBinary) -> tuple[str, ...]:
    """The paths of files that run as somebody else than who starts them, sorted.

    Raises:
        InitializationFailed: that is no archive of an image.
    """
    layers: dict[str, _Layer] = {}
    order: list[str] | None = None
    try:
        with tarfile.open(fileobj=_as_file(archive), mode="r|", bufsize=_READ_AHEAD) as outer:
            for member in outer:
                if member.issym() or member.islnk():
                    # Old daemons give a layer that occurs twice as a link to the first.
                    layers[member.name] = layers.get(_beside(member), _Layer())
                elif member.isfile() and (content := outer.extractfile(member)) is not None:
                    if member.name == _MANIFEST:
                        order = _order(content.read(_MANIFEST_MAX))
                    elif (layer := _read_layer(content)) is not None:
                        layers[member.name] = layer
    except (tarfile.TarError, EOFError, ValueError, KeyError, TypeError) as fault:
        raise InitializationFailed(f"Docker gave out no archive of an image: {fault}") from fault
    if order is None or any(name not in layers for name in order):
        raise InitializationFailed("Docker gave out an archive that lacks its manifest or a layer of it")
    return tuple(sorted(_stack([layers[name] for name in order])))


def _order(manifest: bytes) -> list[str]:
    (image,) = json.loads(manifest)
    return [str(name) for name in image["Layers"] or ()]  # null: made from nothing


def _beside(link: tarfile.TarInfo) -> str:
    """Where a link like `../OTHER/layer.tar` leads."""
    return link.linkname.removeprefix("../") if link.issym() else link.linkname


def _read_layer(content: IO[bytes]) -> _Layer | None:
    """None if that is something else: the configuration, a file about the version."""
    layer = _Layer()
    try:
        with tarfile.open(fileobj=content, mode="r|*", bufsize=_READ_AHEAD) as inner:
            for count, entry in enumerate(inner):
                if count > _ENTRIES_MAX:
                    raise InitializationFailed(f"a layer of the image holds more than {_ENTRIES_MAX} entries")
                _take(entry, layer)
    except tarfile.ReadError:
        return None
    return layer


def _take(entry: tarfile.TarInfo, layer: _Layer) -> None:
    path = "/" + entry.name.removeprefix("./").strip("/")
    directory, _, name = path.rpartition("/")
    if name == _OPAQUE:
        layer.emptied.add(directory)
    elif name.startswith(_WHITEOUT):
        layer.removed.add(f"{directory}/{name.removeprefix(_WHITEOUT)}")
    elif entry.islnk():
        # A second name of a file that came before.
        layer.present[path] = layer.present.get("/" + entry.linkname.removeprefix("./").strip("/"), False)
    else:
        set_id = bool(entry.mode & (stat.S_ISUID | stat.S_ISGID)) or _CAPABILITY in entry.pax_headers
        layer.present[path] = entry.isfile() and set_id


def _stack(layers: list[_Layer]) -> Iterator[str]:
    seen: dict[str, bool] = {}
    for layer in layers:
        gone = layer.removed | layer.emptied
        if gone:
            seen = {path: found for path, found in seen.items() if not _is_gone(path, layer)}
        seen |= layer.present
    return (path for path, found in seen.items() if found)


def _is_gone(path: str, layer: _Layer) -> bool:
    if path in layer.removed:
        return True
    while path := path.rpartition("/")[0]:
        if path in layer.removed or path in layer.emptied:
            return True
    return "" in layer.emptied


def _as_file(archive: ReadableBinary) -> Any:
    """tarfile asks for nothing but `read` of what it streams, whatever its types say."""
    return archive
