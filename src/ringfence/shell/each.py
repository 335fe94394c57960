"""Programs that run a command for each thing that they are given: `xargs` and `find -exec`."""

import re
from functools import partial
from typing import TYPE_CHECKING, Final

from ringfence.shell import touches
from ringfence.shell.catalog.runs import XARGS_FILES, XARGS_REPLACES, XARGS_TAKES
from ringfence.shell.options import option_values, takes_next
from ringfence.shell.partial import put
from ringfence.shell.state import UNKNOWN, ShellOutput
from ringfence.values.facts import Origin, Span, Touch, Via, Word

if TYPE_CHECKING:
    from ringfence.shell.running import Running

MAX_UNROLLED: Final = 16


def xargs(walk: "Running", argv: tuple[Word, ...], stdin: ShellOutput | None) -> ShellOutput:
    position = 1
    while position < len(argv) and (argv[position].text or "").startswith("-"):
        position += 2 if takes_next(argv[position].text or "", XARGS_TAKES) else 1
    replaces = ""
    for option, value in option_values(argv[1:position], XARGS_REPLACES | XARGS_FILES):
        if option in XARGS_FILES:
            walk.touch(Touch.READ, value)
            stdin = walk.state.files.get(walk.state.key(value.text or ""), ShellOutput(None, Origin.FILE))
        else:
            replaces = value.text or "{}"
    if any(word.text in ("-i", "--replace") for word in argv[1:position]):
        replaces = "{}"
    command = argv[position:] or (Word("echo", argv[0].span),)
    given: list[Word] = []
    if stdin is None or stdin.text is None:
        given = [Word(name, argv[0].span, True) for name in (stdin.names if stdin is not None else ())]
        given = given or [Word(None, argv[0].span)]
    else:
        given = [Word(text, argv[0].span) for text in re.split(r"[\s\0]+", stdin.text) if text]
        whole = [Word(text, argv[0].span) for text in re.split(r"[\n\0]+", stdin.text) if text]
        if replaces or any("0" in (word.text or "") or "d" in (word.text or "") for word in argv[1:position]):
            given = whole
    span = Span(command[0].span.start, argv[-1].span.end)
    if not replaces:
        full = (*command, *given)
        return walk.through(Via.WRAPPER, lambda: walk.run(full, span, stdin), "xargs")
    for value in given[:MAX_UNROLLED]:
        full = tuple(put(word, replaces, value) for word in command)
        walk.through(Via.WRAPPER, partial(walk.run, full, span, stdin), "xargs")
    return UNKNOWN


def find_runs(walk: "Running", argv: tuple[Word, ...]) -> None:
    roots, expression = touches.find_parts(argv[1:])
    roots = roots or [Word(".", argv[0].span)]
    position = 0
    while position < len(expression):
        if expression[position].text not in ("-exec", "-execdir", "-ok", "-okdir"):
            position += 1
            continue
        stop = position + 1
        while stop < len(expression) and expression[stop].text not in (";", "+"):
            stop += 1
        command = tuple(expression[position + 1 : stop])
        tests = expression[:position] + expression[stop + 1 :]
        position = stop + 1
        if not command:
            continue
        span = Span(command[0].span.start, command[-1].span.end)
        for found in touches.found_by(roots, tests):
            full = tuple(put(word, "{}", found) for word in command)
            walk.through(Via.WRAPPER, partial(walk.run, full, span, None), "find")
