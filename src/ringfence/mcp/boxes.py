"""The sandboxes of one connection, by their ids: made on first use, ended with the server.

`main` is the one that is meant if none is named. Another one shares the workspace and nothing else; on a shadow, each
has a shadow of its own, since one box at a time can use one.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol
from urllib.parse import unquote, urlsplit

from ringfence.errors import InvalidArgument, NotFound, PathAccessDenied, RingfenceError
from ringfence.manager.assemble import has_policy
from ringfence.manager.blocking import wait_for
from ringfence.manager.finishing import finish
from ringfence.manager.options import SandboxOptions
from ringfence.manager.sandbox import Sandbox
from ringfence.manager.workspaces import Shadow, Workspaces
from ringfence.mcp.asking import ClientConfirmation
from ringfence.mcp.catalog import MAIN, NEW
from ringfence.mcp.hints import UNKNOWN, Powers, powers_of
from ringfence.values.remedy import Door

MOST: Final = 8
"""Sandboxes at once: each has processes and an interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the person has said on the command line."""

    options: SandboxOptions
    asks: bool
    """Whether somebody is to be asked: a policy is in force, or hosts are."""
    on_shadow: bool = False
    """A new shadow for each sandbox."""
    shadow_bytes: int = 0
    use_shadow: str | None = None
    """The id or name of a shadow that is there already."""
    from_roots: bool = False
    """Whether the workspace is the client's first root."""

    @property
    def has_shadow(self) -> bool:
        return self.on_shadow or self.use_shadow is not None


@dataclass(slots=True)
class OpenBox:
    """One sandbox, with what belongs to it."""

    id: str
    options: SandboxOptions
    confirmation: ClientConfirmation
    shadow: Shadow | None
    sandbox: Sandbox
    reviewing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def renew(self) -> None:
        """Close the box and begin anew over the same files; a caller who goes away leaves none that is closed."""
        await finish(self._renew())

    async def _renew(self) -> None:
        await self.sandbox.close()
        self.sandbox = await _entered(self.options)


def find_powers(settings: Settings, report: Callable[[RingfenceError], None]) -> Powers:
    """What calls can do, from the grant that they would have; the most, where that is not known."""
    if settings.from_roots:
        return UNKNOWN
    try:
        sandbox = Sandbox(settings.options)
    except RingfenceError as fault:
        report(fault)
        return UNKNOWN
    try:
        return powers_of(sandbox.grant, on_shadow=settings.has_shadow)
    finally:
        wait_for(sandbox.close())


FindRoot = Callable[[], Awaitable[str]]


class BoxSource(Protocol):
    """Whose sandboxes a desk works with: those of one connection, or of a server's token."""

    @property
    def door(self) -> Door:
        """In whose words it is said what would allow something."""
        ...

    @property
    def has_shadow(self) -> bool: ...

    @property
    def may_answer(self) -> bool:
        """Whether what the client says counts as a person's answer. Over HTTP, whoever holds the token says it."""
        ...

    def report(self, fault: RingfenceError) -> None:
        """Tell the person of a fault that is no caller's."""
        ...

    async def powers(self) -> Powers:
        """What calls can do, from the grant that they would have."""
        ...

    async def find(self, asked: str | None, find_root: FindRoot) -> OpenBox:
        """The sandbox of this id; `main` and `new` are made.

        Raises:
            NotFound: there is no such id.
            RingfenceError: it cannot be made.
        """
        ...

    async def close(self) -> None: ...


class Boxes:
    """Of one connection.

    Args:
        say: told what a person should know, in one line.
    """

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self.settings = settings
        self.door = Door.POLICY if has_policy(settings.options, os.environ) else Door.COMMAND_LINE
        """In whose words it is said what would allow something."""
        self._say = say
        self._open: dict[str, OpenBox] = {}
        self._making = asyncio.Lock()
        self._count = 0
        self._root: str | None = None

    @property
    def has_shadow(self) -> bool:
        return self.settings.has_shadow

    @property
    def may_answer(self) -> bool:
        return True

    def report(self, fault: RingfenceError) -> None:
        """Tell the person of a fault that is no caller's."""
        self._say(f"error [{fault.code}]: {fault}")

    async def powers(self) -> Powers:
        """What calls can do, from the grant that they would have."""
        if self.settings.from_roots and self._root is None:
            return UNKNOWN
        located = replace(self.settings, options=self._located(self.settings.options), from_roots=False)
        return await asyncio.to_thread(find_powers, located, self.report)

    async def find(self, asked: str | None, find_root: FindRoot) -> OpenBox:
        """The sandbox of this id; `main` and `new` are made.

        Raises:
            NotFound: there is no such id.
            InvalidArgument: there are too many.
            RingfenceError: as `Sandbox`.
        """
        wanted = asked or MAIN
        async with self._making:
            found = self._open.get(wanted)
            if found is not None:
                return found
            if wanted not in (MAIN, NEW):
                known = ", ".join(self._open) or "none yet"
                raise NotFound(f"there is no sandbox {wanted[:40]!r}", hint=f"known: {known}; '{NEW}' makes one")
            if len(self._open) >= MOST:
                raise InvalidArgument(f"{MOST} sandboxes are open already", hint=f"use one: {', '.join(self._open)}")
            if self.settings.from_roots and self._root is None:
                self._root = await find_root()
            name = MAIN if wanted == MAIN else f"box-{self._count + 1}"
            self._count += wanted == NEW
            await finish(self._make(name))  # a caller who goes away meanwhile loses track of nothing
            return self._open[name]

    async def _make(self, name: str) -> None:
        confirmation = ClientConfirmation()
        options = self._located(self.settings.options)
        if self.settings.asks:
            options = replace(options, confirmation=confirmation)
        shadow = await asyncio.to_thread(self._shadow, options, name) if self.settings.has_shadow else None
        if shadow is not None:
            size = self.settings.shadow_bytes
            options = replace(options, workspace=shadow.lower, shadow=shadow, shadow_bytes=size)
        self._open[name] = OpenBox(name, options, confirmation, shadow, await _entered(options))

    def _shadow(self, options: SandboxOptions, name: str) -> Shadow:
        with Workspaces() as workspaces:
            for one in workspaces.recovered:
                self._say(f"an interrupted commit of shadow {one.shadow_id} was {one.kind}: {len(one.paths)} paths")
            if self.settings.use_shadow is None:
                return workspaces.new(replace(options, confirmation=None))
            if name != MAIN:
                raise InvalidArgument("a shadow is in use by one sandbox at a time", hint=f"use '{MAIN}'")
            return workspaces.find(self.settings.use_shadow)

    def _located(self, options: SandboxOptions) -> SandboxOptions:
        return options if self._root is None else replace(options, workspace=self._root)

    async def close(self) -> None:
        """End all of them, and say what waits in shadows."""
        await asyncio.gather(*(box.sandbox.close() for box in self._open.values()), return_exceptions=True)
        boxes, self._open = tuple(self._open.values()), {}
        for box in boxes:
            if box.shadow is not None:
                await asyncio.to_thread(self._leave, box.shadow)

    def _leave(self, shadow: Shadow) -> None:
        with Workspaces() as workspaces:
            found = workspaces.changes(shadow)
            if found:
                workspaces.keep_bases(shadow, found)
                name = shadow.name or shadow.id
                self._say(f"{len(found)} changes wait in shadow {name}: ringfence workspace diff --patch {name}")
                self._say(f"commit: ringfence workspace commit {name}; discard: ringfence workspace discard {name}")
            elif self.settings.use_shadow is None:
                workspaces.discard(shadow)


async def _entered(options: SandboxOptions) -> Sandbox:
    """Made in a thread: looking at the machine takes its time, and others wait for answers meanwhile."""
    sandbox = await asyncio.to_thread(Sandbox, options)
    return await sandbox.__aenter__()


def directory_of_root(uris: list[str]) -> str:
    """The workspace that a client's roots mean: the first of them.

    Raises:
        PathAccessDenied: there is none, or it is no directory of this machine.
    """
    if not uris:
        raise PathAccessDenied("roots", "the client names no root", rule="--roots", hint="give --workspace DIR instead")
    parts = urlsplit(uris[0])
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or "\0" in path or not os.path.isdir(path):
        raise PathAccessDenied(
            uris[0][:200], "it is no directory of this machine", rule="--roots", hint="give --workspace DIR instead"
        )
    return path
