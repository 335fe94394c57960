"""What a caller asks for and what its tenant may have, made into the options of a sandbox. Refuses what is more."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ringfence.errors import InvalidArgument, NotFound, NotPermitted, PathAccessDenied
from ringfence.manager.network_options import Network
from ringfence.manager.options import Docker, SandboxOptions
from ringfence.manager.policing import PolicyEngine
from ringfence.policy.layer import block_of
from ringfence.server import wire
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits

if TYPE_CHECKING:
    from ringfence.approvals.base import ConfirmationService
    from ringfence.audit.events import Observer
    from ringfence.server.tenants import Caller, Tenant


def with_preset(asked: wire.SessionCreate, presets: Mapping[str, wire.SessionCreate]) -> wire.SessionCreate:
    """What was asked, over what the preset says: a field that was not given is the preset's.

    Raises:
        NotFound: there is no such preset.
    """
    if asked.preset is None:
        return asked
    preset = presets.get(asked.preset)
    if preset is None:
        known = ", ".join(sorted(presets)) or "the server's configuration names none"
        raise NotFound(f"there is no preset {asked.preset!r}", hint=f"one of: {known}")
    usual = wire.SessionCreate()
    changed = {
        name: getattr(preset, name)
        for name in wire.SessionCreate.__struct_fields__
        if getattr(asked, name) == getattr(usual, name)
    }
    return msgspec.structs.replace(asked, **{**changed, "preset": asked.preset})


def make_options(
    asked: wire.SessionCreate,
    caller: Caller,
    workspace: Path,
    confirmation: ConfirmationService | None,
    observers: tuple[Observer, ...],
) -> SandboxOptions:
    """
    Raises:
        NotPermitted: a role or a secret that the tenant may not use.
        InvalidArgument, InvalidConfig: something makes no sense.
    """
    tenant = caller.tenant
    role = asked.role or tenant.role
    if asked.role is not None and asked.role != tenant.role and asked.role not in tenant.roles and not caller.is_owner:
        raise NotPermitted(
            f"the tenant {tenant.name!r} may not use the role {asked.role!r}",
            hint=f"one of: {', '.join(sorted({tenant.role or '', *tenant.roles} - {''})) or 'none'}",
        )
    if asked.host is not None and not caller.is_owner:
        raise NotPermitted("only the server's owner may say what is about its machine", hint="leave out `host`")
    return SandboxOptions(
        **_of_host(asked.host),
        workspace=workspace,
        read_only=asked.read_only,
        deny=asked.deny,
        env=asked.env,
        limits=_limits(asked.limits, tenant),
        network=_network(asked, tenant),
        policy=_policy(asked, caller, role),
        role=role,
        security_mode=asked.security_mode,
        confirmation=confirmation,
        preload=asked.preload,
        trace=asked.trace,
        observers=observers,
        agent_id=caller.name,
        org_id=tenant.name,
    )


def _of_host(asked: wire.HostSpec | None) -> dict[str, Any]:
    if asked is None:
        return {}
    given = {name: getattr(asked, name) for name in asked.__struct_fields__}
    if isinstance(asked.engine, wire.EngineSpec):
        given["engine"] = Docker(**msgspec.structs.asdict(asked.engine.docker))
    if asked.requires is None:
        del given["requires"]
    else:
        given["requires"] = frozenset(map(Guarantee, asked.requires))
    return given


def check_workspace(path: str, caller: Caller) -> Path:
    """A directory of this machine that the caller may name.

    Raises:
        PathAccessDenied: it may not.
        NotFound: it is not there.
    """
    given = Path(path)
    if not given.is_absolute() or "\0" in path:
        raise InvalidArgument("a workspace is an absolute path", argument="workspace")
    real = Path(os.path.realpath(given))
    allowed = caller.is_owner or any(_is_below(real, root) for root in caller.tenant.workspaces)
    if not allowed:
        raise PathAccessDenied(
            path,
            f"the tenant {caller.tenant.name!r} may not use it as a workspace",
            rule="server workspaces",
            hint="leave it out for a directory of the session's own, or have the operator add it to `workspaces`",
        )
    if not real.is_dir():
        raise NotFound("there is no such directory", path=path)
    return real


def _is_below(path: Path, root: str) -> bool:
    top = Path(os.path.realpath(root))
    return path == top or path.is_relative_to(top)


_OF_MACHINE = frozenset(
    [
        "alternatives",
        "engine",
        "filesystem.read",
        "filesystem.write",
        "filesystem_access",
        "network.private",
        "network.publish",
        "network.reach",
        "network.secrets",
    ]
)
"""Settings that open something of the server's machine: only the operator's files, or its owner, may be the first to
say them. What those say a session's policy may narrow."""
_CLOSED = (None, (), "native", "workspace_only")


def _check_narrows(first: PolicyEngine, given: PolicyEngine, tenant: Tenant, role: str | None) -> None:
    """
    Raises:
        NotPermitted: the policy of a session opens what no policy before it speaks of.
    """
    for tool in given.tools:
        said = {name for policy in first.policies for name in block_of(policy, tool, role)}
        for policy in given.policies:
            for name, setting in block_of(policy, tool, role).items():
                is_ours = name in _OF_MACHINE or (not tenant.may_ask_network and _opens_network(name))
                if is_ours and name not in said and setting.value not in _CLOSED:
                    raise NotPermitted(
                        f"the policy of a session may not set {setting.written}, of which the server's say nothing",
                        hint="leave it out, or have the operator set it in the tenant's policy",
                    )


def _opens_network(name: str) -> bool:
    return name.startswith(("network.allow", "network.default", "network.ask", "network_access", "allowed_domains"))


def _policy(asked: wire.SessionCreate, caller: Caller, role: str | None) -> PolicyEngine | str | None:
    tenant = caller.tenant
    if asked.policy is not None and tenant.policy is None and not tenant.may_ask_network:
        # Where there is nothing to tighten, a policy is the first word, also about hosts.
        raise NotPermitted(f"the tenant {tenant.name!r} may not bring a policy", hint="leave out policy")
    layers: list[str] = [] if asked.policy is None else [asked.policy]
    if tenant.quotas.egress_bytes is not None:
        layers.append(f"policies: {{default: {{network: {{budget: {{total_out: {tenant.quotas.egress_bytes}}}}}}}}}\n")
    if not layers:
        return tenant.policy
    names = ("policy of the session", "quota of the tenant")
    engines = [PolicyEngine.from_text(text, name, is_foreign=True) for text, name in zip(layers, names, strict=False)]
    first = PolicyEngine.from_files(project=tenant.policy)
    if asked.policy is not None and not caller.is_owner:
        _check_narrows(first, engines[0], tenant, role)
    return first.tightened(policy for engine in engines for policy in engine.policies)


def _network(asked: wire.SessionCreate, tenant: Tenant) -> Any:
    secrets = []
    for name in asked.secrets:
        source = tenant.secrets.get(name)
        if source is None:
            raise NotPermitted(
                f"the tenant {tenant.name!r} may not use a secret {name!r}",
                hint=f"one of: {', '.join(sorted(tenant.secrets)) or 'none'}",
            )
        secrets.append(f"{name}={source}")
    wanted = asked.network
    if wanted is None:
        wanted = list(tenant.network) if tenant.network is not None else None
    elif not tenant.may_ask_network and wanted != "off":
        raise NotPermitted(f"the tenant {tenant.name!r} may not name hosts", hint="leave out network")
    if wanted is None and not secrets:
        return None
    if isinstance(wanted, wire.NetworkSpec):
        return Network(
            allow=wanted.allow,
            deny=wanted.deny,
            publish=wanted.publish,
            ask=wanted.ask,
            inspect=wanted.inspect,
            secrets=secrets,
        )
    if wanted == "off":
        return "off"
    return Network(allow=wanted if isinstance(wanted, list) else None, secrets=secrets)


def _limits(asked: wire.LimitsSpec | None, tenant: Tenant) -> Limits | None:
    """Those that were asked for, where given; each at most the tenant's quota."""
    quotas = tenant.quotas
    bounds = {
        "processes": quotas.processes,
        "memory_bytes": quotas.memory_bytes,
        "disk_bytes": quotas.disk_bytes,
    }
    given = {} if asked is None else {n: getattr(asked, n) for n in asked.__struct_fields__}
    chosen = {name: value for name, value in given.items() if value is not None}
    if not chosen and not any(bounds.values()):
        return None
    limits = Limits().changed(**chosen)
    most = {name: bound for name, bound in bounds.items() if bound is not None and getattr(limits, name) > bound}
    return limits.changed(**most)
