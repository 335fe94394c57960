"""Says what is in force, and which file, line or variable each value comes from: the settings of one call, in rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from ringfence.dataclass import dataclass
from ringfence.manager.configuring import agents_directory, home_directory, load_config, state_directory
from ringfence.manager.policing import ORGANISATION, PolicyEngine
from ringfence.manager.policy_pages import explained
from ringfence.manager.shadowing import shadows_directory
from ringfence.policy.audit_settings import read_audit_settings
from ringfence.policy.bounds import pool_size, read_bounds
from ringfence.policy.config import SandboxConfig, config_location
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.environment import lookup
from ringfence.policy.settings import read_settings
from ringfence.values.sizes import show_size
from ringfence.workspace.places import snapshots_directory, workspaces_directory

if TYPE_CHECKING:
    from ringfence.values.limits import Limits

DEFAULT: Final = "default"
_LIMITS: Final = {
    "wall": ("wall_seconds", "s"),
    "cpu": ("cpu_seconds", "s"),
    "memory": ("memory_bytes", "B"),
    "processes": ("processes", ""),
    "openFiles": ("open_files", ""),
    "fileSize": ("file_bytes", "B"),
    "output": ("output_bytes", "B"),
    "tmp": ("tmp_bytes", "B"),
    "disk": ("disk_bytes", "B"),
    "files": ("files", ""),
}
"""Keys of the file: the field of `Limits`, and its unit."""
_BOUNDED: Final = {
    "limits.memory": ("memory_bytes", "RINGFENCE_MAX_MEMORY"),
    "limits.cpu": ("cpu_seconds", "RINGFENCE_MAX_CPU"),
}
"""What variables of a deployment cap."""
_PLAIN_VARIABLES: Final = (
    ("docker.host", "DOCKER_HOST", "what docker's context says"),
    ("docker.image", "RINGFENCE_DOCKER_IMAGE", "the image of this version"),
    ("docker.runtime", "RINGFENCE_DOCKER_RUNTIME", "the daemon's default"),
    ("gvisor.path", "RINGFENCE_RUNSC_PATH", "looked for on PATH"),
    ("wasi directory", "RINGFENCE_WASI_DIR", "~/.ringfence/wasi"),
    ("wasi cache", "RINGFENCE_WASI_CACHE", "cache, below it"),
    ("keeper: boxes made ahead", "RINGFENCE_KEEPER_BOXES", "4"),
    ("keeper: seconds that one waits", "RINGFENCE_KEEPER_BOX_SECONDS", "60"),
    ("keeper: seconds without a call", "RINGFENCE_KEEPER_IDLE_SECONDS", "600"),
)
"""Variables that are taken as they are: what they set, their name, and what holds without them."""


@dataclass(frozen=True, slots=True)
class InForce:
    """One value."""

    name: str
    value: str
    source: str
    """`default`, a file with its line, or a variable."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that is in force, in the order in which a person asks."""

    rows: tuple[InForce, ...]
    policy: tuple[InForce, ...]
    """What the policies say for one tool and role; empty without a policy."""
    warnings: tuple[str, ...]


def settings_in_force(
    environ: Mapping[str, str],
    *,
    config: str | os.PathLike[str] | None = None,
    policy: str | os.PathLike[str] | None = None,
    role: str | None = None,
    tool: str = "shell_exec",
) -> Settings:
    """
    Raises:
        InvalidConfig: a file or a variable makes no sense; or no policy knows the role or the tool.
    """
    home = home_directory(environ)
    loaded = load_config(environ, home, config)
    engine = PolicyEngine.from_files(project=policy, environ=environ)
    walls = read_settings(environ)
    said = tuple(_of_policy(engine, tool, role)) if engine.policies else ()
    limits = engine.terms(tool, role).limits(loaded.limits) if engine.policies else loaded.limits
    lowered = {row.name: row.source for row in said}
    bounded = read_bounds(environ).limits(limits)
    for key, (field, variable) in _BOUNDED.items():
        found = lookup(environ, variable)
        if found is not None and getattr(bounded, field) != getattr(limits, field):
            lowered[key] = f"${found.name}"
    rows = (
        *_files(environ, home, loaded, config, policy),
        *_of_file(loaded, environ),
        *_of_limits(loaded, bounded, lowered),
        *_of_variables(environ, home),
    )
    return Settings(rows, said, (*loaded.warnings, *walls.warnings))


def _files(
    environ: Mapping[str, str],
    home: str,
    loaded: SandboxConfig,
    config: str | os.PathLike[str] | None,
    policy: str | os.PathLike[str] | None,
) -> Iterator[InForce]:
    variable = lookup(environ, "RINGFENCE_SANDBOX_CONFIG")
    named = "--config" if config is not None else f"${variable.name}" if variable else DEFAULT
    looked = " or ".join(config_location(environ, home)) if config is None else ""
    value = loaded.source if loaded.source != "defaults" else f"none; looked for {looked}" if looked else "none"
    yield InForce("configuration file", value, named)
    organisation = environ.get(ORGANISATION, "").strip()
    yield InForce("organisation's policy", organisation or "none", f"${ORGANISATION}" if organisation else DEFAULT)
    yield InForce("project's policy", os.fspath(policy) if policy else "none", "--policy" if policy else DEFAULT)


def _of_file(config: SandboxConfig, environ: Mapping[str, str]) -> Iterator[InForce]:
    places = dict(config.places)
    enabled = lookup(environ, "RINGFENCE_SANDBOX_ENABLED")
    by = f"${enabled.name}" if enabled else places.get("enabled", DEFAULT)
    yield InForce("enabled", _word(config.enabled), by)

    def place(key: str) -> str:
        return places.get(key, DEFAULT)

    yield InForce("filesystem.whitelist", _list(config.whitelist), place("filesystem.whitelist"))
    yield InForce("filesystem.blacklist", _list(BLACKLIST), "built-in: cannot be removed")
    for row in config.blacklist[len(BLACKLIST) :]:
        yield InForce("filesystem.blacklist", row, place(row))
    yield InForce("filesystem.allowReadOutside", _word(config.allow_read_outside), place("filesystem.allowReadOutside"))
    yield InForce("network.allowNetwork", "no", "built-in: cannot be switched on")


def _of_limits(config: SandboxConfig, limits: Limits, lowered: Mapping[str, str]) -> Iterator[InForce]:
    """Those of the file, as far as no policy or variable has others; `lowered` says which does, by name."""
    places = dict(config.places)
    for key, (field, _) in _LIMITS.items():
        name = f"limits.{key}"
        by = places.get(name, DEFAULT)
        if key == "cpu" and by == DEFAULT:
            by = f"{DEFAULT}: 2.5 times limits.wall"
        if getattr(limits, field) != getattr(config.limits, field):
            by = lowered.get(f"limits.{field.removesuffix('_bytes').removesuffix('_seconds')}", "the policy")
        yield InForce(name, _limit(limits, key), by)


def _of_variables(environ: Mapping[str, str], home: str) -> Iterator[InForce]:
    walls, audit = read_settings(environ), read_audit_settings(environ)

    def row(name: str, variable: str, value: object) -> InForce:
        found = lookup(environ, variable)
        return InForce(name, str(value), f"${found.name}" if found else DEFAULT)

    yield row("engine", "RINGFENCE_TOOL_ENGINE", walls.tool_engine or "native")
    yield row("wall", "RINGFENCE_PROCESS_SANDBOX", walls.adapter or "auto: the strongest that works here")
    yield row("bubblewrap.path", "RINGFENCE_BWRAP_PATH", walls.bwrap_path or "looked for")
    yield row("pool size", "RINGFENCE_POOL_SIZE", pool_size(environ))
    yield row("further read-only paths", "RINGFENCE_BWRAP_RO_BINDS", _list(walls.ro_binds))
    for name, variable, otherwise in _PLAIN_VARIABLES:
        found = lookup(environ, variable)
        yield row(name, variable, found.value if found else otherwise)
    yield row("state directory", "RINGFENCE_STATE_DIR", state_directory(environ, home))
    yield row("workspaces directory", "RINGFENCE_WORKSPACES_DIR", workspaces_directory(environ, home))
    yield row("shadows directory", "RINGFENCE_SHADOWS_DIR", shadows_directory(environ, home))
    yield row("agents directory", "RINGFENCE_AGENTS_DIR", agents_directory(environ, home))
    yield row("snapshots directory", "RINGFENCE_SNAPSHOTS_DIR", snapshots_directory(environ, home))
    yield row("audit.fsync", "RINGFENCE_AUDIT_FSYNC", audit.fsync)
    yield row("audit.fsync_interval", "RINGFENCE_AUDIT_FSYNC_INTERVAL", f"{audit.fsync_seconds:g} s")
    yield row("audit.max_bytes", "RINGFENCE_AUDIT_MAX_BYTES", show_size(audit.max_bytes))
    yield row("audit.key", "RINGFENCE_AUDIT_KEY", audit.key or "none: checkpoints are not signed")
    yield row("audit.checkpoint_records", "RINGFENCE_AUDIT_CHECKPOINT_RECORDS", audit.checkpoint_records)
    yield row("audit.checkpoint_interval", "RINGFENCE_AUDIT_CHECKPOINT_INTERVAL", f"{audit.checkpoint_seconds:g} s")
    # How many and not which: they may be the secrets themselves.
    yield row("further texts to redact", "RINGFENCE_REDACT", len(audit.redact) or "none")


def _of_policy(engine: PolicyEngine, tool: str, role: str | None) -> Iterator[InForce]:
    for name, setting in explained(engine.terms(tool, role))["settings"].items():
        yield InForce(name, _text(setting["value"]), setting["at"])


def _limit(limits: Limits, key: str) -> str:
    field, unit = _LIMITS[key]
    value = getattr(limits, field)
    return show_size(value) if unit == "B" else f"{value:g} {unit}".rstrip()


def _word(value: bool) -> str:
    return "yes" if value else "no"


def _list(rows: tuple[str, ...]) -> str:
    return ", ".join(rows) or "none"


def _text(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
