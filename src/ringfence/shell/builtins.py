"""Builtins that change what the shell remembers: `cd`, `set --`, `read`, `printf -v`, `alias`, `trap` and the like."""

from typing import TYPE_CHECKING, Final

from ringfence.shell.feeds import formatted
from ringfence.shell.options import operands
from ringfence.shell.state import NOTHING, Output
from ringfence.values.facts import Assignment, Via, Word

if TYPE_CHECKING:
    from ringfence.shell.running import Running


def builtin(walk: "Running", name: str, argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    """Do what the builtin does to the memory; None if there is more to say about the command than that."""
    action = _ACTIONS.get(name)
    return action(walk, argv, stdin) if action is not None else None


def _cd(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
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


def _set(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    texts = [word.text for word in argv[1:]]
    if "--" in texts:
        walk.state.parameters = tuple(texts[texts.index("--") + 1 :])
    elif texts and texts[0] is not None and not texts[0].startswith(("-", "+")):
        walk.state.parameters = tuple(texts)
    return NOTHING


def _shift(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    state = walk.state
    if state.parameters is not None:
        count = int(argv[1].text) if len(argv) > 1 and (argv[1].text or "").isdigit() and argv[1].text else 1
        state.parameters = state.parameters[count:]
    return NOTHING


def _read(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    names = operands(argv[1:], frozenset(("-p", "-d", "-n", "-N", "-t", "-u", "-i", "-a")))
    line = stdin.text.split("\n", 1)[0] if stdin is not None and stdin.text is not None else None
    pieces = line.split(None, max(len(names) - 1, 0)) if line is not None else []
    for number, word in enumerate(names):
        if word.text is not None and word.text.isidentifier():
            value = None if line is None else pieces[number] if number < len(pieces) else ""
            walk.state.variables[word.text] = value
            walk.assignments.append(Assignment(word.text, value, word.span))
    return None if any("[" in (word.text or "") for word in names) else NOTHING


def _printf(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    if len(argv) > 3 and argv[1].text == "-v" and argv[2].text:
        texts = [word.text for word in argv[3:]]
        value = None if None in texts else formatted([text for text in texts if text is not None])
        walk.state.variables[argv[2].text] = value
        walk.assignments.append(Assignment(argv[2].text, value, argv[2].span))
        return NOTHING
    return None


def _unset(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    for word in operands(argv[1:]):
        if word.text is not None:
            walk.state.variables[word.text] = ""
            if any(one.text == "-f" for one in argv[1:]):
                walk.state.functions.pop(word.text, None)
    return NOTHING


def _alias(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    for word in argv[1:]:
        name, equals, value = (word.text or "").partition("=")
        if equals:
            walk.state.aliases[name] = Word(value, word.span)
    return NOTHING


def _trap(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    words = operands(argv[1:])
    if len(words) > 1 and words[0].text not in ("-", ""):
        walk.code(words[0], Via.SHELL, "trap", None)
    return NOTHING


def _declare(walk: "Running", argv: tuple[Word, ...], stdin: Output | None) -> Output | None:
    """Assignments that are written with quotes around them: `declare "x=rm"`."""
    exported = argv[0].text == "export" or any((word.text or "").startswith("-x") for word in argv[1:])
    for word in operands(argv[1:]):
        name, equals, value = (word.text or "").partition("=")
        if equals and name.isidentifier():
            walk.state.variables[name] = value
            walk.assignments.append(Assignment(name, value, word.span, exported))
    return NOTHING


_ACTIONS: Final = {
    "cd": _cd,
    "chdir": _cd,
    "pushd": _cd,
    "popd": _cd,
    "set": _set,
    "shift": _shift,
    "read": _read,
    "printf": _printf,
    "unset": _unset,
    "alias": _alias,
    "trap": _trap,
    "declare": _declare,
    "typeset": _declare,
    "local": _declare,
    "export": _declare,
    "readonly": _declare,
}
