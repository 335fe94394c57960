"""Idempotency keys: what was asked once with a key is done once, and answered the same again.

The key is written down before anything begins. A repeat while it runs waits for the first; a repeat after a restart in
the middle is told that nobody knows what came of it. The same key with another request is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from ringfence.server.problems import http_fault

if TYPE_CHECKING:
    from ringfence.server.endpoint import Call, Endpoint
    from ringfence.server.store import Store

_HEADER: Final = "idempotency-key"
_LONGEST: Final = 128
KEPT_SECONDS: Final = 24 * 3600.0
_MOST_KEPT_BYTES: Final = 4 * 1024 * 1024
"""An answer longer than this is not kept; a repeat is told so."""


async def once(call: Call, endpoint: Endpoint, raw: bytes, work: Callable[[], Awaitable[Response]]) -> Response:
    key = call.request.headers.get(_HEADER)
    if key is None or not endpoint.starts:
        return await work()
    if not 0 < len(key) <= _LONGEST:
        raise http_fault("malformed_request", f"an Idempotency-Key has 1 to {_LONGEST} characters")
    store, tenant, running = call.service.store, call.caller.tenant.name, call.service.running_keys
    digest = hashlib.sha256(b"\0".join((endpoint.name.encode(), str(call.request.url.path).encode(), raw))).digest()
    while (earlier := running.get((tenant, key))) is not None:
        await asyncio.wait((earlier,))
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    running[tenant, key] = done
    try:
        if not _written(call, tenant, key, digest):
            return _answered_before(store, tenant, key, digest)
        try:
            response = await work()
        except ClientDisconnect:  # it ran for a while: a repeat is told that nobody knows what came of it
            raise
        except Exception:  # it was refused or failed, and nothing is there: a repeat may try again
            store.do("DELETE FROM keys WHERE tenant = ? AND key = ?", tenant, key)
            raise
        body = response.body if hasattr(response, "body") else None
        if body is not None and len(body) <= _MOST_KEPT_BYTES:
            store.do(
                "UPDATE keys SET status = ?, body = ? WHERE tenant = ? AND key = ?",
                response.status_code,
                bytes(body),
                tenant,
                key,
            )
        return response
    finally:
        del running[tenant, key]
        done.set_result(None)


def _written(call: Call, tenant: str, key: str, digest: bytes) -> bool:
    """Write down that it begins; false if that was done before, and not too long ago."""
    now = time.time()
    return bool(
        call.service.store.do(
            "INSERT INTO keys (tenant, key, digest, at, run) VALUES (?, ?, ?, ?, ?) ON CONFLICT (tenant, key) DO UPDATE"
            " SET digest = excluded.digest, at = excluded.at, run = excluded.run, status = NULL, body = NULL"
            " WHERE keys.at < ?",
            tenant,
            key,
            digest,
            now,
            call.service.run_id,
            now - KEPT_SECONDS,
        )
    )


def _answered_before(store: Store, tenant: str, key: str, digest: bytes) -> Response:
    row = store.one("SELECT * FROM keys WHERE tenant = ? AND key = ?", tenant, key)
    if row is None or row["digest"] != digest:
        raise http_fault("key_reused", "the Idempotency-Key was used for another request", hint="use a new one")
    if row["status"] is None:
        raise http_fault(
            "outcome_unknown",
            "a request with this Idempotency-Key was begun, and its answer is not known",
            hint="look at what there is before you try again with a new key",
        )
    return Response(row["body"], row["status"], {"Ringfence-Replayed": "true"}, media_type="application/json")


def forget_old(store: Store) -> None:
    """Those that nobody repeats any more."""
    store.do("DELETE FROM keys WHERE at < ?", time.time() - KEPT_SECONDS)
