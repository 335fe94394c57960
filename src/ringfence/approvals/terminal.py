"""Asks at the terminal: shows what would run, and reads yes, no, or yes for this session.

Only a real terminal counts: input that is a pipe, a file or at its end is a refusal, because nobody is there to read
the question. What was typed before the question appeared is thrown away, so that it cannot answer. Anything but a clear
yes is a no. A question that is taller than the terminal is shown page by page, and answered after the last one: nothing
that was asked about has gone past unread. The terminal is the caller's; boxes never get it. Where standard input is fed
to the command, give this service a stream of its own, opened on /dev/tty.
"""

import asyncio
import getpass
import io
import os
import sys
import termios
from typing import Final, TextIO

from ringfence.approvals.base import Answer, Choice, Question, refuse
from ringfence.approvals.show import lines_of, why_too_long

_HOW = "terminal"
_TRIES = 3
"""How often an answer that is neither yes nor no is asked for again."""
_WORDS: Final[dict[str, Choice]] = {
    "y": Choice.YES,
    "yes": Choice.YES,
    "n": Choice.NO,
    "no": Choice.NO,
    "": Choice.NO,
    "s": Choice.YES_FOR_SESSION,
    "session": Choice.YES_FOR_SESSION,
}
_BESIDE_A_PAGE = 4
"""Rows of a terminal that the prompt, what is typed and an empty row take."""
_SHORTEST_PAGE = 5
_LONGEST_ANSWER = 4096
"""A terminal's own longest line (N_TTY_BUF_SIZE)."""


class TerminalConfirmationService:
    """`stream` is read, and must be a terminal; `show` is written. Standard input and error if not given."""

    def __init__(self, stream: TextIO | None = None, show: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stdin
        self._show = show if show is not None else sys.stderr
        self._turn = asyncio.Lock()

    async def confirm(self, question: Question) -> Answer:
        """Ask, one question at a time."""
        async with self._turn:
            terminal = _terminal(self._stream)
            if terminal is None:
                return refuse(question, by="nobody", how=f"{_HOW}: input is not a terminal, so there is nobody to ask")
            if why := why_too_long(question):
                return refuse(question, by="nobody", how=f"{_HOW}: too long to be judged: {why}")
            columns, height = _size(terminal)
            return await self._show_all(terminal, question, list(lines_of(question, columns)), height) or (
                await self._answer(terminal, question)
            )

    async def _show_all(self, terminal: int, question: Question, rows: list[str], height: int) -> Answer | None:
        """Show the rows, a page at a time; an answer if somebody had seen enough to say no."""
        page = max(height - _BESIDE_A_PAGE, _SHORTEST_PAGE)
        self._say("")
        for first in range(0, len(rows), page):
            self._say("\n".join(rows[first : first + page]))
            if first + page >= len(rows):
                break
            termios.tcflush(terminal, termios.TCIFLUSH)
            self._say(f"  -- {first + page} of {len(rows)} rows; Enter shows more, [n]o refuses -- ", end="")
            line = await _line(terminal)
            if line is None:
                return refuse(question, by="nobody", how=f"{_HOW}: the terminal was closed")
            if line.strip():  # whatever it is: nobody can say yes to what they have not seen
                return refuse(question, by=_who(), how=f"{_HOW}: refused before all of it was shown")
        self._say("")
        return None

    async def _answer(self, terminal: int, question: Question) -> Answer:
        termios.tcflush(terminal, termios.TCIFLUSH)
        prompt = "  [y]es, [n]o" + (", yes for this [s]ession" if question.may_remember else "") + "? [n] "
        for _ in range(_TRIES):
            self._say(prompt, end="")
            line = await _line(terminal)
            if line is None:
                return refuse(question, by="nobody", how=f"{_HOW}: the terminal was closed")
            choice = _WORDS.get(line.strip().lower())
            if choice is Choice.YES_FOR_SESSION and not question.may_remember:
                choice = None
            if choice is not None:
                return Answer(choice=choice, by=_who(), how=_HOW, request_hash=question.request_hash)
            self._say("  please answer yes or no")
        return refuse(question, by=_who(), how=f"{_HOW}: no clear answer")

    def _say(self, text: str, end: str = "\n") -> None:
        print(text, end=end, file=self._show, flush=True)


def _terminal(stream: TextIO) -> int | None:
    """The descriptor to read from, if there is a terminal behind it."""
    try:
        return stream.fileno() if stream.isatty() else None
    except (OSError, ValueError, io.UnsupportedOperation):  # closed, or never was a file
        return None


def _size(terminal: int) -> tuple[int, int]:
    """Columns and rows."""
    try:
        size = os.get_terminal_size(terminal)
    except OSError:
        size = os.terminal_size((0, 0))
    return size.columns or 80, size.lines or 24


def _who() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


async def _line(terminal: int) -> str | None:
    """One line that a person typed; None at the end of input. Blocks nobody else, and can be cancelled."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(terminal, readable.set)
    try:
        await readable.wait()
        given = os.read(terminal, _LONGEST_ANSWER)
    except OSError:  # the other side has hung up
        return None
    finally:
        loop.remove_reader(terminal)
    return given.decode("utf-8", "replace") if given else None
