"""What was changed in the shadow of a session: looked at, and carried over to the project by who may approve."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

from starlette.responses import Response

from ringfence.errors import InvalidArgument, NotFound
from ringfence.manager.workspaces import Shadow, Workspaces
from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint, Media
from ringfence.server.tenants import Scope
from ringfence.values.change import Change, Committed, HunkChoice, Selection
from ringfence.values.principal import Principal

if TYPE_CHECKING:
    from ringfence.server.sessions import Session


def _shadow(call: Call) -> tuple[Session, Shadow]:
    session = call.service.session(call.caller, call["session"])
    if session.shadow is None:
        raise InvalidArgument("the session has no shadow", hint="make it with shadow: true")
    return session, session.shadow


async def changes(call: Call) -> wire.ChangePage:
    _, shadow = _shadow(call)
    return await asyncio.to_thread(_changes, shadow)


def _changes(shadow: Shadow) -> wire.ChangePage:
    with Workspaces() as workspaces:
        found = workspaces.changes(shadow)
        counts = workspaces.line_counts(shadow, found)
    items = [
        wire.Change(
            kind=change.kind.value,
            path=change.path,
            source=change.source or None,
            is_binary=change.is_binary,
            refused=change.refused or None,
            lines_added=counts.get(change.path, (0, 0))[0],
            lines_removed=counts.get(change.path, (0, 0))[1],
        )
        for change in found
    ]
    return wire.ChangePage(items=items, digest=_digest(found))


def _digest(found: tuple[Change, ...]) -> str:
    """Of the changes as they are: a commit names it, so that only what was looked at is carried over."""
    return hashlib.sha256(repr(found).encode("utf-8", "surrogatepass")).hexdigest()


async def patch(call: Call) -> Response:
    _, shadow = _shadow(call)

    def make() -> bytes:
        with Workspaces() as workspaces:
            return workspaces.patch(shadow).data

    return Response(await asyncio.to_thread(make), media_type="text/x-diff; charset=utf-8")


async def hunks(call: Call) -> wire.FileHunks:
    _, shadow = _shadow(call)

    def find() -> wire.FileHunks:
        with Workspaces() as workspaces:
            change = next((each for each in workspaces.changes(shadow) if each.path == call.query.path), None)
            found = None if change is None else workspaces.hunks(shadow, change)
        if found is None:
            raise NotFound("no text was changed there", path=call.query.path)
        return wire.FileHunks(
            path=found.path,
            mark=found.mark,
            hunks=[
                wire.Hunk(
                    old_start=hunk.old_start,
                    new_start=hunk.new_start,
                    lines=[line.decode("utf-8", "replace") for line in hunk.lines],
                )
                for hunk in found.hunks
            ],
        )

    return await asyncio.to_thread(find)


async def commit(call: Call) -> wire.Committed:
    """The box is made anew for it, so that nothing changes meanwhile: interpreters lose their state."""
    session, shadow = _shadow(call)
    body: wire.CommitCreate = call.body
    async with session.at_rest:
        await session.pause()
        try:
            done = await asyncio.to_thread(_commit, shadow, body, call.caller.name, call.caller.tenant.name)
        finally:
            await session.resume()
    return _told(done)


def _commit(shadow: Shadow, body: wire.CommitCreate, agent: str, tenant: str) -> Committed:
    with Workspaces(who=Principal(agent_id=agent, org_id=tenant)) as workspaces:
        found = workspaces.changes(shadow)
        if body.digest != _digest(found):
            raise InvalidArgument(
                "the changes are not those that were looked at", argument="digest", hint="look at them again"
            )
        workspaces.keep_bases(shadow, found)
        select = None
        if body.paths is not None or body.hunks:
            chosen = tuple(HunkChoice(each.path, each.mark, frozenset(each.numbers)) for each in body.hunks)
            select = Selection(paths=None if body.paths is None else tuple(body.paths), hunks=chosen)
        return workspaces.commit(shadow, select=select, seen=found, merge=body.merge)


def _told(done: Committed) -> wire.Committed:
    return wire.Committed(
        applied=[change.path for change in done.applied],
        merged=list(done.merged),
        refused=[wire.CommitRefusal(path=r.path, why=r.why, rule=r.rule, allow_by=r.allow_by) for r in done.refused],
        conflicts=[
            wire.CommitRefusal(path=r.path, why=r.why, rule=r.rule, allow_by=r.allow_by) for r in done.conflicts
        ],
    )


_TAG = "shadows"
_SESSION = "/v1/sessions/{session}"
ROUTES = (
    Endpoint(
        method="GET",
        path=_SESSION + "/changes",
        name="list_changes",
        does="What was changed in the session's shadow.",
        handler=changes,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.ChangePage,
    ),
    Endpoint(
        method="GET",
        path=_SESSION + "/patch",
        name="get_patch",
        does="The same as a unified diff that `git apply` takes.",
        handler=patch,
        scope=Scope.VIEW,
        tag=_TAG,
        media=(Media.DIFF,),
    ),
    Endpoint(
        method="GET",
        path=_SESSION + "/hunks",
        name="get_hunks",
        does="The stretches of one changed text, to choose from.",
        handler=hunks,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.PathQuery,
        answer=wire.FileHunks,
    ),
    Endpoint(
        method="POST",
        path=_SESSION + "/commit",
        name="commit_changes",
        does="Carry changes over to the project: all, some paths, or some hunks.",
        handler=commit,
        scope=Scope.APPROVE,
        tag=_TAG,
        body=wire.CommitCreate,
        kind=BodyKind.JSON,
        answer=wire.Committed,
        waits=True,
    ),
)
