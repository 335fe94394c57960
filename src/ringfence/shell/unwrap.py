"""Find the command inside a command: what a wrapper, a shell, an interpreter or an option would run.

What this does not protect against: programs that run others by files we do not see (a Makefile, a package's scripts),
and programs that are not in the catalogue.
"""

import fnmatch
import re
from typing import Final, NamedTuple

from ringfence.shell.catalog import (
    CONTAINER_TAKES,
    CONTAINERS,
    GIT_CODE_KEYS,
    GIT_CODE_OPTIONS,
    GIT_TAKES,
    INTERPRETERS,
    LOADER_TAKES,
    LOADERS,
    PARALLEL_TAKES,
    RUNS_BY_OPTION,
    SHELL_TAKES,
    SHELLS,
    WRAPPERS,
    Wrapper,
)
from ringfence.values.facts import Via, Word

_ASSIGN: Final = re.compile(r"[A-Za-z_]\w*=")
_VERSIONED: Final = re.compile(r"[\d.]+\Z")
_SUBMODULE_FLAGS: Final = frozenset(("--recursive", "-q", "--quiet"))


class Inner(NamedTuple):
    """One thing that is run from within a command; exactly one of `argv`, `code`, `file` and `stdin` is set."""

    via: Via
    label: str
    """The wrapper, as it is told to people: `sudo`, `tar --to-command`."""
    argv: tuple[Word, ...] = ()
    code: Word | None = None
    file: Word | None = None
    stdin: bool = False
    language: str = ""
    """Empty for the shell's own."""
    parameters: tuple[Word, ...] = ()
    assigns: tuple[Word, ...] = ()


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
        return inners + ([_script(name, arguments[0], arguments[1:], Via.SHELL)] if arguments else [])
    if name in _SPECIAL:
        return inners + _SPECIAL[name](name, arguments)
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


def option_values(arguments: tuple[Word, ...], options: frozenset[str]) -> list[tuple[str, Word]]:
    """The values of those options, attached (`-Ix`, `--long=x`) or not."""
    found: list[tuple[str, Word]] = []
    for number, word in enumerate(arguments):
        text = word.text
        if text is None or not text.startswith("-"):
            continue
        if text == "--":
            break
        if text in options:
            if number + 1 < len(arguments):
                found.append((text, arguments[number + 1]))
        elif text.startswith("--"):
            name, equals, value = text.partition("=")
            if equals and name in options:
                found.append((name, _tail(word, value)))
        else:
            for position in range(1, len(text)):
                short = "-" + text[position]
                if short in options:
                    if position + 1 < len(text):
                        found.append((short, _tail(word, text[position + 1 :])))
                    elif number + 1 < len(arguments):
                        found.append((short, arguments[number + 1]))
                    break
    return found


def operands(arguments: tuple[Word, ...], takes: frozenset[str] = frozenset()) -> list[Word]:
    """The arguments that are neither options nor values of options."""
    found: list[Word] = []
    skip = False
    for number, word in enumerate(arguments):
        text = word.text
        if skip:
            skip = False
        elif text is None or not text.startswith("-") or text == "-":
            found.append(word)
        elif text == "--":
            return found + list(arguments[number + 1 :])
        else:
            skip = _takes_next(text, takes)
    return found


def _takes_next(text: str, takes: frozenset[str]) -> bool:
    if text in takes:
        return True
    if text.startswith("--"):
        return False
    for position in range(1, len(text)):
        if "-" + text[position] in takes:
            return position == len(text) - 1
    return False


def _tail(word: Word, text: str) -> Word:
    return Word(text, word.span, word.pattern)


def _by_option(name: str, option: str, value: Word) -> Inner:
    text = value.text
    if text is not None and option == "--checkpoint-action":
        kind, _, text = text.partition("=")
        value = _tail(value, text if kind == "exec" else ":")
    if text is not None and option == "-wrapper":
        value = _tail(value, text.replace(",", " "))
    return Inner(Via.WRAPPER, f"{name} {option}", code=value)


def join(words: tuple[Word, ...] | list[Word]) -> Word:
    """Put arguments together as `eval` does; unknown if one of them is."""
    texts = [word.text for word in words]
    span = words[0].span if len(words) == 1 else type(words[0].span)(words[0].span.start, words[-1].span.end)
    if None in texts:
        return Word(None, span, if_unset=" ".join(word.if_unset if word.text is None else word.text for word in words))
    return Word(" ".join(text for text in texts if text is not None), span)


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
            if _takes_next(text, wrapper.takes):
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
                inners.append(Inner(Via.WRAPPER, f"ssh {option} {key}", code=_tail(value, code)))
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
            inners.append(_script(name, arguments[position + 1], (), Via.SHELL))
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
    inners.append(_script(name, rest[0], rest[1:], Via.SHELL))
    return inners


def _script(name: str, file: Word, parameters: tuple[Word, ...], via: Via) -> Inner:
    if file.text in ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"):
        return Inner(via, name, stdin=True, parameters=parameters)
    return Inner(via, name, file=file, parameters=parameters)


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
                inners.append(_script(name, arguments[position], arguments[position + 1 :], Via.WRAPPER))
                inners[-1] = inners[-1]._replace(language=language)
            return inners
        values = option_values(arguments[position : position + 2], code_options) if text != "--" else []
        if values:
            inners.append(Inner(Via.WRAPPER, name, code=values[0][1], language=language))
            if language in ("python", "pypy"):
                return inners
            position += 2 if _takes_next(text, code_options) else 1
            continue
        if text in ("--version", "-V", "--help", "-h", "-v", "-version") and len(arguments) == 1:
            return []
        if text == "-m" and language in ("python", "pypy"):
            return inners
        position += 2 if _takes_next(text, takes) else 1
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


def operands_from(arguments: tuple[Word, ...], takes: frozenset[str]) -> tuple[Word, ...]:
    """Everything from the first operand on."""
    position = 0
    while position < len(arguments):
        text = arguments[position].text
        if text is None or not text.startswith("-"):
            break
        position += 2 if _takes_next(text, takes) else 1
    return arguments[position:]


def _user(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`runuser -u user command`; `su` runs what its `-c` says, which is a row of the catalogue."""
    if name == "runuser" and any(word.text == "-u" for word in arguments):
        return _wrapped(name, Wrapper("as another user", takes=frozenset(("-u", "-g", "-G"))), arguments)
    return []


def _parallel(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    rest = operands_from(arguments, PARALLEL_TAKES)
    cut = next((n for n, word in enumerate(rest) if word.text in (":::", "::::", ":::+")), len(rest))
    if not cut:
        values = rest[1:] if not rest or rest[0].text != "::::" else (Word(None, rest[0].span),)
        return [Inner(Via.SHELL, name, code=value) for value in values] or [Inner(Via.SHELL, name, stdin=True)]
    command = join(rest[:cut])
    given = rest[cut + 1 :] if cut < len(rest) and rest[cut].text == ":::" else (Word(None, rest[0].span),)
    inners: list[Inner] = []
    for value in given[:20]:
        if command.text is not None and "{}" in command.text and value.text is not None:
            inners.append(Inner(Via.SHELL, name, code=_tail(command, command.text.replace("{}", value.text))))
        else:
            inners.append(Inner(Via.SHELL, name, code=join((command, value))))
            if value.text is None:
                inners.append(Inner(Via.SHELL, name, code=command))
    return inners


def _ip(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    texts = [word.text for word in arguments]
    if "exec" in texts:
        position = texts.index("exec") + (2 if "netns" in texts else 3)
        if arguments[position:]:
            return [Inner(Via.WRAPPER, "ip exec", argv=arguments[position:])]
    return []


def _editor(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`vim -c '!command'`, `vim +:!command`, `less +!command`."""
    values = [value for _, value in option_values(arguments, frozenset(("-c", "--cmd", "-S")))]
    values += [_tail(word, word.text[1:]) for word in arguments if word.text and word.text.startswith("+")]
    inners: list[Inner] = []
    for value in values:
        match = re.match(
            r":?\s*(?:silent!?\s*)?(?:%|r\s*|w\s*|term(?:inal)?\s+)?!?\s*!(.*)", value.text or "", re.DOTALL
        )
        if match:
            inners.append(Inner(Via.SHELL, f"{name} !", code=_tail(value, match[1])))
        elif value.text is not None and re.search(
            r"\b(?:system|jobstart|termopen)\(|os\.execute|:?py3?x?\b", value.text
        ):
            inners.append(Inner(Via.WRAPPER, name, code=value, language="vim"))
    return inners


def _debugger(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    inners: list[Inner] = []
    for _, value in option_values(arguments, frozenset(("-ex", "--ex", "-iex", "--eval-command", "-o"))):
        match = re.match(r"\s*(?:!|shell\s|platform shell\s)\s*(.*)", value.text or "", re.DOTALL)
        if match:
            inners.append(Inner(Via.SHELL, f"{name} shell", code=_tail(value, match[1])))
    cut = next((n for n, word in enumerate(arguments) if word.text in ("--args", "--")), None)
    if cut is not None and arguments[cut + 1 :]:
        inners.append(Inner(Via.WRAPPER, name, argv=arguments[cut + 1 :]))
    return inners


def _database(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    r"""`\! command` of psql and mysql, `.shell command` of sqlite3."""
    inners: list[Inner] = []
    for word in arguments:
        for match in re.finditer(r"(?:^|[\n;]\s*)(?:\\!|system\s|\.shell\s|\.system\s)\s*([^\n]*)", word.text or ""):
            inners.append(Inner(Via.SHELL, f"{name} !", code=_tail(word, match[1])))
        for match in re.finditer(r"(?i)\bto\s+program\s+'((?:[^']|'')*)'", word.text or ""):
            inners.append(Inner(Via.SHELL, f"{name} program", code=_tail(word, match[1])))
    return inners


def _socat(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    inners: list[Inner] = []
    for word in arguments:
        match = re.match(r"(?i)(?:exec|system|shell):([^,]*)", word.text or "")
        if match:
            inners.append(Inner(Via.SHELL, "socat exec", code=_tail(word, match[1].strip("'\""))))
    return inners


def _terminal(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`tmux new-session 'command'`, `tmux send-keys 'command'`, `screen -dm command`."""
    takes = frozenset(["-s", "-n", "-c", "-t", "-x", "-y", "-F", "-S", "-T", "-L", "-f", "-e"])
    rest = operands_from(arguments, takes)
    if name == "tmux" and rest:
        rest = tuple(word for word in operands(rest[1:], takes) if word.text not in ("Enter", "C-m"))
    return [Inner(Via.SHELL, name, code=join(rest))] if rest else []


def _apt(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    inners: list[Inner] = []
    for _, value in option_values(arguments, frozenset(("-o", "--option"))):
        key, _, code = (value.text or "").partition("=")
        if "invoke" in key.lower():
            inners.append(Inner(Via.SHELL, f"{name} -o", code=_tail(value, code.strip("'\""))))
    return inners


def _make(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """A Makefile from standard input, `--eval`; what a Makefile on disk does is not known."""
    inners: list[Inner] = []
    for option, value in option_values(arguments, frozenset(("-f", "--file", "--makefile", "--eval", "-E"))):
        if option in ("--eval", "-E"):
            inners.append(Inner(Via.WRAPPER, f"{name} --eval", code=value, language="make"))
        elif value.text in ("-", "/dev/stdin"):
            inners.append(Inner(Via.WRAPPER, name, stdin=True, language="make"))
    for word in arguments:
        if word.text and re.match(r"(?:SHELL|\.SHELLFLAGS|MAKESHELL)=", word.text):
            inners.append(Inner(Via.WRAPPER, f"{name} SHELL", code=_tail(word, word.text.partition("=")[2])))
    return inners


def _sed(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    scripts = [value for _, value in option_values(arguments, frozenset(("-e", "--expression")))]
    if not scripts and not option_values(arguments, frozenset(("-f", "--file"))):
        scripts = operands(arguments, frozenset(("-l", "--line-length")))[:1]
    return [Inner(Via.WRAPPER, name, code=script, language="sed") for script in scripts]


def _awk(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    files = [value for _, value in option_values(arguments, frozenset(("-f", "--file", "-E", "--exec")))]
    if files:
        return [_script(name, file, (), Via.WRAPPER)._replace(language="awk") for file in files]
    scripts = [value for _, value in option_values(arguments, frozenset(("-e", "--source")))]
    scripts = scripts or operands(arguments, frozenset(("-v", "-F", "--assign", "--field-separator")))[:1]
    return [Inner(Via.WRAPPER, name, code=script, language="awk") for script in scripts]


def _git(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    inners: list[Inner] = []
    aliases: dict[str, Word] = {}
    position = 0
    while position < len(arguments):
        text = arguments[position].text
        if text is None or not text.startswith("-"):
            break
        if text == "-c" and position + 1 < len(arguments):
            value = arguments[position + 1]
            key, _, setting = (value.text or "").partition("=")
            if key.lower().startswith("alias."):
                aliases[key[6:]] = _tail(value, setting)
            else:
                inners += _git_setting(key, _tail(value, setting), "git -c")
        position += 2 if text in GIT_TAKES else 1
    rest = arguments[position:]
    sub = rest[0].text if rest else None
    if sub is None:
        return inners
    rest = rest[1:]
    if sub in aliases and aliases[sub].text is not None:
        inners += _git_setting("alias." + sub, aliases[sub], "git -c")
    for option, value in option_values(rest, GIT_CODE_OPTIONS.get(sub, frozenset())):
        if not (sub == "grep" and option == "-O" and value in rest):
            inners.append(Inner(Via.SHELL, f"git {sub} {option}", code=value))
    if sub == "config":
        names = operands(rest, frozenset(("-f", "--file", "--blob", "--type", "--default")))
        names = [word for word in names if word.text not in ("set", "get", "unset", "list")]
        if len(names) > 1 and names[0].text is not None:
            inners += _git_setting(names[0].text, names[1], "git config")
    elif sub == "submodule" and rest and rest[0].text == "foreach":
        code = [word for word in rest[1:] if word.text not in _SUBMODULE_FLAGS]
        if code:
            inners.append(Inner(Via.SHELL, "git submodule foreach", code=join(code)))
    elif sub == "bisect" and rest and rest[0].text == "run" and rest[1:]:
        inners.append(Inner(Via.WRAPPER, "git bisect run", argv=rest[1:]))
    elif sub in ("clone", "fetch", "pull", "ls-remote", "remote", "submodule", "push"):
        for word in rest:
            if word.text and word.text.startswith("ext::"):
                inners.append(Inner(Via.SHELL, "git ext::", code=_tail(word, word.text[5:])))
        for _, value in option_values(rest, frozenset(("-c", "--config"))):
            key, _, setting = (value.text or "").partition("=")
            inners += _git_setting(key, _tail(value, setting), "git clone -c")
    return inners


def _git_setting(key: str, value: Word, label: str) -> list[Inner]:
    lowered = key.lower()
    if not any(fnmatch.fnmatchcase(lowered, row) for row in GIT_CODE_KEYS):
        return []
    text = value.text
    if lowered.startswith(("alias.", "credential.")) and text is not None:
        if not text.startswith("!"):
            return []  # another git command, a helper by its name
        value = _tail(value, text[1:])
    if text in ("", "true", "false", "cat", "less", "less -R", "delta", "never", "always", "user"):
        return []
    return [Inner(Via.SHELL, f"{label} {key}", code=value)]


_SPECIAL: Final = {
    "parallel": _parallel,
    "ip": _ip,
    "su": _user,
    "runuser": _user,
    "vim": _editor,
    "vi": _editor,
    "nvim": _editor,
    "view": _editor,
    "ex": _editor,
    "less": _editor,
    "more": _editor,
    "gdb": _debugger,
    "lldb": _debugger,
    "psql": _database,
    "mysql": _database,
    "sqlite3": _database,
    "socat": _socat,
    "tmux": _terminal,
    "screen": _terminal,
    "apt": _apt,
    "apt-get": _apt,
    "make": _make,
    "gmake": _make,
    "git": _git,
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
}
