"""Names the concrete parts: the one place that knows which engines there are."""

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ringfence.audit.journal import Journal
from ringfence.confinement.choose import confiners
from ringfence.engines.base import Engine
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.settings import read_docker_settings
from ringfence.engines.native.engine import NativeEngine
from ringfence.engines.subprocess.engine import BareEngine
from ringfence.errors import InitializationFailed, InvalidConfig
from ringfence.manager.configuring import home_directory, load_config, open_journal, state_directory
from ringfence.manager.environment import kept
from ringfence.manager.granting import Caller, Wish, make_grant
from ringfence.manager.policing import PolicyEngine, organisation_policy, read_policy
from ringfence.manager.routing import FirstEngine
from ringfence.policy.config import SandboxConfig
from ringfence.policy.settings import ProcessSandboxSettings, read_settings
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

    def under(self, mode: SecurityMode | None) -> "Assembly":
        """The same under the caller's security mode too."""
        return self if mode is None or self.terms is None else replace(self, terms=self.terms.under(mode))


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Everything that a sandbox needs but its workspace, so that many can be made from it."""

    wish: Wish
    config: SandboxConfig
    settings: ProcessSandboxSettings
    caller: Caller
    engine: Engine
    journal: Journal
    terms: Terms | None
    policy_files: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.config.warnings, *self.settings.warnings)

    def assembly(self, workspace: str | os.PathLike[str] | None) -> Assembly:
        """The parts for one workspace.

        Raises:
            InvalidConfig, PathAccessDenied: it cannot be granted.
        """
        wish = replace(self.wish, workspace=workspace)
        env = kept(self.caller.environ, self.caller.home)
        grant, notes = make_grant(wish, self.config, self.caller, env, self.terms, self.policy_files)
        return Assembly(self.engine, self.journal, grant, self.config, (*self.notes, *notes), self.terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Docker:
    """That boxes are to be containers; of which daemon, image and runtime, if not of those in the environment."""

    url: str | None = None
    image: str | None = None
    runtime: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """By what policy, and as whose tool in which role, commands are judged."""

    policy: PolicyEngine | str | os.PathLike[str] | None = None
    role: str | None = None
    tool: str = "shell_exec"
    security_mode: SecurityMode | None = None
    """The caller's own; of it and the policy's the stricter counts."""


def assemble(
    wish: Wish,
    *,
    config_path: str | os.PathLike[str] | None = None,
    judged: Judged | None = None,
    environ: Mapping[str, str] | None = None,
    docker: Docker | None = None,
) -> Assembly:
    """Everything that a sandbox needs, from what the caller asks and what the machine and the configuration say.

    Raises:
        InvalidConfig, PathAccessDenied: from what was asked.
        InitializationFailed: no engine may be used.
    """
    blueprint = draw(wish, config_path=config_path, judged=judged, environ=environ, docker=docker)
    assembly = blueprint.assembly(wish.workspace)
    for note in assembly.notes[len(blueprint.notes) :]:
        warnings.warn(note, RingfenceWarning, stacklevel=2)
    return assembly


def warn_of(notes: Iterable[str]) -> None:
    """Say what somebody should know, and what stops nothing."""
    for note in notes:
        warnings.warn(note, RingfenceWarning, stacklevel=3)


def draw(
    wish: Wish,
    *,
    config_path: str | os.PathLike[str] | None = None,
    judged: Judged | None = None,
    environ: Mapping[str, str] | None = None,
    journal: Journal | None = None,
    docker: Docker | None = None,
) -> Blueprint:
    """The same without a workspace; raises as `assemble`."""
    environ = os.environ if environ is None else environ
    home = home_directory(environ)
    config = load_config(environ, home, config_path)
    settings = read_settings(environ)
    for note in (*config.warnings, *settings.warnings):
        warnings.warn(note, RingfenceWarning, stacklevel=3)
    caller = Caller(environ, home, state_directory(environ, home))
    judged = judged or Judged()
    policy = policy_in_force(judged, environ)
    terms = policy.terms(judged.tool, judged.role).under(judged.security_mode) if policy is not None else None
    sources = policy.sources if policy is not None else ()
    engine = _docker_engine(docker, settings, environ, terms) or _engine(config, settings, environ, home, terms)
    engine = _with_alternatives(engine, terms, settings, environ, home)
    wish = _with_ro_binds(wish, settings)
    journal = journal or open_journal(environ, home)
    return Blueprint(wish, config, settings, caller, engine, journal, terms, tuple(sources))


def bare_engine() -> Engine:
    """For code that was found to be harmless: no wall, but limits and an empty environment."""
    return BareEngine({"PATH": os.defpath, "LANG": "C.UTF-8"}, limited=True)


def policy_in_force(judged: Judged, environ: Mapping[str, str]) -> PolicyEngine | None:
    """The organisation's policy and the one that was named; no file is looked for where an agent could have put it.

    Raises:
        InvalidConfig: a policy is wrong or not there, or there is none and a role is given.
    """
    organisation = organisation_policy(environ)
    named = judged.policy
    if isinstance(named, PolicyEngine):
        return named.under(organisation)
    if named is not None:
        return PolicyEngine((*organisation, read_policy(named, environ)))
    if organisation:
        return PolicyEngine(organisation)
    if judged.role is not None:
        raise InvalidConfig(f"the role {judged.role!r} means nothing without a policy", hint="name a policy too")
    return None


def _docker_engine(
    asked: Docker | None, settings: ProcessSandboxSettings, environ: Mapping[str, str], terms: Terms | None
) -> Engine | None:
    """The Docker engine, if the policy, the caller or the environment says so, in this order.

    Raises:
        InvalidConfig: the caller asks for Docker and the policy for another engine; or no daemon can be at the address.
    """
    chosen = terms.get("engine") if terms is not None else None
    if chosen is not None and chosen.value != "docker":
        if asked is not None:
            raise chosen.mark.fault(f"the engine {chosen.value!r} has to be used", "leave docker_url out")
        return None
    if chosen is None and asked is None and settings.tool_engine != "docker":
        return None
    asked = asked or Docker()
    return DockerEngine(read_docker_settings(environ, asked.url, asked.image, asked.runtime))


def _engine(
    config: SandboxConfig,
    settings: ProcessSandboxSettings,
    environ: Mapping[str, str],
    home: str,
    terms: Terms | None,
) -> Engine:
    chosen = terms.get("engine") if terms is not None else None
    if chosen is not None and chosen.value != "native":
        raise chosen.mark.fault(f"the engine {chosen.value!r} is not there yet", "use native or docker")
    if not config.enabled or settings.adapter == "none":
        if terms is not None:
            raise InitializationFailed(
                f"the sandbox is switched off ({config.source}), but a policy is in force, and it needs the wall",
                hint="switch the sandbox on again",
            )
        if settings.required:
            raise InitializationFailed(
                f"the sandbox is switched off ({config.source}), and nothing runs without a wall",
                hint="switch it on again; to run bare on purpose, also set RINGFENCE_PROCESS_SANDBOX_REQUIRED=0",
            )
        return BareEngine(environ)
    if chosen is None and settings.tool_engine not in (None, "native"):
        raise InvalidConfig(
            f"the engine {settings.tool_engine!r} is not there yet",
            hint="unset RINGFENCE_TOOL_ENGINE, or set it to native or docker",
        )
    only = settings.adapter if settings.adapter not in (None, "auto") else None
    return NativeEngine(confiners(bwrap_path=settings.bwrap_path), environ, home, only=only)


def _with_alternatives(
    engine: Engine, terms: Terms | None, settings: ProcessSandboxSettings, environ: Mapping[str, str], home: str
) -> Engine:
    """The engine, and what the policy lets stand in for it.

    Raises:
        InvalidConfig: it names one that is not there.
    """
    setting = terms.get("alternatives") if terms is not None else None
    others: list[Engine] = []
    for name in setting.value if setting is not None else ():
        if name == "native":
            others.append(NativeEngine(confiners(bwrap_path=settings.bwrap_path), environ, home))
        elif name == "docker":
            others.append(DockerEngine(read_docker_settings(environ)))
        elif setting is not None:
            raise setting.mark.fault(f"the engine {name!r} is not there yet", "use native or docker")
    return FirstEngine((engine, *others)) if others else engine


def _with_ro_binds(wish: Wish, settings: ProcessSandboxSettings) -> Wish:
    if not settings.ro_binds:
        return wish
    return replace(wish, read=(*wish.read, *settings.ro_binds))
