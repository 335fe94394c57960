r"""Writes the sandbox-exec profile for a grant, and wraps a command in it.

A profile denies everything, then allows in this order, the last rule that matches an access deciding it:

    deny default -> processes -> system, read-only -> readable -> writable -> no network
      -> protected: no write -> directories above them: no rename -> blacklist: nothing at all

Text that comes from outside (a path, a row of the blacklist) enters a profile in two ways only. `_quoted` makes a
string literal out of it, in which quotes, backslashes and control characters are escaped, so that it cannot end early.
`_regexes` makes patterns out of a row, in which nothing but ASCII letters, digits and a few harmless marks is written
as itself; whatever else stands in the row becomes "any character". That denies a little more than the row says, never
less.

Denials ignore case, and take any character for one outside ASCII, because a Mac's usual file system does not tell
`.env` from `.ENV`, nor the composed from the decomposed form of a letter: a file that is made under one name is found
under the other.

Rules are matched after the kernel has followed links, hence `/private/etc/passwd` beside `/etc/passwd`.

The profile has not been run: the machines that test Ringfence are Linux, so that what is proven is the text, not that a
kernel takes it. `confinement/choose.py` therefore does not offer this wall yet.

What this does not protect against:
- memory, processes and disk are not bounded, and nothing ends a process that leaves its group;
- the kernel's surface is not reduced, and a Mach service in the list below may have faults of its own;
- names of processes of the host can be seen;
- a hard link that was planted before the run; a directory that is moved from below one `**` of a row to a place
  that the row does not name;
- sandbox-exec is deprecated by its maker, who may change it with any release.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

from ringfence.errors import InvalidArgument
from ringfence.policy.globs import ANY_DEPTH, BlacklistRow, CharClass, PathRules, Segment, Token, Wild, escape

if TYPE_CHECKING:
    from ringfence.values.grant import Grant

SANDBOX_EXEC: Final = "/usr/bin/sandbox-exec"

_SYSTEM: Final[tuple[str, ...]] = (
    "/bin",  # programs
    "/sbin",
    "/usr",
    "/System",  # frameworks, the shared cache of libraries
    "/Library/Apple",
    "/Library/Developer",  # the command line tools: git, clang, python3
    "/Library/Frameworks",  # Python as its own installer places it
    "/opt/homebrew",
    "/private/var/db/dyld",  # the shared cache of libraries, up to macOS 12
    "/private/var/db/timezone",
    "/private/var/select",  # which shell /bin/sh is
    "/private/etc/ssl",  # certificates that tools load at start, network or not
)
_SYSTEM_FILES: Final[tuple[str, ...]] = (
    "/",  # to be listed, as every path walk begins here
    "/private/etc/hosts",
    "/private/etc/localtime",
    "/private/etc/paths",
    "/private/etc/protocols",
    "/private/etc/services",
    "/private/etc/shells",
    "/private/var/db/xcode_select_link",
    "/dev/random",
    "/dev/urandom",
)
_DEVICES: Final[tuple[str, ...]] = ("/dev/null", "/dev/zero")  # read and written
_LINKS: Final[tuple[str, ...]] = ("/etc", "/tmp", "/var", "/private", "/private/etc", "/private/tmp", "/private/var")
_SYSCTL_NAMES: Final[tuple[str, ...]] = (
    # Not all of them: kern.procargs2 tells the arguments and the environment of other processes.
    "kern.argmax",  # getconf, xargs
    "kern.boottime",  # uptime, monotonic clocks
    "kern.hostname",
    "kern.maxfilesperproc",  # node, to raise its own soft limit
    "kern.ngroups",
    "kern.osproductversion",  # platform.mac_ver()
    "kern.osrelease",
    "kern.ostype",
    "kern.osvariant_status",
    "kern.osversion",
    "kern.usrstack64",  # thread stacks
    "kern.version",
    "vm.loadavg",
)
_SYSCTL_PREFIXES: Final[tuple[str, ...]] = ("hw.", "machdep.cpu.")  # number and kind of processors, page size
_MACH_SERVICES: Final[tuple[str, ...]] = (
    # Each is a way out to a process of the host, hence only what a plain command line tool does not start without.
    "com.apple.system.logger",
    "com.apple.system.notification_center",
    "com.apple.system.opendirectoryd.libinfo",  # getpwuid
    "com.apple.system.opendirectoryd.membership",  # getgroups
)
_EXECUTE: Final = "process-exec* file-map-executable"  # programs, and the libraries that they load
_PREFIX: Final = "ringfence-profile-"
_SUFFIX: Final = ".sb"
_TO_PRIVATE: Final = re.compile(r"/(?:etc|tmp|var)(?=/|\Z)")


def wrap(argv: tuple[str, ...], grant: Grant) -> tuple[tuple[str, ...], str]:
    """The command behind its wall, with the profile as an argument; and the profile.

    Raises:
        InvalidArgument: a path of the grant cannot be written into a profile.
    """
    text = profile(grant)
    return (SANDBOX_EXEC, "-p", text, "--", *argv), text


@contextmanager
def wrapped(argv: tuple[str, ...], grant: Grant) -> Iterator[tuple[str, ...]]:
    """The command behind its wall, with the profile in a private file that is gone afterwards.

    Raises:
        InvalidArgument: a path of the grant cannot be written into a profile.
    """
    text = profile(grant)
    # mkstemp makes it 0600. The temporary directory may be writable inside, so every profile denies these names.
    descriptor, path = tempfile.mkstemp(prefix=_PREFIX, suffix=_SUFFIX)
    try:
        with open(descriptor, "wb") as file:
            file.write(os.fsencode(text))
        yield (SANDBOX_EXEC, "-f", path, "--", *argv)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(path)


def profile(grant: Grant) -> str:
    """The text of the profile.

    Raises:
        InvalidArgument: a path of the grant cannot be written into a profile, or a row of its blacklist makes no sense.
    """
    writable = _subpaths(grant.writable_roots)
    readable = (*_subpaths(map(Path, _SYSTEM)), *_subpaths(grant.readable))
    above = sorted({str(parent) for path in (*grant.writable_roots, *grant.readable) for parent in path.parents})
    denied = PathRules(grant.denied).parsed
    roots = [escape(str(root)) for root in grant.writable_roots]
    protected = [BlacklistRow.parse(f"{root}/{path}") for root in roots for path in grant.protected]
    protected += [BlacklistRow.parse(escape(path)) for path in grant.kept]
    sections = (
        ("(version 1)", "(deny default)"),
        ("; Processes, among themselves.", *_PROCESSES),
        (
            "; What a program needs to start, and what was granted for reading.",
            _rule("allow", "file-read*", () if grant.read_outside else (*readable, *_literals(_SYSTEM_FILES))),
            _rule("allow", "file-read-metadata", _literals((*_LINKS, *above))),
            _rule("allow", "file-read* file-write-data", _literals(_DEVICES)),
        ),
        (
            "; What was granted for writing; never set-uid.",
            _rule("allow", "file-read* file-write*", writable),
            _rule("allow", _EXECUTE, () if grant.read_outside else (*readable, *writable)),
            "(deny file-write-setugid)",
        ),
        ("; No network, no socket of the host.", "(deny network*)"),
        (
            "; Protected: read, not written, and not moved aside with what lies above.",
            *_denials("file-write*", protected),
            _rule("deny", "file-write-unlink", _literals(str(root) for root in grant.writable_roots)),
            *_anchors((*protected, *denied)),
        ),
        (
            "; The blacklist, last, so that it beats all of the above.",
            f'(deny file* (regex "/{_caseless(_PREFIX)}[^/]*{_caseless(_SUFFIX)}$"))',
            *_denials("file* process-exec*", denied),
        ),
    )
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _rule(action: str, operations: str, filters: Iterable[str]) -> str:
    """One rule. Without filters it holds for everything, so the caller has to mean that."""
    return "(" + "\n  ".join((f"{action} {operations}", *filters)) + ")"


def _subpaths(paths: Iterable[Path]) -> tuple[str, ...]:
    return tuple(f"(subpath {_quoted(str(path))})" for path in paths)


def _literals(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"(literal {_quoted(path)})" for path in paths)


def _quoted(text: str) -> str:
    """A string literal that ends where it should, whatever is in it."""
    if "\0" in text:
        raise InvalidArgument(f"{text!r} holds a NUL character, which no path can")
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x01-\x1f\x7f]", lambda char: f"\\x{ord(char[0]):02x}", escaped) + '"'


def _denials(operations: str, rows: Iterable[BlacklistRow]) -> Iterator[str]:
    for row in rows:
        filters = dict.fromkeys(_subpaths(map(Path, _places(row.literals))))
        filters.update(dict.fromkeys(f'(regex "{pattern}(/.*)?$")' for pattern in _patterns(row)))
        yield _rule("deny", operations, filters)


def _anchors(rows: Iterable[BlacklistRow]) -> Iterator[str]:
    """Keep the directories above what is denied from being renamed, as it would be reachable under the new name."""
    filters: dict[str, None] = {}
    for row in rows:
        for reading in row.readings:
            for count in range(1, len(reading)):
                above = reading[:count]
                # The directory that `**` stands for can be any: to hold them all would forbid every rename.
                if above[-1] != ANY_DEPTH:
                    filters.update(
                        (f'(regex "{pattern}$")', None) for pattern in _regexes(above, absolute=row.absolute)
                    )
    if filters:
        yield _rule("deny", "file-write-unlink", filters)


def _places(paths: Iterable[str]) -> Iterator[str]:
    """Each path, and what it is when the kernel has followed the links at the top of the file system."""
    for path in paths:
        yield str(PurePosixPath(path))
        if _TO_PRIVATE.match(path):
            yield f"/private{path}"


def _patterns(row: BlacklistRow) -> Iterator[str]:
    for reading in row.readings:
        yield from _regexes(reading, absolute=row.absolute)


def _regexes(reading: tuple[Segment, ...], *, absolute: bool) -> Iterator[str]:
    """Patterns for the places of a reading, open at the end."""
    pattern = "^/" if absolute else "^/(.*/)?"
    for number, segment in enumerate(reading):
        if segment == ANY_DEPTH:
            pattern += "(.*/)?"
        else:
            pattern += "".join(_token(token) for token in segment)
            pattern += "/" if number < len(reading) - 1 else ""
    yield pattern
    if absolute and reading[0] in (tuple("etc"), tuple("tmp"), tuple("var")):
        yield pattern.replace("^/", "^/" + _caseless("private/"), 1)


def _token(token: Token) -> str:
    match token:
        case str():
            return _caseless(token)
        case Wild.STAR:
            return "[^/]*"
        case CharClass(negated=False, ranges=ranges) if all(_is_simple(low, high) for low, high in ranges):
            return f"[{''.join(f'{a}-{b}' for pair in ranges for a, b in _both_cases(*pair))}]"
        case Wild() | CharClass():
            # Patterns see bytes, and one character may be several of them.
            return "[^/]+"


def _is_simple(low: str, high: str) -> bool:
    same_kind = (str.isdigit, str.islower, str.isupper)
    return (low + high).isascii() and any(kind(low) and kind(high) for kind in same_kind)


def _both_cases(low: str, high: str) -> tuple[tuple[str, str], ...]:
    if low.isdigit():
        return ((low, high),)
    return ((low.lower(), high.lower()), (low.upper(), high.upper()))


def _caseless(text: str) -> str:
    """A pattern for `text` in capitals or not, made of characters that mean nothing to any reader on the way."""
    return "".join(_caseless_char(char) for char in text)


def _caseless_char(char: str) -> str:
    if not char.isascii():
        return "[^/]+"
    if char.isalpha():
        return f"[{char.lower()}{char.upper()}]"
    if char.isdigit() or char in "/_-@%,=~:":
        return char
    if char in ".+ #&{}()$|*?;<>!'`":
        return f"[{char}]"
    return "[^/]"  # a quote, a backslash, a bracket, a caret, a control character


_PROCESSES: Final[tuple[str, ...]] = (
    "(allow process-fork)",
    "(allow process-info* (target same-sandbox))",
    "(allow signal (target same-sandbox))",
    "(allow ipc-posix-sem)",  # Python's multiprocessing
    _rule(
        "allow",
        "sysctl-read",
        (
            *(f"(sysctl-name {_quoted(name)})" for name in _SYSCTL_NAMES),
            *(f"(sysctl-name-prefix {_quoted(prefix)})" for prefix in _SYSCTL_PREFIXES),
        ),
    ),
    _rule("allow", "mach-lookup", (f"(global-name {_quoted(name)})" for name in _MACH_SERVICES)),
)
