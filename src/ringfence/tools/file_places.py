"""Whose files the file tools work on: those of a session of a manager, or those of one sandbox."""

from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol

from ringfence.approvals.base import ConfirmationService
from ringfence.audit.violations import ViolationStore
from ringfence.errors import InvalidArgument
from ringfence.manager.manager import SandboxManager
from ringfence.manager.policing import SHELL_TOOL
from ringfence.manager.sandbox import Sandbox
from ringfence.policy.terms import Terms


class FilePlace(Protocol):
    """What a file tool needs to know of where its files are."""

    @property
    def session(self) -> str: ...

    @property
    def confirmation(self) -> ConfirmationService | None: ...

    @property
    def violations(self) -> ViolationStore: ...

    @property
    def may_be_direct(self) -> bool:
        """Whether our own code may open files without a box, where the policy lets it."""
        ...

    async def sandbox(self) -> Sandbox: ...

    def terms(self, tool: str) -> Terms | None: ...

    def turn(self) -> AbstractAsyncContextManager[object]:
        """Held while the files are used."""
        ...


@dataclass(frozen=True, slots=True)
class SessionPlace:
    manager: SandboxManager
    session: str
    may_be_direct: bool = True

    @property
    def confirmation(self) -> ConfirmationService | None:
        return self.manager.confirmation

    @property
    def violations(self) -> ViolationStore:
        return self.manager.violations

    async def sandbox(self) -> Sandbox:
        await self.manager.start()
        return await self.manager.pool.acquire(self.session, SHELL_TOOL)

    def terms(self, tool: str) -> Terms | None:
        return self.manager.pool.terms(tool)

    def turn(self) -> AbstractAsyncContextManager[object]:
        return self.manager.pool.turn(self.session)


@dataclass(frozen=True, slots=True)
class SandboxPlace:
    """Always in the box: its workspace is somebody's project, and its files are what commands see, shadows too."""

    box: Sandbox
    may_be_direct: bool = False

    @property
    def session(self) -> str:
        return self.box.who.session_id or ""

    @property
    def confirmation(self) -> ConfirmationService | None:
        return self.box.confirmation

    @property
    def violations(self) -> ViolationStore:
        return self.box.violations

    async def sandbox(self) -> Sandbox:
        return self.box

    def terms(self, tool: str) -> Terms | None:
        return self.box.terms_of(tool)

    def turn(self) -> AbstractAsyncContextManager[object]:
        return nullcontext()


def place_of(owner: SandboxManager | Sandbox, session_id: str | None, tool: str) -> FilePlace:
    """
    Raises:
        InvalidArgument: a manager, and no session.
    """
    if isinstance(owner, Sandbox):
        if session_id is not None:
            raise InvalidArgument("a sandbox has no sessions", argument="session_id", hint="leave session_id out")
        return SandboxPlace(owner)
    chosen = session_id or owner.session_id
    if chosen is None:
        raise InvalidArgument(f"{tool} without a session has no files", hint="give session_id=")
    return SessionPlace(owner, chosen)
