"""The network of boxes, seen from the manager: runs the proxy, writes its record, asks people, hands it secrets.

One proxy process serves all boxes of a sandbox, a manager or a pool. It is started for the first box that has a network
and ends with the last one. What it says happened becomes a record of the journal and, where something was refused, a
violation in the result of the call that ends next; a call that ends waits until it is told what was decided so far.
What passes bytes is in the journal from before the first of them, whoever dies. If the journal cannot be written, the
box loses its network.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from ringfence.approvals.ask import NOBODY, SessionMemory, ask
from ringfence.approvals.base import ConfirmationService, Question
from ringfence.audit import network_records
from ringfence.audit.redact import Redactor
from ringfence.dataclass import dataclass, field, replace
from ringfence.egress.base import Listeners, NetworkAnswer, NetworkQuestion, SecretValue
from ringfence.egress.secrets.git_remotes import git_variables
from ringfence.egress.secrets.placeholders import variables_of
from ringfence.egress.service import Attachment, EgressService
from ringfence.errors import InitializationFailed, PermissionDenied
from ringfence.manager.secret_sources import SourceFailed
from ringfence.manager.secrets import SecretSources
from ringfence.values.hosts import canonical_host
from ringfence.values.network import NetworkGrant, SecretGrant
from ringfence.values.principal import Principal
from ringfence.values.risk import Risk
from ringfence.values.verdict import Reason, Verdict
from ringfence.values.violation import Operation, Severity, Violation, ViolationType

if TYPE_CHECKING:
    from ringfence.audit.journal import Entry, Journal
    from ringfence.egress.ssh.base import SshLogin
    from ringfence.engines.base import SocketMaker
    from ringfence.values.network_event import NetworkEvent
    from ringfence.values.parent_proxy import ParentProxies

_ASK_SECONDS = 300.0
"""How long a question stays open; the request itself is answered sooner, and the next try finds the answer."""
_VIOLATIONS_KEPT = 200
"""Of one box, between two looks; the same one is counted, not kept twice."""

SourcesFor = Callable[[NetworkGrant], SecretSources]
"""Finds the sources that the person named for the secrets of a grant."""


@dataclass(slots=True)
class ServedBox:
    """One box whose connections the proxy takes (`engines.base.Attached`)."""

    networking: Networking
    box: str
    sources: SecretSources
    variables: tuple[tuple[str, str], ...] = ()
    published: tuple[tuple[int, int], ...] = ()
    attachment: Attachment | None = None
    who: Principal | None = None
    confirmation: ConfirmationService | None = None
    """Whose it is and who is asked, where that is another than for all boxes."""
    is_unrecorded: bool = False
    """Whether something that it did could not be written down: it has no network then."""
    refused: deque[Violation] = field(default_factory=lambda: deque(maxlen=_VIOLATIONS_KEPT))

    async def settle(self) -> bool:
        return self.attachment is None or await self.attachment.settle()

    def taken(self, until: float | None = None) -> tuple[Violation, ...]:
        found = tuple(each for each in self.refused if until is None or each.at <= until)
        later = [each for each in self.refused if until is not None and each.at > until]
        self.refused.clear()
        self.refused.extend(later)
        return found

    async def close(self) -> None:
        attachment, self.attachment = self.attachment, None
        try:
            if attachment is not None:
                await attachment.close()
        finally:
            self.sources.close()
            await self.networking.forget(self.box)

    def lose_network(self) -> None:
        """End it at once: what it does there cannot be written down."""
        if not self.is_unrecorded:
            self.is_unrecorded = True
            self.add(
                Violation(
                    ViolationType.NETWORK_VIOLATION,
                    Severity.HIGH,
                    "the journal cannot be written: the box has no network any longer",
                    "audit",
                    "",
                    Operation.CONNECT,
                    "network",
                )
            )
        if self.attachment is not None:
            self.attachment.abandon()

    def add(self, violation: Violation) -> None:
        """Keep what was refused; what is refused again is counted."""
        for index, kept in enumerate(self.refused):
            if (kept.target, kept.rule, kept.what) == (violation.target, violation.rule, violation.what):
                self.refused[index] = replace(kept, count=kept.count + 1)
                return
        self.refused.append(violation)


class Networking:
    """The provider of networks for an engine, and whoever the proxy reports to.

    Args:
        sources_for: finds the sources of a grant's secrets.
        confirmation: who is asked, where a rule says so; without one, such requests are refused.
        git_settings: how many settings of git the boxes have by variables of their caller already.
        home: the person's home directory, where it is written which servers they know by SSH.
        parents: the proxies of the person's own network.
    """

    def __init__(
        self,
        journal: Journal,
        sources_for: SourcesFor,
        confirmation: ConfirmationService | None = None,
        who: Principal | None = None,
        git_settings: int = 0,
        home: str = "",
        parents: ParentProxies | None = None,
    ) -> None:
        self._journal = journal
        self._sources_for = sources_for
        self._confirmation = confirmation
        self._who = who or Principal()
        self._git_settings = git_settings
        self._home = home
        self._parents = parents
        self._redact = Redactor(journal.settings.redact)
        self._memory = SessionMemory()
        self._boxes: dict[str, ServedBox] = {}
        self._begun: dict[tuple[str, int], tuple[Entry, NetworkEvent]] = {}
        """What passes bytes now: its record, by box and number."""
        self._over: set[tuple[str, int]] = set()
        """Of what an alarm told the end before anybody told the beginning."""
        self._service: EgressService | None = None
        self._starting = asyncio.Lock()
        self._users = 0
        """Boxes that have the proxy, or are about to."""

    # --- for the engine -----------------------------------------------------------------------------------------------

    async def authority(self) -> bytes:
        """The certificate of who signs for inspected hosts; the proxy is started for it."""
        return await (await self._running()).authority()

    async def known_hosts(self) -> str:
        """The line by which clients of SSH in a box know the proxy, which is started for it."""
        return await (await self._running()).known_hosts()

    async def attach(self, box: str, network: NetworkGrant, listeners: Listeners, maker: SocketMaker) -> ServedBox:
        """Have the proxy take what comes to a box's listeners.

        Raises:
            InitializationFailed: the proxy cannot be started, or a secret has no value.
        """
        return await self._attach(box, network, listeners)

    async def attach_tools(self, name: str, network: NetworkGrant) -> ServedBox:
        """The same for tools outside of any box, which connect by `connect`."""
        return await self._attach(name, network, None)

    async def connect(self, name: str) -> socket.socket:
        """One end of a connection to the proxy, as the box of that name."""
        return await (await self._running()).connect(name)

    async def _attach(self, box: str, network: NetworkGrant, listeners: Listeners | None) -> ServedBox:
        made: ServedBox | None = None
        self._users += 1
        try:
            if box in self._boxes:  # before anything of the one that has the name is touched
                raise InitializationFailed(f"there is a box {box} already")
            if network.ends_ssh:
                from ringfence.manager.ssh_login import require_ssh  # of an extra

                require_ssh()
            made = ServedBox(self, box, self._sources_for(network))
            secrets = await made.sources.grants()
            network = replace(network, secrets=secrets)
            named = (pair for secret in secrets for pair in variables_of(secret))
            made.variables = (*named, *git_variables(network, count=self._git_settings))
            service = await self._running()
            self._boxes[box] = made
            made.attachment = await service.attach(box, network, listeners)
            if made.is_unrecorded:
                await made.attachment.close()
                raise InitializationFailed("the journal of what the box does in the network cannot be written")
        except BaseException:
            if listeners is not None:
                listeners.close()
            if made is not None:
                made.sources.close()
                if self._boxes.get(box) is made:
                    del self._boxes[box]
            await self._leave()
            raise
        return made

    async def refused(self, box: str) -> tuple[Violation, ...]:
        """What was refused to a box since the last look, and is in no result: of what goes on for long."""
        served = self._boxes.get(box)
        if served is None:
            return ()
        await served.settle()
        return served.taken()

    def belongs(self, box: str, who: Principal, confirmation: ConfirmationService | None) -> None:
        """A box that waited is leased to somebody."""
        served = self._boxes.get(box)
        if served is not None:
            served.who, served.confirmation = who, confirmation

    async def forget(self, box: str) -> None:
        """A box is gone."""
        self._cut_off("nobody told how it ended", box)
        self._over = {key for key in self._over if key[0] != box}
        if self._boxes.pop(box, None) is not None:
            await self._leave()

    async def _leave(self) -> None:
        self._users -= 1
        if self._users == 0 and self._service is not None:
            service, self._service = self._service, None
            await service.close()

    async def _running(self) -> EgressService:
        async with self._starting:
            if self._service is None:
                self._service = EgressService(self, self._parents)
        return self._service

    # --- for the proxy ------------------------------------------------------------------------------------------------

    def began(self, event: NetworkEvent) -> None:
        """Write down that it has begun; without a record there is no network."""
        if (event.box, event.number) in self._over:
            return self._over.discard((event.box, event.number))
        try:
            self._begun[event.box, event.number] = self._opened(event), event
        except (PermissionDenied, OSError, ValueError):
            self._is_unrecorded(event.box)

    def happened(self, event: NetworkEvent) -> None:
        """Write down what came of it; without a record there is no network."""
        box = self._boxes.get(event.box)
        if box is not None and event.verdict is not Verdict.ALLOW:
            box.add(as_violation(event))
        try:
            entry, begun = self._begun.pop((event.box, event.number), (None, None))
            if entry is None and event.number and event.canary:  # alarms overtake the rest
                self._over.add((event.box, event.number))
            entry = entry or self._opened(event)
            entry.close(network_records.answered(event, self._redact, begun))
        except (PermissionDenied, OSError, ValueError):
            self._is_unrecorded(event.box)

    def ended(self) -> None:
        """The proxy is gone."""
        self._cut_off("the proxy ended while it was open")

    def _opened(self, event: NetworkEvent) -> Entry:
        box = self._boxes.get(event.box)
        who = (box.who if box is not None else None) or self._who
        return self._journal.open(os.urandom(8).hex(), network_records.asked(event, who, self._redact))

    def _cut_off(self, why: str, box: str | None = None) -> None:
        """Finish the records of what nobody will tell the end of, of one box or of all."""
        for key in [key for key in self._begun if box in (None, key[0])]:
            entry, _ = self._begun.pop(key)
            try:
                entry.close(network_records.cut_off(why))
            except (PermissionDenied, OSError):
                self._is_unrecorded(key[0])

    def _is_unrecorded(self, box: str) -> None:
        served = self._boxes.get(box)
        if served is not None:
            served.lose_network()

    async def secret(self, box: str, secret: SecretGrant) -> SecretValue:
        """The value of a secret, from its source.

        Raises:
            SourceFailed: there is none, or no such box.
        """
        return await self._sources(box).value(secret)

    async def ssh_login(self, box: str, host: str, port: int) -> SshLogin:
        """Which keys a server may have, and which may sign in to it.

        Raises:
            SourceFailed: it is not known, or nobody may; says what would help.
        """
        from ringfence.manager.ssh_login import ssh_login

        return await ssh_login(self._sources(box), canonical_host(host), port, self._home)

    async def ssh_sign(self, box: str, host: str, secret: str, public: bytes, data: bytes, flags: int) -> bytes:
        """Sign in: nothing else is signed.

        Raises:
            SourceFailed: it is something else, or the key is not for this host.
        """
        from ringfence.manager.ssh_login import ssh_sign

        return await ssh_sign(self._sources(box), canonical_host(host), secret, public, data, flags)

    def _sources(self, box: str) -> SecretSources:
        served = self._boxes.get(box)
        if served is None:
            raise SourceFailed(f"there is no box {box}")
        return served.sources

    async def ask(self, question: NetworkQuestion) -> NetworkAnswer:
        """Ask a person; everything but a clear yes is a no."""
        served = self._boxes.get(question.box)
        confirmation = (served.confirmation if served is not None else None) or self._confirmation
        if confirmation is None:
            return NetworkAnswer(granted=False, by="nobody can be asked")
        asked = as_question(question, question.box)
        approval = await ask(confirmation, asked, _ASK_SECONDS, memory=self._memory)
        kept = self._memory.recall(asked) is not None
        by = approval.how if approval.by == NOBODY else f"{approval.by}, {approval.how}"
        return NetworkAnswer(granted=approval.granted, by=by, remembered=kept)


def as_question(question: NetworkQuestion, session: str) -> Question:
    """What a person is shown; the answer is bound to exactly this."""
    what = f"{question.method} {question.host}:{question.port}{question.path}".strip()
    digest = hashlib.sha256("\0".join((question.box, what)).encode("utf-8", "surrogatepass")).hexdigest()
    line = f"add {question.line} to the policy" if question.line else ""
    return Question(
        id=os.urandom(16).hex(),
        request_hash=digest,
        command=what,
        reasons=(Reason(Verdict.ASK, "network", question.reason, line),),
        risk=Risk.MEDIUM,
        session=session,
        expires_at=time.time() + _ASK_SECONDS,
        details=(("reach", what),),
    )


def as_violation(event: NetworkEvent) -> Violation:
    """A refused request, for the result of the call that made it."""
    target = f"{event.host}:{event.port}" if event.port else event.host
    return Violation(
        ViolationType.NETWORK_VIOLATION,
        Severity.CRITICAL if event.canary else Severity.HIGH,
        event.reason,
        event.rule or "network",
        event.allow_by,
        Operation.CONNECT,
        target,
        event.place,
        event.started_at,
    )
