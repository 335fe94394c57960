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
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import lru_cache
from typing import Final, Self

from ringfence.dataclass import dataclass
from ringfence.errors import Internal, InvalidArgument

_SPECIAL: Final = re.compile(r"[*?[]")
_ESCAPED: Final = re.compile(r"\[[*?[]\]")


class Wild(Enum):
    STAR = "*"
    ONE = "?"


@dataclass(frozen=True, slots=True)
class CharClass:
    """`[...]`: one character out of, or with `negated` outside of, the ranges, ends included."""

    negated: bool
    ranges: tuple[tuple[str, str], ...]


Token = str | Wild | CharClass
Segment = tuple[Token, ...]
"""What stands between two slashes; a plain character stands for itself."""

ANY_DEPTH: Final[Segment] = (Wild.STAR, Wild.STAR)
"""`**` as a whole segment."""


def escape(text: str) -> str:
    """Make a row match `text` as it is."""
    return _SPECIAL.sub(r"[\g<0>]", text)


@dataclass(frozen=True, slots=True)
class BlacklistRow:
    """One row, parsed."""

    written: str
    absolute: bool
    """Whether it holds at one place only, and not at any depth."""
    readings: tuple[tuple[Segment, ...], ...]
    """The segments as a glob; and, if there is a `[` in them, once more with every `[` taken at its word."""

    @classmethod
    def parse(cls, row: str) -> Self:
        """Parse a row; `~` and variables may still stand in it.

        Raises:
            InvalidArgument: it could not do what its writer meant; says why.
        """
        if not row.strip():
            raise InvalidArgument("an empty blacklist row", hint="remove it")
        if "\0" in row:
            raise InvalidArgument(f"blacklist row {row!r} holds a NUL character, which no path can")
        try:
            row.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidArgument(f"blacklist row {row!r} contains an unpaired surrogate, which no path can") from None
        parts = [part for part in row.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise InvalidArgument(f"blacklist row {row!r} holds `..`", hint="write the path that is meant")
        absolute = row.startswith("/") and parts[:1] != ["**"]
        while parts[-1:] == ["**"]:
            parts.pop()
        while parts[:1] == ["**"]:
            parts.pop(0)
        if not parts:
            raise InvalidArgument(f"blacklist row {row!r} hides everything", hint="name what is to be hidden")
        glob = tuple(tuple(_tokens(part, row)) for part in parts)
        at_its_word = tuple(_at_its_word(part, row, escaped="[" not in _ESCAPED.sub("", row)) for part in parts)
        return cls(row, absolute, (glob,) if "[" not in row or glob == at_its_word else (glob, at_its_word))

    @property
    def literals(self) -> tuple[str, ...]:
        """The absolute paths that it names outright."""
        return tuple(f"/{plain}" for plain in map(_plain, self.readings) if plain and self.absolute)

    @property
    def names(self) -> tuple[str, ...]:
        """The file names that it names at any depth."""
        return tuple(plain for plain in map(_plain, self.readings) if plain and not self.absolute and "/" not in plain)

    @property
    def is_glob(self) -> bool:
        """Whether there is more to it than `literals` and `names`."""
        return len(self.literals) + len(self.names) < len(self.readings)


class PathRules:
    """The rows of a blacklist, `~` and variables already expanded, compiled to be asked many times.

    Raises:
        InvalidArgument: a row makes no sense; see `BlacklistRow.parse`.
    """

    __slots__ = ("_pattern", "globs", "literals", "names", "parsed", "rows")

    rows: tuple[str, ...]
    """As given."""
    parsed: tuple[BlacklistRow, ...]
    literals: tuple[str, ...]
    """Absolute paths, escapes undone, that rows name outright: a wall can hide them without looking at a directory."""
    names: frozenset[str]
    """File names that rows name at any depth: a scanner can look them up without asking `matches`."""
    globs: tuple[str, ...]
    """The rows that neither `literals` nor `names` covers whole: a scanner has to ask `matches`."""

    def __init__(self, rows: Iterable[str]) -> None:
        self.rows = tuple(rows)
        for row in self.rows:
            if row.startswith("~"):
                raise InvalidArgument(f"blacklist row {row!r} was not expanded", hint="expand `~` first")
        self.parsed = tuple(BlacklistRow.parse(row) for row in self.rows)
        self.literals = tuple(dict.fromkeys(path for row in self.parsed for path in row.literals))
        self.names = frozenset(name for row in self.parsed for name in row.names)
        self.globs = tuple(row.written for row in self.parsed if row.is_glob)
        alternatives = "|".join(f"({_row_pattern(row)})" for row in self.parsed) or "(?!)"
        self._pattern = re.compile(alternatives, re.DOTALL)

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


@lru_cache(maxsize=32)
def compiled(rows: tuple[str, ...]) -> PathRules:
    """The rules for these rows; compiling takes longer than running a command, and most commands share their rows."""
    return PathRules(rows)


def _tokens(part: str, row: str) -> Iterator[Token]:
    at = 0
    while at < len(part):
        char = part[at]
        at += 1
        if char == "*":
            yield Wild.STAR
        elif char == "?":
            yield Wild.ONE
        elif char == "[" and (end := _class_end(part, at)) != -1:
            yield _char_class(part[at:end], row)
            at = end + 1
        else:
            yield char


def _at_its_word(part: str, row: str, *, escaped: bool) -> Segment:
    """The segment with each `[` a plain one; all of it plain, if the row uses `[` for nothing but escapes."""
    if part == "**":
        return ANY_DEPTH
    return tuple(part) if escaped else tuple(_tokens(part.replace("[", "[[]"), row))


def _class_end(part: str, at: int) -> int:
    """Where the `]` is that closes a class whose `[` stands before `at`; -1 if none does, and `[` is a plain one."""
    first = at + 1 if part[at : at + 1] in ("!", "^") else at
    # A `]` in first place is a member.
    return part.find("]", first + 1)


def _char_class(body: str, row: str) -> CharClass | str:
    """The class `[body]`; just the character, if it is the only one."""
    negated = body[0] in "!^" and len(body) > 1
    members = body[1:] if negated else body
    if "[:" in members:
        raise InvalidArgument(f"blacklist row {row!r} uses a named class", hint="write a range such as [a-z]")
    ranges: list[tuple[str, str]] = []
    at = 0
    while at < len(members):
        is_range = members[at + 1 : at + 2] == "-" and at + 2 < len(members)
        low, high = members[at], members[at + 2 if is_range else at]
        if low > high:
            raise InvalidArgument(f"blacklist row {row!r} holds the range {low}-{high}, which is empty")
        ranges.append((low, high))
        at += 3 if is_range else 1
    if not negated and len(members) == 1:
        return members
    return CharClass(negated, tuple(ranges))


def _plain(segments: tuple[Segment, ...]) -> str | None:
    """The segments as one path, if nothing in them is wild."""
    names: list[str] = []
    for segment in segments:
        chars = [token for token in segment if isinstance(token, str)]
        if len(chars) < len(segment):
            return None
        names.append("".join(chars))
    return "/".join(names)


def _row_pattern(row: BlacklistRow) -> str:
    return "|".join(_reading_pattern(reading, absolute=row.absolute) for reading in row.readings)


def _reading_pattern(reading: tuple[Segment, ...], *, absolute: bool) -> str:
    """Matches from the leading slash to the end of the last segment that the row names."""
    runs: list[list[str]] = [[]]
    for segment in reading:
        if segment != ANY_DEPTH:
            runs[-1].append(_segment_pattern(segment))
        elif runs[-1]:
            runs.append([])
    pattern = "/"
    for number, run in enumerate(runs):
        skip = "" if number == 0 and absolute else "(?:[^/]+/)*?"
        # \Z and not $, which would also stop before a newline at the end of a name.
        end = r"(?=/|\Z)" if number == len(runs) - 1 else "/"
        pattern += f"(?>{skip}{'/'.join(run)}{end})"
    return pattern


def _segment_pattern(segment: Segment) -> str:
    """Translate one segment; none of what comes out matches a slash."""
    # Between stars, too, the earliest place for each piece but the last is the best one, hence atomic again.
    pieces = [""]
    for token in segment:
        if token is not Wild.STAR:
            pieces[-1] += _token_pattern(token)
        elif pieces[-1] or len(pieces) == 1:
            pieces.append("")
    first, *others = pieces
    if not others:
        return first
    middle = "".join(f"(?>[^/]*?{piece})" for piece in others[:-1])
    return f"{first}{middle}[^/]*{others[-1]}"


def _token_pattern(token: Token) -> str:
    match token:
        case str():
            return re.escape(token)
        case CharClass(negated, ranges):
            # By number, since inside a class both the escapes and doubled punctuation have meanings of their own.
            members = "".join(f"\\U{ord(low):08x}-\\U{ord(high):08x}" for low, high in ranges)
            return f"(?!/)[{'^' if negated else ''}{members}]"
        case Wild():
            return "[^/]"
