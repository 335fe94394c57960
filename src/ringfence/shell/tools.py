"""Tools that run commands in ways of their own: git, editors, databases, debuggers, make and others."""

import fnmatch
import re
from collections.abc import Callable
from typing import Final

from ringfence.shell.catalog import GIT_CODE_KEYS, GIT_CODE_OPTIONS, PARALLEL_TAKES
from ringfence.shell.catalog.git import GIT_PROGRAMS, HG_CODE_KEYS
from ringfence.shell.options import Inner, join, operands, operands_from, option_values, script_of, tail
from ringfence.shell.trees import git_parts
from ringfence.values.facts import Via, Word

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_SUBMODULE_FLAGS: Final = frozenset(("--recursive", "-q", "--quiet"))


def _parallel(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    rest = operands_from(arguments, PARALLEL_TAKES)
    cut = next((n for n, word in enumerate(rest) if word.text in (":::", "::::", ":::+")), len(rest))
    if not cut:
        values = rest[1:] if not rest or rest[0].text != "::::" else (Word(None, rest[0].span),)
        return [Inner(Via.SHELL, name, code=value) for value in values] or [Inner(Via.SHELL, name, stdin=True)]
    command = join(rest[:cut])
    if cut == len(rest) and any(word.text == "--pipe" for word in arguments):
        return [Inner(Via.SHELL, name, code=command)]  # its input is not a list of arguments
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
    language = "less" if name in ("less", "more", "most", "pg") else "vim"
    return [Inner(Via.WRAPPER, f"{name} !", code=value, language=language) for value in values]


def _debugger(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    cut = next((n for n, word in enumerate(arguments) if word.text in ("--args", "--")), None)
    if cut is not None and arguments[cut + 1 :]:
        return [Inner(Via.WRAPPER, name, argv=arguments[cut + 1 :])]
    return []


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
        else:
            inners.append(Inner(Via.WRAPPER, name, file=value, language="make"))
    for word in arguments:
        if word.text and word.text.startswith(".SHELLFLAGS="):
            inners.append(Inner(Via.SHELL, f"{name} SHELL", code=tail(word, "sh " + word.text.partition("=")[2])))
        elif word.text and re.match(r"(?:SHELL|\.SHELLFLAGS|MAKESHELL)=", word.text):
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
    rest = operands(arguments, frozenset(("-v", "-F", "--assign", "--field-separator", "-e", "--source")))
    if not scripts:
        scripts, rest = rest[:1], rest[1:]
    return [Inner(Via.WRAPPER, name, code=script, language="awk", parameters=tuple(rest)) for script in scripts]


_CMAKE_OWN: Final = {
    # What `cmake -E` does itself, by the program that does the same.
    "rm": "rm",
    "remove": "rm",
    "remove_directory": "rm",
    "cat": "cat",
    "copy": "cp",
    "copy_directory": "cp",
    "copy_if_different": "cp",
    "rename": "mv",
    "create_symlink": "ln",
    "create_hardlink": "ln",
    "tar": "tar",
    "touch": "touch",
    "make_directory": "mkdir",
}


def _cmake(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`cmake -E env A=1 command`; a script of its own by `-P`."""
    texts = [word.text for word in arguments]
    if "-E" not in texts:
        scripts = option_values(arguments, frozenset(("-P", "-C")))
        return [script_of(name, file, (), Via.WRAPPER)._replace(language="cmake") for _, file in scripts]
    rest = arguments[texts.index("-E") + 1 :]
    tool = rest[0].text if rest else ""
    if tool in _CMAKE_OWN:
        return [Inner(Via.WRAPPER, "cmake", argv=(tail(rest[0], _CMAKE_OWN[tool]), *rest[1:]))]
    if tool not in ("env", "time", "chdir"):
        return []
    command = rest[2:] if tool == "chdir" else rest[1:]
    while tool == "env" and command and re.match(r"-|[A-Za-z_]\w*=", command[0].text or ""):
        command = command[1:]
    return [Inner(Via.WRAPPER, f"cmake {tool}", argv=command)] if command else []


def _hg(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`--config alias.x=!command`, hooks, and programs that Mercurial is told to use."""
    inners: list[Inner] = []
    for _, value in option_values(arguments, frozenset(("--config",))):
        key, _, setting = (value.text or "").partition("=")
        if key.startswith(("alias.", "hooks.")) or key in HG_CODE_KEYS:
            inners.append(Inner(Via.SHELL, "hg --config", code=tail(value, setting.strip("'\"").removeprefix("!"))))
        elif key.startswith("extensions."):
            inners.append(Inner(Via.WRAPPER, "hg --config", file=tail(value, setting), loads=True))
    return inners


def _daemon(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`start-stop-daemon --exec program -- arguments`."""
    started = [value for _, value in option_values(arguments, frozenset(("-x", "-a", "--exec", "--startas")))]
    cut = next((n for n, word in enumerate(arguments) if word.text == "--"), len(arguments))
    return [Inner(Via.WRAPPER, name, argv=(started[-1], *arguments[cut + 1 :]))] if started else []


def _csvtool(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    texts = [word.text for word in arguments]
    if "call" not in texts[:-1]:
        return []
    return [Inner(Via.SHELL, "csvtool -call", code=arguments[texts.index("call") + 1])]


def _run_parts(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """Runs every file of a directory."""
    if any((word.text or "").startswith(("--list", "--test", "--version", "--help")) for word in arguments):
        return []
    rest = operands(arguments, frozenset(("-a", "-u")))
    return [Inner(Via.WRAPPER, name, file=word, loads=True) for word in rest]


def _git(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    inners: list[Inner] = []
    aliases: dict[str, Word] = {}
    options, rest = git_parts(arguments)
    for option, value in options:
        key, _, setting = (value.text or "").partition("=")
        if option == "-c" and key.lower().startswith("alias."):
            aliases[key[6:]] = tail(value, setting)
        elif option == "-c":
            inners += git_setting(key, tail(value, setting), "git -c")
        elif option == "--config-env" and _NAME.fullmatch(setting) and _is_code(key):
            inners.append(Inner(Via.SHELL, f"git --config-env {key}", code=tail(value, f'eval "${{{setting}#!}}"')))
        elif option == "--exec-path" and (value.text or "").rstrip("/") not in GIT_PROGRAMS:
            inners.append(Inner(Via.WRAPPER, "git --exec-path", file=value, loads=True))
    sub = rest[0].text if rest else None
    if sub is None:
        return inners
    rest = rest[1:]
    if sub in aliases and aliases[sub].text is not None:
        for inner in git_setting("alias." + sub, aliases[sub], "git -c"):
            inners.append(_with_arguments(inner, rest))
    for option, value in option_values(rest, GIT_CODE_OPTIONS.get(sub, frozenset())):
        if not (sub == "grep" and option == "-O" and value in rest):
            inners.append(Inner(Via.SHELL, f"git {sub} {option}", code=value))
    if sub == "config":
        names = operands(rest, frozenset(("-f", "--file", "--blob", "--type", "--default")))
        names = [word for word in names if word.text not in ("set", "get", "unset", "list")]
        if len(names) > 1 and names[0].text is not None:
            inners += git_setting(names[0].text, names[1], "git config")
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
            inners += git_setting(key, tail(value, setting), "git clone -c")
    return inners


def _with_arguments(inner: Inner, rest: tuple[Word, ...]) -> Inner:
    """An alias that runs a command gets the arguments after it."""
    code = inner.code
    if code is None or not rest:
        return inner
    return inner._replace(code=tail(code, f'{code.text} "$@"'), parameters=(Word("git", code.span), *rest))


def _is_code(key: str) -> bool:
    lowered = key.lower()
    return any(fnmatch.fnmatchcase(lowered, row) for row in GIT_CODE_KEYS)


def git_setting(key: str, value: Word, label: str) -> list[Inner]:
    lowered = key.lower()
    if not _is_code(key):
        return []
    text = value.text
    if lowered.startswith(("alias.", "credential.")) and text is not None:
        if text.startswith("!"):
            value = tail(value, text[1:])
        elif lowered.startswith("alias.") or not text.startswith("/"):
            return []  # another git command, a helper by its name
    if text in ("", "true", "false", "cat", "less", "less -R", "delta", "never", "always", "user"):
        return []
    return [Inner(Via.SHELL, f"{label} {key}", code=value)]


def _ansible(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """`-a` is a command unless a module is named that takes settings."""
    modules = [value.text for _, value in option_values(arguments, frozenset(("-m", "--module-name")))]
    if modules and (modules[-1] or "").rpartition(".")[2] not in ("shell", "command", "raw"):
        return []
    return [
        Inner(Via.REMOTE, f"{name} {option}", code=value)
        for option, value in option_values(arguments, frozenset(("-a", "--args")))
    ]


def _concurrently(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """Every operand is a text of its own that a shell reads."""
    takes = frozenset(("-n", "-c", "-p", "-m", "-l", "-s", "--names", "--prefix", "--prefix-colors", "--success"))
    return [Inner(Via.SHELL, name, code=word) for word in operands(arguments, takes)]


def _script(name: str, arguments: tuple[Word, ...]) -> list[Inner]:
    """Without a command it is a shell; what its `-c` says is a row of the catalogue."""
    if option_values(arguments, frozenset(("-c", "--command"))) or any(word.text == "--" for word in arguments):
        return []
    return [Inner(Via.SHELL, name, stdin=True)]


TOOLS: Final[dict[str, Callable[[str, tuple[Word, ...]], list[Inner]]]] = {
    "parallel": _parallel,
    "rush": _parallel,
    "ip": _ip,
    "vim": _editor,
    "vi": _editor,
    "nvim": _editor,
    "view": _editor,
    "ex": _editor,
    "less": _editor,
    "more": _editor,
    "rvim": _editor,
    "rview": _editor,
    "vimdiff": _editor,
    "gvim": _editor,
    "most": _editor,
    "pg": _editor,
    "gdb": _debugger,
    "lldb": _debugger,
    "socat": _socat,
    "tmux": _terminal,
    "screen": _terminal,
    "apt": _apt,
    "apt-get": _apt,
    "make": _make,
    "gmake": _make,
    "git": _git,
    "cmake": _cmake,
    "hg": _hg,
    "start-stop-daemon": _daemon,
    "csvtool": _csvtool,
    "ansible": _ansible,
    "concurrently": _concurrently,
    "run-parts": _run_parts,
    "script": _script,
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
}
