"""Tenants: whose a session is, and what its callers may ask for.

What a tenant may do comes from the server's configuration alone (`settings.py`), never from a request: a request
chooses among what is allowed, or asks for less.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ringfence.dataclass import dataclass, field

DEFAULT_TENANT = "default"


class Scope(StrEnum):
    """What a token is good for."""

    VIEW = "view"
    """See sessions, executions, files, violations of its tenant."""
    RUN = "run"
    """Make sessions, run things, change files."""
    APPROVE = "approve"
    """See and answer questions, commit shadows."""
    AUDIT = "audit"
    """Search, export and verify the record of its tenant."""
    TOKENS = "tokens"
    """Make, list and revoke tokens of its tenant, with no more scopes than its own."""
    OPERATE = "operate"
    """Metrics and the pool of the whole server."""


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """How much a tenant may use; None is no bound but the machine's."""

    sessions: int | None = 200
    executions: int | None = 100
    """Running at once, over all sessions."""
    processes: int | None = None
    """Of each box."""
    memory_bytes: int | None = None
    """Of each box."""
    disk_bytes: int | None = None
    """That the writable directories of a box may grow by in one command."""
    requests_per_second: float | None = None
    egress_bytes: int | None = None
    """That a session may send and fetch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    name: str
    policy: str | None = None
    """A policy file."""
    role: str | None = None
    """In the policy, for sessions that name none."""
    roles: frozenset[str] = frozenset()
    """Others that a session may choose."""
    quotas: Quotas = field(default_factory=Quotas)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By the name that a session uses: `SOURCE` or `SOURCE@HOST`, as `Network.secrets` has it."""
    workspaces: tuple[str, ...] = ()
    """Directories of this machine below which a session may have its workspace; `**` is anywhere."""
    network: tuple[str, ...] | None = None
    """What a session may reach that asks for nothing; None is what the policy allows."""
    may_ask_network: bool = True
    """Whether a session may name hosts of its own, where no policy says what it may reach."""


SOCKET = "socket"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, found out from a token or the socket alone: never from another header or an address."""

    tenant: Tenant
    token_id: str
    """`socket` for the owner of the server on its Unix socket."""
    name: str
    scopes: frozenset[Scope]
    expires_at: float | None = None
    csrf_token: str | None = None
    is_by_code: bool = False
    """Whether a browser came in by an address that the server printed."""

    @property
    def is_owner(self) -> bool:
        """Whether it is the user whom the server runs as, by its Unix socket."""
        return self.token_id == SOCKET

    @property
    def is_person(self) -> bool:
        """Whether it is the owner of the server, or came in by the address that it printed: nobody gives an agent
        either. A login by a token is none: whoever holds the token can log in."""
        return self.is_owner or self.is_by_code
