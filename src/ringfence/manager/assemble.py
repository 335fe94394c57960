"""Names the concrete parts: the one place that knows which engines there are."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass

from ringfence.audit.journal import Journal
from ringfence.confinement.choose import confiners
from ringfence.engines.base import Engine
from ringfence.engines.native.engine import NativeEngine
from ringfence.engines.subprocess.engine import BareEngine
from ringfence.errors import InitializationFailed, InvalidConfig
from ringfence.manager.configuring import home_directory, load_config, state_directory
from ringfence.manager.environment import kept
from ringfence.manager.granting import Caller, Wish, make_grant
from ringfence.policy.config import SandboxConfig
from ringfence.policy.settings import ProcessSandboxSettings, read_settings
from ringfence.values.grant import Grant


class RingfenceWarning(UserWarning):
    """Something in the configuration that was not taken as it was written."""


@dataclass(frozen=True, slots=True)
class Assembly:
    engine: Engine
    journal: Journal
    grant: Grant
    config: SandboxConfig
    notes: tuple[str, ...]


def assemble(
    wish: Wish, *, config_path: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None
) -> Assembly:
    """Everything that a sandbox needs, from what the caller asks and what the machine and the configuration say.

    Raises:
        InvalidConfig, PathAccessDenied: from what was asked.
        InitializationFailed: no engine may be used.
    """
    environ = os.environ if environ is None else environ
    home = home_directory(environ)
    config = load_config(environ, home, config_path)
    settings = read_settings(environ)
    caller = Caller(environ, home, state_directory(environ, home))
    wish = _with_ro_binds(wish, settings)
    grant, notes = make_grant(wish, config, caller, kept(environ, home))
    notes = (*config.warnings, *settings.warnings, *notes)
    for note in notes:
        warnings.warn(note, RingfenceWarning, stacklevel=2)
    engine = _engine(config, settings, environ, home)
    return Assembly(engine, Journal(caller.state), grant, config, notes)


def _engine(config: SandboxConfig, settings: ProcessSandboxSettings, environ: Mapping[str, str], home: str) -> Engine:
    if not config.enabled or settings.adapter == "none":
        if settings.required:
            raise InitializationFailed(
                f"the sandbox is switched off ({config.source}), and nothing runs without a wall",
                hint="switch it on again; to run bare on purpose, also set RINGFENCE_PROCESS_SANDBOX_REQUIRED=0",
            )
        return BareEngine(environ)
    if settings.tool_engine not in (None, "native"):
        raise InvalidConfig(
            f"the engine {settings.tool_engine!r} is not there yet",
            hint="unset RINGFENCE_TOOL_ENGINE, or set it to native",
        )
    only = settings.adapter if settings.adapter not in (None, "auto") else None
    return NativeEngine(confiners(bwrap_path=settings.bwrap_path), environ, home, only=only)


def _with_ro_binds(wish: Wish, settings: ProcessSandboxSettings) -> Wish:
    if not settings.ro_binds:
        return wish
    return Wish(
        workspace=wish.workspace,
        read=(*wish.read, *settings.ro_binds),
        write=wish.write,
        deny=wish.deny,
        env=wish.env,
        limits=wish.limits,
        requires=wish.requires,
    )
