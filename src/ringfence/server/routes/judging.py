"""What would be decided, what was refused, and what the policies say."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from ringfence.errors import InvalidArgument, InvalidConfig
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.policy_pages import explained, remarks
from ringfence.manager.sandbox import Sandbox
from ringfence.server import wire
from ringfence.server.endpoint import BodyKind, Call, Endpoint
from ringfence.server.making import make_options
from ringfence.server.sessions import make_sandbox
from ringfence.server.tenants import Caller, Scope
from ringfence.values.request import Request
from ringfence.values.verdict import Reason
from ringfence.values.violation import Severity


async def check(call: Call) -> wire.Checked:
    """By the policy of a session, or of a session that would ask for nothing."""
    body: wire.CheckCreate = call.body
    if body.session_id is not None:
        session = call.service.session(call.caller, body.session_id)
        return _checked(session.sandbox, body)
    place = call.service.settings.state / "checks"
    place.mkdir(exist_ok=True, mode=0o700)
    options = make_options(wire.SessionCreate(role=body.role, policy=body.policy), call.caller, place, None, ())
    sandbox = await asyncio.to_thread(make_sandbox, options, "check", call.service.violations(call.caller.tenant.name))
    try:
        return await asyncio.to_thread(_checked, sandbox, body)
    finally:
        await sandbox.close()


def _checked(sandbox: Sandbox, body: wire.CheckCreate) -> wire.Checked:
    given = [body.command, body.argv, body.code, body.host, body.path]
    if sum(each is not None for each in given) != 1:
        raise InvalidArgument("one thing is checked at a time", hint="command, argv, code, host or path")
    if body.host is not None:
        return _of([sandbox.check_network(body.host, body.port)])
    if body.path is not None:
        return _of([sandbox.check_path(body.path, write=body.write)])
    request = Request(
        command=body.command,
        argv=None if body.argv is None else tuple(body.argv),
        code=body.code,
        language=body.language if body.code is not None else None,
        cwd=None if body.cwd is None else Path(body.cwd),
        env=tuple(body.env.items()),
    )
    decision = sandbox.decide(request)
    return _of([decision.deciding, *(each for each in decision.reasons if each is not decision.deciding)])


def _of(reasons: list[Reason]) -> wire.Checked:
    told = [
        wire.Vote(
            verdict=reason.verdict.name.lower(),
            rule=reason.rule,
            why=reason.why,
            allow_by=reason.allow_by,
            source=reason.source,
            line=reason.line,
            span=None if reason.span is None else [reason.span.start, reason.span.end],
        )
        for reason in reasons
    ]
    return wire.Checked(verdict=told[0].verdict, votes=told)


async def violations(call: Call) -> wire.ViolationPage:
    query: wire.ViolationQuery = call.query
    store = call.service.violations(call.caller.tenant.name)
    found = store.query(session=query.session_id, at_least=Severity(query.at_least), since=query.since, text=query.text)
    return wire.ViolationPage(
        items=[each.as_record() for each in found[: query.limit]],
        total=store.total,
        by_type={kind.value: count for kind, count in store.counts_by_type().items()},
        by_severity={severity.value: count for severity, count in store.counts_by_severity().items()},
    )


async def policies(call: Call) -> wire.Policies:
    engine = await asyncio.to_thread(_engine, call.caller)
    tenant = call.caller.tenant
    return wire.Policies(
        sources=list(engine.sources),
        roles=list(engine.roles),
        tools=list(engine.tools),
        role=tenant.role,
        usable_roles=sorted({tenant.role or "", *tenant.roles} - {""}),
    )


def _engine(caller: Caller, text: str | None = None) -> PolicyEngine:
    engine = PolicyEngine.from_files(project=caller.tenant.policy)
    if text is None:
        return engine
    return engine.tightened(PolicyEngine.from_text(text, "policy", is_foreign=True).policies)


async def validate(call: Call) -> wire.Validated:
    def look() -> wire.Validated:
        try:
            engine = PolicyEngine.from_text(call.body.text, "policy", is_foreign=True)
        except InvalidConfig as fault:
            faults = fault.faults or (fault,)
            return wire.Validated(
                is_valid=False,
                faults=[
                    wire.PolicyFault(message=each.message, hint=each.hint, line=each.line, column=each.column)
                    for each in faults
                ],
            )
        found = [str(remark) for policy in engine.policies for remark in remarks(policy)]
        return wire.Validated(is_valid=True, roles=list(engine.roles), tools=list(engine.tools), remarks=found)

    return await asyncio.to_thread(look)


async def explain(call: Call) -> wire.Explained:
    body: wire.PolicyExplain = call.body

    def look() -> dict[str, Any]:
        engine = _engine(call.caller, body.text)
        return explained(engine.terms(body.tool, body.role or call.caller.tenant.role))

    return wire.Explained(
        tool=body.tool, role=body.role or call.caller.tenant.role, terms=await asyncio.to_thread(look)
    )


_TAG = "policies"
ROUTES = (
    Endpoint(
        method="POST",
        path="/v1/check",
        name="check",
        does="What would be decided about a command, code, a host or a path, with every vote; nothing runs.",
        handler=check,
        scope=Scope.VIEW,
        tag=_TAG,
        body=wire.CheckCreate,
        kind=BodyKind.JSON,
        answer=wire.Checked,
    ),
    Endpoint(
        method="GET",
        path="/v1/violations",
        name="list_violations",
        does="What was refused since the server began, the newest first.",
        handler=violations,
        scope=Scope.VIEW,
        tag=_TAG,
        query=wire.ViolationQuery,
        answer=wire.ViolationPage,
    ),
    Endpoint(
        method="GET",
        path="/v1/policies",
        name="list_policies",
        does="The policies in force for the tenant, their roles and tools.",
        handler=policies,
        scope=Scope.VIEW,
        tag=_TAG,
        answer=wire.Policies,
    ),
    Endpoint(
        method="POST",
        path="/v1/policies/validate",
        name="validate_policy",
        does="Whether a text is a policy, and what in it is worth a second look.",
        handler=validate,
        scope=Scope.VIEW,
        tag=_TAG,
        body=wire.PolicyText,
        kind=BodyKind.JSON,
        answer=wire.Validated,
    ),
    Endpoint(
        method="POST",
        path="/v1/policies/explain",
        name="explain_policy",
        does="What holds for a tool in a role, each with the place that says so.",
        handler=explain,
        scope=Scope.VIEW,
        tag=_TAG,
        body=wire.PolicyExplain,
        kind=BodyKind.JSON,
        optional_body=True,
        answer=wire.Explained,
    ),
)
