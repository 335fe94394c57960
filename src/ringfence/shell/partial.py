"""Words of which a part is not known before the command runs: what they may be, and how they are read all the same."""

from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Final

from ringfence.values.facts import Word

_DANGEROUS: Final = (
    "rm",
    "dd",
    "sh",
    "bash",
    "sudo",
    "su",
    "cat",
    "mv",
    "cp",
    "chmod",
    "chown",
    "find",
    "shred",
    "reboot",
)


STAND_IN: Final = "_unknown_"
"""A variable that nothing sets, and a name that means nothing."""


def with_gaps(word: Word, stand_in: str) -> str:
    """Code of which a part is not known, with something in that place."""
    text, pieces, begin = word.if_unset, [], 0
    for gap in word.gaps:
        pieces += [text[begin:gap], stand_in]
        begin = gap
    return "".join((*pieces, text[begin:]))


def likely_names(first: Word) -> list[str]:
    """What an unknown name may well be: what is left if the unknown is empty, what a glob may match."""
    if first.text is None:
        return [first.if_unset] if first.if_unset and "/" not in first.if_unset else []
    glob = first.text.rpartition("/")[2]
    return [name for name in _DANGEROUS if fnmatchcase(name, glob)]


def put(word: Word, mark: str, value: Word) -> Word:
    """`word` with every `mark` in it replaced."""
    if word.text is None or mark not in word.text:
        return word
    if word.text == mark:
        return Word(value.text, word.span, value.pattern, value.if_unset, value.literal)
    if value.text is None:
        pieces = word.text.split(mark)
        begins = list(accumulate(len(piece) + len(value.if_unset) for piece in pieces[:-1]))
        gaps = tuple(begin - len(value.if_unset) for begin in begins)
        return Word(None, word.span, False, value.if_unset.join(pieces), gaps=gaps)
    return Word(word.text.replace(mark, value.text), word.span, value.pattern)
