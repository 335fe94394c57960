"""Which files and hosts a program would touch, by what is known of its arguments.

Rows give, for each program, what its operands are and which options name files. A program without a row is taken to
read every argument that looks like a path.

What this does not protect against: files that a program opens without being told, and programs whose options mean
something else in another version.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from ringfence.shell.catalog.operands import EATERS, GREP, NO_PATHS, ROWS, words
from ringfence.shell.catalog.places import TEXT_OPTIONS
from ringfence.shell.options import operands, option_values
from ringfence.shell.trees import is_dry_run
from ringfence.values.facts import Touch, Word

_R, _W, _X = Touch.READ, Touch.WRITE, Touch.REMOVE


class TouchedOperand(NamedTuple):
    touch: Touch
    word: Word
    recursive: bool = False
    sent: bool = False
    """The file's content goes to another machine."""


class Called(NamedTuple):
    host: str
    port: int | None
    word: Word


_PATH_LIKE: Final = re.compile(r"(?:/|~|\.\.?/|\.[A-Za-z_])[^\s'\"(){};<>|]*|[^\s:'\"(){};<>|]+/[^\s'\"(){};<>|]*")
_OUT_OPTION: Final = re.compile(
    r"(?:^|-)(?:o|out|output|outfile|out-file|dest|destination|log|logfile|log-file|write|report)"
)
_URL: Final = re.compile(
    r"(?:[a-z][a-z0-9+.-]*://)(?:[^@/\s]*@)?(\[[0-9a-fA-F:]+\]|[^:/\s?#]+)(?::(\d+))?", re.IGNORECASE
)
_BARE_HOST: Final = re.compile(
    r"(?:[^@/\s]*@)?((?:[A-Za-z0-9_-]+\.)+[A-Za-z0-9-]+|localhost|\[[0-9a-fA-F:]+\])(?::(\d+))?(?:[/?#]\S*)?"
)
_SCP: Final = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)\S*")
_FETCHERS: Final = words("curl wget http https httpie xh aria2c lynx links w3m fetch")
_DIALERS: Final = words("ping ping6 dig host nslookup nc ncat netcat telnet traceroute whois ssh sftp mosh")
_GIT_TAKES: Final = words(
    "-m -F -C -c --message --author --date -b -B --grep -S -G -L -n --since --until --format --git-dir"
)


_GIT_NAMES: Final = words("check-ignore check-attr ls-files status")
"""Only say something of the names that they are given."""


def paths(name: str, argv: tuple[Word, ...]) -> Iterator[TouchedOperand]:
    """The files that the arguments of `name` name."""
    arguments = argv[1:]
    if name == "dd":
        for word in arguments:
            key, _, path = (word.text or "").partition("=")
            if key in ("if", "of") and path:
                yield TouchedOperand(_R if key == "if" else _W, _part(word, path))
        return
    if name == "find":
        yield from _find(arguments)
        return
    row = ROWS.get(name)
    if row is None:
        yield from _unknown(name, arguments)
        if name == "cpio" and any(re.match(r"-\w*i|--extract", word.text or "") for word in arguments):
            for _, value in option_values(arguments, words("-D --directory")):
                yield TouchedOperand(_W, value, recursive=True)
        return
    texts = [word.text for word in arguments]
    recursive = bool(row.recursive) and any(_has(text, row.recursive) for text in texts)
    recursive = recursive or name in ("rg", "ag", "ack")
    for option, value in option_values(arguments, frozenset(row.files)) if row.files else ():
        if name == "tar" and option in ("-C", "--directory") and _creates(arguments):
            yield TouchedOperand(_R, value)
        elif option in row.files:
            yield TouchedOperand(
                row.files[option], value, recursive, name in ("curl", "wget") and row.files[option] is _R
            )
    if name in ("curl", "wget"):
        yield from _uploads(name, arguments)
    if row.operand is None:
        return
    found = operands(arguments, row.takes | row.files.keys()) if arguments else []
    skip = 0 if any(_has(text, row.unless) for text in texts) else row.skip
    found = found[skip:]
    touch = row.operand
    if name in EATERS and not is_kept(name, texts):
        touch = _X
    if name in ("sed", "gsed") and any(text and text.startswith(("-i", "--in-place")) for text in texts):
        touch = _W
    elif name == "tar":
        yield from _tar(arguments, found)
        return
    elif name in ("zip", "7z", "7za") and touch is _X:
        found = found[1 if name == "zip" else 2 :]  # the archive comes first, and before it a letter
    target = row.last is not None and len(found) > 1 and not any(_has(text, _TARGET) for text in texts)
    target = target and not is_dry_run(name, arguments)
    for number, word in enumerate(found):
        if target and number == len(found) - 1:
            yield TouchedOperand(row.last or touch, word, recursive)
        elif word.text is None or word.text not in ("-", ""):
            yield TouchedOperand(touch, word, recursive)


def spoken(name: str, argv: tuple[Word, ...]) -> tuple[int, frozenset[str]]:
    """How many operands come before the files, and the options with a value that is none: patterns, scripts, modes."""
    row = ROWS.get(name)
    if row is None or not row.skip:
        return 0, frozenset()
    return 0 if any(_has(word.text, row.unless) for word in argv[1:]) else row.skip, row.takes


def is_kept(name: str, texts: list[str | None]) -> bool:
    """Whether a program that removes what it has packed is told to leave it, or is not told to remove it."""
    keeps, wanted = EATERS[name]
    if wanted:
        return not any(_has(text, wanted) for text in texts)
    return any(_has(text, keeps) for text in texts)


_TARGET: Final = words("-t --target-directory")


def _has(text: str | None, options: frozenset[str]) -> bool:
    if not text or not text.startswith("-"):
        return False
    if text.partition("=")[0] in options:
        return True
    return not text.startswith("--") and any("-" + letter in options for letter in text[1:])


def _part(word: Word, text: str) -> Word:
    return Word(text, word.span, word.pattern)


def _unknown(name: str, arguments: tuple[Word, ...]) -> Iterator[TouchedOperand]:
    words = operands(arguments, _GIT_TAKES) if name == "git" else list(arguments)
    if name == "git" and words and words[0].text in _GIT_NAMES:
        return
    if name == "git":
        words += [
            word
            for word in arguments
            if word.text and word.text.startswith("--") and "=" in word.text
            if word.text.partition("=")[0] not in TEXT_OPTIONS
        ]
    edits = name in ("perl", "ruby") and any(re.match(r"-\w*i", word.text or "") for word in arguments)
    for word in words:
        text = word.text if word.text is not None else word.if_unset
        touch = _W if edits else _R
        if text.startswith("-"):
            option, equals, path = text.partition("=")
            if not equals or not path.startswith(("/", "~", ".")):
                continue
            touch = _W if _OUT_OPTION.search(option.lstrip("-")) else _R
            yield TouchedOperand(touch, _part(word, path))
        elif _PATH_LIKE.fullmatch(text) and "://" not in text:
            if word.text is None:
                yield TouchedOperand(touch, word)
            else:
                _, equals, path = text.partition("=")
                yield TouchedOperand(touch, _part(word, path) if equals and path.startswith(("/", "~")) else word)
    if not any(word.text is not None and word.text.startswith(("-o", "--output")) for word in arguments):
        return
    for option, value in option_values(arguments, frozenset(("-o", "--output"))):
        if option in ("-o", "--output") and value.text and _PATH_LIKE.fullmatch(value.text):
            yield TouchedOperand(_W, value)


def _tar(arguments: tuple[Word, ...], found: list[Word]) -> Iterator[TouchedOperand]:
    """tar's first word may be a bundle of letters without a dash; what is extracted is not named."""
    letters = (arguments[0].text or "") if arguments else ""
    bundle = bool(re.fullmatch(r"-?[A-Za-z]+", letters))
    if bundle and not letters.startswith("-"):
        found = [word for word in found if word is not arguments[0]]
    creates = _creates(arguments)
    entered = [value.text for _, value in option_values(arguments, frozenset(("-C", "--directory"))) if value.text]
    for number, word in enumerate(found):
        archive = number == 0 and (bundle and "f" in letters)
        if creates and not archive and entered and word.text and not word.text.startswith(("/", "~")):
            word = _part(word, f"{entered[-1].rstrip('/')}/{word.text}")
        yield TouchedOperand(_W if archive and creates else _R, word, recursive=not archive)


_TAR_CREATES: Final = words("-c --create -cf -czf -cjf -cJf -r --append")


def _creates(arguments: tuple[Word, ...]) -> bool:
    letters = (arguments[0].text or "") if arguments else ""
    bundle = bool(re.fullmatch(r"-?[A-Za-z]+", letters))
    return (bundle and not set(letters).isdisjoint("cru")) or any(word.text in _TAR_CREATES for word in arguments)


def _uploads(name: str, arguments: tuple[Word, ...]) -> Iterator[TouchedOperand]:
    options = words("-d --data --data-binary --data-raw --data-urlencode --data-ascii -F --form --json")
    for option, value in option_values(arguments, options):
        text = value.text or ""
        if option in ("-F", "--form") and "=" in text:
            text = text.partition("=")[2]
        elif option == "--data-urlencode" and "@" in text:
            text = text[text.index("@") :]
        if text.startswith(("@", "<")) and option != "--data-raw":
            yield TouchedOperand(_R, _part(value, text[1:].partition(";")[0]), sent=True)


def find_parts(arguments: tuple[Word, ...]) -> tuple[list[Word], list[Word]]:
    """find's starting points and its expression."""
    position = 0
    while position < len(arguments) and (arguments[position].text or "") in ("-H", "-L", "-P"):
        position += 1
    begin = position
    while position < len(arguments):
        text = arguments[position].text
        if text is not None and (text.startswith("-") or text in ("(", "!", ")", ",")):
            break
        position += 1
    return list(arguments[begin:position]), list(arguments[position:])


def found_by(roots: list[Word], expression: list[Word]) -> list[Word]:
    """What `{}` stands for: each root, with the pattern that narrows it, if one does."""
    texts = [word.text for word in expression]
    narrowed = ""
    if not {"-o", "-or", ",", "!", "-not"} & set(texts):
        for number, text in enumerate(texts[:-1]):
            if text in ("-name", "-iname", "-path", "-wholename", "-regex", "-ipath"):
                value = texts[number + 1] or "*"
                if value.strip("*./"):
                    narrowed = value.rpartition("/")[2] or "*"
            elif text in ("-empty",):
                narrowed = "(empty)"
        if (texts and texts[-1] == "-empty") or "-empty" in texts:
            narrowed = narrowed or "(empty)"
    words: list[Word] = []
    for root in roots:
        if root.text is None:
            words.append(root)
        elif narrowed:
            words.append(Word(f"{root.text.rstrip('/')}/**/{narrowed}", root.span, True, "", root.literal))
        else:
            words.append(Word(root.text, root.span, root.pattern, "", root.literal))
    return words


def _find(arguments: tuple[Word, ...]) -> Iterator[TouchedOperand]:
    roots, expression = find_parts(arguments)
    for root in roots:
        yield TouchedOperand(_R, root)
    texts = [word.text for word in expression]
    if "-delete" in texts:
        here = roots or ([Word(".", expression[0].span)] if expression else [])
        for word in found_by(here, expression):
            yield TouchedOperand(_X, word, recursive=True)
    for number, text in enumerate(texts[:-1]):
        if text in ("-fprint", "-fprintf", "-fls", "-fprint0"):
            yield TouchedOperand(_W, expression[number + 1])
        elif text in ("-files0-from", "-newer", "-samefile"):
            yield TouchedOperand(_R, expression[number + 1])


def hosts(name: str, argv: tuple[Word, ...]) -> Iterator[Called]:
    """The hosts that the arguments of `name` name."""
    if ROWS.get(name) is NO_PATHS or ROWS.get(name) is GREP:
        return
    arguments = argv[1:]
    dialled = False
    for word in arguments:
        text = word.text if word.text is not None else word.if_unset
        if "://" in text:
            match = _URL.search(text)
            if match and not (name == "git" and " " in text):
                yield Called(match[1], int(match[2]) if match[2] else None, word)
            continue
        if text.startswith("-"):
            continue
        if name in _FETCHERS:
            match = _BARE_HOST.fullmatch(text)
            if match:
                yield Called(match[1], int(match[2]) if match[2] else None, word)
        elif name in _DIALERS and not dialled:
            match = _BARE_HOST.fullmatch(text.lstrip("."))
            if match:
                dialled = True
                yield Called(match[1], int(match[2]) if match[2] else None, word)
            elif name == "ssh" and re.fullmatch(r"(?:[\w.-]+@)?[\w.-]+", text):
                dialled = True
                yield Called(text.rpartition("@")[2], None, word)
        elif name in ("scp", "rsync", "git", "sftp"):
            match = _SCP.fullmatch(text)
            if match and not (name == "git" and "@" not in text):
                yield Called(match[1], None, word)
        elif name == "socat":
            match = re.match(r"(?i)(?:tcp|udp|openssl|sctp)[46]?(?:-connect)?:([^:,]+):(\d+)", text)
            if match:
                yield Called(match[1], int(match[2]), word)
        elif name == "openssl" and (match := re.fullmatch(r"([\w.-]+):(\d+)", text)):
            yield Called(match[1], int(match[2]), word)
