"""The record of what ran: searched, shown, exported and verified. A tenant sees its own records only."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from starlette.responses import StreamingResponse

from ringfence.audit.index import Filter, Index
from ringfence.audit.verify import verify as verify_log
from ringfence.errors import NotFound
from ringfence.manager.configuring import home_directory, state_directory
from ringfence.server import wire
from ringfence.server.endpoint import Call, Endpoint, Media
from ringfence.server.pages import make_cursor, read_cursor
from ringfence.server.problems import http_fault
from ringfence.server.streaming import NO_BUFFERING
from ringfence.server.tenants import Scope

_EXPORT_PAGE = 500


def _directory() -> Path:
    return state_directory(os.environ, home_directory(os.environ))


def _find(wanted: Filter, limit: int) -> list[dict[str, Any]]:
    """The newest first."""
    try:
        with Index(_directory()) as index:
            return list(index.find(wanted, limit=limit))[::-1]
    except FileNotFoundError:
        return []


def find_records(*, org_id: str, since: str, limit: int) -> list[dict[str, Any]]:
    """A tenant's records since then, the newest first."""
    return _find(Filter(org_id=org_id, since=since), limit)


def _wanted(call: Call, before: int | None) -> Filter:
    query: wire.AuditFilter = call.query
    return Filter(
        session_id=query.session_id,
        agent_id=query.agent_id,
        org_id=call.caller.tenant.name,
        tool=query.tool,
        result=query.result,
        since=query.since,
        until=query.until,
        text=query.text,
        before=before,
    )


async def search(call: Call) -> wire.RecordPage:
    query: wire.AuditQuery = call.query
    before = None if query.cursor is None else read_cursor(query.cursor)
    if before is not None and not isinstance(before, int):
        raise http_fault("malformed_request", "the cursor is none of ours", hint="give next_cursor of the last page")
    found = await asyncio.to_thread(_find, _wanted(call, before), query.limit + 1)
    items = found[: query.limit]
    more = len(found) > len(items) and isinstance(items[-1].get("seq"), int)
    return wire.RecordPage(items=items, next_cursor=make_cursor(items[-1]["seq"]) if more else None)


async def show(call: Call) -> wire.RecordPage:
    def find() -> list[dict[str, Any]]:
        try:
            with Index(_directory()) as index:
                return index.show(call["run"])
        except FileNotFoundError:
            return []

    found = [each for each in await asyncio.to_thread(find) if each.get("org_id") == call.caller.tenant.name]
    if not found:
        raise NotFound(f"there is no record of {call['run']!r}", hint="search for it")
    return wire.RecordPage(items=found)


async def export(call: Call) -> StreamingResponse:
    return StreamingResponse(_lines(call), media_type=Media.LINES.value, headers=NO_BUFFERING)


async def _lines(call: Call) -> AsyncIterator[bytes]:
    """The newest first, page by page, so that neither the log nor the loop waits for a slow reader."""
    before: int | None = None
    while True:
        found = await asyncio.to_thread(_find, _wanted(call, before), _EXPORT_PAGE)
        for record in found:
            yield msgspec.json.encode(record) + b"\n"
        last = found[-1].get("seq") if found else None
        if len(found) < _EXPORT_PAGE or not isinstance(last, int):
            return
        before = last


async def verify(call: Call) -> wire.Verified:
    """Of the whole log: the chain is one, whoever's the records are. No record is shown."""
    try:
        report = await asyncio.to_thread(verify_log, _directory())
    except FileNotFoundError:
        return wire.Verified(is_whole=True, records=0, files=0, says="there is no record yet")
    return wire.Verified(
        is_whole=report.ok,
        records=report.records,
        files=report.files,
        last_seq=report.last_seq,
        last_hash=report.last_hash,
        signed_seq=report.signed_seq,
        says=str(report),
    )


_TAG = "record"
ROUTES = (
    Endpoint(
        method="GET",
        path="/v1/audit",
        name="search_audit",
        does="Records of the tenant, the newest first.",
        handler=search,
        scope=Scope.AUDIT,
        tag=_TAG,
        query=wire.AuditQuery,
        answer=wire.RecordPage,
    ),
    Endpoint(
        method="GET",
        path="/v1/audit/export",
        name="export_audit",
        does="The same as lines of JSON, all of them.",
        handler=export,
        scope=Scope.AUDIT,
        tag=_TAG,
        query=wire.AuditFilter,
        media=(Media.LINES,),
        waits=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/audit/verify",
        name="verify_audit",
        does="Whether the log is as it was written.",
        handler=verify,
        scope=Scope.AUDIT,
        tag=_TAG,
        answer=wire.Verified,
        waits=True,
    ),
    Endpoint(
        method="GET",
        path="/v1/audit/runs/{run}",
        name="show_audit",
        does="Everything that is recorded about one run.",
        handler=show,
        scope=Scope.AUDIT,
        tag=_TAG,
        answer=wire.RecordPage,
    ),
)
