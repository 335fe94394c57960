"""Whole trees that a program fills or empties: the work tree that git is given, the target of a mirror."""

from collections.abc import Iterator, Mapping
from typing import Final

from ringfence.shell.catalog.git import GIT_KEEPS_TREE, GIT_READS_TREE, GIT_TAKES, GIT_TARGETS
from ringfence.shell.catalog.mirrors import DRY_RUNS, MIRRORS, VALUELESS
from ringfence.shell.options import operands, option_values, tail
from ringfence.values.facts import Touch, Word

_OFF: Final = frozenset(("false", "0", "no", "off"))


def git_parts(arguments: tuple[Word, ...]) -> tuple[list[tuple[str, Word]], tuple[Word, ...]]:
    """The options before the sub-command with their values, and everything from the sub-command on."""
    found: list[tuple[str, Word]] = []
    position = 0
    while position < len(arguments):
        word = arguments[position]
        text = word.text
        if text is None or not text.startswith("-"):
            break
        option, equals, value = text.partition("=")
        if equals:
            found.append((option, tail(word, value)))
        elif text in GIT_TAKES and position + 1 < len(arguments):
            position += 1
            found.append((text, arguments[position]))
        position += 1
    return found, arguments[position:]


def is_dry_run(name: str, arguments: tuple[Word, ...]) -> bool:
    """Whether it is certain that the program only says what it would do."""
    row = DRY_RUNS.get(name)
    if row is None:
        rest = git_parts(arguments)[1] if name == "git" else arguments
        row = DRY_RUNS.get(f"{name} {rest[0].text}") if rest else None
        if row is None:
            return False
        arguments = rest[1:]
    flags, takes = row
    found = False
    before = ""
    for word in arguments:
        text = word.text
        if text is None or word.pattern or (before in flags and text in _OFF):
            return False
        if before in takes:
            before = ""
            continue
        if text == "--":
            break
        sure = not before.startswith("--") or "=" in before or before in VALUELESS or before in flags
        before = text
        if text.startswith(("--no-d", "--no-n", "--dry-run=", "--dryrun=")):
            return False
        if text.startswith("--"):
            found = found or (sure and text in flags)
        elif text.startswith("-"):
            for position in range(1, len(text)):
                letter = "-" + text[position]
                if letter in takes:
                    before = letter if position == len(text) - 1 else ""
                    break
                found = found or (sure and letter in flags)
    return found


def trees(name: str, argv: tuple[Word, ...], variables: Mapping[str, str | None]) -> Iterator[tuple[Touch, Word]]:
    """The trees that are written, read or emptied as a whole; a `--work-tree` is the present directory by now."""
    if name == "git":
        yield from _git(argv, variables)
    elif name in MIRRORS and not is_dry_run(name, argv[1:]):
        yield from _mirror(name, argv[1:])


def _git(argv: tuple[Word, ...], variables: Mapping[str, str | None]) -> Iterator[tuple[Touch, Word]]:
    options, rest = git_parts(argv[1:])
    sub = rest[0].text if rest else None
    if sub is None:
        return
    tree: Word | None = None
    told = variables.get("GIT_WORK_TREE")
    if told:
        tree = Word(told, argv[0].span)
    for option, value in options:
        if option == "--work-tree":
            tree = Word(".", value.span)
        elif option == "-c" and value.text and value.text.lower().startswith("core.worktree="):
            tree = tail(value, value.text.partition("=")[2])
    if tree is not None and sub not in GIT_KEEPS_TREE and not is_dry_run("git", argv[1:]):
        yield Touch.READ if sub in GIT_READS_TREE else Touch.WRITE, tree
    if sub == "clean" and not is_dry_run("git", argv[1:]):
        for word in operands(rest[1:], frozenset(("-e", "--exclude"))) or [Word(".", rest[0].span)]:
            yield Touch.REMOVE, word
    places: list[Word] = []
    if sub in GIT_TARGETS:
        places = operands(rest[1:], GIT_TARGETS[sub])[1 if sub == "clone" else 0 :]
    elif sub == "worktree" and len(rest) > 1 and rest[1].text in ("add", "move"):
        places = operands(rest[2:], frozenset(("-b", "-B", "--reason")))[rest[1].text == "move" :][:1]
    elif sub == "checkout-index":
        places = [value for _, value in option_values(rest[1:], frozenset(("--prefix",)))]
    for word in places:
        if word.text and word.text.startswith(("/", "~")):
            yield Touch.WRITE, word


def _mirror(name: str, arguments: tuple[Word, ...]) -> Iterator[tuple[Touch, Word]]:
    options = {(word.text or "").partition("=")[0] for word in arguments}
    for row in MIRRORS[name]:
        found = operands(arguments, row.takes)
        if tuple(word.text for word in found[: len(row.words)]) != row.words:
            continue
        places = found[len(row.words) :]
        if row.every:
            yield from ((Touch.REMOVE, word) for word in places)
            continue
        if len(places) < 2:
            continue
        if not row.moves.isdisjoint(options):
            yield from ((Touch.REMOVE, word) for word in places[:-1])
        if not row.deletes or not row.deletes.isdisjoint(options):
            yield Touch.REMOVE, places[-1]
            yield Touch.WRITE, places[-1]
