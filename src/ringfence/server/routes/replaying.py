"""What a policy would have decided about what is in the record."""

from __future__ import annotations

import asyncio
import time

from ringfence.manager.policing import PolicyEngine
from ringfence.manager.replaying import replay
from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint
from ringfence.server.routes.record import find_records
from ringfence.server.tenants import Scope

_WEEK_SECONDS = 7 * 86400
_MOST = 5000
"""Records that are decided anew, the newest ones."""


async def replay_policy(call: Call) -> wire.Replayed:
    body: wire.PolicyReplay = call.body
    tenant = call.caller.tenant
    since = body.since or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - _WEEK_SECONDS))

    def decide_anew() -> wire.Replayed:
        engine = PolicyEngine.from_text(body.text, "policy", is_foreign=True)
        found = replay(find_records(org_id=tenant.name, since=since, limit=_MOST), engine, tenant.role)
        items = [
            wire.Otherwise(
                run=each.run,
                timestamp=each.timestamp,
                command=each.command,
                before=each.before,
                after=each.after,
                rule=each.rule,
                why=each.why,
            )
            for each in found.different
        ]
        return wire.Replayed(looked_at=found.looked_at, passed_over=found.passed_over, items=items)

    return await asyncio.to_thread(decide_anew)


ROUTES = (
    Endpoint(
        method="POST",
        path="/v1/policies/replay",
        name="replay_policy",
        does="Which of the requests on record another policy would decide otherwise.",
        handler=replay_policy,
        scope=Scope.AUDIT,
        tag="policies",
        body=wire.PolicyReplay,
        kind=BodyKind.JSON,
        answer=wire.Replayed,
    ),
)
