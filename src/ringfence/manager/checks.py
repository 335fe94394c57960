"""What a grant and a policy say about paths and hosts, without running anything. The wall has the last word."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.manager.configuring import home_directory
from ringfence.policy import judging
from ringfence.policy.decide import command_text, on_file
from ringfence.policy.globs import compiled
from ringfence.policy.reach import Wanted, judge
from ringfence.shell.analyse import analyse
from ringfence.values.facts import HostFact, Span, Touch
from ringfence.values.hosts import BadHost, canonical_host
from ringfence.values.network import NetworkDoor, NetworkGrant
from ringfence.values.paths import INSIDE, is_below
from ringfence.values.remedy import Access, Door, Need
from ringfence.values.verdict import Reason, Verdict

if TYPE_CHECKING:
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
    from ringfence.values.request import Request

_HTTPS = 443


def check_path(grant: Grant, terms: Terms | None, path: str, *, write: bool) -> Reason:
    """What the grant says about a path; a relative one starts at the workspace."""
    text = os.path.normpath(os.path.join(grant.workspace, _inside(path, grant.workspace)))
    real = os.path.realpath(text)
    for vote in _votes_on_path(grant, terms, text, write=write):
        if vote.verdict is not Verdict.ALLOW:
            return vote
    rules = compiled(grant.denied)
    row = rules.matches(text) or rules.matches(real)
    if row is not None:
        return Reason(Verdict.DENY, f"filesystem.blacklist {row}", f"{text} is blacklisted")
    root = next((root for root in grant.writable_roots if is_below(real, os.fspath(root))), None)
    if root is not None:
        relative = os.path.relpath(real, root)
        rows = (row.removeprefix("/") for row in grant.protected_in(root))
        guard = next((row for row in rows if is_below(relative, row)), None)
        if write and guard is not None:
            return Reason(Verdict.DENY, f"protected {guard}", f"{text} may be read, not written")
        return Reason(Verdict.ALLOW, "filesystem.whitelist", f"{text} is below {root}")
    if not write and (grant.read_outside or any(is_below(real, os.fspath(each)) for each in grant.readable)):
        return Reason(Verdict.ALLOW, "readable", f"{text} may be read")
    need = Need(Access.WRITE, os.path.dirname(real)) if write else Need(Access.READ, real)
    why = f"{text} is not in what is granted"
    return Reason(Verdict.DENY, "filesystem.whitelist", why, need.said(Door.LIBRARY), need=need)


def check_network(network: NetworkGrant | None, terms: Terms | None, host: str, port: int | None) -> Reason:
    """Whether a box with this network reaches a host, by the proxy outside it; without a port, by https."""
    target = host if port is None else f"{host}:{port}"
    if terms is not None:
        votes = tuple(judging.on_host(terms, HostFact(host, port, Span(0, 0), terms.tool)))
        against = max(votes, key=lambda vote: vote.verdict, default=None)
        if against is not None and against.verdict is not Verdict.ALLOW:
            return against
    if network is None:
        return Reason(
            Verdict.DENY,
            "network.allowNetwork false",
            f"{target}: nothing allows a host, so there is no network inside",
            f"name it: network=[{target!r}], or network.allow of the policy",
        )
    try:
        wanted = Wanted(host=canonical_host(host), port=port or _HTTPS, door=NetworkDoor.CONNECT)
    except BadHost as fault:
        return Reason(Verdict.DENY, "network", f"{target}: {fault}")
    found = judge(network, wanted)
    source, _, line = found.place.rpartition(":")
    place = (source, int(line)) if line.isdigit() else (found.place, None)
    return Reason(found.verdict, found.rule or "network", f"{target}: {found.reason}", found.allow_by, *place)


def refused_inside(grant: Grant, terms: Terms | None, request: Request, cwd: Path) -> tuple[Reason, ...]:
    """What the wall would refuse of the paths that a command line names, if it ran: hidden and protected ones."""
    if request.language not in (None, "bash"):
        return ()
    found: dict[str, Reason] = {}
    for fact in analyse(command_text(request)).paths:
        where = judging.Where(grant.workspace, cwd, home_directory(os.environ))
        write = fact.touch in (Touch.WRITE, Touch.REMOVE)
        reason = check_path(grant, terms, judging.spelled(fact.path, where)[0], write=write)
        if reason.verdict is Verdict.DENY and reason.rule.startswith(("filesystem.blacklist", "protected")):
            found.setdefault(reason.why, reason)
    return tuple(found.values())


def _votes_on_path(grant: Grant, terms: Terms | None, path: str, *, write: bool) -> tuple[Reason, ...]:
    if terms is None:
        return ()
    return tuple(on_file(path, terms, grant, home_directory(os.environ), write=write))


def _inside(path: str, workspace: Path) -> str:
    if is_below(path, INSIDE) and not is_below(os.fspath(workspace), INSIDE):
        return os.fspath(workspace) + path[len(INSIDE) :]
    return path
