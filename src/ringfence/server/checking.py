"""`ringfence serve --check`: whether the server could serve here, without serving."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ringfence.errors import RingfenceError
from ringfence.manager.doctor import Check, examine
from ringfence.manager.policing import PolicyEngine
from ringfence.server.serving import Listening, StateLock, bind_tcp, tls_context
from ringfence.server.settings import Settings
from ringfence.server.store import Store
from ringfence.server.webhooks import Webhooks


def check_all(settings: Settings, listening: Listening) -> tuple[Check, ...]:
    """What was looked at, in order; never raises for what it finds."""
    return tuple(_checks(settings, listening))


def _checks(settings: Settings, listening: Listening) -> Iterator[Check]:
    report = examine()
    bad = [check for check in report.checks if not check.ok]
    yield Check(
        "walls",
        report.healthy,
        "a plain command runs behind a full wall" if report.healthy else "; ".join(f"{c.name}: {c.found}" for c in bad),
        "" if report.healthy else "ringfence doctor",
    )
    try:
        lock = StateLock(settings.state)
        try:
            Store(settings.state).close()
        finally:
            lock.release()
        yield Check("state", True, str(settings.state))
    except (RingfenceError, OSError) as fault:
        yield _fault("state", fault)
    for tenant in settings.tenants.values():
        try:
            engine = PolicyEngine.from_files(project=tenant.policy)
            if tenant.role is not None or tenant.roles:
                for role in sorted({tenant.role or "", *tenant.roles} - {""}):
                    engine.terms("shell_exec", role)
            yield Check(f"tenant {tenant.name}", True, ", ".join(engine.sources) or "no policy")
        except RingfenceError as fault:
            yield _fault(f"tenant {tenant.name}", fault)
    try:
        Webhooks(settings.webhooks)
        yield Check("webhooks", True, str(len(settings.webhooks)))
    except RingfenceError as fault:
        yield _fault("webhooks", fault)
    try:
        tls_context(listening)
        if listening.host is not None:
            bind_tcp(listening.host, listening.port).close()
        if len(os.fsencode(listening.socket)) > 107:
            raise OSError("a socket's path has at most 107 bytes")
        yield Check("address", True, f"{listening.socket}" + (f", {listening.host}" if listening.host else ""))
    except (RingfenceError, OSError) as fault:
        yield _fault("address", fault)


def _fault(name: str, fault: Exception) -> Check:
    if isinstance(fault, RingfenceError):
        return Check(name, False, fault.message, fault.hint)
    return Check(name, False, str(fault))
