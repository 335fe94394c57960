"""What a whole agent needs inside the wall, from its row: hosts, keys as placeholders, settings, arguments."""

import os
from collections.abc import Mapping, Sequence
from typing import Final

from ringfence.agents.homes import AgentHome
from ringfence.agents.known import GITHUB_KEYS, Host, KnownAgent
from ringfence.dataclass import dataclass, replace
from ringfence.manager.network_options import Network
from ringfence.values.limits import Limits

SESSION_SECONDS: Final = 30 * 24 * 3600.0
"""An agent works for as long as somebody wants it to: neither the clock nor the processor ends it."""
MEMORY_BYTES: Final = 4 * 1024**3
"""What the command lines of agents take (0.3 to 1 GB) and the builds that they start."""
PROCESSES: Final = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrapped:
    """An agent, ready to be run inside."""

    argv: tuple[str, ...]
    network: Network | None
    env: tuple[tuple[str, str], ...]
    write: tuple[str, ...]
    notes: tuple[str, ...]
    """For the person: what it was given, and what not."""


def wrapped(
    agent: KnownAgent | None,
    command: Sequence[str],
    home: AgentHome | None,
    environ: Mapping[str, str],
    typed: Network | None,
    *,
    login: bool = False,
) -> Wrapped:
    """The command as it is run inside.

    Args:
        typed: what the person said about the network.
        login: whether the hosts are opened at which one signs in.
    """
    if agent is None:
        return Wrapped(argv=tuple(command), network=typed, env=(), write=(), notes=_unknown(command))
    hosts: list[Host] = [*agent.hosts, *(agent.login_hosts if login else ())]
    network = typed or Network(written="--allow")
    allowed = tuple(network.allow or ())
    keys = [name for name in agent.keys if environ.get(name)]
    if any(isinstance(each, str) and "github" in each for each in allowed):
        keys += [name for name in GITHUB_KEYS if environ.get(name)]
    named = {text.partition("=")[0] for text in network.secrets}
    models = ",".join(dict.fromkeys(_host(each) for each in agent.hosts))
    secrets = tuple(f"{name}=env:{name}@;quoted={models}" for name in keys if name not in named)
    env = list(agent.environment)
    if home is not None and agent.settings is not None:
        env.append((agent.settings.moved_by, os.fspath(home.directory)))
    return Wrapped(
        argv=(command[0], *_sandbox_off(agent, command[1:]), *command[1:]),
        network=replace(network, allow=(*hosts, *allowed), secrets=(*network.secrets, *secrets)),
        env=tuple(env),
        write=(os.fspath(home.writable),) if home is not None else (),
        notes=_notes(agent, keys, named, home),
    )


def session_limits(configured: Limits) -> Limits:
    """Those of a session: what bounds one command would end an agent in the middle of its work."""
    return configured.changed(
        wall_seconds=SESSION_SECONDS,
        cpu_seconds=SESSION_SECONDS,
        memory_bytes=max(configured.memory_bytes, MEMORY_BYTES),
        processes=max(configured.processes, PROCESSES),
    )


def _host(row: Host) -> str:
    return row if isinstance(row, str) else str(row["host"])


def _sandbox_off(agent: KnownAgent, arguments: Sequence[str]) -> tuple[str, ...]:
    words = {word.partition("=")[0] for word in arguments}
    return () if words & set(agent.yields_to) else agent.sandbox_off


def _notes(agent: KnownAgent, keys: Sequence[str], named: set[str], home: AgentHome | None) -> tuple[str, ...]:
    found: list[str] = []
    if keys:
        found.append(f"{', '.join(keys)}: a placeholder inside; the proxy puts the real one in")
    elif not named:
        names = " or ".join(agent.keys)
        found.append(f"no key: set {names}, or sign in inside with --login, which puts the account's token inside")
    if home is not None:
        found.append(f"settings are a copy in {home.directory}; your own are neither shown nor changed")
        found += (f"not copied: {each}" for each in home.left_out)
    return tuple(found)


def _unknown(command: Sequence[str]) -> tuple[str, ...]:
    name = os.path.basename(command[0])
    return (f"{name} is no agent that is known here: it gets no hosts, keys or settings but those that you name",)
