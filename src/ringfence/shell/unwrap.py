"""Find the command inside a command: what a wrapper, a shell, an interpreter or an option would run.

What this does not protect against: programs that run others by files we do not see (a Makefile, a package's scripts),
and programs that are not in the catalogue.
"""

import re
from typing import Final

from ringfence.shell.catalog import (
    CONTAINER_TAKES,
    CONTAINERS,
    INTERPRETERS,
    LOADER_TAKES,
    LOADERS,
    RUNS_BY_OPTION,
    SHELL_TAKES,
    SHELLS,
    WRAPPERS,
    Wrapper,
)
from ringfence.shell.options import Inner, join, operands_from, option_values, script_of, tail, takes_next
from ringfence.shell.tools import TOOLS
from ringfence.values.facts import Via, Word

_ASSIGN: Final = re.compile(r"[A-Za-z_]\w*=")
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
        for option, value in option_values(arguments, options):
            inners.append(_by_option(name, option, value))
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
        return inners + _wrapped(name, Wrapper("the dynamic linker", takes=LOADER_TAKES), arguments)
    language = interpreter(name)
    if language:
        return inners + _interpreter(name, language, arguments)
    return inners


def _by_option(name: str, option: str, value: Word) -> Inner:
    text = value.text
    if text is not None and option == "--checkpoint-action":
        kind, _, text = text.partition("=")
        value = tail(value, text if kind == "exec" else ":")
    if text is not None and option == "-wrapper":
        value = tail(value, text.replace(",", " "))
    return Inner(Via.WRAPPER, f"{name} {option}", code=value)


def _wrapped(name: str, wrapper: Wrapper, arguments: tuple[Word, ...]) -> list[Inner]:
    position = 0
    label = name
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
        if text is not None and text.startswith("-") and len(text) > 1:
            position += 1
            if takes_next(text, wrapper.takes):
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
    if name == "ssh":
        for option, value in option_values(arguments, frozenset(("-o",))):
            key, *codes = re.split(r"[=\s]+", value.text or "", maxsplit=1)
            code = codes[0] if codes else ""
            if key.lower() in ("proxycommand", "localcommand", "knownhostscommand", "match"):
                inners.append(Inner(Via.WRAPPER, f"ssh {option} {key}", code=tail(value, code)))
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
            return [*inners, Inner(Via.WRAPPER, name, stdin=True, language=language)]
        if language == "deno" and text == "eval" and position + 1 < len(arguments):
            return [Inner(Via.WRAPPER, name, code=arguments[position + 1], language="node")]
        if not text.startswith("-") or len(text) < 2:
            if not inners:
                inners.append(script_of(name, arguments[position], arguments[position + 1 :], Via.WRAPPER))
                inners[-1] = inners[-1]._replace(language=language)
            return inners
        values = option_values(arguments[position : position + 2], code_options) if text != "--" else []
        if values:
            inners.append(Inner(Via.WRAPPER, name, code=values[0][1], language=language))
            if language in ("python", "pypy"):
                return inners
            position += 2 if takes_next(text, code_options) else 1
            continue
        if text in ("--version", "-V", "--help", "-h", "-v", "-version") and len(arguments) == 1:
            return []
        if text == "-m" and language in ("python", "pypy"):
            return inners
        position += 2 if takes_next(text, takes) else 1
    if not inners:
        inners.append(Inner(Via.WRAPPER, name, stdin=True, language=language))
    return inners


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
