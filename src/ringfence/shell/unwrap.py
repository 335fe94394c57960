"""Find the command inside a command: what a wrapper, a shell, an interpreter or an option would run.

What this does not protect against: programs that run others by files we do not see (a Makefile, a package's scripts),
and programs that are not in the catalogue.
"""

import re
import shlex
from typing import Final

from ringfence.dataclass import replace
from ringfence.shell.catalog import (
    CODE_BY_OPTION,
    CODE_OPERANDS,
    CONTAINER_TAKES,
    CONTAINERS,
    INTERPRETERS,
    LOADER_LOADS,
    LOADER_TAKES,
    LOADERS,
    LOADS_BY_OPTION,
    RUNS_BY_NAME,
    RUNS_BY_OPTION,
    RUNS_THE_REST,
    SHELL_TAKES,
    SHELLS,
    SSH_COMMANDS,
    SSH_FILES,
    SSH_LIKE,
    STDIN_LANGUAGES,
    WRAPPERS,
    Wrapper,
)
from ringfence.shell.catalog.known import LIBRARY_TOOLS
from ringfence.shell.catalog.operands import ROWS as OPERANDS
from ringfence.shell.catalog.places import TEXT_COMMANDS
from ringfence.shell.catalog.runs import SINGLE_DASH
from ringfence.shell.options import Inner, join, operands, operands_from, option_values, script_of, tail, takes_next
from ringfence.shell.tools import TOOLS
from ringfence.values.facts import Via, Word

_ASSIGN: Final = re.compile(r"[A-Za-z_][^=\s/]*=")
_LIBRARY: Final = re.compile(
    r"(?:\A|[=:,]|\A-[A-Za-z])((?!/(?:usr/)?lib)[\w.~-]*/[\w./+-]*\.(?:so(?:\.\d+)*|dylib))(?=\Z|[,:=;])"
)
"""A shared library by its path, but for those of the system."""
_VERSIONED: Final = re.compile(r"[\d.]+\Z")


def interpreter(name: str) -> str:
    """The language of an interpreter, `python3.12` gives `python`; empty if it is none."""
    plain = _VERSIONED.sub("", name)
    return plain if plain in INTERPRETERS else ""


def unwrap(name: str, argv: tuple[Word, ...]) -> list[Inner]:
    """Everything that the program `name` would run because of its arguments."""
    arguments = argv[1:]
    inners: list[Inner] = []
    options = RUNS_BY_OPTION.get(name)
    if options is not None:
        for option, value in option_values(arguments, options, bundled=name not in SINGLE_DASH):
            inners.append(_by_option(name, option, value))
    named = frozenset(
        option
        for option in ((word.text or "").partition("=")[0] for word in arguments if (word.text or "")[:2] == "--")
        if RUNS_BY_NAME.fullmatch(option)
    )
    if named and name not in TEXT_COMMANDS:
        known = options or frozenset()
        inners += [_by_option(name, option, value) for option, value in option_values(arguments, named - known)]
    ends = RUNS_THE_REST.get(name)
    if ends is not None:
        inners += _rest(name, ends, arguments)
    inners += _coded(name, arguments)
    if name in SSH_LIKE:
        inners += _ssh_settings(name, arguments)
    if name in SHELLS:
        return inners + _shell(name, arguments)
    if name in (".", "source"):
        return inners + ([script_of(name, arguments[0], arguments[1:], Via.SHELL)] if arguments else [])
    tool = TOOLS.get(name)
    if tool is not None:
        return inners + tool(name, arguments)
    if name == "runuser":
        return inners + _user(name, arguments)
    if name in CONTAINERS:
        return inners + _container(name, arguments)
    wrapper = WRAPPERS.get(name)
    if wrapper is not None:
        if name in ("command", "disown") and arguments and arguments[0].text in ("-v", "-V", "-pv"):
            return inners
        return inners + _wrapped(name, wrapper, arguments)
    if name.startswith(LOADERS):
        for option, value in option_values(arguments, LOADER_LOADS):
            inners.append(Inner(Via.WRAPPER, f"{name} {option}", file=value, loads=True))
        return inners + _wrapped(name, Wrapper("the dynamic linker", takes=LOADER_TAKES), arguments)
    language = interpreter(name)
    if language:
        return inners + _interpreter(name, language, arguments)
    return inners + _libraries(name, argv)


def _libraries(name: str, argv: tuple[Word, ...]) -> list[Inner]:
    """Libraries by their path, given to a program that does more with files than read them."""
    if "/" in (argv[0].text or "") or name in LIBRARY_TOOLS or name in OPERANDS or name in TEXT_COMMANDS:
        return []
    words = [word for word in argv[1:] if word.text and (".so" in word.text or ".dylib" in word.text)]
    found = [(word, match[1]) for word in words for match in _LIBRARY.finditer(word.text or "")]
    return [Inner(Via.WRAPPER, name, file=tail(word, path), loads=True) for word, path in found]


def _rest(name: str, ends: frozenset[str], arguments: tuple[Word, ...]) -> list[Inner]:
    """`fd -x rm -rf {}`: the command is all that follows the option, or what is glued to it as well."""
    for number, word in enumerate(arguments):
        text = word.text or ""
        rest = arguments[number + 1 :]
        glued = next((text[len(end) :].removeprefix("=") for end in ends if text.startswith(end) and text != end), "")
        if glued and (text[1:2] != "-" or "=" in text):
            rest = (tail(word, glued), *rest)
        elif text not in ends:
            continue
        return [Inner(Via.WRAPPER, f"{name} {text}", argv=rest)] if rest else []
    return []


def _coded(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """Code in a tool's own language: by an option, as an operand, on standard input; and code that it loads."""
    inners: list[Inner] = []
    row = CODE_BY_OPTION.get(name)
    if row is not None:
        for option, value in option_values(arguments, row[0], bundled=name not in SINGLE_DASH):
            inners.append(Inner(Via.WRAPPER, f"{name} {option}", code=value, language=row[1]))
    language = CODE_OPERANDS.get(name)
    if language is not None:
        for word in operands(arguments):
            if word.text is not None and not word.text.isalnum():
                inners.append(Inner(Via.WRAPPER, name, code=word, language=language))
    language = STDIN_LANGUAGES.get(name)
    if language is not None:
        inners.append(Inner(Via.WRAPPER, name, stdin=True, language=language))
    if name == "openssl" and arguments and arguments[0].text == "engine":
        inners += [
            Inner(Via.WRAPPER, "openssl engine", file=word, loads=True)
            for word in operands(arguments[1:])
            if "/" in (word.text or "/")
        ]
    loads = LOADS_BY_OPTION.get(name)
    if loads is not None:
        for option, value in option_values(arguments, loads, bundled=name not in SINGLE_DASH):
            inners.append(Inner(Via.WRAPPER, f"{name} {option}", file=value, loads=True))
    return inners


def _by_option(name: str, option: str, value: Word) -> Inner:
    text = value.text
    if text is not None and option == "--checkpoint-action":
        kind, _, text = text.partition("=")
        value = tail(value, text if kind == "exec" else ":")
    if text is not None and name == "psql":
        value = tail(value, text[1:] if text.startswith("|") else ":")
    if text is not None and "unixexec:" in text:
        parts = [part.partition("=")[2] for part in text.partition("unixexec:")[2].split(",")]
        value = tail(value, shlex.join(part for part in parts if part))
    elif name in ("busctl", "dbus-send"):
        value = tail(value, ":")
    if text is not None and name == "bind":
        value = tail(value, text.partition(":")[2])
    if text is not None and option == "-wrapper":
        value = tail(value, text.replace(",", " "))
    return Inner(Via.WRAPPER, f"{name} {option}", code=value)


def _wrapped(name: str, wrapper: Wrapper, arguments: tuple[Word, ...]) -> list[Inner]:
    position = 0
    label = name
    if wrapper.names_first and arguments and not (arguments[0].text or "-").startswith("-"):
        rest = arguments[1:]
        if len(arguments) > 1:
            return [
                *_wrapped(name, replace(wrapper, names_first=False), rest),
                Inner(wrapper.via, label, argv=arguments),
            ]
        return [Inner(wrapper.via, label, argv=arguments)]
    if wrapper.words:
        found = next((n for n, word in enumerate(arguments) if word.text in wrapper.words), None)
        if found is None:
            return []
        label = f"{name} {arguments[found].text}"
        position = found + 1
    assigns: list[Word] = []
    doubts: list[int] = []
    left = wrapper.operands
    while position < len(arguments):
        text = arguments[position].text
        if text == "--":
            position += 1
            left, skipped = 0, left
            position += skipped
            break
        if text == "-" and "-" in wrapper.flags:
            position += 1
            continue
        if text is not None and text.startswith("-") and len(text) > 1:
            position += 1
            if text in wrapper.pairs:
                position += 2
            elif takes_next(text, wrapper.takes):
                position += 1
            elif "=" not in text and not _flags(text, wrapper) and not left:
                doubts.append(position + 1)
            continue
        if text is None and not left:
            doubts.append(position + 1)
            break
        if text is not None and wrapper.assigns and _ASSIGN.match(text):
            assigns.append(arguments[position])
            position += 1
            continue
        if left:
            left -= 1
            position += 1
            continue
        break
    inners: list[Inner] = []
    for begin in dict.fromkeys((position, *doubts)):
        rest = arguments[begin:]
        if not rest or (begin != position and (rest[0].text or "").startswith("-")):
            continue
        if wrapper.joined:
            inners.append(Inner(wrapper.via, label, code=join(rest), assigns=tuple(assigns)))
        else:
            inners.append(Inner(wrapper.via, label, argv=rest, assigns=tuple(assigns)))
    if not inners and assigns:
        inners.append(Inner(wrapper.via, label, argv=(), assigns=tuple(assigns)))
    return inners


def _ssh_settings(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`-o ProxyCommand=...` of ssh and what is built on it."""
    inners: list[Inner] = []
    for option, value in option_values(arguments, frozenset(("-o",))):
        key, *codes = re.split(r"[=\s]+", (value.text or "").strip(), maxsplit=1)
        code = codes[0] if codes else ""
        if key.lower() in SSH_COMMANDS:
            command = code.partition("exec ")[2].strip("\"'") if key.lower() == "match" else code
            inners.append(Inner(Via.WRAPPER, f"{name} {option} {key}", code=tail(value, command or ":")))
        elif key.lower() in SSH_FILES and code:
            inners.append(Inner(Via.WRAPPER, f"{name} {option} {key}", file=tail(value, code), loads=True))
    return inners


def _flags(text: str, wrapper: Wrapper) -> bool:
    if text in wrapper.flags or text[1:].lstrip("-").isdigit():
        return True
    if text.startswith("--"):
        return False
    return all("-" + letter in wrapper.flags for letter in text[1:])


def _shell(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    position = 0
    command = False
    reads = False
    inners: list[Inner] = []
    while position < len(arguments):
        text = arguments[position].text
        if text is None or text in ("-", "--"):
            position += text is not None
            break
        if not text.startswith(("-", "+")) or len(text) < 2:
            break
        if text in ("--rcfile", "--init-file") and position + 1 < len(arguments):
            inners.append(script_of(name, arguments[position + 1], (), Via.SHELL))
        if text in SHELL_TAKES:
            position += 1
        elif not text.startswith("--"):
            command = command or "c" in text
            reads = reads or "s" in text
            position += text[-1] in "oO" and text[0] in "-+"
        elif text in ("--command",):
            command = True
        elif text in ("--version", "--help"):
            return []
        position += 1
    rest = arguments[position:]
    if command:
        if rest:
            inners.append(Inner(Via.SHELL, name, code=rest[0], parameters=rest[1:]))
        return inners
    if reads or not rest:
        inners.append(Inner(Via.SHELL, name, stdin=True, parameters=rest))
        return inners
    inners.append(script_of(name, rest[0], rest[1:], Via.SHELL))
    return inners


def _interpreter(name: str, language: str, arguments: tuple[Word, ...]) -> list[Inner]:
    code_options, takes = INTERPRETERS[language]
    position = 0
    inners: list[Inner] = []
    while position < len(arguments):
        text = arguments[position].text
        if text is None:
            inners.append(Inner(Via.WRAPPER, name, file=arguments[position], language=language))
            return inners
        if text == "-":
            rest = arguments[position + 1 :]
            return [*inners, Inner(Via.WRAPPER, name, stdin=True, language=language, parameters=rest)]
        if language == "deno" and text == "eval" and position + 1 < len(arguments):
            return [Inner(Via.WRAPPER, name, code=arguments[position + 1], language="node")]
        if not text.startswith("-") or len(text) < 2:
            if not inners:
                inners.append(script_of(name, arguments[position], arguments[position + 1 :], Via.WRAPPER))
                inners[-1] = inners[-1]._replace(language=language)
            return inners
        values = option_values(arguments[position : position + 2], code_options) if text != "--" else []
        if values:
            step = 2 if takes_next(text, code_options) else 1
            given = operands_from(arguments[position + step :], takes | code_options)
            given = given[1:] if given and given[0].text == "--" else given
            inners.append(Inner(Via.WRAPPER, name, code=values[0][1], language=language, parameters=given))
            if language in ("python", "pypy"):
                return inners
            position += step
            continue
        if text in ("--version", "-V", "--help", "-h", "-v", "-version") and len(arguments) == 1:
            return []
        if text.startswith("-m") and language in ("python", "pypy"):
            return inners + _module(name, language, text[2:], arguments[position + 1 :])
        position += 2 if takes_next(text, takes) else 1
    if not inners:
        inners.append(Inner(Via.WRAPPER, name, stdin=True, language=language))
    return inners


def _module(name: str, language: str, module: str, rest: tuple[Word, ...]) -> list[Inner]:
    """`python -m module`: those of the library that run what they are given as code."""
    if not module:
        module, rest = (rest[0].text or "") if rest else "", rest[1:]
    label = f"{name} -m {module}"
    codes: list[Word] = []
    if module == "timeit":
        takes = frozenset(("-n", "--number", "-r", "--repeat", "-s", "--setup", "-u", "--unit"))
        codes = [value for _, value in option_values(rest, frozenset(("-s", "--setup")))] + operands(rest, takes)
    elif module == "pdb":
        codes = [value for _, value in option_values(rest, frozenset(("-c", "--command")))]
    elif module in ("code", "asyncio"):
        return [Inner(Via.WRAPPER, label, stdin=True, language=language)]
    return [Inner(Via.WRAPPER, label, code=code, language=language) for code in codes]


def _container(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    found = next((n for n, word in enumerate(arguments) if word.text in ("run", "exec", "debug")), None)
    if found is None:
        return []
    label = f"{name} {arguments[found].text}"
    rest = arguments[found + 1 :]
    dashes = next((n for n, word in enumerate(rest) if word.text == "--"), None)
    inner = rest[dashes + 1 :] if dashes is not None else operands_from(rest, CONTAINER_TAKES)[1:]
    return [Inner(Via.REMOTE, label, argv=inner)] if inner else []


def _user(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`runuser -u user command`; what its `-c` says is a row of the catalogue."""
    if any(word.text == "-u" for word in arguments):
        return _wrapped(name, Wrapper("as another user", takes=frozenset(("-u", "-g", "-G"))), arguments)
    return []
