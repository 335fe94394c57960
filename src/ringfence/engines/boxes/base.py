"""The ports of what an engine has built around a box's first process, as far as the box itself has to do with it."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ringfence.values.outcome import Observed
    from ringfence.values.violation import Violation


class Supervision(Protocol):
    """Somebody outside who looks at what a command does, so that a refusal has its reason."""

    def begin(self, job: int, *, in_background: bool = False) -> None:
        """A command begins, or a call of an interpreter: what comes from this job from now on is its own. What one in
        the background touches is besides in the records of the calls that end after it."""

    def forget(self) -> None:
        """Nothing that was seen so far belongs to a call that is yet to come."""

    def end(self, job: int) -> tuple[tuple[Violation, ...], Observed | None]:
        """What was refused to it, and what else was seen of it."""

    def close(self) -> None: ...


class BoxHost(Protocol):
    """The wall around PID 1, and the ways through it that are ours."""

    @property
    def control(self) -> socket.socket:
        """Our end of the control socket; packets come with their sender's credentials."""

    @property
    def configure(self) -> tuple[str, ...]:
        """How PID 1 confines itself: docs/box-protocol.md."""

    @property
    def descriptors(self) -> tuple[int, ...]:
        """What goes with that."""

    @property
    def owner(self) -> tuple[int, int] | None:
        """The ids that a command runs with, where they are not our own."""

    def complaints(self) -> str:
        """What those who built the wall said went wrong."""

    def supervise(self, listener: int) -> Supervision:
        """Have the calls looked at that stop at this listener; it is closed by the caller."""

    def kill(self, first_pid: int) -> None:
        """PID 1 does not answer: have the whole box ended."""

    def release(self) -> None:
        """Close our ends: PID 1 sees its control socket close, exits, and everything inside ends."""

    async def wait_closed(self) -> None:
        """Wait until nothing of the box is left. Never raises."""
