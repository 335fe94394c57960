"""Brings the proxy of a sandbox's boxes, once one of them has a network: most have none, and load nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringfence.values.principal import Principal

if TYPE_CHECKING:
    from ringfence.approvals.base import ConfirmationService
    from ringfence.audit.journal import Journal
    from ringfence.egress.base import Listeners
    from ringfence.engines.base import Attached, SocketMaker
    from ringfence.manager.hiding import Caller
    from ringfence.manager.networking import Networking
    from ringfence.manager.options import SandboxOptions
    from ringfence.policy.config import SandboxConfig
    from ringfence.values.network import NetworkGrant
    from ringfence.values.violation import Violation


class SandboxNetworks:
    """Who serves the networks of the boxes that are made by one set of options (`engines.base.NetworkProvider`)."""

    def __init__(self, options: SandboxOptions, config: SandboxConfig, caller: Caller, journal: Journal) -> None:
        self._options = options
        self._config = config
        self._caller = caller
        self._journal = journal
        self._networking: Networking | None = None

    async def authority(self) -> bytes:
        return await self.networking.authority()

    async def known_hosts(self) -> str:
        return await self.networking.known_hosts()

    async def attach(self, box: str, network: NetworkGrant, listeners: Listeners, maker: SocketMaker) -> Attached:
        return await self.networking.attach(box, network, listeners, maker)

    async def refused(self, box: str) -> tuple[Violation, ...]:
        """What was refused to a box since the last look (`Networking.refused`)."""
        return () if self._networking is None else await self._networking.refused(box)

    def belongs(self, box: str, who: Principal, confirmation: ConfirmationService | None) -> None:
        """A box was leased: from now on this is whose requests it makes, and who is asked about them."""
        if self._networking is not None and box:
            self._networking.belongs(box, who, confirmation)

    @property
    def networking(self) -> Networking:
        """The whole of it; loaded now."""
        if self._networking is None:
            from ringfence.manager.network_secrets import sources_of  # both load what signs, and much else
            from ringfence.manager.networking import Networking
            from ringfence.manager.parent_proxies import parents_of

            options = self._options
            typed = () if options.asked_network is None else tuple(options.asked_network.secrets)
            environ, secrets = self._caller.environ, self._config.secrets
            parents = parents_of(environ, self._config.parent_proxy)
            self._networking = Networking(
                self._journal,
                lambda network: sources_of(network, typed, secrets, environ, parents=parents),
                options.confirmation,
                Principal(agent_id=options.agent_id, org_id=options.org_id),
                _git_settings(dict(options.variables)),
                self._caller.home,
                parents,
            )
        return self._networking


def _git_settings(variables: dict[str, str]) -> int:
    count = variables.get("GIT_CONFIG_COUNT", "")
    return int(count) if count.isdecimal() and len(count) < 4 else 0
