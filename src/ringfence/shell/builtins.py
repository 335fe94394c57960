"""Builtins that change what the shell remembers: `cd`, `set --`, `read`, `printf -v`, `alias`, `trap` and the like."""

import re
from typing import TYPE_CHECKING, Final

from ringfence.shell.feeds import formatted
from ringfence.shell.options import operands, option_values
from ringfence.shell.state import NOTHING, UNKNOWN, ShellOutput
from ringfence.values.facts import Via, Word

if TYPE_CHECKING:
    from ringfence.shell.running import Running


def builtin(walk: "Running", name: str, argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    """Do what the builtin does to the memory; None if there is more to say about the command than that."""
    action = _ACTIONS.get(name)
    return action(walk, argv, stdin) if action is not None else None


def _cd(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    words = operands(argv[1:])
    state = walk.state
    if argv[0].text == "popd":
        state.cwd = state.stack.pop() if state.stack else None
        return NOTHING
    if argv[0].text == "pushd":
        state.stack.append(state.cwd)
    if not words:
        state.enter("~" if argv[0].text == "cd" else None)
    else:
        word = words[-1]
        if word.text is not None and word.literal:
            state.enter("./" + word.text)
        else:
            state.enter(word.text)
    return NOTHING


def _set(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    texts = [word.text for word in argv[1:]]
    if "--" in texts:
        walk.state.parameters = tuple(texts[texts.index("--") + 1 :])
    elif texts and texts[0] is not None and not texts[0].startswith(("-", "+")):
        walk.state.parameters = tuple(texts)
    return NOTHING


def _shift(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    state = walk.state
    if state.parameters is not None:
        count = int(argv[1].text) if len(argv) > 1 and (argv[1].text or "").isdigit() and argv[1].text else 1
        state.parameters = state.parameters[count:]
    return NOTHING


def _read(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    names = operands(argv[1:], frozenset(("-p", "-d", "-n", "-N", "-t", "-u", "-i", "-a")))
    for _, number in option_values(argv[1:], frozenset(("-u",))):
        stdin = walk.state.files.get(f"/dev/fd/{number.text}", UNKNOWN)
    line = stdin.text.split("\n", 1)[0] if stdin is not None and stdin.text is not None else None
    for _, array in option_values(argv[1:], frozenset(("-a",))):
        if array.text:
            walk.state.arrays[array.text] = (None,) if line is None else tuple(_pieces(walk, line, None))
    pieces = _pieces(walk, line, max(len(names) - 1, 0)) if line is not None else []
    for at, word in enumerate(names):
        if word.text is not None and word.text.isidentifier():
            value = None if line is None else pieces[at] if at < len(pieces) else ""
            _store(walk, word.text, value, word)
    return None if any("[" in (word.text or "") for word in names) else NOTHING


def _printf(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    if len(argv) > 3 and argv[1].text == "-v" and argv[2].text:
        texts = [word.text for word in argv[3:]]
        value = None if None in texts else formatted([text for text in texts if text is not None])
        _store(walk, argv[2].text, value, argv[2])
        return NOTHING
    return None


def _unset(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    for word in operands(argv[1:]):
        if word.text is not None:
            walk.state.variables[word.text] = ""
            if any(one.text == "-f" for one in argv[1:]):
                walk.state.functions.pop(word.text, None)
    return NOTHING


def _alias(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    for word in argv[1:]:
        name, equals, value = (word.text or "").partition("=")
        if equals:
            walk.state.aliases[name] = Word(value, word.span)
    return NOTHING


def _trap(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    words = operands(argv[1:])
    if len(words) > 1 and words[0].text not in ("-", ""):
        walk.code(words[0], Via.SHELL, "trap", None)
    return NOTHING


def _declare(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    """Assignments that are written with quotes around them: `declare "x=rm"`."""
    exported = argv[0].text == "export" or any((word.text or "").startswith("-x") for word in argv[1:])
    refers = argv[0].text != "export" and any(_has_letter(word, "n") for word in argv[1:])
    for word in operands(argv[1:]):
        name, equals, value = (word.text or "").partition("=")
        if argv[0].text != "export" and any(_has_letter(one, "l") or _has_letter(one, "u") for one in argv[1:]):
            lower = any(_has_letter(one, "l") for one in argv[1:])
            walk.state.cases = walk.state.cases | {name: "l" if lower else "u"}
            value = value.lower() if lower else value.upper()
        if refers and name.isidentifier():
            walk.state.references[name] = value or name
        elif equals and name.isidentifier():
            _store(walk, name, value, word, exported=exported)
        elif "i" in "".join((one.text or "")[1:] for one in argv[1:] if (one.text or "").startswith("-")):
            walk.state.integers |= {name}
    return NOTHING


def _has_letter(word: Word, letter: str) -> bool:
    text = word.text or ""
    return text.startswith("-") and not text.startswith("--") and letter in text


def _store(walk: "Running", name: str, value: str | None, word: Word, *, exported: bool = False) -> None:
    name = walk.state.target(name)
    walk.state.variables[name] = value
    walk.note_assignment(name, value, word.span, exported=exported)


def _mapfile(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    """`mapfile -t a <<< text`; its callback is an option that runs something, which others look at."""
    takes = frozenset(("-d", "-n", "-O", "-s", "-u", "-C", "-c"))
    for _, value in option_values(argv[1:], frozenset(("-u",))):
        stdin = walk.state.files.get(f"/dev/fd/{value.text}", UNKNOWN)
    names = [word.text for word in operands(argv[1:], takes) if word.text] or ["MAPFILE"]
    lines = stdin.text.splitlines() if stdin is not None and stdin.text is not None else None
    name = walk.state.target(names[0])
    walk.state.arrays[name] = (None,) if lines is None else tuple(lines)
    walk.note_assignment(name, lines[0] if lines else None, argv[0].span, exported=False)
    return None


def _history(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    """`history -s text`: `fc -s` runs it."""
    for _, value in option_values(argv[1:], frozenset(("-s",))):
        walk.code(value, Via.SHELL, "eval", None)
    return None


def _pieces(walk: "Running", line: str, most: int | None) -> list[str]:
    """A line as `read` splits it, at most so often; None: as often as it goes."""
    separators = walk.separators()
    if separators.strip(" \t\n") == "":
        return line.split(None, -1 if most is None else most)
    return [line] if most == 0 else re.split(f"[{re.escape(separators)}]", line, maxsplit=most or 0)


def _fc(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput | None:
    """`fc -s old=new`: the last command, with something else in place of a part of it."""
    for word in operands(argv[1:]):
        _, equals, new = (word.text or "").partition("=")
        if equals and new:
            walk.code(Word(new, word.span), Via.SHELL, "eval", None)
    return None


_ACTIONS: Final = {
    "fc": _fc,
    "cd": _cd,
    "chdir": _cd,
    "pushd": _cd,
    "popd": _cd,
    "set": _set,
    "shift": _shift,
    "read": _read,
    "printf": _printf,
    "mapfile": _mapfile,
    "readarray": _mapfile,
    "history": _history,
    "unset": _unset,
    "alias": _alias,
    "trap": _trap,
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "export": _declare,
    "readonly": _declare,
}
