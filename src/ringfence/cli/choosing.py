"""Asks a person about each hunk of a diff: `ringfence workspace commit -p`."""

from collections.abc import Callable

import typer

from ringfence.cli.say import say_coloured, visible
from ringfence.errors import InvalidArgument
from ringfence.manager.workspaces import Shadow, Workspaces
from ringfence.values.change import Change, FileHunks, Hunk, HunkChoice, Selection

_MOST_LINES = 400
"""Lines of one new or removed file that are shown before the question."""
_HEADS = (b"diff --git ", b"index ", b"--- ", b"+++ ")
_HELP = "y take it, n leave it, a take all of this file, d leave the rest of this file, q leave everything else"
Ask = Callable[[str], str]


def choose_hunks(
    workspaces: Workspaces, shadow: Shadow, found: tuple[Change, ...], ask: Ask | None = None
) -> Selection:
    """What somebody wants of these changes, asked one by one.

    Raises:
        InvalidArgument: nobody can be asked.
    """
    answer = ask or _ask
    paths: list[str] = []
    choices: list[HunkChoice] = []
    for change in found:
        hunks = workspaces.hunks(shadow, change)
        if hunks is None or len(hunks.hunks) < 2:
            said = _about_change(workspaces, shadow, change, hunks, answer)
            if said in ("y", "a"):
                paths.append(change.path)
        else:
            said, numbers = _about_hunks(hunks, answer)
            if numbers:
                choices.append(HunkChoice(change.path, hunks.mark, numbers))
        if said == "q":
            break
    return Selection(paths=tuple(paths), hunks=tuple(choices))


def _about_change(workspaces: Workspaces, shadow: Shadow, change: Change, hunks: FileHunks | None, answer: Ask) -> str:
    name = f"{change.source} -> {change.path}" if change.source else change.path
    print(f"{change.kind} {visible(name)}" + (" (binary)" if change.is_binary else ""))
    if change.refused:
        print(f"it will not be committed: {visible(change.refused)}")
    for hunk in hunks.hunks if hunks is not None else ():
        _show(hunk)
    if hunks is None and not change.is_binary:
        _show_lines(workspaces.patch(shadow, (change,)).data)
    return _one_of(answer, "Take this change", "ynq")


def _show_lines(patch: bytes) -> None:
    """What is new, removed or different in mode, as a diff has it; names and marks are not repeated."""
    lines = [line for line in patch.splitlines() if not line.startswith(_HEADS)]
    for line in lines[:_MOST_LINES]:
        _show_line(line)
    if len(lines) > _MOST_LINES:
        print(f"... and {len(lines) - _MOST_LINES} lines more; `ringfence workspace diff --patch` shows all")


def _about_hunks(hunks: FileHunks, answer: Ask) -> tuple[str, frozenset[int]]:
    print(f"changed {visible(hunks.path)}")
    taken: set[int] = set()
    said = ""
    for number, hunk in enumerate(hunks.hunks):
        _show(hunk)
        said = _one_of(answer, f"Take this hunk ({number + 1} of {len(hunks.hunks)})", "ynadq")
        if said in ("y", "a"):
            taken.add(number)
        if said == "a":
            taken |= set(range(number, len(hunks.hunks)))
        if said in ("a", "d", "q"):
            break
    return said, frozenset(taken)


def _show(hunk: Hunk) -> None:
    print(f"@@ -{hunk.old_start + 1},{hunk.old_lines} +{hunk.new_start + 1},{hunk.new_lines} @@")
    for line in hunk.lines:
        _show_line(line)


def _show_line(line: bytes) -> None:
    text = visible(line.decode("utf-8", "replace").rstrip("\n"))
    say_coloured(typer.style(text, fg=_COLOURS.get(line[:1])))


_COLOURS = {b"+": typer.colors.GREEN, b"-": typer.colors.RED}


def _one_of(answer: Ask, question: str, letters: str) -> str:
    while True:
        said = answer(f"{question} [{','.join(letters)},?] ").strip().lower()[:1]
        if said in letters and said:
            return said
        print(_HELP)


def _ask(question: str) -> str:
    try:
        return input(question)
    except EOFError:
        raise InvalidArgument("nobody answers", hint="commit -p asks on a terminal; name paths instead") from None
