"""Snapshots of sessions' files, and sessions that begin with the files of others."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from ringfence.errors import InvalidArgument, PathAccessDenied
from ringfence.manager.threaded import SnapshotStore
from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint
from ringfence.server.tenants import Scope

if TYPE_CHECKING:
    from ringfence import Snapshot
    from ringfence.server.sessions import Session


def _store(call: Call) -> SnapshotStore:
    """The tenant's own: names of others are not found."""
    return SnapshotStore(call.service.settings.state / "snapshots" / call.caller.tenant.name)


async def save(call: Call) -> wire.Snapshot:
    session = _without_shadow(call.service.session(call.caller, call["session"]))
    async with session.at_rest:
        return _told(await _store(call).save(session.workspace, call.body.name))


async def restore(call: Call) -> wire.Session:
    """Interpreters keep their state, and files that they have open."""
    session = _without_shadow(call.service.session(call.caller, call["session"]))
    async with session.at_rest:
        await _store(call).restore(call.body.name, session.workspace, in_place=True)
    return session.answer()


async def fork(call: Call) -> wire.Session:
    """A new session with the same options and a copy of the files; also of one whose box was lost."""
    session = _without_shadow(call.service.session(call.caller, call["session"]))
    body: wire.SessionFork = call.body
    asked = msgspec.structs.replace(
        session.asked,
        id=body.id,
        ttl_seconds=body.ttl_seconds,
        metadata={**session.asked.metadata, **body.metadata},
        workspace=None,
        preset=None,
    )
    store, name = _store(call), f"fork-{os.urandom(8).hex()}"

    async def fill(workspace: Path) -> None:
        async with session.at_rest:
            await store.save(session.workspace, name)
        try:
            await store.restore(name, workspace, in_place=True)
        finally:
            await asyncio.shield(store.delete(name))

    return (await call.service.create_session(call.caller, asked, fill)).answer()


async def list_snapshots(call: Call) -> wire.SnapshotPage:
    return wire.SnapshotPage(items=[_told(found) for found in await _store(call).list()])


async def delete(call: Call) -> None:
    await _store(call).delete(call["snapshot"])


def _without_shadow(session: Session) -> Session:
    if session.shadow is not None:
        raise InvalidArgument("the session works on a shadow", hint="commit it, or use a session without one")
    # One that was named was resolved when the session was made.
    if not session.owns_workspace and os.path.realpath(session.workspace) != str(session.workspace):
        raise PathAccessDenied(str(session.workspace), "a link was put in its place", rule="server workspaces")
    return session


def _told(found: Snapshot) -> wire.Snapshot:
    return wire.Snapshot(name=found.name, created_at=found.saved_at, files=found.files, size_bytes=found.total_bytes)


_TAG = "snapshots"
_SESSION = "/v1/sessions/{session}"
ROUTES = (
    Endpoint(
        method="POST",
        path=_SESSION + "/snapshots",
        name="save_snapshot",
        does="Save the session's files under a name; it goes on.",
        handler=save,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.SnapshotCreate,
        kind=BodyKind.JSON,
        answer=wire.Snapshot,
        status=201,
        starts=True,
        waits=True,
    ),
    Endpoint(
        method="POST",
        path=_SESSION + "/restore",
        name="restore_snapshot",
        does="Make the session's files what they were.",
        handler=restore,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.SnapshotRestore,
        kind=BodyKind.JSON,
        answer=wire.Session,
        waits=True,
    ),
    Endpoint(
        method="POST",
        path=_SESSION + "/fork",
        name="fork_session",
        does="A new session with the same options and a copy of the files.",
        handler=fork,
        scope=Scope.RUN,
        tag=_TAG,
        body=wire.SessionFork,
        kind=BodyKind.JSON,
        optional_body=True,
        answer=wire.Session,
        status=201,
        starts=True,
        waits=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/snapshots",
        name="list_snapshots",
        does="The tenant's snapshots, the oldest first.",
        handler=list_snapshots,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.SnapshotPage,
    ),
    Endpoint(
        method="DELETE",
        path="/v1/snapshots/{snapshot}",
        name="delete_snapshot",
        does="Delete a snapshot, and what no other one needs.",
        handler=delete,
        scope=Scope.RUN,
        tag=_TAG,
        status=204,
    ),
)
