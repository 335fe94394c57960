"""Tools that run commands in ways of their own: git, editors, databases, debuggers, make and others."""

import fnmatch
import re
from collections.abc import Callable
from typing import Final

from ringfence.shell.catalog import GIT_CODE_KEYS, GIT_CODE_OPTIONS, GIT_TAKES, PARALLEL_TAKES
from ringfence.shell.options import Inner, join, operands, operands_from, option_values, script_of, tail
from ringfence.values.facts import Via, Word

_SUBMODULE_FLAGS: Final = frozenset(("--recursive", "-q", "--quiet"))


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
            inners.append(Inner(Via.SHELL, name, code=tail(command, command.text.replace("{}", value.text))))
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
    values += [tail(word, word.text[1:]) for word in arguments if word.text and word.text.startswith("+")]
    inners: list[Inner] = []
    for value in values:
        match = re.match(
            r":?\s*(?:silent!?\s*)?(?:%|r\s*|w\s*|term(?:inal)?\s+)?!?\s*!(.*)", value.text or "", re.DOTALL
        )
        if match:
            inners.append(Inner(Via.SHELL, f"{name} !", code=tail(value, match[1])))
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
            inners.append(Inner(Via.SHELL, f"{name} shell", code=tail(value, match[1])))
    cut = next((n for n, word in enumerate(arguments) if word.text in ("--args", "--")), None)
    if cut is not None and arguments[cut + 1 :]:
        inners.append(Inner(Via.WRAPPER, name, argv=arguments[cut + 1 :]))
    return inners


def _database(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    r"""`\! command` of psql and mysql, `.shell command` of sqlite3."""
    inners: list[Inner] = []
    for word in arguments:
        for match in re.finditer(r"(?:^|[\n;]\s*)(?:\\!|system\s|\.shell\s|\.system\s)\s*([^\n]*)", word.text or ""):
            inners.append(Inner(Via.SHELL, f"{name} !", code=tail(word, match[1])))
        for match in re.finditer(r"(?i)\bto\s+program\s+'((?:[^']|'')*)'", word.text or ""):
            inners.append(Inner(Via.SHELL, f"{name} program", code=tail(word, match[1])))
    return inners


def _socat(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    inners: list[Inner] = []
    for word in arguments:
        match = re.match(r"(?i)(?:exec|system|shell):([^,]*)", word.text or "")
        if match:
            inners.append(Inner(Via.SHELL, "socat exec", code=tail(word, match[1].strip("'\""))))
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
            inners.append(Inner(Via.SHELL, f"{name} -o", code=tail(value, code.strip("'\""))))
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
            inners.append(Inner(Via.WRAPPER, f"{name} SHELL", code=tail(word, word.text.partition("=")[2])))
    return inners


def _sed(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    scripts = [value for _, value in option_values(arguments, frozenset(("-e", "--expression")))]
    if not scripts and not option_values(arguments, frozenset(("-f", "--file"))):
        scripts = operands(arguments, frozenset(("-l", "--line-length")))[:1]
    return [Inner(Via.WRAPPER, name, code=script, language="sed") for script in scripts]


def _awk(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    files = [value for _, value in option_values(arguments, frozenset(("-f", "--file", "-E", "--exec")))]
    if files:
        return [script_of(name, file, (), Via.WRAPPER)._replace(language="awk") for file in files]
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
                aliases[key[6:]] = tail(value, setting)
            else:
                inners += _git_setting(key, tail(value, setting), "git -c")
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
                inners.append(Inner(Via.SHELL, "git ext::", code=tail(word, word.text[5:])))
        for _, value in option_values(rest, frozenset(("-c", "--config"))):
            key, _, setting = (value.text or "").partition("=")
            inners += _git_setting(key, tail(value, setting), "git clone -c")
    return inners


def _git_setting(key: str, value: Word, label: str) -> list[Inner]:
    lowered = key.lower()
    if not any(fnmatch.fnmatchcase(lowered, row) for row in GIT_CODE_KEYS):
        return []
    text = value.text
    if lowered.startswith(("alias.", "credential.")) and text is not None:
        if not text.startswith("!"):
            return []  # another git command, a helper by its name
        value = tail(value, text[1:])
    if text in ("", "true", "false", "cat", "less", "less -R", "delta", "never", "always", "user"):
        return []
    return [Inner(Via.SHELL, f"{label} {key}", code=value)]


TOOLS: Final[dict[str, Callable[[str, tuple[Word, ...]], list[Inner]]]] = {
    "parallel": _parallel,
    "ip": _ip,
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
