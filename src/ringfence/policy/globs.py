r"""Which row of a blacklist, if any, names a path: one compiled pattern for all rows.

A row is one of
- an absolute path, `/etc/shadow`: that path and everything below it;
- `**/name`, or just `name`: every file or directory of that name, at any depth, and everything below it;
- any other glob, `/srv/*/keys/**/id_[rd]sa`: `*`, `?` and `[...]` stay within one segment (and match a leading dot),
  `**` as a whole segment stands for any number of segments, none included.

A trailing slash and a trailing `/**` add nothing, since what lies below a match is matched with it. Case matters. There
is no escape character, as a backslash may be part of a name: `[*]` means a plain star. Where a doubt remains, the row
matches more, not less: a row without a leading slash holds at any depth, and an absolute row that contains `[` is also
taken at its word, so that the row `/w/site[1]/key` hides that very file too.

Earliest match suffices in each part between two `**` (whatever follows is free again, as is everything below the last
part), hence the atomic groups: no path, however it is made up, causes backtracking over its segments.

What this does not protect against: it compares names. Links, renames and mounts give a file other names; that the file
stays hidden under them is the wall's work.
"""

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

from ringfence.errors import Internal, InvalidConfig

_ANY_DEPTH: Final = "**"
_WILD: Final = re.compile(r"[*?[]")


def escape(text: str) -> str:
    """Make a row match `text` as it is."""
    return _WILD.sub(r"[\g<0>]", text)


def check_row(row: str) -> None:
    """Refuse a row that could not do what its writer meant.

    Raises:
        InvalidConfig: says what is wrong with it.
    """
    parts = _segments(row)
    if not row.strip():
        raise InvalidConfig("an empty blacklist row", hint="remove it")
    if "\0" in row:
        raise InvalidConfig(f"blacklist row {row!r} holds a NUL character, which no path can")
    try:
        row.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise InvalidConfig(f"blacklist row {row!r} holds half a character, which no path can") from None
    if ".." in parts:
        raise InvalidConfig(f"blacklist row {row!r} holds `..`", hint="write the path that is meant")
    if all(part == _ANY_DEPTH for part in parts):
        raise InvalidConfig(f"blacklist row {row!r} hides everything", hint="name what is to be hidden")
    for part in parts:
        _segment(part, row)


class PathRules:
    """The rows of a blacklist, `~` and variables already expanded, compiled to be asked many times.

    Raises:
        InvalidConfig: a row makes no sense; see `check_row`.
    """

    __slots__ = ("_pattern", "globs", "literals", "names", "rows")

    rows: tuple[str, ...]
    """As given."""
    literals: tuple[str, ...]
    """Absolute paths, escapes undone, that rows name outright: a wall can hide them without looking at a directory."""
    names: frozenset[str]
    """File names that rows name at any depth: a scanner can look them up without asking `matches`."""
    globs: tuple[str, ...]
    """The rows that neither `literals` nor `names` covers whole: a scanner has to ask `matches`."""

    def __init__(self, rows: Iterable[str]) -> None:
        self.rows = tuple(rows)
        compiled = [_Row.read(row) for row in self.rows]
        self.literals = tuple(dict.fromkeys(path for row in compiled for path in row.literals))
        self.names = frozenset(name for row in compiled for name in row.names)
        self.globs = tuple(row.written for row in compiled if row.is_glob)
        alternatives = "|".join(f"({row.pattern})" for row in compiled) or "(?!)"
        # \Z and not $, which would also stop before a newline at the end of a name.
        self._pattern = re.compile(rf"(?:{alternatives})(?:/|\Z)", re.DOTALL)

    def matches(self, path: str) -> str | None:
        """The first row, as it was given, that names `path` or a directory above it.

        `path` is absolute and lexically normal; doubled slashes and `.` are forgiven.

        Raises:
            Internal: the path is relative or holds `..`, so that any answer would be a guess.
        """
        if not path.startswith("/") or ("/.." in path and ".." in path.split("/")):
            raise Internal(f"asked about {path!r}, which is not an absolute path without `..`")
        if "//" in path or "/./" in path:
            path = "/" + posixpath.normpath(path).lstrip("/")
        found = self._pattern.match(path)
        return self.rows[found.lastindex - 1] if found and found.lastindex else None

    def __repr__(self) -> str:
        return f"PathRules({list(self.rows)!r})"


@dataclass(frozen=True, slots=True)
class _Row:
    written: str
    absolute: bool
    readings: tuple[tuple[str, ...], ...]
    """The segments as a glob; and, if there is a `[` in them, once more with every `[` taken at its word."""

    @classmethod
    def read(cls, row: str) -> Self:
        if row.startswith("~"):
            raise InvalidConfig(f"blacklist row {row!r} was not expanded", hint="expand `~` first")
        check_row(row)
        parts = _segments(row)
        absolute = row.startswith("/") and parts[0] != _ANY_DEPTH
        while parts[-1] == _ANY_DEPTH:
            parts.pop()
        while parts[0] == _ANY_DEPTH:
            parts.pop(0)
        glob = tuple(parts)
        at_its_word = tuple(part.replace("[", "[[]") for part in parts)
        return cls(row, absolute, (glob,) if glob == at_its_word else (glob, at_its_word))

    def _plain(self, reading: tuple[str, ...]) -> str | None:
        """The segments as one path, if nothing in them is wild."""
        names = [_segment(part, self.written).plain for part in reading]
        return None if None in names else "/".join(filter(None, names))

    @property
    def literals(self) -> tuple[str, ...]:
        if not self.absolute:
            return ()
        return tuple(f"/{plain}" for reading in self.readings if (plain := self._plain(reading)) is not None)

    @property
    def names(self) -> tuple[str, ...]:
        if self.absolute:
            return ()
        single = (self._plain(reading) for reading in self.readings if len(reading) == 1)
        return tuple(name for name in single if name is not None)

    @property
    def is_glob(self) -> bool:
        return len(self.literals) + len(self.names) < len(self.readings)

    @property
    def pattern(self) -> str:
        """Matches from the leading slash to the end of the last segment that the row names."""
        return "|".join(self._pattern(reading) for reading in self.readings)

    def _pattern(self, reading: tuple[str, ...]) -> str:
        runs: list[list[str]] = [[]]
        for part in reading:
            if part != _ANY_DEPTH:
                runs[-1].append(_segment(part, self.written).pattern)
            elif runs[-1]:
                runs.append([])
        regex = "/"
        for number, run in enumerate(runs):
            skip = "" if number == 0 and self.absolute else "(?:[^/]+/)*?"
            end = r"(?=/|\Z)" if number == len(runs) - 1 else "/"
            regex += f"(?>{skip}{'/'.join(run)}{end})"
        return regex


@dataclass(frozen=True, slots=True)
class _Segment:
    pattern: str
    plain: str | None
    """The one name that matches, if there is only one."""


def _segments(row: str) -> list[str]:
    return [part for part in row.split("/") if part not in ("", ".")]


def _segment(glob: str, row: str) -> _Segment:
    """Translate one segment; none of what comes out matches a slash."""
    # Pieces between stars: the earliest place for each piece but the last is the best one, hence atomic again.
    pieces: list[str] = [""]
    plain: str | None = ""
    at = 0
    while at < len(glob):
        char = glob[at]
        at += 1
        if char == "*":
            plain = None
            if pieces[-1] or len(pieces) == 1:
                pieces.append("")
        elif char == "?":
            plain = None
            pieces[-1] += "[^/]"
        elif char == "[" and (end := _class_end(glob, at)) != -1:
            regex, only = _character_class(glob[at:end], row)
            at = end + 1
            pieces[-1] += regex
            plain = None if plain is None or only is None else plain + only
        else:
            pieces[-1] += re.escape(char)
            plain = None if plain is None else plain + char
    first, *others = pieces
    if not others:
        return _Segment(first, plain)
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return _Segment(f"{first}{middle}[^/]*{others[-1]}", None)


def _class_end(glob: str, at: int) -> int:
    """Where the `]` is that closes a class whose `[` stands before `at`; -1 if none does, and `[` is a plain one."""
    first = at + 1 if glob[at : at + 1] in ("!", "^") else at
    # A `]` in first place is a member.
    return glob.find("]", first + 1)


def _character_class(body: str, row: str) -> tuple[str, str | None]:
    """The pattern of `[body]`, and its only member if it has just one."""
    negated = body[0] in "!^" and len(body) > 1
    members = body[1:] if negated else body
    if "[:" in members:
        raise InvalidConfig(f"blacklist row {row!r} uses a named class", hint="write a range such as [a-z]")
    if not negated and len(members) == 1:
        return re.escape(members), members
    regex = ""
    at = 0
    while at < len(members):
        is_range = members[at + 1 : at + 2] == "-" and at + 2 < len(members)
        low, high = members[at], members[at + 2 if is_range else at]
        if low > high:
            raise InvalidConfig(f"blacklist row {row!r} holds the range {low}-{high}, which is empty")
        regex += f"{_member(low)}-{_member(high)}"
        at += 3 if is_range else 1
    return f"(?!/)[{'^' if negated else ''}{regex}]", None


def _member(char: str) -> str:
    # By number, since inside a class both the escapes and doubled punctuation have meanings of their own.
    return f"\\U{ord(char):08x}"
