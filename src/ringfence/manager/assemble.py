"""Names the concrete parts: the one place that knows which engines there are."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ringfence.confinement.choose import confiners
from ringfence.dataclass import dataclass, replace
from ringfence.engines.native.engine import NativeEngine
from ringfence.errors import InitializationFailed, InvalidArgument, InvalidConfig
from ringfence.manager.configuring import home_directory, load_config, open_journal, state_directory
from ringfence.manager.environment import kept
from ringfence.manager.granting import make_grant
from ringfence.manager.hiding import Caller
from ringfence.manager.network_provider import SandboxNetworks
from ringfence.manager.options import Docker, SandboxOptions
from ringfence.manager.own_files import OwnFiles, own_files
from ringfence.manager.policing import ORGANISATION, SHELL_TOOL, PolicyEngine, organisation_policy, read_policy
from ringfence.manager.routing import FirstEngine
from ringfence.policy.settings import ProcessSandboxSettings, read_settings

if TYPE_CHECKING:
    from ringfence.audit.journal import Journal
    from ringfence.engines.base import Engine
    from ringfence.policy.config import SandboxConfig
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
    from ringfence.values.risk import SecurityMode


class RingfenceWarning(UserWarning):
    """Something in the configuration that was not taken as it was written."""


@dataclass(frozen=True, slots=True)
class Assembly:
    engine: Engine
    journal: Journal
    grant: Grant
    config: SandboxConfig
    notes: tuple[str, ...]
    terms: Terms | None = None
    """What the policy says about the tool in the role; None without a policy."""
    blueprint: Blueprint | None = None
    """What it was made from."""

    def for_tool(self, tool: str) -> Assembly:
        """The same for another of the policy's tools; itself, where no policy is in force.

        Raises:
            InvalidConfig: no policy knows it.
        """
        if self.blueprint is None or self.blueprint.policy is None:
            return self
        other = self.blueprint.for_tool(tool)
        made = other.assembly(self.grant.workspace)
        return replace(made, engine=self.engine) if other.engine is self.blueprint.engine else made

    def under(self, mode: SecurityMode | None) -> Assembly:
        """The same under the caller's security mode too."""
        return self if mode is None or self.terms is None else replace(self, terms=self.terms.under(mode))


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Everything that a sandbox needs but its workspace, so that many can be made from it."""

    options: SandboxOptions
    config: SandboxConfig
    settings: ProcessSandboxSettings
    caller: Caller
    engine: Engine
    journal: Journal
    terms: Terms | None
    own: OwnFiles
    """What Ringfence itself reads."""
    policy: PolicyEngine | None
    """Where the terms come from."""
    networks: SandboxNetworks
    """Who serves boxes that have a network."""

    def for_tool(self, tool: str) -> Blueprint:
        """The same for another of the policy's tools.

        Raises:
            InvalidConfig: no policy knows it.
        """
        if self.policy is None:
            return self
        terms = self.policy.terms(tool, self.options.role).under(self.options.mode)
        keys = ("engine", "alternatives")
        if self.terms is not None and all(self.terms.value(key) == terms.value(key) for key in keys):
            return replace(self, terms=terms)
        engine = _choose_engine(self.options, self.settings, self.caller, terms, self.networks)
        return replace(self, terms=terms, engine=engine)

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.config.warnings, *self.settings.warnings)

    def assembly(self, workspace: str | os.PathLike[str] | None) -> Assembly:
        """The parts for one workspace.

        Raises:
            InvalidConfig, InvalidArgument, PathAccessDenied: it cannot be granted.
        """
        options = replace(self.options, workspace=workspace)
        env = kept(self.caller.environ, self.caller.home)
        grant, notes = make_grant(options, self.config, self.caller, env, self.terms, self.own)
        return Assembly(self.engine, self.journal, grant, self.config, (*self.notes, *notes), self.terms, self)


def assemble(options: SandboxOptions, *, tool: str | None = None, environ: Mapping[str, str] | None = None) -> Assembly:
    """Everything that a sandbox needs, from what the caller asks and what the machine and the configuration say.

    Raises:
        InvalidConfig, InvalidArgument, PathAccessDenied: from what was asked.
        InitializationFailed: no engine may be used.
    """
    blueprint = make_blueprint(options, tool=tool, environ=environ)
    assembly = blueprint.assembly(options.workspace)
    for note in assembly.notes[len(blueprint.notes) :]:
        warnings.warn(note, RingfenceWarning, stacklevel=2)
    return assembly


def warn_of(notes: Iterable[str]) -> None:
    """Say what somebody should know, and what stops nothing."""
    for note in notes:
        warnings.warn(note, RingfenceWarning, stacklevel=3)


def make_blueprint(
    options: SandboxOptions,
    *,
    tool: str | None = None,
    environ: Mapping[str, str] | None = None,
    journal: Journal | None = None,
    networks: SandboxNetworks | None = None,
) -> Blueprint:
    """The same without a workspace; raises as `assemble`.

    Args:
        networks: those of another blueprint of the same options, so that one proxy serves the boxes of both.
    """
    environ = os.environ if environ is None else environ
    home = home_directory(environ)
    config = load_config(environ, home, options.config)
    settings = read_settings(environ)
    for note in (*config.warnings, *settings.warnings):
        warnings.warn(note, RingfenceWarning, stacklevel=3)
    caller = Caller(environ, home, state_directory(environ, home))
    policy = policy_in_force(options, environ)
    chosen = tool or options.tool or SHELL_TOOL
    terms = policy.terms(chosen, options.role).under(options.mode) if policy is not None else None
    sources = policy.sources if policy is not None else ()
    if not config.enabled:
        raise InitializationFailed(
            f"the sandbox is switched off by {config.switched_off_by}, and nothing runs without a wall",
            hint="switch it on again; what is to run without a wall is started without Ringfence",
        )
    options = _with_ro_binds(options, settings)
    journal = journal or open_journal(environ, home)
    networks = networks or SandboxNetworks(options, config, caller, journal)
    engine = _choose_engine(options, settings, caller, terms, networks)
    own = own_files(environ, home, config=options.config, policies=sources, bwrap=settings.bwrap_path)
    return Blueprint(options, config, settings, caller, engine, journal, terms, own, policy, networks)


def has_policy(options: SandboxOptions, environ: Mapping[str, str]) -> bool:
    """Whether a policy is in force: the one that was named, or the organisation's."""
    return options.policy is not None or bool(environ.get(ORGANISATION, "").strip())


def policy_in_force(options: SandboxOptions, environ: Mapping[str, str]) -> PolicyEngine | None:
    """The organisation's policy and the one that was named; no file is looked for where an agent could have put it.

    Raises:
        InvalidConfig: a policy is wrong or not there, or there is none and a role is given.
    """
    organisation = organisation_policy(environ)
    named = options.policy
    if isinstance(named, PolicyEngine):
        return named.under(organisation)
    if named is not None:
        return PolicyEngine((*organisation, read_policy(named, environ)))
    if organisation:
        return PolicyEngine(organisation)
    if options.role is not None:
        raise InvalidArgument(f"the role {options.role!r} means nothing without a policy", hint="name a policy too")
    return None


def _choose_engine(
    options: SandboxOptions,
    settings: ProcessSandboxSettings,
    caller: Caller,
    terms: Terms | None,
    networks: SandboxNetworks,
) -> Engine:
    engine = _docker_engine(options, settings, caller.environ, terms, networks)
    engine = engine or _engine(options, settings, caller, terms, networks)
    return _with_alternatives(engine, terms, settings, caller, networks)


def _containers(environ: Mapping[str, str], asked: Docker, networks: SandboxNetworks) -> Engine:
    """The engine of the extra `docker`: a twentieth of what a sandbox imports, so only where containers are asked for.

    Raises:
        InvalidConfig: the environment says something that makes no sense.
    """
    from ringfence.engines.docker.engine import DockerEngine
    from ringfence.engines.docker.settings import read_docker_settings

    return DockerEngine(read_docker_settings(environ, asked.url, asked.image, asked.runtime), networks)


def _docker_engine(
    options: SandboxOptions,
    settings: ProcessSandboxSettings,
    environ: Mapping[str, str],
    terms: Terms | None,
    networks: SandboxNetworks,
) -> Engine | None:
    """The Docker engine, if the policy, the caller or the environment says so, in this order.

    Raises:
        InvalidConfig: the caller asks for Docker and the policy for another engine; or no daemon can be at the address.
    """
    chosen = terms.get("engine") if terms is not None else None
    asked = options.engine if isinstance(options.engine, Docker) else None
    if chosen is not None and chosen.value != "docker":
        if asked is not None:
            raise chosen.mark.fault(f"the engine {chosen.value!r} has to be used", "leave engine=Docker(...) out")
        return None
    if chosen is not None and options.engine == "native":
        raise chosen.mark.fault(f"the engine {chosen.value!r} has to be used", 'leave engine="native" out')
    if chosen is None and asked is None and (options.engine == "native" or settings.tool_engine != "docker"):
        return None
    asked = asked or Docker()
    return _containers(environ, asked, networks)


def _engine(
    options: SandboxOptions,
    settings: ProcessSandboxSettings,
    caller: Caller,
    terms: Terms | None,
    networks: SandboxNetworks,
) -> Engine:
    chosen = terms.get("engine") if terms is not None else None
    if chosen is not None and chosen.value != "native":
        raise chosen.mark.fault(f"the engine {chosen.value!r} is not there yet", "use native or docker")
    if settings.adapter == "none":
        raise InitializationFailed(
            "RINGFENCE_PROCESS_SANDBOX is 'none', and nothing runs without a wall",
            hint="unset it, or run in containers: RINGFENCE_TOOL_ENGINE=docker",
        )
    if chosen is None and options.engine is None and settings.tool_engine not in (None, "native"):
        raise InvalidConfig(
            f"the engine {settings.tool_engine!r} is not there yet",
            hint="unset RINGFENCE_TOOL_ENGINE, or set it to native or docker",
        )
    only = settings.adapter if settings.adapter not in (None, "auto") else None
    return _native(settings, caller, networks, only)


def _native(
    settings: ProcessSandboxSettings, caller: Caller, networks: SandboxNetworks, only: str | None = None
) -> Engine:
    walls = confiners(bwrap_path=settings.bwrap_path)
    return NativeEngine(walls, caller.environ, caller.home, only=only, network=networks)


def _with_alternatives(
    engine: Engine,
    terms: Terms | None,
    settings: ProcessSandboxSettings,
    caller: Caller,
    networks: SandboxNetworks,
) -> Engine:
    """The engine, and what the policy lets stand in for it.

    Raises:
        InvalidConfig: it names one that is not there.
    """
    setting = terms.get("alternatives") if terms is not None else None
    others: list[Engine] = []
    for name in setting.value if setting is not None else ():
        if name == "native":
            others.append(_native(settings, caller, networks))
        elif name == "docker":
            others.append(_containers(caller.environ, Docker(), networks))
        elif setting is not None:
            raise setting.mark.fault(f"the engine {name!r} is not there yet", "use native or docker")
    return FirstEngine((engine, *others)) if others else engine


def _with_ro_binds(options: SandboxOptions, settings: ProcessSandboxSettings) -> SandboxOptions:
    if not settings.ro_binds:
        return options
    return replace(options, read=(*options.read, *settings.ro_binds))
