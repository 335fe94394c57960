"""What somebody wants to run."""

from collections.abc import AsyncIterable, Awaitable, Callable
from enum import Enum, StrEnum
from pathlib import Path
from typing import Final

from ringfence.dataclass import dataclass, field

INTERPRETED: Final = frozenset({"python"})
"""Languages whose code goes to an interpreter that stays from call to call."""


class Stream(StrEnum):
    """Where a piece of output was written."""

    STDOUT = "stdout"
    STDERR = "stderr"


OnOutput = Callable[[Stream, bytes], Awaitable[None] | None]
"""Called with every piece of output as it comes, in order per stream. If it returns a future of asyncio, no more of
that stream is read until that is done: whoever writes has to wait, and its time runs on."""


class Overflow(Enum):
    """What happens when a stream passes its output limit."""

    STOP = "stop"
    """End the command; the result's ending is the output limit."""
    KEEP_ENDS = "keep-ends"
    """Let it run on; keep the first and the last half of the limit, drop the middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One thing to run in one box. Exactly one of `command`, `argv` and `code` is set."""

    command: str | None = None
    """Text for the shell."""
    argv: tuple[str, ...] | None = None
    """A program and its arguments, without a shell."""
    code: str | None = None
    """A piece of a program, in `language`."""
    language: str | None = None
    context: str | None = None
    """The interpreter, or shell, that keeps its state under this name from call to call; None: a shell of its own, or
    the box's first interpreter."""
    cwd: Path | None = None
    """Where it runs; the workspace if not given."""
    env: tuple[tuple[str, str], ...] = ()
    """Variables added to the box's own, which never holds the caller's."""
    stdin: bytes | AsyncIterable[bytes] | None = None
    live_input: bool = False
    """Whether it is given input while it runs, which nobody can read before: `Process.write`."""
    timeout: float | None = None
    """Wall-clock seconds, if less than the grant's limit."""
    overflow: Overflow = Overflow.STOP
    output_limit: int | None = None
    """Bytes kept of each stream, if less than the grant's limit."""
    keep_background: bool = False
    """Whether what it leaves running lives on until the box is closed, instead of being ended with it."""
    on_output: OnOutput | None = field(default=None, compare=False, repr=False)

    @property
    def is_in_kept_state(self) -> bool:
        """Whether it runs where earlier calls have left a directory, variables and functions, which decide what its
        text does."""
        if self.code is not None:
            return self.language is None or self.language in INTERPRETED
        return self.context is not None

    @property
    def shown(self) -> str:
        """The command as a person would read it."""
        if self.code is not None:
            return self.code
        return self.command if self.command is not None else " ".join(self.argv or ())
