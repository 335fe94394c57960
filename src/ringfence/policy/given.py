"""What a request is given besides its text, and what is read of it before it runs: standard input and variables.

A shell that is fed a script runs it like one that stands in its arguments, and a variable may hold a command (PAGER,
GIT_SSH_COMMAND) or name a file that is run (BASH_ENV) or loaded (LD_PRELOAD). So both are judged with the text, and
remembered, asked about and recorded with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass
from ringfence.deferred import deferred_module

if TYPE_CHECKING:
    import ringfence.shell.analyse as analysing  # not the function of that name
    from ringfence.values.request import Request
else:
    analysing = deferred_module("ringfence.shell.analyse")

LONGEST_READ: Final = 100_000
"""Characters of standard input that are read, as of code: a second or so. A longer one is as unknown as a stream."""


@dataclass(frozen=True, slots=True)
class Given:
    """Standard input and variables as they are judged; can be looked up by."""

    stdin: str | analysing.ScriptStream | None = None
    """Its text; `STREAM` if that is not known before it is read; None if there is none."""
    variables: tuple[tuple[str, str], ...] = ()
    """Set for it besides those that every box has; the last one of a name counts."""

    @property
    def values(self) -> Mapping[str, str]:
        return dict(self.variables)

    @property
    def length(self) -> int:
        """Characters that are to be read."""
        own = len(self.stdin) if isinstance(self.stdin, str) else 0
        return own + sum(len(name) + len(value) for name, value in self.variables)


NOTHING_GIVEN: Final = Given()


def given_to(request: Request, more: tuple[tuple[str, str], ...] = ()) -> Given:
    """What a request is given; `more` are variables that its caller has set for all requests."""
    if request.stdin is None and not request.live_input:
        return Given(None, (*more, *request.env)) if more or request.env else NOTHING_GIVEN
    return Given(_read(request), (*more, *request.env))


def _read(request: Request) -> str | analysing.ScriptStream:
    if request.live_input or not isinstance(request.stdin, bytes) or len(request.stdin) > LONGEST_READ:
        return analysing.STREAM
    return request.stdin.decode("utf-8", "surrogateescape")
