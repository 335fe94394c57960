"""The network of tools that run outside any box (`fetch`, `http`): the proxy, its judge and its record, as a box's.

What they reach follows from the same options, configuration and policy as what a box reaches.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass, replace
from ringfence.errors import NetworkAccessDenied
from ringfence.manager.configuring import home_directory, load_config, open_journal
from ringfence.manager.granting import current_directory
from ringfence.manager.network_options import Network
from ringfence.manager.network_pages import network_in_force
from ringfence.manager.network_secrets import sources_of
from ringfence.manager.networking import Networking, ServedBox
from ringfence.manager.parent_proxies import parents_of
from ringfence.values.remedy import Door

if TYPE_CHECKING:
    from ringfence.manager.options import SandboxOptions

_NAME: Final = "tool"


@dataclass(frozen=True, slots=True)
class ToolNetwork:
    """What the tools `fetch` and `http` are made with."""

    opener: Callable[[], Awaitable[socket.socket]]
    authority: bytes


@asynccontextmanager
async def tool_network(options: SandboxOptions, environ: Mapping[str, str], host: str) -> AsyncIterator[ToolNetwork]:
    """A way out for tools, as long as the block lasts.

    Args:
        host: what is asked for first, for the message if nothing at all may be reached.

    Raises:
        NetworkAccessDenied: the options and the policy allow no host.
        InvalidConfig, InvalidArgument: they make no sense, or a secret has no value.
        InitializationFailed: the proxy cannot be started.
    """
    network, terms = network_in_force(options, environ)
    if network is None:
        raise NetworkAccessDenied(
            host, "no rule allows any host", hint="name it: --allow HOST" if terms is None else "allow it in the policy"
        )
    home = home_directory(environ)
    config = load_config(environ, home, options.config)
    typed = tuple(options.network.secrets) if isinstance(options.network, Network) else ()
    workspace = os.path.realpath(options.workspace or current_directory())
    parents = parents_of(environ, config.parent_proxy)
    journal = open_journal(environ, home)
    try:
        networking = Networking(
            journal,
            lambda granted: sources_of(granted, typed, config.secrets, environ, (workspace,), parents),
            options.confirmation,
            parents=parents,
        )
        name = f"{_NAME}-{os.urandom(4).hex()}"
        box = await networking.attach_tools(name, replace(network, publish=(), reach=()))
        try:
            yield ToolNetwork(lambda: networking.connect(name), await networking.authority())
        except NetworkAccessDenied as refused:
            refused.hint = refused.hint or await _remedy(box, Door.COMMAND_LINE if terms is None else Door.POLICY)
            raise
        finally:
            await box.close()
    finally:
        journal.close()


async def _remedy(box: ServedBox, door: Door) -> str:
    """What would allow what was refused last; the proxy tells that beside its answer, which may be sooner."""
    await box.settle()
    refused = box.taken()
    return refused[-1].remedy(door) if refused else ""
