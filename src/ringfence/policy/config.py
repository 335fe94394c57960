"""Reads the sandbox file: JSON text in, `SandboxConfig` out, with the merge rules of requirement A2.

Three things can be wrong with a file, and each has its own answer:
- it cannot be understood (no JSON, a value of the wrong type, a key given twice): the defaults are in force, with a
  warning that names the place; the file may have meant to tighten, so the warning says what no longer protects;
- it can be understood but names something that does not exist, or a value that makes no sense: `InvalidConfig`, since
  ignoring a misspelled `blacklist` would quietly protect less than its writer believes;
- it asks for what no file can have (a shorter blacklist, the network): it does not get it; for the network, a warning.

The text goes through the `json` module first; the position of each key and item is then found by a scan that may rely
on the text being valid.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NoReturn

from ringfence.dataclass import dataclass, field, replace
from ringfence.deferred import deferred_module
from ringfence.errors import InvalidArgument, InvalidConfig
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.environment import flag, lookup
from ringfence.policy.expanding import expand, is_encodable
from ringfence.policy.globs import BlacklistRow
from ringfence.values.limits import Limits
from ringfence.values.sizes import parse_duration, parse_size

if TYPE_CHECKING:
    import difflib
else:
    difflib = deferred_module("difflib")


DEFAULT_LOCATIONS: Final = ("~/.ringfence/sandbox.json", "~/.synapse/sandbox.json")


class _Unit(Enum):
    DURATION = "a time such as 30s"
    SIZE = "a size such as 512MB"
    COUNT = "a whole number"


_LIMITS: Final[Mapping[str, tuple[str, _Unit]]] = MappingProxyType(
    {
        "wall": ("wall_seconds", _Unit.DURATION),
        "cpu": ("cpu_seconds", _Unit.DURATION),
        "memory": ("memory_bytes", _Unit.SIZE),
        "processes": ("processes", _Unit.COUNT),
        "openFiles": ("open_files", _Unit.COUNT),
        "fileSize": ("file_bytes", _Unit.SIZE),
        "output": ("output_bytes", _Unit.SIZE),
        "tmp": ("tmp_bytes", _Unit.SIZE),
        "disk": ("disk_bytes", _Unit.SIZE),
        "files": ("files", _Unit.COUNT),
    }
)

KEYS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "": ("enabled", "filesystem", "network", "limits"),
        "filesystem": ("whitelist", "blacklist", "allowReadOutside", "mediateOpens"),
        "network": ("allowNetwork", "secrets", "parentProxy"),
        "limits": tuple(_LIMITS),
    }
)
"""Every key of the file, by the object that holds it; each may also be written in snake_case."""

# No limit needs more, and the kernel's own fields for limits are 64 bits wide, with the top values taken for "none".
_LARGEST: Final = 2**60


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxConfig:
    """What the file says, merged with the defaults. Paths are as written: `expand` them."""

    enabled: bool = True
    """Whether anything runs: without a wall nothing does."""
    switched_off_by: str = ""
    """The file or variable that says so, if it is not."""
    whitelist: tuple[str, ...] = ()
    """Directories to read and write, besides the working directory and the temporary one."""
    blacklist: tuple[str, ...] = BLACKLIST
    """The built-in rows, always all of them and first, then the file's own."""
    allow_read_outside: bool = False
    mediate_opens: bool = False
    """Whether the blacklist is also held at the moment of opening."""
    limits: Limits = field(default_factory=Limits)
    secrets: tuple[tuple[str, str], ...] = ()
    """(the name of a secret, where it comes from, as it is written); the values themselves are in no file of ours."""
    parent_proxy: str = ""
    """`none`, or the URL of the proxy that everything goes out through; empty: as the environment says."""
    source: str = "defaults"
    places: tuple[tuple[str, str], ...] = ()
    """(what was set, file and line): rows of the blacklist by themselves, everything else by its key."""
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.blacklist[: len(BLACKLIST)] != BLACKLIST:
            own = tuple(row for row in self.blacklist if row not in BLACKLIST)
            object.__setattr__(self, "blacklist", BLACKLIST + own)


def parse_config(text: str, source: str) -> SandboxConfig:
    """Merge the file's text into the defaults; a file that cannot be understood gives the defaults and a warning.

    Raises:
        InvalidConfig: a key that does not exist, or a value that makes no sense; names source, line and the remedy.
    """
    try:
        return _Document(text, source).config()
    except _NotUnderstoodError as fault:
        return defaults_because(fault.what, source, line=fault.line, column=fault.column)


def defaults_because(what: str, source: str, *, line: int | None = None, column: int | None = None) -> SandboxConfig:
    """The defaults, with a warning that says why nothing of `source` counts; also for a file that cannot be read."""
    place = ":".join(str(part) for part in (source, line, column) if part is not None)
    return SandboxConfig(
        warnings=(
            f"{place}: {what}; the defaults are in force instead of this file: its own blacklist and limits are not "
            "in force until it is fixed",
        )
    )


def config_location(environ: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Where to look for the file.

    One path: somebody named it, so if it is not there, that is a fault. Two: the first that is there counts, and it is
    no fault if neither is.
    """
    named = lookup(environ, "RINGFENCE_SANDBOX_CONFIG")
    if named is not None:
        return (expand(named.value, environ, home),)
    return tuple(expand(path, environ, home) for path in DEFAULT_LOCATIONS)


def with_environment(config: SandboxConfig, environ: Mapping[str, str]) -> SandboxConfig:
    """Apply RINGFENCE_SANDBOX_ENABLED, which beats the file, and note who switched the sandbox off, if it is off.

    Raises:
        InvalidConfig: the variable is neither yes nor no.
    """
    variable = lookup(environ, "RINGFENCE_SANDBOX_ENABLED")
    enabled = config.enabled if variable is None else flag(variable)
    if enabled:
        return replace(config, enabled=True)
    return replace(config, enabled=False, switched_off_by=config.source if variable is None else variable.name)


_Path = tuple[str | int, ...]


class _NotUnderstoodError(Exception):
    """The file as a whole cannot be relied on."""

    def __init__(self, what: str, line: int, column: int) -> None:
        super().__init__(what)
        self.what = what
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class _Entry:
    value: Any
    path: _Path


_Section = Mapping[str, _Entry]
_ABSENT: Final[_Section] = MappingProxyType({})


class _Document:
    """The parsed file, and where in it everything stands."""

    def __init__(self, text: str, source: str) -> None:
        # Some editors put a byte order mark first.
        self._text = text.removeprefix("\ufeff")
        self._source = source
        self._root = self._parse()
        self._offsets: dict[_Path, int] = {}
        for path, offset in _positions(self._text):
            if path in self._offsets:
                self._give_up(f"the key {_dotted(path)!r} is given twice", offset)
            self._offsets[path] = offset

    def config(self) -> SandboxConfig:
        root = self._section("", _Entry(self._root, ()))
        filesystem = self._subsection(root, "filesystem")
        network = self._subsection(root, "network")
        return SandboxConfig(
            enabled=self._flag(root.get("enabled"), default=True),
            whitelist=self._whitelist(filesystem.get("whitelist")),
            blacklist=BLACKLIST + self._blacklist(filesystem.get("blacklist")),
            allow_read_outside=self._flag(filesystem.get("allowReadOutside"), default=False),
            mediate_opens=self._flag(filesystem.get("mediateOpens"), default=False),
            limits=self._limits(self._subsection(root, "limits")),
            secrets=self._secrets(network.get("secrets")),
            parent_proxy=self._parent_proxy(network.get("parentProxy")),
            source=self._source,
            places=tuple(self._places(root)),
            warnings=self._network_warnings(network.get("allowNetwork")),
        )

    def _places(self, root: _Section) -> Iterator[tuple[str, str]]:
        if "enabled" in root:
            yield "enabled", self._file_and_line(root["enabled"])
        filesystem = self._subsection(root, "filesystem")
        for row in self._rows(filesystem.get("blacklist")):
            yield row.value, self._file_and_line(row)
        for name in ("filesystem", "limits"):
            for key, entry in self._subsection(root, name).items():
                yield f"{name}.{key}", self._file_and_line(entry)

    def _file_and_line(self, entry: _Entry) -> str:
        return f"{self._source}:{self._place(self._offsets[entry.path])[0]}"

    def _parse(self) -> Any:
        try:
            return json.loads(self._text, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise _NotUnderstoodError(f"no valid JSON: {error.msg}", error.lineno, error.colno) from None
        except RecursionError:
            self._give_up("no valid JSON: nested too deeply", 0)
        except ValueError:
            # Python's extension `NaN`, or a number of thousands of digits; neither error says where.
            for token in _TOKEN.finditer(self._text):
                if token[0] in _CONSTANTS or (token[0][0] != '"' and len(token[0]) > _LONGEST_NUMBER):
                    self._give_up("no valid JSON: not a number that can be read", token.start())
            self._give_up("no valid JSON", 0)

    def _subsection(self, root: _Section, name: str) -> _Section:
        return self._section(name, root[name]) if name in root else _ABSENT

    def _section(self, name: str, entry: _Entry) -> _Section:
        """The members of an object by the camelCase name of their key."""
        if not isinstance(entry.value, dict):
            self._wrong_type(entry, "an object")
        spelled = {spelling: key for key in KEYS[name] for spelling in (key, _snake(key))}
        found: dict[str, _Entry] = {}
        for written, value in entry.value.items():
            path = (*entry.path, written)
            if written not in spelled:
                self._unknown(name, written, path)
            key = spelled[written]
            if key in found:
                self._give_up(f"the key {_dotted(path)!r} is given twice, in two spellings", self._offsets[path])
            found[key] = _Entry(value, path)
        return found

    def _flag(self, entry: _Entry | None, *, default: bool) -> bool:
        if entry is None:
            return default
        if not isinstance(entry.value, bool):
            self._wrong_type(entry, "true or false")
        return entry.value

    def _rows(self, entry: _Entry | None) -> tuple[_Entry, ...]:
        if entry is None:
            return ()
        if not isinstance(entry.value, list):
            self._wrong_type(entry, "a list of paths")
        rows = tuple(_Entry(value, (*entry.path, index)) for index, value in enumerate(entry.value))
        for row in rows:
            if not isinstance(row.value, str):
                self._wrong_type(row, "a path in quotes")
        return rows

    def _whitelist(self, entry: _Entry | None) -> tuple[str, ...]:
        rows = self._rows(entry)
        for row in rows:
            if not row.value.startswith(("/", "~", "$")):
                self._nonsense(row, f"whitelist row {row.value!r} is not absolute", "begin it with /, ~ or a variable")
            if "\0" in row.value or not is_encodable(row.value):
                self._nonsense(row, f"whitelist row {row.value!r} holds a character that no path can", "remove it")
        return tuple(dict.fromkeys(row.value for row in rows))

    def _blacklist(self, entry: _Entry | None) -> tuple[str, ...]:
        rows = self._rows(entry)
        for row in rows:
            try:
                BlacklistRow.parse(row.value)
            except InvalidArgument as fault:
                self._nonsense(row, fault.message, fault.hint)
        return tuple(dict.fromkeys(row.value for row in rows if row.value not in BLACKLIST))

    def _limits(self, section: _Section) -> Limits:
        limits = Limits()
        for key, entry in section.items():
            name, unit = _LIMITS[key]
            try:
                limits = limits.changed(**{name: self._quantity(entry, unit)})
            except InvalidArgument as fault:
                self._nonsense(entry, fault.message, fault.hint)
        return limits

    def _secrets(self, entry: _Entry | None) -> tuple[tuple[str, str], ...]:
        if entry is None:
            return ()
        if not isinstance(entry.value, dict):
            self._wrong_type(entry, "an object of names and sources")
        for name, source in entry.value.items():
            own = _Entry(source, (*entry.path, name))
            if not isinstance(source, str):
                self._wrong_type(own, "a source such as env:NAME in quotes")
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,100}", name):
                self._nonsense(own, f"{name!r} cannot be the name of a secret", "letters, digits and _")
            if not source.strip():
                self._nonsense(own, "a secret without a source", "such as env:GH_TOKEN")
        return tuple(entry.value.items())

    def _parent_proxy(self, entry: _Entry | None) -> str:
        if entry is None:
            return ""
        if not isinstance(entry.value, str):
            self._wrong_type(entry, "a URL in quotes, none, or environment")
        text = entry.value.strip()
        if "@" in text:
            self._nonsense(entry, "credentials do not belong into a file", "put them into HTTPS_PROXY")
        if text not in ("none", "environment") and not re.fullmatch(r"http://[A-Za-z0-9._\[\]:-]+/?", text):
            self._nonsense(entry, f"{text!r} is no address of a proxy", "write http://host:port, none or environment")
        return text

    def _quantity(self, entry: _Entry, unit: _Unit) -> float:
        value = entry.value
        valid = int if unit is _Unit.COUNT else int | float | str
        if isinstance(value, bool) or not isinstance(value, valid):
            self._wrong_type(entry, unit.value)
        number: float
        try:
            match unit:
                case _Unit.DURATION:
                    number = parse_duration(value)
                case _Unit.SIZE:
                    number = parse_size(value)
                case _Unit.COUNT:
                    number = int(value)
        except OverflowError:
            number = math.inf
        if number > _LARGEST:
            raise InvalidArgument(f"{value!r} is beyond what any limit can be", hint="leave it out to get the default")
        return number

    def _network_warnings(self, entry: _Entry | None) -> tuple[str, ...]:
        if entry is None or not self._flag(entry, default=False):
            return ()
        line, column = self._place(self._offsets[entry.path])
        return (
            f"{self._source}:{line}:{column}: {_dotted(entry.path)} has no effect: the network stays off for a plain "
            "command, whatever is set, so that every request passes a part that can be controlled; use the agent "
            "commands `fetch` and `http`",
        )

    def _place(self, offset: int) -> tuple[int, int]:
        before = self._text[:offset]
        return before.count("\n") + 1, offset - before.rfind("\n")

    def _give_up(self, what: str, offset: int) -> NoReturn:
        raise _NotUnderstoodError(what, *self._place(offset))

    def _wrong_type(self, entry: _Entry, wanted: str) -> NoReturn:
        what = _dotted(entry.path) or "the file"
        self._give_up(f"{what} has to be {wanted}, not {_json_type(entry.value)}", self._offsets[entry.path])

    def _nonsense(self, entry: _Entry, message: str, hint: str) -> NoReturn:
        line, _ = self._place(self._offsets[entry.path])
        raise InvalidConfig(f"{_dotted(entry.path)}: {message}", source=self._source, line=line, hint=hint)

    def _unknown(self, name: str, written: str, path: _Path) -> NoReturn:
        line, _ = self._place(self._offsets[path])
        raise InvalidConfig(
            f"unknown key {_dotted(path)!r}", source=self._source, line=line, hint=_nearest_key(name, written)
        )


_CONSTANTS: Final = ("NaN", "Infinity", "-Infinity")
_LONGEST_NUMBER: Final = 4000  # Python converts at most 4300 digits
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def _positions(text: str) -> Iterator[tuple[_Path, int]]:
    """Path and offset of the root, each key and each item of valid JSON, in order; a key given twice comes twice."""
    path: list[str | int] = []
    in_object: list[bool] = []
    at_key = False
    for token in _TOKEN.finditer(text):
        mark = token[0]
        if mark == ",":
            at_key = in_object[-1]
            if not at_key:
                path[-1] = int(path[-1]) + 1
        elif mark in ("}", "]"):
            path.pop()
            in_object.pop()
            at_key = False
        elif at_key:
            path[-1] = json.loads(mark)
            at_key = False
            yield tuple(path), token.start()
        elif mark != ":":
            if not in_object or not in_object[-1]:
                yield tuple(path), token.start()
            if mark in ("{", "["):
                at_key = mark == "{"
                in_object.append(at_key)
                path.append("" if at_key else 0)


def _nearest_key(section: str, written: str) -> str:
    snake = _snake(written)
    for close in difflib.get_close_matches(snake, [_snake(key) for key in KEYS[section]], n=1):
        return "did you mean " + next(repr(key) for key in KEYS[section] if _snake(key) == close) + "?"
    for other, keys in KEYS.items():
        for close in difflib.get_close_matches(snake, [_snake(key) for key in keys], n=1):
            place = f"inside {other!r}" if other else "at the top"
            return "did you mean " + next(repr(key) for key in keys if _snake(key) == close) + f" {place}?"
    return f"valid here: {', '.join(KEYS[section])}"


def _snake(key: str) -> str:
    return re.sub(r"[A-Z]", lambda found: "_" + found[0].lower(), key)


def _dotted(path: _Path) -> str:
    shown = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return shown.removeprefix(".")


def _json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list():
            return "a list"
        case _:
            return "an object"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
