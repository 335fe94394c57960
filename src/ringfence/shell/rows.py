"""Rows that recognise a program by its name, options and words: the tables of the checks are made of these."""

from ringfence.dataclass import dataclass
from ringfence.shell.trees import git_parts, is_dry_run
from ringfence.values.facts import CheckAnswer, Program


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class ProgramRow:
    """All that is given must hold: one of `options`, one of `first` as first operand, `starts`"
    " as an argument's begin."""

    rule: str
    names: frozenset[str]
    answer: CheckAnswer
    why: str
    options: frozenset[str] = frozenset()
    first: frozenset[str] = frozenset()
    second: frozenset[str] = frozenset()
    starts: tuple[str, ...] = ()
    operands: bool = False
    """At least one argument that is no option."""
    spares: frozenset[str] = frozenset()
    """One of these as an argument, and the row does not hold."""
    dry: bool = False
    """It does not hold for a run that only says what it would do."""

    def holds(self, texts: tuple[str | None, ...]) -> bool:
        """Whether the arguments, without the name, fit."""
        if self.spares and not self.spares.isdisjoint(text for text in texts if text is not None):
            return False
        plain = [text for text in texts if text is None or not text.startswith("-")]
        if self.operands and not plain:
            return False
        if self.first and (not plain or plain[0] not in self.first):
            return False
        if self.second and (len(plain) < 2 or plain[1] not in self.second):
            return False
        if self.options and not any(has_option(text, self.options) for text in texts):
            return False
        return not self.starts or any(text is not None and text.startswith(self.starts) for text in texts)


def has_option(text: str | None, options: frozenset[str]) -> bool:
    """Whether an argument is one of the options, alone, with a value, or in a bundle of letters."""
    if not text or text[0] != "-":
        return False
    if text in options or text.partition("=")[0] in options:
        return True
    return text[1:2] != "-" and any("-" + letter in options for letter in text[1:])


Table = tuple[dict[str, list[ProgramRow]], list[tuple[str, ProgramRow]]]
"""Rows by plain name, and those whose name begins with something: `mkfs.*`."""


def index(rows: tuple[ProgramRow, ...]) -> Table:
    by_name: dict[str, list[ProgramRow]] = {}
    begins: list[tuple[str, ProgramRow]] = []
    for row in rows:
        for name in row.names:
            if name.endswith("*"):
                begins.append((name[:-1], row))
            else:
                by_name.setdefault(name, []).append(row)
    return by_name, begins


def matching(name: str | None, program: Program, table: Table) -> list[ProgramRow]:
    """The rows that hold for a program."""
    if name is None:
        return []
    by_name, begins = table
    rows = by_name.get(name)
    for begin, row in begins:
        if name.startswith(begin):
            rows = [*(rows or ()), row]
    if rows is None:
        return []
    arguments = program.argv[1:]
    given = git_parts(arguments)[1] if name == "git" else arguments
    texts = tuple(word.text for word in given)
    return [row for row in rows if row.holds(texts) and not (row.dry and is_dry_run(name, arguments))]
