"""Which wall to use, and how, as the environment says it (requirement D8)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidConfig
from ringfence.policy.environment import Variable, flag, lookup

ADAPTERS: Final = ("bwrap", "unshare", "gvisor", "landlock", "nsjail", "sandbox-exec", "jobobject", "auto", "none")
SYSTEM_DIRECTORIES: Final = frozenset(("/usr", "/bin", "/lib", "/lib64", "/sbin"))
"""A box shows them anyway, read-only."""
ENGINES: Final = ("native", "wasi", "docker", "aio", "subprocess")
_ETC: Final = "/etc"
_NETWORK_WORDS: Final[Mapping[str, bool]] = MappingProxyType({"allow": True, "deny": False})


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSandboxSettings:
    """None means: not said, so choose."""

    adapter: str | None = None
    """One of `ADAPTERS`."""
    bwrap_path: str | None = None
    """An absolute path, or a bare name to look for on PATH."""
    bwrap_network: bool = False
    """Always false for a plain command; a request to switch it on ends up in `warnings`."""
    ro_binds: tuple[str, ...] = ()
    """Further absolute paths to show read-only."""
    tool_engine: str | None = None
    """One of `ENGINES`."""
    warnings: tuple[str, ...] = ()


def read_settings(environ: Mapping[str, str]) -> ProcessSandboxSettings:
    """Read every variable of the table in docs/configuration.md.

    Raises:
        InvalidConfig: a value makes no sense; names the variable.
    """
    adapter = lookup(environ, "RINGFENCE_PROCESS_SANDBOX")
    required = lookup(environ, "RINGFENCE_PROCESS_SANDBOX_REQUIRED")
    network = lookup(environ, "RINGFENCE_BWRAP_NETWORK")
    binds = lookup(environ, "RINGFENCE_BWRAP_RO_BINDS")
    shown = _paths(binds)
    engine = lookup(environ, "RINGFENCE_TOOL_ENGINE")
    return ProcessSandboxSettings(
        adapter=_one_of(adapter, ADAPTERS),
        bwrap_path=_program(lookup(environ, "RINGFENCE_BWRAP_PATH")),
        ro_binds=tuple(path for path in shown if path != _ETC and path not in SYSTEM_DIRECTORIES),
        tool_engine=_one_of(engine, ENGINES),
        warnings=(*_required_warnings(required), *_network_warnings(network), *_etc_warnings(binds, shown)),
    )


def _one_of(variable: Variable | None, valid: tuple[str, ...]) -> str | None:
    if variable is None or variable.value in valid:
        return variable and variable.value
    raise InvalidConfig(f"{variable.name} is {variable.value!r}", hint=f"use one of {', '.join(valid)}")


def _program(variable: Variable | None) -> str | None:
    if variable is None:
        return None
    # A relative path would be looked up from the working directory, which the command inside can write.
    if "/" in variable.value and not variable.value.startswith("/"):
        raise InvalidConfig(
            f"{variable.name} is {variable.value!r}", hint="use an absolute path, or a bare name on PATH"
        )
    return variable.value


def _paths(variable: Variable | None) -> tuple[str, ...]:
    if variable is None:
        return ()
    paths = tuple(path.rstrip("/") or "/" for part in variable.value.split(",") if (path := part.strip()))
    for path in paths:
        if not path.startswith("/") or ".." in path.split("/"):
            raise InvalidConfig(
                f"{variable.name} holds {path!r}", hint="list absolute paths without `..`, with commas between them"
            )
    return paths


def _etc_warnings(variable: Variable | None, paths: tuple[str, ...]) -> tuple[str, ...]:
    if variable is None or _ETC not in paths:
        return ()
    return (
        f"{variable.name}: {_ETC} as a whole is not shown: a box has one of its own, with what tools need of the "
        "host's and without its accounts, keys and tokens; name what else is needed, such as /etc/ssl",
    )


def _required_warnings(variable: Variable | None) -> tuple[str, ...]:
    if variable is None or flag(variable):
        return ()
    return (
        f"{variable.name}={variable.value} has no effect: nothing runs without a wall, so that a wall that cannot be "
        "built is an error in any case",
    )


def _network_warnings(variable: Variable | None) -> tuple[str, ...]:
    if variable is None or not flag(variable, _NETWORK_WORDS):
        return ()
    return (
        f"{variable.name}={variable.value} has no effect: the network stays off for a plain command, whatever is set; "
        "reach it through the agent commands `fetch` and `http`",
    )
