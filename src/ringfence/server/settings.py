"""The server's configuration: a YAML file that names tenants, presets and who is told of questions.

    tenants:
      research:
        policy: /etc/ringfence/research.yaml
        role: analyst
        quotas: {sessions: 20, memory_bytes: 2GB, requests_per_second: 50}
        secrets: {GH_TOKEN: "env:GH_TOKEN@api.github.com"}
    presets:
      data: {network: [pip], preload: [pandas]}

Without a file there is one tenant, `default`, and what the environment's policy says.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidConfig
from ringfence.server import wire
from ringfence.server.tenants import DEFAULT_TENANT, Quotas, Tenant
from ringfence.values.sizes import parse_size

_SIZE_MAX = 1024 * 1024


class _Written(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a file may hold."""


class _Quotas(_Written):
    sessions: int | None = 200
    executions: int | None = 100
    processes: int | None = None
    memory_bytes: int | str | None = None
    disk_bytes: int | str | None = None
    requests_per_second: float | None = None
    egress_bytes: int | str | None = None


class _Tenant(_Written):
    policy: str | None = None
    role: str | None = None
    roles: list[str] = []
    quotas: _Quotas = msgspec.field(default_factory=_Quotas)
    secrets: dict[str, str] = {}
    workspaces: list[str] = []
    network: list[str] | None = None
    may_ask_network: bool = True


class _Webhook(_Written):
    url: str
    secret: str
    """`env:NAME` or `file:PATH`."""


class _File(_Written):
    tenants: dict[str, _Tenant] = {}
    presets: dict[str, wire.SessionCreate] = {}
    webhooks: list[_Webhook] = []
    hosts: list[str] = []
    origins: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    url: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a server is started with."""

    state: Path
    """The directory of its own state: database, lock, workspaces of sessions."""
    tenants: Mapping[str, Tenant] = field(default_factory=lambda: {DEFAULT_TENANT: Tenant(name=DEFAULT_TENANT)})
    presets: Mapping[str, wire.SessionCreate] = field(default_factory=dict)
    webhooks: tuple[Webhook, ...] = ()
    hosts: frozenset[str] = frozenset()
    """Names by which clients reach it, besides those of loopback."""
    origins: frozenset[str] = frozenset()
    """Of pages that may speak to it, besides its own."""
    pool_size: int = 1
    """Boxes that are kept ready for executions without a session, of each tenant that has had one."""
    body_bytes: int = 32 * 1024 * 1024
    """Of a request in JSON."""
    upload_bytes: int = 4 * 1024 * 1024 * 1024
    """Of a file or an archive that is sent."""
    body_seconds: float = 30.0
    """How long a body may make no progress."""
    deadline_seconds: float = 60.0
    """Of a call that does not wait for something that runs, and of any that asks for none."""
    longest_seconds: float = 24 * 3600.0
    """Of any call."""
    grace_seconds: float = 10.0
    """What running work gets when the server is told to end."""


def read_settings(path: Path | None, state: Path) -> Settings:
    """
    Raises:
        InvalidConfig: there is no such file, or it makes no sense; says where.
    """
    if path is None:
        return Settings(state=state)
    try:
        text = path.read_bytes()[: _SIZE_MAX + 1].decode()
    except (OSError, UnicodeDecodeError) as fault:
        raise InvalidConfig(f"cannot be read: {fault}", source=str(path), hint="name a file that can") from None
    return parse_settings(text, state, source=str(path))


def parse_settings(text: str, state: Path, *, source: str = "server.yaml") -> Settings:
    try:
        given: Any = yaml.safe_load(text)
    except yaml.YAMLError as fault:
        mark = getattr(fault, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise InvalidConfig(f"is no YAML: {getattr(fault, 'problem', fault)}", source=source, line=line) from None
    try:
        read = msgspec.convert(given or {}, _File)
    except msgspec.ValidationError as fault:
        raise InvalidConfig(str(fault), source=source, hint="docs/server.md lists the keys") from None
    tenants = {name: _tenant(name, written) for name, written in read.tenants.items()}
    tenants.setdefault(DEFAULT_TENANT, Tenant(name=DEFAULT_TENANT))
    return Settings(
        state=state,
        tenants=tenants,
        presets=read.presets,
        webhooks=tuple(Webhook(url=hook.url, secret=hook.secret) for hook in read.webhooks),
        hosts=frozenset(read.hosts),
        origins=frozenset(read.origins),
    )


def _tenant(name: str, written: _Tenant) -> Tenant:
    quotas = written.quotas
    return Tenant(
        name=name,
        policy=written.policy,
        role=written.role,
        roles=frozenset(written.roles),
        quotas=Quotas(
            sessions=quotas.sessions,
            executions=quotas.executions,
            processes=quotas.processes,
            memory_bytes=_size(quotas.memory_bytes),
            disk_bytes=_size(quotas.disk_bytes),
            requests_per_second=quotas.requests_per_second,
            egress_bytes=_size(quotas.egress_bytes),
        ),
        secrets=written.secrets,
        workspaces=tuple(written.workspaces),
        network=None if written.network is None else tuple(written.network),
        may_ask_network=written.may_ask_network,
    )


def _size(given: int | str | None) -> int | None:
    return None if given is None else parse_size(given)
