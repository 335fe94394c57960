"""Files of this text that a program runs although nobody tells it to, and streams that it is handed as settings."""

from typing import TYPE_CHECKING, Final

from ringfence.shell.catalog.unasked import UNASKED
from ringfence.shell.options import Inner
from ringfence.shell.unwrap import interpreter
from ringfence.values.facts import Origin, Via, Word

if TYPE_CHECKING:
    from ringfence.shell.running import Running

HIDDEN: Final = (Origin.DECODED, Origin.NETWORK)
"""Where text comes from that whoever reads the line does not see."""
_NAMES: Final = {name: frozenset(path.rpartition("/")[2] for path in table) for name, table in UNASKED.items()}


def unasked(walk: "Running", name: str, first: Word) -> None:
    """Files that this text wrote, and that the program runs without being told."""
    table = UNASKED.get(name) or UNASKED.get(interpreter(name))
    if table is None:
        return
    files = walk.state.files
    known = _NAMES.get(name) or _NAMES[interpreter(name)]
    if known.isdisjoint(key.rpartition("/")[2] for key in files):
        return
    for path, language in table.items():
        found = files.get(walk.state.key(path))
        if found is not None:
            inner = Inner(Via.WRAPPER if language else Via.SHELL, name, stdin=True, language=language)
            walk.source(found, inner, first.span)


def handed(walk: "Running", name: str, argv: tuple[Word, ...]) -> None:
    """`tool <(echo ...)`: what is in the stream is settings or a script, for whatever does more than read."""
    for word in argv[1:]:
        found = walk.state.files.get(word.text) if (word.text or "").startswith("/dev/fd/") and word.text else None
        if found is not None and (found.text is not None or found.origin in HIDDEN):
            walk.source(found, Inner(Via.WRAPPER, name, stdin=True, language="scripts"), word.span)
