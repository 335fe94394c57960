"""`tool.json`: what a bundle says about its tool, read strictly (docs/bundles.md).

Whoever signs signs these bytes, and with them, by their hashes, every file. So nothing in it may be read in two ways:
an unknown key, a second spelling or a value of another type is a refusal, never a guess.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ringfence.bundles.canonical import NotCanonical, canonical, parse
from ringfence.bundles.reasons import Reason
from ringfence.dataclass import dataclass
from ringfence.errors import BundleRefused

FORMAT: Final = 1
MANIFEST: Final = "tool.json"
SIGNATURE: Final = "tool.sig"
RUNTIMES: Final = ("wasm", "python", "javascript")
"""`wasm`: the entry is a module of WASI preview 1 with `_start`. The others name a file that the shared guest runs."""
INPUTS: Final = ("argv", "json")
MODES: Final = ("read-write", "read-only")
WORKSPACE: Final = "/workspace"
BYTES_MAX: Final = 128 * 1024 * 1024
"""Of all files of a bundle together."""
FILES_MAX: Final = 1000
_MANIFEST_BYTES_MAX: Final = 1024 * 1024
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?/[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?")
_VERSION: Final = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_PART: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]{0,99}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_RESERVED: Final = re.compile(r"(?i)(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?")
"""Names that Windows gives to devices."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FileEntry:
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Mount:
    guest: str
    mode: str
    """One of `MODES`."""


@dataclass(frozen=True, slots=True)
class ToolLimits:
    """What the tool needs at the most; of these and the box's own the smaller counts. 0: the box's own."""

    memory_bytes: int = 0
    cpu_seconds: int = 0
    wall_seconds: int = 0
    table_elements: int = 0


@dataclass(frozen=True, slots=True)
class Example:
    """One call with what has to come of it: a bundle's own test, on every side that runs it."""

    arguments: Mapping[str, Any]
    files: Mapping[str, str]
    """In the workspace before the call."""
    stdout: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    name: str
    """`publisher/tool`."""
    version: str
    description: str
    runtime: str
    entry: str
    input: str
    """How arguments reach the tool: `argv`, those of `args`; or `json`, the whole object on standard input."""
    arguments: Mapping[str, Any]
    """JSON Schema of an object."""
    limits: ToolLimits
    mounts: tuple[Mount, ...]
    environment: tuple[str, ...]
    """Names of variables that it reads; it gets those of them that were granted, and no others."""
    imports: Mapping[str, tuple[str, ...]]
    files: Mapping[str, FileEntry]
    examples: tuple[Example, ...]

    @property
    def order(self) -> tuple[int, ...]:
        """By which versions compare."""
        return tuple(map(int, self.version.split(".")))


def read_manifest(data: bytes, source: str = MANIFEST) -> Manifest:
    """The manifest of these bytes.

    Raises:
        BundleRefused: they are none; says where and why.
    """
    if len(data) > _MANIFEST_BYTES_MAX:
        raise BundleRefused(Reason.TOO_LARGE, f"is larger than {_MANIFEST_BYTES_MAX} bytes", source=source)
    try:
        value = parse(data)
    except NotCanonical as fault:
        raise BundleRefused(
            Reason.NOT_CANONICAL, str(fault), source=source, hint="build it with `ringfence bundle build`"
        ) from None
    return make_manifest(value, source)


def make_manifest(value: Any, source: str = MANIFEST) -> Manifest:
    """The manifest that plain data says; raises as `read_manifest`."""
    return _Reader(source).manifest(value)


def manifest_bytes(value: Mapping[str, Any]) -> bytes:
    """What is signed and hashed, for plain data that `make_manifest` takes."""
    try:
        return canonical(value)
    except NotCanonical as fault:
        raise BundleRefused(Reason.BAD_MANIFEST, str(fault), source=MANIFEST) from None


def wrong_with_name(name: str) -> str:
    """What is against a file's name in a bundle; empty if nothing is.

    Names mean the same on every system, in a browser's storage and in an archive.
    """
    parts = name.split("/")
    if len(name) > 200 or len(parts) > 10:
        return "is longer, or nested deeper, than a name may be"
    for part in parts:
        if not _PART.fullmatch(part) or part.endswith(".") or _RESERVED.fullmatch(part):
            return f"{part!r} is no name that every system takes alike"
    return ""


class _Reader:
    def __init__(self, source: str) -> None:
        self._source = source

    def _fault(self, where: str, why: str, hint: str = "") -> BundleRefused:
        return BundleRefused(Reason.BAD_MANIFEST, f"{where}: {why}", source=self._source, hint=hint)

    def manifest(self, value: Any) -> Manifest:
        given = self._object(value, "the manifest", _KEYS, required=_REQUIRED)
        if given["format"] != FORMAT or isinstance(given["format"], bool):
            raise self._fault("format", f"{given['format']!r}; this version reads {FORMAT}", "use a newer Ringfence")
        files = self._files(given["files"])
        entry = self._text(given["entry"], "entry")
        if entry not in files:
            raise self._fault("entry", f"{entry!r} is not one of the files")
        runtime = self._one_of(given["runtime"], "runtime", RUNTIMES)
        imports = self._imports(given.get("imports", {}))
        if imports and runtime != "wasm":
            raise self._fault("imports", f"a tool in {runtime} has none: the guest that runs it has its own")
        style = self._one_of(given.get("input", "argv"), "input", INPUTS)
        return Manifest(
            name=self._matching(given["name"], "name", _NAME, "publisher/tool, in small letters"),
            version=self._matching(given["version"], "version", _VERSION, "three numbers, such as 1.0.2"),
            description=self._text(given.get("description", ""), "description", 2000),
            runtime=runtime,
            entry=entry,
            input=style,
            arguments=self._schema(given.get("arguments"), style),
            limits=self._limits(given.get("limits", {})),
            mounts=self._mounts(given.get("mounts", [{"guest": WORKSPACE, "mode": "read-write"}])),
            environment=self._environment(given.get("environment", [])),
            imports=imports,
            files=files,
            examples=tuple(
                self._example(each, f"examples[{at}]")
                for at, each in enumerate(self._list(given.get("examples", []), "examples", 100))
            ),
        )

    # --- parts --------------------------------------------------------------------------------------------------------

    def _files(self, value: Any) -> dict[str, FileEntry]:
        files: dict[str, FileEntry] = {}
        folded: dict[str, str] = {}
        for name, entry in self._object(value, "files", None, most=FILES_MAX).items():
            where = f"files[{name!r}]"
            if why := wrong_with_name(name):
                raise BundleRefused(Reason.BAD_NAME, f"{where}: {why}", source=self._source)
            if name in (MANIFEST, SIGNATURE):
                raise BundleRefused(Reason.BAD_NAME, f"{where}: the name is the format's own", source=self._source)
            if (other := folded.setdefault(name.casefold(), name)) != name:
                raise BundleRefused(
                    Reason.BAD_NAME, f"{where}: is the same as {other!r} on some systems", source=self._source
                )
            row = self._object(entry, where, ("sha256", "size"), required=("sha256", "size"))
            digest = self._matching(row["sha256"], f"{where}.sha256", _SHA256, "64 hexadecimal digits")
            files[name] = FileEntry(digest, self._number(row["size"], f"{where}.size", BYTES_MAX))
        if sum(entry.size for entry in files.values()) > BYTES_MAX:
            raise BundleRefused(
                Reason.TOO_LARGE, f"its files are more than {BYTES_MAX} bytes together", source=self._source
            )
        return files

    def _imports(self, value: Any) -> dict[str, tuple[str, ...]]:
        found = {}
        for module, names in self._object(value, "imports", None, most=20).items():
            listed = self._list(names, f"imports[{module!r}]", 500)
            texts = tuple(self._text(name, f"imports[{module!r}]", 200) for name in listed)
            if list(texts) != sorted(set(texts)):
                raise self._fault(f"imports[{module!r}]", "the names have to be in order, none twice")
            found[module] = texts
        return found

    def _schema(self, value: Any, style: str) -> Mapping[str, Any]:
        if style == "argv":
            if value is not None:
                raise self._fault("arguments", 'an `argv` tool takes `args`, a list of texts; only "json" has a schema')
            return ARGV_SCHEMA
        given = self._object(value, "arguments", ("properties", "required"), required=("properties",))
        properties = self._object(given["properties"], "arguments.properties", None, most=100)
        for name, each in properties.items():
            if not isinstance(each, dict) or not isinstance(each.get("type"), str):
                raise self._fault(f"arguments.properties.{name}", "needs a `type`")
        required = self._list(given.get("required", []), "arguments.required", 100)
        for name in required:
            if name not in properties:
                raise self._fault("arguments.required", f"{name!r} is none of the properties")
        return {"properties": properties, "required": required}

    def _limits(self, value: Any) -> ToolLimits:
        given = self._object(value, "limits", tuple(_LIMITS))
        return ToolLimits(**{name: self._number(each, f"limits.{name}", _LIMITS[name]) for name, each in given.items()})

    def _mounts(self, value: Any) -> tuple[Mount, ...]:
        mounts = []
        for at, each in enumerate(self._list(value, "mounts", 1)):
            where = f"mounts[{at}]"
            given = self._object(each, where, ("guest", "mode"), required=("guest", "mode"))
            if given["guest"] != WORKSPACE:
                raise self._fault(f"{where}.guest", f"{given['guest']!r}; there is nothing to see but {WORKSPACE}")
            mounts.append(Mount(WORKSPACE, self._one_of(given["mode"], f"{where}.mode", MODES)))
        return tuple(mounts)

    def _environment(self, value: Any) -> tuple[str, ...]:
        names = self._list(value, "environment", 100)
        return tuple(self._matching(name, "environment", _VARIABLE, "the name of a variable") for name in names)

    def _example(self, value: Any, where: str) -> Example:
        given = self._object(value, where, ("arguments", "files", "stdout", "exit_code"), required=("arguments",))
        files = self._object(given.get("files", {}), f"{where}.files", None, most=100)
        for name, text in files.items():
            if why := wrong_with_name(name):
                raise self._fault(f"{where}.files", f"{name!r}: {why}")
            self._text(text, f"{where}.files[{name!r}]", 1 << 20)
        return Example(
            self._object(given["arguments"], f"{where}.arguments", None, most=100),
            files,
            self._text(given.get("stdout", ""), f"{where}.stdout", 1 << 20),
            self._number(given.get("exit_code", 0), f"{where}.exit_code", 255),
        )

    # --- values -------------------------------------------------------------------------------------------------------

    def _object(
        self,
        value: Any,
        where: str,
        keys: tuple[str, ...] | None,
        *,
        required: tuple[str, ...] = (),
        most: int = 1000,
    ) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise self._fault(where, "has to be an object")
        if len(value) > most:
            raise self._fault(where, f"has more than {most} members")
        for key in value if keys is not None else ():
            if keys is not None and key not in keys:
                near = difflib.get_close_matches(str(key), keys, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(keys)}"
                raise self._fault(where, f"unknown key {key!r}", hint)
        for key in required:
            if key not in value:
                raise self._fault(where, f"{key!r} is missing")
        return value

    def _list(self, value: Any, where: str, most: int) -> list[Any]:
        return self._of(value, where, list, "a list", lambda given: len(given) <= most, f"at most {most} long")

    def _text(self, value: Any, where: str, most: int = 200) -> str:
        return self._of(value, where, str, "a text", lambda given: len(given) <= most, f"at most {most} long")

    def _number(self, value: Any, where: str, most: int) -> int:
        if isinstance(value, bool):
            raise self._fault(where, "has to be a whole number")
        return self._of(value, where, int, "a whole number", lambda given: 0 <= given <= most, f"from 0 to {most}")

    def _of(self, value: Any, where: str, kind: type[T], what: str, fits: Callable[[T], bool], bounds: str) -> T:
        if not isinstance(value, kind):
            raise self._fault(where, f"has to be {what}")
        if not fits(value):
            raise self._fault(where, f"has to be {bounds}")
        return value

    def _matching(self, value: Any, where: str, form: re.Pattern[str], what: str) -> str:
        text = self._text(value, where)
        if not form.fullmatch(text):
            raise self._fault(where, f"{text!r} is not {what}")
        return text

    def _one_of(self, value: Any, where: str, valid: tuple[str, ...]) -> str:
        text = self._text(value, where)
        if text not in valid:
            raise self._fault(where, f"{text!r}", f"use one of {', '.join(valid)}")
        return text


ARGV_SCHEMA: Final[Mapping[str, Any]] = {
    "properties": {
        "args": {"type": "array", "items": {"type": "string"}, "description": "The arguments, one text each."}
    },
    "required": [],
}
_REQUIRED: Final = ("format", "name", "version", "runtime", "entry", "files")
_KEYS: Final = (
    *_REQUIRED,
    *("description", "input", "arguments", "limits", "mounts", "environment", "imports", "examples"),
)
_LIMITS: Final = {
    "memory_bytes": 4 * 1024**3,
    "cpu_seconds": 86_400,
    "wall_seconds": 86_400,
    "table_elements": 1_000_000,
}
