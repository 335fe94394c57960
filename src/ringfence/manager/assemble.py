"""Names the concrete parts: the one place that knows which engines there are."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ringfence.confinement.choose import confiners
from ringfence.dataclass import dataclass, replace
from ringfence.deferred import deferred
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
from ringfence.values.guarantee import Guarantee

if TYPE_CHECKING:
    from ringfence.audit.journal import Journal
    from ringfence.engines.base import Engine
    from ringfence.engines.native.zygote import Zygotes
    from ringfence.policy.config import SandboxConfig
    from ringfence.policy.terms import Terms
    from ringfence.values.grant import Grant
    from ringfence.values.risk import SecurityMode
else:
    Zygotes = deferred("ringfence.engines.native.zygote", "Zygotes")


_ENGINES: Final = ("native", "docker", "wasi")


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
    zygotes: Zygotes | None = None
    """Whom boxes are forked from, where many are made."""

    def for_tool(self, tool: str) -> Blueprint:
        """The same for another of the policy's tools.

        Raises:
            InvalidConfig: no policy knows it.
        """
        if self.policy is None:
            return self
        terms = self.policy.terms(tool, self.options.role).under(self.options.mode)
        keys = ("engine", "alternatives", "requires")
        if self.terms is not None and all(self.terms.value(key) == terms.value(key) for key in keys):
            return replace(self, terms=terms)
        engine = _choose_engine(self.options, self.settings, self.caller, terms, self.networks, self.zygotes)
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
    zygotes: Zygotes | None = None,
) -> Blueprint:
    """The same without a workspace; raises as `assemble`.

    Args:
        networks: those of another blueprint of the same options, so that one proxy serves the boxes of both.
        zygotes: whom boxes are forked from, if many are to be made; whoever gives them closes them.
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
    engine = _choose_engine(options, settings, caller, terms, networks, zygotes)
    own = own_files(environ, home, config=options.config, policies=sources, bwrap=settings.bwrap_path)
    return Blueprint(options, config, settings, caller, engine, journal, terms, own, policy, networks, zygotes)


def make_zygotes() -> Zygotes:
    """Whom the boxes of a pool are forked from; whoever asks for them closes them."""
    return Zygotes()


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
    zygotes: Zygotes | None,
) -> Engine:
    """The engine that the policy, the caller or the environment names, in this order; else the one that what is
    required needs.

    Raises:
        InvalidConfig: the caller asks for another one than the policy; or there is none of that name.
        InitializationFailed: it may not be used.
    """
    asked = options.engine
    chosen = terms.get("engine") if terms is not None else None
    name: str | None = "docker" if isinstance(asked, Docker) else asked
    if chosen is not None:
        if name not in (None, chosen.value):
            shown = "Docker(...)" if name == "docker" else f'"{name}"'
            raise chosen.mark.fault(f"the engine {chosen.value!r} has to be used", f"leave engine={shown} out")
        name = chosen.value
        if name not in _ENGINES:
            raise chosen.mark.fault(f"the engine {name!r} is not there yet", f"use {' or '.join(_ENGINES)}")
    name = name or settings.tool_engine or _engine_for(options, terms)
    if name not in _ENGINES:
        raise InvalidConfig(
            f"the engine {name!r} is not there yet",
            hint=f"unset RINGFENCE_TOOL_ENGINE, or set it to {' or '.join(_ENGINES)}",
        )
    docker = asked if isinstance(asked, Docker) else Docker()
    engine = _make_engine(name, settings, caller, networks, docker, zygotes)
    return _with_alternatives(engine, terms, settings, caller, networks)


def _engine_for(options: SandboxOptions, terms: Terms | None) -> str:
    """Where nobody names an engine: the one that gives what only one of them does."""
    required = options.requires | (terms.requires if terms is not None else frozenset())
    return "wasi" if Guarantee.NO_NATIVE_CODE in required else "native"


def _make_engine(
    name: str,
    settings: ProcessSandboxSettings,
    caller: Caller,
    networks: SandboxNetworks,
    docker: Docker,
    zygotes: Zygotes | None = None,
) -> Engine:
    if name == "docker":
        return _containers(caller.environ, docker, networks)
    if settings.adapter == "none":
        raise InitializationFailed(
            "RINGFENCE_PROCESS_SANDBOX is 'none', and nothing runs without a wall",
            hint="unset it, or run in containers: RINGFENCE_TOOL_ENGINE=docker",
        )
    only = settings.adapter if settings.adapter not in (None, "auto") else None
    return _modules(settings, caller, only) if name == "wasi" else _native(settings, caller, networks, only, zygotes)


def _containers(environ: Mapping[str, str], asked: Docker, networks: SandboxNetworks) -> Engine:
    """The engine of the extra `docker`: a twentieth of what a sandbox imports, so only where containers are asked for.

    Raises:
        InvalidConfig: the environment says something that makes no sense.
    """
    from ringfence.engines.docker.engine import DockerEngine
    from ringfence.engines.docker.settings import read_docker_settings

    return DockerEngine(read_docker_settings(environ, asked.url, asked.image, asked.runtime), networks)


def _modules(settings: ProcessSandboxSettings, caller: Caller, only: str | None = None) -> Engine:
    """The engine of the extra `wasi`, imported where modules are asked for.

    Raises:
        InvalidConfig: the environment says something that makes no sense.
    """
    from ringfence.engines.wasi.engine import WasiEngine, engine_environ
    from ringfence.engines.wasi.places import wasi_places

    walls = confiners(bwrap_path=settings.bwrap_path)
    around = NativeEngine(walls, engine_environ(caller.environ), caller.home, only=only)
    return WasiEngine(around, wasi_places(caller.environ, caller.home))


def _native(
    settings: ProcessSandboxSettings,
    caller: Caller,
    networks: SandboxNetworks,
    only: str | None = None,
    zygotes: Zygotes | None = None,
) -> Engine:
    walls = confiners(bwrap_path=settings.bwrap_path)
    return NativeEngine(walls, caller.environ, caller.home, only=only, network=networks, zygotes=zygotes)


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
        if name not in _ENGINES and setting is not None:
            raise setting.mark.fault(f"the engine {name!r} is not there yet", f"use {' or '.join(_ENGINES)}")
        # The wall that is named is that of the first engine; what stands in for it takes any that gives what is needed.
        others.append(_make_engine(name, replace(settings, adapter=None), caller, networks, Docker()))
    return FirstEngine((engine, *others)) if others else engine


def _with_ro_binds(options: SandboxOptions, settings: ProcessSandboxSettings) -> SandboxOptions:
    if not settings.ro_binds:
        return options
    return replace(options, read=(*options.read, *settings.ro_binds))
