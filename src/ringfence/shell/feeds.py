"""What a program writes to its standard output, where the text tells it: what `echo rm | sh` gives to `sh`."""

import re
from typing import Final

from ringfence.shell.decoding import decoded
from ringfence.shell.lexer import unescape_ansi
from ringfence.shell.options import operands
from ringfence.shell.state import NOTHING, UNKNOWN, ShellOutput, State, worst
from ringfence.shell.touches import find_parts, found_by
from ringfence.values.facts import Origin, Word

_FETCHERS: Final = frozenset(
    [
        "curl",
        "wget",
        "nc",
        "ncat",
        "netcat",
        "http",
        "https",
        "aria2c",
        "fetch",
        "lynx",
        "w3m",
        "socat",
        "ftp",
        "tftp",
        "telnet",
    ]
)
_DECODERS: Final = frozenset(
    [
        "base64",
        "base32",
        "basenc",
        "xxd",
        "openssl",
        "uudecode",
        "rev",
        "tr",
        "gunzip",
        "zcat",
        "gzip",
        "bunzip2",
        "xz",
        "xzcat",
        "unxz",
        "zstd",
        "uncompress",
        "od",
        "iconv",
        "gpg",
        "rot13",
        "ascii2uni",
        "recode",
    ]
)
_CUTTING: Final = frozenset(("cut", "head", "tail", "tac"))
_PASSING: Final = frozenset(
    ("cat", "tee", "sort", "uniq", "head", "tail", "grep", "sed", "tac", "nl", "fold", "awk", "cut")
)
_FORMAT: Final = re.compile(r"%(%|[-+ #0]*\d*(?:\.\d+)?[sbqdiuxXoc])")


def output(name: str, argv: tuple[Word, ...], stdin: ShellOutput | None, state: State) -> ShellOutput:
    """What the program would write; `stdin` is None if nothing known is fed to it."""
    arguments = argv[1:]
    if name == "echo":
        return _echo(arguments)
    if name == "printf":
        return _printf(arguments)
    if name in (":", "true", "false", "cd", "export", "set"):
        return NOTHING
    if name == "pwd" and state.cwd is not None:
        return ShellOutput((state.cwd or ".") + "\n")
    if name in _LOOKS_UP:
        return _looked_up(name, arguments)
    if name == "ls":
        flags = "".join(word.text or "" for word in arguments if (word.text or "").startswith("-"))
        shown = tuple(word.text for word in operands(arguments) if word.text is not None)
        return ShellOutput(None, Origin.UNKNOWN, shown if "d" in flags else ())
    if name == "mktemp" and all((word.text or "").startswith("-") for word in arguments):
        return ShellOutput("/tmp/tmp.0123456789\n")  # wherever it is, nothing else lies there
    if name in _FETCHERS:
        return ShellOutput(None, Origin.NETWORK)
    if name in _DECODERS:
        origin = Origin.NETWORK if stdin is not None and stdin.origin is Origin.NETWORK else Origin.DECODED
        known = stdin.text if stdin is not None else None
        return ShellOutput(decoded(name, arguments, known) if known is not None else None, origin)
    if name in _CUTTING and stdin is not None and stdin.text is not None:
        cut = decoded(name, arguments, stdin.text)
        if cut is not None:
            return ShellOutput(cut, stdin.origin)
    if name == "find":
        roots, expression = find_parts(arguments)
        found = found_by(roots, expression)
        return ShellOutput(None, Origin.UNKNOWN, tuple(word.text for word in found if word.text is not None))
    if name in _PASSING:
        return _passed(name, arguments, stdin, state)
    return UNKNOWN


_LOOKS_UP: Final = frozenset(("which", "command", "type", "readlink", "realpath"))
_PROGRAM: Final = re.compile(r"/(?:usr/(?:local/)?)?s?bin/[\w.+-]+")


def _looked_up(name: str, arguments: tuple[Word, ...]) -> ShellOutput:
    """`which x`, `command -v x`, `type -P x`: where a program lies; `readlink -f /usr/bin/x`: that program."""
    flags = {word.text for word in arguments if (word.text or "").startswith("-")}
    found = [word.text for word in operands(arguments)]
    if len(found) != 1 or not found[0]:
        return UNKNOWN
    if name in ("readlink", "realpath"):  # a link elsewhere leads where nobody knows
        return ShellOutput(found[0] + "\n") if _PROGRAM.fullmatch(found[0]) else UNKNOWN
    if name != "which" and not flags & {"-v", "-pv", "-p", "-P"}:
        return UNKNOWN
    return ShellOutput((found[0] if "/" in found[0] else f"/usr/bin/{found[0]}") + "\n")


def with_lines(name: str, argv: tuple[Word, ...], stdin: ShellOutput | None) -> tuple[Word, ...]:
    """The arguments of `parallel` with those that it reads, as if they had been written after `:::`."""
    if name not in ("parallel", "rush") or stdin is None or stdin.text is None:
        return argv
    if any((word.text or "").startswith((":::", "--pipe")) for word in argv):
        return argv
    lines = [Word(line, argv[-1].span) for line in stdin.text.split("\n") if line]
    return (*argv, Word(":::", argv[-1].span), *lines) if lines else argv


def _echo(arguments: tuple[Word, ...]) -> ShellOutput:
    escapes, newline = False, "\n"
    position = 0
    while position < len(arguments) and re.fullmatch(r"-[neE]+", arguments[position].text or ""):
        flags = arguments[position].text or ""
        escapes = "e" in flags or (escapes and "E" not in flags)
        newline = "" if "n" in flags else newline
        position += 1
    texts = [word.text for word in arguments[position:]]
    if None in texts:
        return UNKNOWN
    text = " ".join(text for text in texts if text is not None)
    return ShellOutput((unescape_ansi(text) if escapes else text) + newline)


def _printf(arguments: tuple[Word, ...]) -> ShellOutput:
    texts = [word.text for word in arguments]
    if texts[:1] == ["--"]:
        texts = texts[1:]
    if not texts or None in texts or texts[0] == "-v":
        return UNKNOWN
    return ShellOutput(formatted([text for text in texts if text is not None]))


def formatted(texts: list[str]) -> str:
    """printf's format with its arguments; used again until none is left."""
    form, values = unescape_ansi(texts[0]), texts[1:]
    result: list[str] = []
    for _ in range(100):
        rest = list(values)

        def fill(match: re.Match[str], rest: list[str] = rest) -> str:
            if match[1] == "%":
                return "%"
            value = rest.pop(0) if rest else ""
            return unescape_ansi(value) if match[1].endswith("b") else value

        result.append(_FORMAT.sub(fill, form))
        if not rest or len(rest) == len(values):
            break
        values = rest
    return "".join(result)


def _passed(name: str, arguments: tuple[Word, ...], stdin: ShellOutput | None, state: State) -> ShellOutput:
    files = operands(arguments) if arguments else []
    if name in ("grep", "sed", "awk", "cut", "head", "tail"):
        files = [word for word in files[1:] if word.text] if name in ("grep", "sed", "awk") else files
        origins = [
            state.files.get(state.key(word.text), ShellOutput("", Origin.FILE)).origin for word in files if word.text
        ]
        return ShellOutput(None, worst(stdin.origin if stdin else Origin.UNKNOWN, *origins))
    if name == "tee" or not [word for word in files if word.text != "-"]:
        return stdin if stdin is not None else UNKNOWN
    texts: list[str] = []
    origin = Origin.UNKNOWN
    known = True
    sources: tuple[str, ...] = ()
    for word in files:
        found = state.files.get(state.key(word.text)) if word.text is not None else None
        if found is None:
            found = ShellOutput(None, Origin.FILE, (), (word.text,) if word.text is not None else ())
        sources += found.sources
        known = known and found.text is not None
        texts.append(found.text or "")
        origin = worst(origin, found.origin)
    return ShellOutput("".join(texts) if known and name == "cat" else None, origin, (), sources[:8])
