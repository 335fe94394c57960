"""Looks into a WebAssembly module without running or compiling it: is it whole, what does it import and export.

Only as much of the format is read as these questions need; every length is compared with what is there. Whether the
code is valid is the compiler's question, which comes later and in a process of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ringfence.bundles.reasons import Reason
from ringfence.dataclass import dataclass
from ringfence.errors import BundleRefused

WASI: Final = "wasi_snapshot_preview1"
_MAGIC: Final = b"\0asm"
_CORE: Final = b"\x01\0\0\0"
_COUNT_MAX: Final = 100_000
_KINDS: Final = {0: "function", 1: "table", 2: "memory", 3: "global", 4: "tag"}
_IMPORTS, _EXPORTS, _CUSTOM, _LAST = 2, 7, 0, 13
_REFERENCES: Final = frozenset({0x70, 0x6F})


@dataclass(frozen=True, slots=True)
class Module:
    imports: tuple[tuple[str, str, str], ...]
    """(module, name, kind)"""
    exports: Mapping[str, str]
    """kind by name"""


def look_into(data: bytes, source: str = "") -> Module:
    """What a module imports and exports.

    Raises:
        BundleRefused: it is none, or not whole.
    """
    if data[:4] != _MAGIC:
        raise _bad(source, "is no WebAssembly module")
    if data[4:8] != _CORE:
        raise _bad(source, "is a component, or of an unknown version; a tool is a core module")
    reader = _Bytes(data, 8, len(data), source)
    imports: tuple[tuple[str, str, str], ...] = ()
    exports: dict[str, str] = {}
    last = 0
    while not reader.is_done:
        kind = reader.byte()
        section = reader.part(reader.number())
        if kind == _CUSTOM:
            continue
        # Sections stand in a fixed order, each once; the count of data segments (12) stands before the code (10).
        order = {12: 9.5, 13: 5.5}.get(kind, float(kind))
        if kind > _LAST or order <= last:
            raise _bad(source, f"has a section {kind} that cannot stand there")
        last = order  # type: ignore[assignment]  # halves, for those that were added to the format later
        if kind == _IMPORTS:
            imports = tuple(_imports(section))
        elif kind == _EXPORTS:
            exports = dict(_exports(section))
    return Module(imports, exports)


def check_module(data: bytes, declared: Mapping[str, tuple[str, ...]], source: str = "") -> Module:
    """The module of a tool, which imports nothing but what its manifest declares.

    Raises:
        BundleRefused: it does, or cannot be a tool.
    """
    module = look_into(data, source)
    for name, names in declared.items():
        if name != WASI:
            raise BundleRefused(
                Reason.UNKNOWN_IMPORT, f"declares imports of {name!r}, and no runner has any but {WASI}", source=source
            )
        if unknown := sorted(set(names) - FUNCTIONS):
            raise BundleRefused(Reason.UNKNOWN_IMPORT, f"declares {unknown[0]!r}, which {WASI} has not", source=source)
    for where, name, kind in module.imports:
        if where != WASI or kind != "function" or name not in FUNCTIONS:
            raise BundleRefused(
                Reason.UNKNOWN_IMPORT, f"imports the {kind} {where}.{name}, which no runner has", source=source
            )
        if name not in declared.get(where, ()):
            raise BundleRefused(
                Reason.UNDECLARED_IMPORT,
                f"imports {where}.{name}, and its manifest does not say so",
                source=source,
                hint="declare it under `imports`, and have it signed again",
            )
    for name, kind in (("_start", "function"), ("memory", "memory")):
        if module.exports.get(name) != kind:
            raise _bad(source, f"exports no {kind} {name!r}, so that nothing can be run")
    return module


def declared_imports(data: bytes) -> dict[str, list[str]]:
    """What the manifest of this module has to declare."""
    found: dict[str, set[str]] = {}
    for where, name, _ in look_into(data).imports:
        found.setdefault(where, set()).add(name)
    return {where: sorted(names) for where, names in found.items()}


def _bad(source: str, why: str) -> BundleRefused:
    return BundleRefused(Reason.BAD_MODULE, why, source=source)


class _Bytes:
    """A piece of the module, read from left to right."""

    __slots__ = ("_data", "_end", "_pos", "_source")

    def __init__(self, data: bytes, pos: int, end: int, source: str) -> None:
        self._data, self._pos, self._end, self._source = data, pos, end, source

    @property
    def is_done(self) -> bool:
        return self._pos >= self._end

    def byte(self) -> int:
        if self._pos >= self._end:
            raise _bad(self._source, "ends in the middle: it is truncated or damaged")
        self._pos += 1
        return self._data[self._pos - 1]

    def number(self) -> int:
        """LEB128 of 32 bits; limits may have 64."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise _bad(self._source, "holds a number that is none")

    def count(self) -> int:
        number = self.number()
        if number > _COUNT_MAX:
            raise _bad(self._source, f"says that it holds {number} of something; more than {_COUNT_MAX} is no tool")
        return number

    def part(self, size: int) -> _Bytes:
        if size > self._end - self._pos:
            raise _bad(self._source, "ends in the middle: it is truncated or damaged")
        begin = self._pos
        self._pos += size
        return _Bytes(self._data, begin, self._pos, self._source)

    def text(self) -> str:
        part = self.part(self.number())
        try:
            return self._data[part._pos : part._end].decode("utf-8")
        except UnicodeDecodeError:
            raise _bad(self._source, "holds a name that is not UTF-8") from None

    def kind(self) -> str:
        number = self.byte()
        if number not in _KINDS:
            raise _bad(self._source, f"imports or exports something of the unknown kind {number}")
        return _KINDS[number]

    def skip_type(self, kind: str) -> None:
        """What follows the kind of an import."""
        if kind == "function":
            self.number()
        elif kind == "tag":
            self.byte()
            self.number()
        elif kind == "global":
            self.byte()
            self.byte()
        else:
            if kind == "table" and self.byte() not in _REFERENCES:
                raise _bad(self._source, "imports a table of an unknown kind")
            flags = self.number()
            self.number()
            if flags & 1:
                self.number()


def _imports(section: _Bytes) -> Iterator[tuple[str, str, str]]:
    for _ in range(section.count()):
        where, name, kind = section.text(), section.text(), section.kind()
        section.skip_type(kind)
        yield where, name, kind


def _exports(section: _Bytes) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for _ in range(section.count()):
        name, kind = section.text(), section.kind()
        section.number()
        if name in seen:
            raise _bad(section._source, f"exports {name!r} twice")
        seen.add(name)
        yield name, kind


FUNCTIONS: Final = frozenset(
    [
        "args_get",
        "args_sizes_get",
        "clock_res_get",
        "clock_time_get",
        "environ_get",
        "environ_sizes_get",
        "fd_advise",
        "fd_allocate",
        "fd_close",
        "fd_datasync",
        "fd_fdstat_get",
        "fd_fdstat_set_flags",
        "fd_fdstat_set_rights",
        "fd_filestat_get",
        "fd_filestat_set_size",
        "fd_filestat_set_times",
        "fd_pread",
        "fd_prestat_dir_name",
        "fd_prestat_get",
        "fd_pwrite",
        "fd_read",
        "fd_readdir",
        "fd_renumber",
        "fd_seek",
        "fd_sync",
        "fd_tell",
        "fd_write",
        "path_create_directory",
        "path_filestat_get",
        "path_filestat_set_times",
        "path_link",
        "path_open",
        "path_readlink",
        "path_remove_directory",
        "path_rename",
        "path_symlink",
        "path_unlink_file",
        "poll_oneoff",
        "proc_exit",
        "random_get",
        "sched_yield",
    ]
)
"""Of WASI preview 1, without its sockets (`sock_*`) and `proc_raise`: no runner of ours lets a module have them."""
