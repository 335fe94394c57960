"""`SandboxOptions`: what a caller asks of a sandbox, as one value that is converted and checked where it is made.

`Sandbox`, `run`, the pool, the manager, the executors, the builder, `Workspaces` and the command line all take it. Each
also takes its fields as keywords (`OptionFields`), which `make_options` puts together.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar, cast

from ringfence.dataclass import dataclass, field_names, replace
from ringfence.deferred import deferred, deferred_module
from ringfence.errors import InvalidArgument, WrongType
from ringfence.manager.environment import check_variables
from ringfence.values.grant import Trace
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.risk import SecurityMode
from ringfence.values.sizes import Size, bytes_of

if TYPE_CHECKING:
    import difflib

    from ringfence.approvals.base import ConfirmationService
    from ringfence.audit.events import Observer
    from ringfence.manager.network_options import Network, made_network
    from ringfence.manager.policing import PolicyEngine
    from ringfence.workspace.shadow import Shadow
else:
    difflib = deferred_module("difflib")
    made_network = deferred("ringfence.manager.network_options", "made_network")

StrPath = str | os.PathLike[str]
E = TypeVar("E", bound=StrEnum)

REQUIRED = frozenset(
    {
        Guarantee.HOST_FILES_HIDDEN,
        Guarantee.HOST_NAMES_HIDDEN,
        Guarantee.WRITES_CONFINED,
        Guarantee.PROTECTED_PATHS,
        Guarantee.NETWORK_OFF,
        Guarantee.HOST_PROCESSES_HIDDEN,
        Guarantee.KERNEL_SURFACE_REDUCED,
        Guarantee.NEVER_ROOT,
        Guarantee.TREE_DIES,
        Guarantee.MEMORY_BOUNDED,
        Guarantee.PROCESSES_BOUNDED,
    }
)
"""What a wall has to give unless the caller asks for less."""

LIGHT = REQUIRED - {Guarantee.HOST_NAMES_HIDDEN, Guarantee.PROTECTED_PATHS}
"""What the lightest wall gives that code of an agent may run behind: nothing of the host can be read, written or
reached, and nothing is left running. Names of files outside may show, and there is nothing in its workspace to
protect."""


class NetworkMode(StrEnum):
    """What network there is inside a box."""

    OFF = "off"
    """None, whatever the policy allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """That boxes are to be containers; of which daemon, image and runtime, if not of those in the environment."""

    url: str | None = None
    image: str | None = None
    runtime: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxOptions:
    """What a caller asks of a sandbox. Sequences and mappings may be of any kind; they are kept as tuples.

    Raises:
        InvalidArgument, WrongType: a value makes no sense.
    """

    workspace: StrPath | None = None
    """The directory that commands work in and may write; the current one if not given."""
    read: Sequence[StrPath] = ()
    """Further files and directories that commands may read."""
    write: Sequence[StrPath] = ()
    """Further directories that commands may write."""
    read_only: bool = False
    """Whether commands can only read the workspace; the home inside and /tmp are writable, and gone afterwards."""
    deny: Sequence[str] = ()
    """Further rows for the blacklist, such as `**/*.pem`."""
    env: Mapping[str, str] | Sequence[tuple[str, str]] | None = None
    """Variables for every command; the caller's own are not passed on. See `variables`."""
    limits: Limits | None = None
    """Instead of the configured ones; a policy may lower them."""
    network: NetworkMode | Literal["off"] | Sequence[str] | Network | None = None
    """Hosts and presets, such as `["pip", "api.example.com:443"]`, or a `Network(...)` that says more (docs/egress.md);
    under a policy, within what it allows. If not given, what the policy allows: nothing without one. `"off"` is nothing
    in any case."""
    config: StrPath | None = None
    """A configuration file, instead of the one that the environment names."""
    policy: PolicyEngine | StrPath | None = None
    """A policy file, or a `PolicyEngine`; the one that RINGFENCE_POLICY names is in force in any case. No file is
    looked for in the workspace, where the agent could have written it."""
    role: str | None = None
    """The role that the agent has in the policy."""
    tool: str | None = None
    """As which of the policy's tools everything is judged; if not given, code is as `code_run`, commands as
    `shell_exec`."""
    security_mode: SecurityMode | Literal["permissive", "strict"] | None = None
    """Which code is isolated, where the policy isolates (docs/policy.md); of this and the policy's own mode the
    stricter counts."""
    confirmation: ConfirmationService | None = None
    """Who is asked where the policy says so; without one, what would be asked is refused. Without a policy they are
    asked about what looks critical."""
    requires: frozenset[Guarantee] = REQUIRED
    """What the wall has to guarantee."""
    engine: Docker | Literal["native", "wasi"] | None = None
    """`"native"`, or `Docker(...)` for containers (docs/docker.md); if not given, what the environment names."""
    python: StrPath | None = None
    """The interpreter that runs Python code; the first one on PATH if not given."""
    preload: Sequence[str] = ()
    """Modules that it imports before it is asked for anything."""
    trace: Trace | Literal["off", "changes", "reads", "full"] | None = None
    """How much is watched while commands run, so that a refusal has its exact reason: `off`, `changes` (opens for
    writing, programs, connections, names and modes, and refused reads of programs such as `cat`), `reads` (every read
    that is refused; the default of a sandbox for one call) or `full` (every open, also for the record)."""
    mediate_opens: bool = False
    """Whether each open is made by the broker outside the box, which holds the blacklist at that moment too: against
    hard links and files that come later."""
    shadow: Shadow | None = None
    """What commands change instead of the workspace (`Workspaces.new`); nothing of it reaches the host's files before
    it is committed."""
    shadow_bytes: Size = 0
    """If not 0, how much may be changed in it, as a number of bytes or such as `1GB`: kept in memory while the box
    stands, on disk afterwards."""
    observers: Sequence[Observer] = ()
    """Who is told what happens: metrics, traces (docs/metrics.md)."""
    agent_id: str | None = None
    org_id: str | None = None
    """Who the journal says asks for what runs."""

    @property
    def asked_network(self) -> Network | None:
        """What was asked of the network; None if nothing was, or that there is none."""
        return None if isinstance(self.network, NetworkMode | None) else cast("Network", self.network)

    def __post_init__(self) -> None:
        for name in ("read", "write", "deny", "preload"):
            self._set(name, _sequence(name, getattr(self, name)))
        self._set("observers", tuple(self.observers))
        self._set("requires", frozenset(Guarantee(each) for each in self.requires))
        env = self.env.items() if isinstance(self.env, Mapping) else self.env or ()
        self._set("env", tuple((name, value) for name, value in env))
        check_variables(self.variables)
        if self.network is not None:
            is_mode = isinstance(self.network, str)
            self._set(
                "network", _one_of("network", NetworkMode, self.network) if is_mode else made_network(self.network)
            )
        if self.trace is not None:
            self._set("trace", _one_of("trace", Trace, self.trace))
        if self.security_mode is not None:
            self._set("security_mode", _one_of("security_mode", SecurityMode, self.security_mode))
        if self.engine not in (None, "native", "wasi") and not isinstance(self.engine, Docker):
            raise WrongType("engine", self.engine, '"native", "wasi", Docker(url=..., image=...), or None')
        if self.limits is not None and not isinstance(self.limits, Limits):
            raise WrongType("limits", self.limits, "Limits(memory_bytes=..., ...)")
        if self.read_only and self.shadow is not None:
            raise InvalidArgument("a shadow of what can only be read", hint="leave out the shadow, or read_only")
        self._set("shadow_bytes", bytes_of("shadow_bytes", self.shadow_bytes))
        if self.shadow_bytes and self.shadow is None:
            raise InvalidArgument("shadow_bytes without a shadow", hint="give shadow= too")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """`env`, as it is kept."""
        return tuple(self.env.items()) if isinstance(self.env, Mapping) else tuple(self.env or ())

    def level_of_trace(self, otherwise: Trace) -> Trace:
        return otherwise if self.trace is None else Trace(self.trace)

    @property
    def mode(self) -> SecurityMode | None:
        return None if self.security_mode is None else SecurityMode(self.security_mode)


class OptionFieldsButMode(TypedDict, total=False):
    """The fields of `SandboxOptions` as keywords, for whoever has a parameter `security_mode` of its own."""

    workspace: StrPath | None
    read: Sequence[StrPath]
    write: Sequence[StrPath]
    read_only: bool
    deny: Sequence[str]
    env: Mapping[str, str] | Sequence[tuple[str, str]] | None
    limits: Limits | None
    network: NetworkMode | Literal["off"] | Sequence[str] | Network | None
    config: StrPath | None
    policy: PolicyEngine | StrPath | None
    role: str | None
    tool: str | None
    confirmation: ConfirmationService | None
    requires: frozenset[Guarantee]
    engine: Docker | Literal["native", "wasi"] | None
    python: StrPath | None
    preload: Sequence[str]
    trace: Trace | Literal["off", "changes", "reads", "full"] | None
    mediate_opens: bool
    shadow: Shadow | None
    shadow_bytes: Size
    observers: Sequence[Observer]
    agent_id: str | None
    org_id: str | None


class OptionFields(OptionFieldsButMode, total=False):
    """The fields of `SandboxOptions` as keywords."""

    security_mode: SecurityMode | Literal["permissive", "strict"] | None


_NAMES = field_names(SandboxOptions)


def make_options(
    given: SandboxOptions | StrPath | None, keywords: OptionFields | OptionFieldsButMode
) -> SandboxOptions:
    """The options that are meant by a value, or a workspace, and keywords that change single fields of it.

    Raises:
        TypeError: a keyword that is none of the fields.
        InvalidArgument, WrongType: a value makes no sense.
    """
    for name in keywords:
        if name not in _NAMES:
            near = difflib.get_close_matches(name, _NAMES, 1)
            raise TypeError(f"there is no option {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
    if isinstance(given, SandboxOptions):
        return replace(given, **keywords) if keywords else given
    if given is not None:
        if "workspace" in keywords:
            raise TypeError("the workspace is given twice")
        keywords = {**keywords, "workspace": given}
    return SandboxOptions(**keywords)


def _sequence(name: str, given: object) -> tuple[object, ...]:
    """A text is a sequence of letters, which nobody means."""
    if isinstance(given, str | bytes | os.PathLike):
        raise WrongType(name, given, "a list", hint=f"write {name}=[{given!r}]")
    if not isinstance(given, Sequence | frozenset | set):
        raise WrongType(name, given, "a list", hint=f"write {name}=[...]")
    return tuple(given)


def _one_of(name: str, kind: type[E], given: object) -> E:
    try:
        return kind(str(given))
    except ValueError:
        raise InvalidArgument(f"{name} is {given!r}", argument=name, hint=f"one of {', '.join(kind)}") from None
