"""The ports of an engine, of its boxes, and of the processes that go on in them."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ringfence.egress.base import Listeners
    from ringfence.values.files import FileOperation, Performed
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Wall
    from ringfence.values.network import NetworkGrant
    from ringfence.values.outcome import Ending, Observed, Result, SandboxAudit, Usage
    from ringfence.values.request import Request
    from ringfence.values.sizes import Duration
    from ringfence.values.violation import Violation

Agree = Callable[[str], None]
"""Looks at where a path really leads, before anything there is given out or changed; raises to refuse."""


class SocketMaker(Protocol):
    """Makes sockets inside a box's network, for whoever is outside. Gone with the box."""

    async def listen(self, port: int) -> socket.socket:
        """A listener on that port of every address, not blocking; the caller's to close. What it brings is
        said by `Listeners.is_carried`.

        Raises:
            OSError: somebody in the box has the port, or the box is gone.
        """

    async def dial(self, port: int) -> socket.socket:
        """A connection to a server in the box, at 127.0.0.1; not blocking, the caller's to close.

        Raises:
            OSError: nobody listens there, or the box is gone. Before a kernel of its own, and in a container, nobody
                waits for that: then the connection ends.
        """


class Attached(Protocol):
    """A box whose connections somebody takes."""

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """For the box, besides those that name the proxy and whom to trust: placeholders of secrets and the like."""

    @property
    def published(self) -> tuple[tuple[int, int], ...]:
        """(port inside, port of 127.0.0.1 outside) of `NetworkGrant.publish` that it serves itself; the engine serves
        the others."""

    async def settle(self) -> bool:
        """Wait until all is known that was decided until now; False if that took too long. Never raises."""

    def taken(self, until: float | None = None) -> tuple[Violation, ...]:
        """What was refused since the last look; up to then, in seconds since the epoch, if that is given."""

    async def close(self) -> None:
        """Take no more of it. Never raises."""


class NetworkProvider(Protocol):
    """Whoever takes the connections of boxes that have a `NetworkGrant`."""

    async def authority(self) -> bytes:
        """The certificate, in PEM, of who signs for hosts whose connections are looked into."""

    async def known_hosts(self) -> str:
        """The line by which clients of SSH know who ends it."""

    async def attach(self, box: str, network: NetworkGrant, listeners: Listeners, maker: SocketMaker) -> Attached:
        """Take what comes to these listeners, which are the provider's from the call on.

        Args:
            box: a name that no other box of this process has.

        Raises:
            InitializationFailed: nobody can; there is no box then.
        """


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

    async def wait(self, timeout: Duration | None = None) -> Result | None:
        """Its result, with its output up to the limit, whether or not `read` gave it; None if it still runs after that
        time. Once it was waited for, `Box.processes` forgets it.

        Raises:
            SpawnFailed: it could not be started.
            Internal: the box was lost.
        """

    async def wait_end(self) -> Result:
        """The same, for whoever keeps records: it does not count as having been waited for."""


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
    def network_name(self) -> str:
        """What whoever serves its network knows the box as; empty if it has none."""

    @property
    def published(self) -> tuple[tuple[int, int], ...]:
        """(port inside, port of 127.0.0.1 outside)"""

    def note(self, text: str) -> None:
        """Add to the wall's notes, and so to every result, how it came to be."""

    @property
    def held(self) -> frozenset[str]:
        """Paths in writable directories that the wall has kept from being changed since the box was made, with all that
        is below them; and so the directories on the way to them from being moved."""

    @property
    def window(self) -> int:
        """A descriptor of the workspace as the box sees it, where that is a shadow mounted inside; else -1."""

    @property
    def memory(self) -> int:
        """A descriptor of what holds a shadow's changes, where they are kept in memory; else -1."""

    @property
    def interprets(self) -> frozenset[str]:
        """Languages whose code it runs in an interpreter that keeps its state."""

    def last_seen(self, request: Request) -> tuple[tuple[Violation, ...], Observed | None]:
        """What was refused to a request that came to no result, and what else was seen of it; asked once."""

    def find_program(self, names: tuple[str, ...]) -> str | None:
        """The first of these programs that is there inside."""

    async def run(self, request: Request) -> Result:
        """Run one command, or one piece of code, to its end. Calls run side by side; those of one interpreter, or of
        one shell that keeps its state, take turns in the order in which they came.

        When cancelled, the command's whole tree is dead, or the interpreter has stopped, before the cancellation goes
        on.

        Raises:
            SpawnFailed: the program could not be started; the box lives on.
            Internal: the box was lost.
        """

    async def start(
        self, request: Request, *, terminal: tuple[int, int] | None = None, channel: int | None = None
    ) -> Process:
        """Start a command that goes on while others run. With `terminal`, on one of that many rows and columns. Its
        input, if the request has one, is all that it gets; its time, if the request has one, ends it. It finds a copy
        of the descriptor `channel` as its descriptor 9; the caller's stays the caller's.

        Raises:
            SpawnFailed, Internal: as `run`; a program that is not there may also be reported by `wait`.
        """

    async def perform(
        self, operation: FileOperation, agree: Agree, data: AsyncIterator[bytes] | None = None
    ) -> Performed:
        """Read or change a file inside the box, as its user and behind its wall.

        Args:
            agree: asked about every real path, before anything is changed there or given out; what it raises is raised.
            data: what `write` writes.

        Raises:
            OSError: what the kernel said, inside.
            Timeout: it took longer than a command may.
            Internal: the box, or what serves its files, was lost.
        """

    def processes(self) -> tuple[Process, ...]:
        """What was started, or left by a call that may leave something, and goes on; and what has ended since and
        nobody has waited for."""

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
        """End everything; returns when nothing of it is left. May be called from any loop."""


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    async def open(self, grant: Grant) -> Box:
        """Make a box that obeys the grant.

        Raises:
            InitializationFailed: the wall cannot be built; nothing runs.
        """


class BoxAhead(Protocol):
    """A box that was made before anybody asked for it."""

    @property
    def box(self) -> Box: ...

    def let_go(self) -> None:
        """It has been taken, or is being closed: what it was made from counts no more."""


class MakesAhead(Protocol):
    """An engine that makes boxes ahead, and can tell whether such a one is what it would make now."""

    async def open_ahead(self, grant: Grant) -> BoxAhead | None:
        """A box for a call that is yet to come; None if that cannot be.

        Raises:
            RingfenceError: as `Engine.open`.
        """

    def can_take(self, ahead: BoxAhead, grant: Grant) -> bool:
        """Whether it stands, and is in every way what `Engine.open` would make now.

        Raises:
            RingfenceError: as `Engine.open`.
        """
