"""The ports of an engine, of its boxes, and of the processes that go on in them."""

from collections.abc import Callable
from typing import Protocol

from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.outcome import Ending, Result, SandboxAudit, Usage
from ringfence.values.request import Request


class Process(Protocol):
    """A command that goes on while others run in the same box."""

    @property
    def id(self) -> int: ...

    @property
    def command(self) -> str: ...

    @property
    def alive(self) -> bool: ...

    @property
    def ending(self) -> Ending | None:
        """How it ended; None while it runs."""

    @property
    def seconds(self) -> float:
        """How long it has run, or ran."""

    def read(self) -> tuple[bytes, bytes]:
        """What it has said on stdout and stderr since the last time."""

    async def write(self, data: bytes) -> bool:
        """Give it input, as it takes it; false if it does not listen any more."""

    def close_input(self) -> None: ...

    def resize(self, rows: int, columns: int) -> None:
        """Tell it the size of its terminal, if it has one."""

    def signal(self, number: int) -> None:
        """Send a signal to its process group."""

    def kill(self) -> None:
        """End it and all that it started."""

    async def wait(self, timeout: float | None = None) -> Result | None:
        """Its result, without output, which `read` gives; None if it still runs after that time.

        Raises:
            SpawnFailed: it could not be started.
            Internal: the box was lost.
        """


class Box(Protocol):
    """One walled-in place for many commands. Close it, and everything in it is gone."""

    @property
    def wall(self) -> Wall: ...

    @property
    def audit(self) -> SandboxAudit: ...

    @property
    def alive(self) -> bool:
        """Whether it still takes commands."""

    @property
    def window(self) -> int:
        """A descriptor of the workspace as the box sees it, where that is a shadow mounted inside; else -1."""

    @property
    def memory(self) -> int:
        """A descriptor of what holds a shadow's changes, where they are kept in memory; else -1."""

    @property
    def interprets(self) -> frozenset[str]:
        """Languages whose code it runs in an interpreter that keeps its state."""

    def find_program(self, names: tuple[str, ...]) -> str | None:
        """The first of these programs that is there inside."""

    async def run(self, request: Request) -> Result:
        """Run one command, or one piece of code, to its end. Calls take turns, in the order in which they came.

        When cancelled, the command's whole tree is dead, or the interpreter has stopped, before the cancellation goes
        on.

        Raises:
            SpawnFailed: the program could not be started; the box lives on.
            Internal: the box was lost.
        """

    async def start(self, request: Request, *, terminal: tuple[int, int] | None = None) -> Process:
        """Start a command that goes on while others run. With `terminal`, on one of that many rows and columns.

        Raises:
            SpawnFailed, Internal: as `run`; a program that is not there may also be reported by `wait`.
        """

    def processes(self) -> tuple[Process, ...]:
        """What was started and goes on, and what has ended since."""

    def contexts(self) -> tuple[tuple[str, str], ...]:
        """(language, name) of the interpreters that keep a state."""

    def interrupt(self, name: str, language: str) -> bool:
        """Interrupt what an interpreter does; its state lives on. False if it does nothing."""

    async def restart(self, name: str, language: str) -> None:
        """End an interpreter with its state."""

    async def warm(self) -> None:
        """Start ahead of time what calls will need; returns when it waits.

        Raises:
            Internal: the box is gone.
        """

    def probe(self) -> bool:
        """Whether it stands at this moment; does not wait."""

    def when_lost(self, tell: Callable[[], None]) -> None:
        """Have somebody told, once, when it is lost."""

    def usage(self) -> Usage:
        """What everything in the box has used so far."""

    async def close(self) -> None:
        """End everything; returns when nothing of it is left."""


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    async def open(self, grant: Grant) -> Box:
        """Make a box that obeys the grant.

        Raises:
            InitializationFailed: the wall cannot be built; nothing runs.
        """
