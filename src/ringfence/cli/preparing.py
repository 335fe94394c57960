"""Opens the box for a call of `ringfence run` like one that was made: in a child of a keeper, before the call comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ringfence.cli.quick import read_line
from ringfence.cli.running import run_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ringfence.manager.ahead import Ahead

_OF_THE_CALL: Final = frozenset({"timeout", "stdin", "terminal", "as_json", "verbose", "color", "quiet"})
"""What makes no difference to the box."""
_NEVER: Final = frozenset({"shadow", "shadow_size", "use_shadow", "mediate_opens", "allow", "secret", "publish"})
_NOR: Final = frozenset({"reach", "ask_network"})
"""Options of calls whose boxes have something that is theirs alone: a shadow, a network, a descriptor of the caller."""


def prepare_line(words: Sequence[str], ahead: Ahead) -> bool:
    """Open the box for the next line like this one, whatever command it has; False if there is none to be made.

    Raises:
        RingfenceError: as the call would.
    """
    read = read_line(words[1:]) if words[:1] == ["run"] else None
    if read is None or read[1].keys() & (_NEVER | _NOR):
        return False
    typed = {name: value for name, value in read[1].items() if name not in _OF_THE_CALL}
    return ahead.prepare(run_options(**typed))
