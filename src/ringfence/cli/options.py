"""The one place where the command line makes `SandboxOptions` of what was typed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringfence.errors import InvalidArgument
from ringfence.manager.configuring import home_directory, load_config
from ringfence.manager.options import SandboxOptions
from ringfence.values.grant import Trace
from ringfence.values.limits import Limits, NobodySaid
from ringfence.values.sizes import parse_duration, parse_size

if TYPE_CHECKING:
    from pathlib import Path

    from ringfence.manager.network_options import Network


def typed_options(
    *,
    workspace: Path | None = None,
    read: Sequence[Path] | None = None,
    write: Sequence[Path] | None = None,
    read_only: bool = False,
    deny: Sequence[str] | None = None,
    env: Sequence[str] | None = None,
    limits: Limits | None = None,
    config: Path | None = None,
    policy: Path | None = None,
    role: str | None = None,
    tool: str | None = None,
    python: Path | None = None,
    trace: str | None = None,
    mediate_opens: bool = False,
    network: Network | None = None,
) -> SandboxOptions:
    """The options of `run`, `shell`, `check` and `workspace new`.

    Raises:
        InvalidArgument: something that was typed makes no sense.
    """
    return SandboxOptions(
        workspace=workspace,
        read=read or (),
        write=write or (),
        read_only=read_only,
        deny=deny or (),
        env=typed_variables(env or ()),
        limits=limits,
        config=config,
        policy=policy,
        role=role,
        tool=tool,
        python=python,
        trace=typed_trace(trace),
        mediate_opens=mediate_opens,
        network=network,
    )


def typed_trace(text: str | None) -> Trace | None:
    try:
        return None if text is None else Trace(text)
    except ValueError:
        raise InvalidArgument(f"--trace is {text!r}", hint=f"one of {', '.join(Trace)}") from None


def typed_variables(given: Sequence[str]) -> dict[str, str]:
    """NAME=VALUE, or NAME for our own value of it.

    Raises:
        InvalidArgument: we have no such variable.
    """
    out: dict[str, str] = {}
    for entry in given:
        name, has_value, value = entry.partition("=")
        if not has_value:
            if name not in os.environ:
                raise InvalidArgument(f"--env {name}: there is no such variable here", hint=f"write --env {name}=VALUE")
            value = os.environ[name]
        out[name] = value
    return out


def typed_limits(
    config: Path | None,
    *,
    cpu_time: str | None = None,
    memory: str | None = None,
    processes: int | None = None,
    output: str | None = None,
) -> Limits | None:
    """The configured limits with those that were typed; None if none was. The wall-clock time is up to --timeout."""
    if all(each is None for each in (cpu_time, memory, processes, output)):
        return None
    configured = load_config(os.environ, home_directory(os.environ), config).limits
    return configured.changed(
        wall_seconds=NobodySaid(configured.wall_seconds),
        cpu_seconds=None if cpu_time is None else parse_duration(cpu_time),
        memory_bytes=None if memory is None else parse_size(memory),
        processes=processes,
        output_bytes=None if output is None else parse_size(output),
    )
