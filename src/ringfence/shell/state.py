"""What a shell remembers while it runs a text: variables, directory, functions, files it wrote."""

import posixpath
import re
from fnmatch import translate
from typing import Final, NamedTuple

from ringfence.shell.tree import Compound
from ringfence.values.facts import Origin, Span, Word
from ringfence.values.paths import is_below

_RANK: Final = {Origin.UNKNOWN: 0, Origin.FILE: 1, Origin.DECODED: 2, Origin.NETWORK: 3}


MAX_LINKS: Final = 64
"""Links that are followed; each path is compared with all of them."""
_STREAM: Final = re.compile(r"/(?:dev|proc/(?:self|thread-self|\d+))/fd/(\d+)|/dev/std(?:in|out|err)")
_STREAMS: Final = {"/dev/stdin": "0", "/dev/stdout": "1", "/dev/stderr": "2"}


class ShellOutput(NamedTuple):
    """Text that a command gives to the next one, a variable or a file; None if it is not known."""

    text: str | None
    origin: Origin = Origin.UNKNOWN
    names: tuple[str, ...] = ()
    """Where the text is not known: file names or patterns that it is made of."""
    sources: tuple[str, ...] = ()
    """Files that the text was read from."""


class Function(NamedTuple):
    """A function, and where the text that defines it lies: it may be called from another one."""

    body: Compound
    offset: int
    fixed: Span | None


NOTHING: Final = ShellOutput("")
UNKNOWN: Final = ShellOutput(None)


def worst(*origins: Origin) -> Origin:
    return max(origins, key=_RANK.__getitem__)


class State:
    """A shell's memory. A subshell works on a copy."""

    __slots__ = (
        "aliases",
        "arrays",
        "cases",
        "cwd",
        "files",
        "functions",
        "globs",
        "integers",
        "links",
        "origins",
        "parameters",
        "previous",
        "references",
        "stack",
        "twins",
        "unpacked",
        "variables",
    )

    def __init__(self) -> None:
        self.variables: dict[str, str | None] = {}
        self.arrays: dict[str, tuple[str | None, ...]] = {}
        self.globs: frozenset[str] = frozenset()
        """Variables that stand for what a glob matches."""
        self.references: dict[str, str] = {}
        """`declare -n`."""
        self.origins: dict[str, Origin] = {}
        self.parameters: tuple[str | None, ...] | None = None
        """`$1` and on; None if they are not known."""
        self.functions: dict[str, Function] = {}
        self.aliases: dict[str, Word] = {}
        self.files: dict[str, ShellOutput] = {}
        self.twins: dict[str, str] = {}
        """Copies of and links to programs, and names that `hash -p` gave to one."""
        self.links: dict[str, str] = {}
        """Symbolic links that the text made: what a path through them names."""
        self.cases: dict[str, str] = {}
        """`declare -l` and `-u`: what is assigned to these changes its case."""
        self.integers: frozenset[str] = frozenset()
        """`declare -i`: what is assigned to these is evaluated."""
        self.cwd: str | None = ""
        """"" is where the text starts, None is not known."""
        self.unpacked = False
        """An archive from the network was taken apart."""
        self.previous: str | None = None
        self.stack: list[str | None] = []

    def copy(self) -> "State":
        other = State()
        other.variables = dict(self.variables)
        other.arrays = dict(self.arrays)
        other.globs = self.globs
        other.references = dict(self.references)
        other.origins = dict(self.origins)
        other.parameters = self.parameters
        other.functions = dict(self.functions)
        other.aliases = dict(self.aliases)
        other.files = self.files  # the file system is shared
        other.twins = self.twins
        other.links = self.links
        other.cases = self.cases
        other.integers = self.integers
        other.unpacked = self.unpacked
        other.cwd = self.cwd
        other.previous = self.previous
        other.stack = list(self.stack)
        return other

    def target(self, name: str) -> str:
        """The variable that a name stands for, through `declare -n`."""
        for _ in range(8):
            other = self.references.get(name)
            if other is None or other == name:
                return name
            name = other
        return name

    def join(self, path: str) -> str:
        """`path` as seen from where the text starts; as it is, if the present directory is not known."""
        if not path.startswith(("/", "~")) and self.cwd:
            path = posixpath.join(self.cwd, path)
        return self._followed(path) if self.links else path

    def _followed(self, path: str) -> str:
        """The path with the links that this text made put in place of their names."""
        for _ in range(8):
            tidy = _tidy(path)
            for name, target in self.links.items():
                if is_below(tidy, name):
                    rest = tidy[len(name) :]
                    path = (target.rstrip("/") or "/") + rest if rest else target
                    path = path.replace("//", "/")
                    break
            else:
                return path
        return path

    def link(self, target: str, name: str) -> None:
        """What `ln -s target name` makes; a relative target is seen from where the link lies."""
        if len(self.links) >= MAX_LINKS:
            return
        name = _tidy(self.join(name))
        if not target.startswith(("/", "~")):
            target = posixpath.join(posixpath.dirname(name), target)
        if name not in ("", ".", "/") and _tidy(target) != name:
            self.links[name] = _tidy(target)

    def enter(self, path: str | None) -> None:
        """What `cd` does."""
        if path is None:
            self.cwd, self.previous = None, self.cwd
        elif path == "-":
            self.cwd, self.previous = self.previous, self.cwd
        else:
            there = self.join(path)
            unknown = self.cwd is None and not path.startswith(("/", "~"))
            self.cwd, self.previous = (None if unknown else _tidy(there)), self.cwd

    def key(self, path: str) -> str:
        """One name for a file, however it is written."""
        stream = _STREAM.fullmatch(path) if path.startswith(("/dev/", "/proc/")) else None
        if stream is not None:
            return "/dev/fd/" + _STREAMS.get(path, stream[1] or "0")
        return _tidy(self.join(path))


def _tidy(path: str) -> str:
    return posixpath.normpath(path) if path else ""


ABSOLUTE: Final = frozenset(("HOME", "PWD", "OLDPWD", "PATH", "SHELL", "BASH"))
"""Variables of every shell whose value begins with `/`."""
_SAMPLES: Final = ("/home/someone", "/root", "/usr/bin/bash", "/Users/x.y:/opt/Z-1/3_q", "/a", "/4/_")


def certain(op: str, rest: str) -> str | None:
    """What `${x<op><rest>}` is for every absolute path, such as `${HOME:0:1}`; None if that depends on the path."""
    results = {transform(sample, op, rest) for sample in _SAMPLES}
    return results.pop() if len(results) == 1 else None


def transform(value: str, op: str, rest: str) -> str | None:
    """`${x<op><rest>}` of a known value; None if we do not follow."""
    if op in ("%", "%%", "#", "##"):
        return _strip(value, op, rest)
    if op in ("/", "//"):
        pattern, _, replacement = rest.partition("/")
        return _replace(value, pattern, replacement, 0 if op == "//" else 1)
    if op == "^^" or (op == "@" and rest == "U"):
        return value.upper()
    if op == ",," or (op == "@" and rest == "L"):
        return value.lower()
    if op == "^" or (op == "@" and rest == "u"):
        return value[:1].upper() + value[1:]
    if op == ",":
        return value[:1].lower() + value[1:]
    if op == "@":
        return value
    if op == ":":
        return _substring(value, rest)
    return None


def _substring(value: str, rest: str) -> str | None:
    """`${x:begin:length}`; an empty number is 0, a negative one counts from the end."""
    match = re.fullmatch(r"\s*(-?\d{1,9})?\s*(?:(:)\s*(-?\d{1,9})?\s*)?", rest)
    if not match:
        return None
    begin = int(match[1] or 0)
    if begin < 0:
        begin += len(value)
        if begin < 0:
            return ""
    if match[2] is None:
        return value[begin:]
    length = int(match[3] or 0)
    return value[begin : begin + length] if length >= 0 else value[begin:length]


def _expression(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(translate(pattern).removesuffix("\\Z").removesuffix("\\z"), re.DOTALL)
    except re.error:
        return None


def _strip(value: str, op: str, pattern: str) -> str | None:
    """Try every cut; values here are short, and a longer one is not followed."""
    if len(value) > 500 or len(pattern) > 100:
        return None
    expression = _expression(pattern)
    if expression is None:
        return None
    cuts = range(len(value) + 1)
    if op[0] == "%":
        for cut in reversed(cuts) if op == "%" else cuts:
            if expression.fullmatch(value, cut):
                return value[:cut]
    else:
        for cut in cuts if op == "#" else reversed(cuts):
            if expression.fullmatch(value, 0, cut):
                return value[cut:]
    return value


def _replace(value: str, pattern: str, replacement: str, count: int) -> str | None:
    if len(value) > 500 or len(pattern) > 100 or len(replacement) > 100:
        return None
    expression = _expression(pattern)
    if expression is None or not pattern:
        return None
    return expression.sub(lambda _: replacement, value, count=count)
