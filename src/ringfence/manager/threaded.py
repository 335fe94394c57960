"""The async faces of what works on files only: each call runs in a thread of its own, so that no loop waits for a disk.

The blocking classes are the ones that do the work (`ringfence.sync`); the signatures here are theirs, by ParamSpec.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, cast

from ringfence.errors import Closed
from ringfence.manager.workspaces import Workspaces as BlockingWorkspaces
from ringfence.workspace.snapshots.store import SnapshotStore as BlockingSnapshotStore

if TYPE_CHECKING:
    from ringfence.manager.options import StrPath
    from ringfence.values.change import Recovered
    from ringfence.values.principal import Principal

A = TypeVar("A")
R = TypeVar("R")
P = ParamSpec("P")


class _Threaded(Generic[A]):
    """Makes the blocking object at the first call, in a thread as well."""

    def __init__(self, make: Callable[[], A]) -> None:
        self._make = make
        self._made: A | None = None
        self._making = asyncio.Lock()

    async def _blocking(self) -> A:
        async with self._making:
            if self._made is None:
                self._made = await asyncio.to_thread(self._make)
            return self._made


def _in_thread(
    method: Callable[Concatenate[A, P], R],
) -> Callable[Concatenate[_Threaded[A], P], Coroutine[Any, Any, R]]:
    @functools.wraps(method)
    async def call(self: _Threaded[A], /, *args: P.args, **kwargs: P.kwargs) -> R:
        made = await self._blocking()
        return await asyncio.to_thread(method, made, *args, **kwargs)

    return cast("Callable[Concatenate[_Threaded[A], P], Coroutine[Any, Any, R]]", call)


class Workspaces(_Threaded[BlockingWorkspaces]):
    """All shadows of one user: made, looked at, committed, discarded. Use it as an async context manager.

        async with Workspaces() as workspaces:
            shadow = await workspaces.new("project")
            async with Sandbox("project", shadow=shadow) as box:
                await box.shell("make")
            print((await workspaces.patch(shadow)).data.decode())
            await workspaces.commit(shadow)

    `ringfence.sync.Workspaces` is the same for blocking code, and says what each method raises.

    Args:
        environ: ours if not given; RINGFENCE_SHADOWS_DIR names the directory that they lie in.
        who: who the journal says commits.
    """

    def __init__(self, environ: Mapping[str, str] | None = None, *, who: Principal | None = None) -> None:
        super().__init__(lambda: BlockingWorkspaces(environ, who=who))

    async def __aenter__(self) -> Self:
        await self._blocking()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._made is not None:
            await asyncio.to_thread(self._made.close)

    @property
    def recovered(self) -> tuple[Recovered, ...]:
        """Commits that were interrupted, and what has become of them when this was opened.

        Raises:
            Closed: it was not opened yet.
        """
        if self._made is None:
            raise Closed("the workspaces are not open", hint="use `async with Workspaces()`")
        return self._made.recovered

    new = _in_thread(BlockingWorkspaces.new)
    list = _in_thread(BlockingWorkspaces.list)
    broken = _in_thread(BlockingWorkspaces.broken)
    find = _in_thread(BlockingWorkspaces.find)
    changes = _in_thread(BlockingWorkspaces.changes)
    keep_bases = _in_thread(BlockingWorkspaces.keep_bases)
    patch = _in_thread(BlockingWorkspaces.patch)
    hunks = _in_thread(BlockingWorkspaces.hunks)
    line_counts = _in_thread(BlockingWorkspaces.line_counts)
    commit = _in_thread(BlockingWorkspaces.commit)
    save = _in_thread(BlockingWorkspaces.save)
    snapshots = _in_thread(BlockingWorkspaces.snapshots)
    compare = _in_thread(BlockingWorkspaces.compare)
    restore = _in_thread(BlockingWorkspaces.restore)
    fork = _in_thread(BlockingWorkspaces.fork)
    forget = _in_thread(BlockingWorkspaces.forget)
    discard = _in_thread(BlockingWorkspaces.discard)
    discard_broken = _in_thread(BlockingWorkspaces.discard_broken)


class SnapshotStore(_Threaded[BlockingSnapshotStore]):
    """Snapshots of directories: saved, compared, put back, without blocking the loop.

    `ringfence.sync.SnapshotStore` is the same for blocking code, and says what each method raises.

    Args:
        directory: where they are kept; RINGFENCE_SNAPSHOTS_DIR if not given.
        durable: whether a snapshot is on the disk before `save` returns.
    """

    def __init__(self, directory: StrPath | None = None, *, durable: bool = True) -> None:
        super().__init__(lambda: BlockingSnapshotStore(directory, durable=durable))

    save = _in_thread(BlockingSnapshotStore.save)
    list = _in_thread(BlockingSnapshotStore.list)
    get = _in_thread(BlockingSnapshotStore.get)
    diff = _in_thread(BlockingSnapshotStore.diff)
    read = _in_thread(BlockingSnapshotStore.read)
    verify = _in_thread(BlockingSnapshotStore.verify)
    restore = _in_thread(BlockingSnapshotStore.restore)
    fork = _in_thread(BlockingSnapshotStore.fork)
    delete = _in_thread(BlockingSnapshotStore.delete)
    collect_garbage = _in_thread(BlockingSnapshotStore.collect_garbage)
