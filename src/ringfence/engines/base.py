"""The ports of an engine and of its boxes."""

from typing import Protocol

from ringfence.values.grant import Grant
from ringfence.values.guarantee import Wall
from ringfence.values.outcome import Result, SandboxAudit, Usage
from ringfence.values.request import Request


class Box(Protocol):
    """One walled-in place for many commands in turn. Close it, and everything in it is gone."""

    @property
    def wall(self) -> Wall: ...

    @property
    def audit(self) -> SandboxAudit: ...

    @property
    def alive(self) -> bool:
        """Whether it still takes commands."""

    async def run(self, request: Request) -> Result:
        """Run one command to its end.

        When cancelled, the command's whole tree is dead before the cancellation goes on.

        Raises:
            SpawnFailed: the program could not be started; the box lives on.
            Internal: the box was lost.
        """

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
