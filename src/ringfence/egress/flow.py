"""One box's side of the proxy, and one connection of it: judged, asked about, counted, resolved, dialled, recorded.

Order matters, and is the same for every door: judge, ask, count, resolve, judge the addresses, dial one of these very
addresses. Each refusal is recorded here, with the rule and what would allow it, so that no door can forget.
"""

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ringfence.dataclass import dataclass, replace
from ringfence.egress.addresses import StandIns
from ringfence.egress.asking import HOLD_SECONDS, Questions
from ringfence.egress.base import (
    DialRefused,
    Inspector,
    NetworkAnswer,
    NetworkQuestion,
    Refusal,
    RequestHead,
    Stream,
)
from ringfence.egress.begun import Began, BegunRequests, next_number, until_recorded
from ringfence.egress.budgets import Meter
from ringfence.egress.dialing import Dialer
from ringfence.egress.parents import LOOK_SECONDS, ParentRefused, UnknownNames, connect_by
from ringfence.egress.resolve import NotResolved, Resolver
from ringfence.egress.sockets import close, stream_of
from ringfence.egress.ssh.base import SshSide
from ringfence.egress.tls import tls_stream_of
from ringfence.egress.wording import means_another, reason_line, visible
from ringfence.policy.reach import Judged, Wanted, allow_by, is_reached, judge, judge_addresses
from ringfence.values.hosts import Address, Host, canonical_host
from ringfence.values.network import NetworkDoor, NetworkGrant, NetworkRule
from ringfence.values.network_event import NetworkEvent
from ringfence.values.parent_proxy import ParentProxies, ParentProxy
from ringfence.values.verdict import Verdict

_HANDSHAKE_SECONDS: Final = 10.0
_LOOKUPS: Final = 8  # of one box at the same time: names that nobody answers for must not take the threads of others
_LOOPBACK: Final = canonical_host("127.0.0.1")


@dataclass(frozen=True, slots=True)
class Outside:
    """What all boxes share: the ways to the world, and who is told. The parts are given by whoever builds the proxy."""

    resolver: Resolver
    dialer: Dialer
    own: Callable[[], frozenset[Address]]
    inspector: Inspector
    client_tls: Callable[[tuple[str, ...]], ssl.SSLContext]
    """For connections to servers, by the protocols that are offered."""
    happened: Callable[[NetworkEvent], None]
    ask: Callable[[NetworkQuestion], Awaitable[NetworkAnswer]]
    hold_seconds: float = HOLD_SECONDS
    parents: Callable[[], ParentProxies] = ParentProxies
    """The proxies of the person's own network."""
    began: Began = lambda event, is_first: None
    """Told before a byte passes, so that nobody's death hides what was sent."""
    canary: Callable[[str, bytes], str] = lambda box, raw: ""
    """The secret of a box whose placeholder is in these bytes; empty if there is none."""
    ssh: SshSide | None = None
    """What it takes to end SSH."""


class Box:
    """What one box may do, and what it has done so far."""

    def __init__(self, name: str, network: NetworkGrant, outside: Outside, *, on_loopback: bool = False) -> None:
        self.name = name
        self.network = network
        self.outside = outside
        self.meter = Meter(network)
        self.stand_ins = StandIns(on_loopback=on_loopback)
        self.lookups = asyncio.Semaphore(_LOOKUPS)
        self.unknown = UnknownNames()
        self.questions = Questions(outside.ask, hold_seconds=outside.hold_seconds)

    def close(self) -> None:
        self.questions.close()

    def astray(self, door: NetworkDoor, host: Host, port: int) -> Refusal | None:
        """Refuse a name that carries the placeholder of a secret: whoever answers for the name would read it."""
        canary = self.outside.canary(self.name, host.text.encode("ascii")) if self.network.secrets else ""
        if not canary:
            return None
        judged = Judged(verdict=Verdict.DENY, reason="the placeholder of a secret is in the name of a host")
        return self.refuse(door, host.text, port, judged, canary=canary)

    def judge(self, door: NetworkDoor, host: Host, port: int, *, is_raw: bool = False) -> Judged:
        return judge(self.network, Wanted(host=host, port=port, door=door, is_raw=is_raw))

    def refuse(
        self, door: NetworkDoor, host: str, port: int, judged: Judged, *, status: int = 403, canary: str = ""
    ) -> Refusal:
        """Record that something is refused; what the client is told."""
        self.outside.happened(
            NetworkEvent(
                box=self.name,
                door=door,
                host=host[:300],
                port=port,
                verdict=Verdict.DENY,
                reason=judged.reason,
                rule=judged.rule,
                place=judged.place,
                allow_by=judged.allow_by,
                canary=canary,
                status=status,
                started_at=time.time(),
            )
        )
        return Refusal(status, reason_line(judged.reason))

    def malformed(self, door: NetworkDoor, host: str, port: int, why: str) -> Refusal:
        """Record that something is refused whatever the rules say."""
        return self.refuse(door, visible(host), port, Judged(verdict=Verdict.DENY, reason=why), status=400)

    async def admit(self, door: NetworkDoor, host: Host, port: int, *, is_raw: bool = False) -> "BoxFlow | Refusal":
        """A flow, if the rules or a person allow a connection there."""
        if (refused := self.astray(door, host, port)) is not None:
            return refused
        judged = self.judge(door, host, port, is_raw=is_raw)
        if judged.verdict is Verdict.DENY:
            return self.refuse(door, host.text, port, judged)
        approval = ""
        if judged.verdict is Verdict.ASK and door is not NetworkDoor.HTTP:  # there, with the request itself
            answer = await self.put_question(door, host, port, judged)
            if isinstance(answer, Refusal):
                return answer
            approval = answer.by or "somebody"
        if full := self.meter.request(judged.matched):
            return self.refuse(door, host.text, port, Judged(verdict=Verdict.DENY, reason=full), status=429)
        flow = BoxFlow(self, door, host, port, judged, approval)
        # What is looked into is counted by the rule of its requests.
        if not judged.inspect and (full := flow.hold(judged.matched)):
            told = Judged(verdict=Verdict.DENY, reason=full, rule=judged.rule, place=judged.place)
            return self.refuse(door, host.text, port, told, status=429)
        return flow

    async def put_question(
        self, door: NetworkDoor, host: Host, port: int, judged: Judged, method: str = "", path: str = ""
    ) -> NetworkAnswer | Refusal:
        line = judged.allow_by or allow_by(Wanted(host=host, port=port, door=door))
        question = NetworkQuestion(self.name, host.text, port, method, path, judged.reason, line)
        answer = await self.questions.put(question, is_unlisted=judged.matched is not None and judged.rule == "ask")
        if isinstance(answer, Refusal):
            told = self.refuse(
                door,
                host.text,
                port,
                Judged(
                    verdict=Verdict.DENY,
                    reason=f"{judged.reason}; {answer.reason}",
                    rule=judged.rule,
                    place=judged.place,
                    allow_by=line,
                ),
                status=answer.status,
            )
            return Refusal(told.status, told.reason, answer.event_id)
        return answer


class BoxFlow:
    """One connection of a box to one host and port (`egress.base.Flow`)."""

    def __init__(self, box: Box, door: NetworkDoor, host: Host, port: int, judged: Judged, approval: str = "") -> None:
        self._box = box
        self._host = host
        self._port = port
        self._door = door
        self._unused_yes = bool(approval)
        self._counted = True
        self.approval = approval
        self.judged = judged
        self.address = ""
        self.parent = ""
        self.started_at = time.time()
        self._started = time.monotonic()
        self._number = 0
        self._requests = BegunRequests(box.outside.began)
        self._held: list[NetworkRule] = []
        if (connection := asyncio.current_task()) is not None:  # it serves one connection, and ends with it
            connection.add_done_callback(self._release)

    def hold(self, rule: NetworkRule | None) -> str:
        """Count the connection as one that this rule allows; why it may not be, else empty."""
        if rule is None or rule.budget.connections is None or rule in self._held:
            return ""
        full = self._box.meter.open_rule(rule)
        if not full:
            self._held.append(rule)
        return full

    def _release(self, _: object) -> None:
        while self._held:
            self._box.meter.close_rule(self._held.pop())
        for begun in self._requests.left():
            self._box.outside.happened(begun)

    @property
    def box(self) -> str:
        return self._box.name

    @property
    def network(self) -> NetworkGrant:
        return self._box.network

    @property
    def door(self) -> NetworkDoor:
        return self._door

    @property
    def host(self) -> Host:
        return self._host

    @property
    def port(self) -> int:
        return self._port

    @property
    def rule(self) -> NetworkRule | None:
        return self.judged.matched

    async def decide(self, head: RequestHead, *, is_ssh: bool = False) -> Judged | Refusal:
        path = head.path.partition("?")[0]
        wanted = Wanted(host=self._host, port=self._port, door=self._door, method=head.method, path=path, is_ssh=is_ssh)
        judged = judge(self.network, wanted)
        if judged.verdict is Verdict.DENY:
            return self._refuse_request(head, judged)
        if meant := means_another(head, judged.matched):
            told = Judged(verdict=Verdict.DENY, reason=meant, rule=judged.rule, place=judged.place)
            return self._refuse_request(head, told)
        if judged.verdict is Verdict.ASK and not self._is_answered(judged):
            # With its query: whoever says yes has to see all that is sent.
            answer = await self._box.put_question(self._door, self._host, self._port, judged, head.method, head.path)
            if isinstance(answer, Refusal):
                return answer
            self.approval = answer.by or "somebody"
        self.judged = judged
        full = self.hold(judged.matched) or ("" if self._counted else self._box.meter.request(judged.matched))
        self._counted = False  # the first request was counted with the connection
        if full:
            return self._refuse_request(head, Judged(verdict=Verdict.DENY, reason=full, rule=judged.rule), status=429)
        if judged.verdict is not Verdict.ALLOW:
            judged = replace(judged, verdict=Verdict.ALLOW, reason=f"{judged.reason}; {self.approval} said yes")
        connection = replace(self._event(), number=next_number(), started_at=time.time())
        await until_recorded(self._requests.begins(connection, head, judged))
        return judged

    async def dial(self, *, tls: bool, alpn: Sequence[str] = ()) -> Stream:
        connected = await self.connect(is_plain=not tls)
        try:
            if not tls:
                return await stream_of(connected)
            async with asyncio.timeout(_HANDSHAKE_SECONDS):
                return await tls_stream_of(connected, self._box.outside.client_tls(tuple(alpn)), self._host)
        except TimeoutError:
            close(connected)
            raise DialRefused(self.fail(f"{self._host} did not finish the TLS handshake")) from None
        except ssl.SSLCertVerificationError as bad:
            close(connected)
            raise DialRefused(self.fail(f"the certificate of {self._host} is not valid: {bad.verify_message}")) from bad
        except OSError as fault:
            close(connected)
            raise DialRefused(self.fail(f"no TLS with {self._host}: {fault.strerror or fault}")) from fault

    async def addresses(self) -> tuple[Address, ...]:
        """Those of the host, each looked at; none, if only a parent proxy may know the name.

        Raises:
            DialRefused: there is none, or one that may not be reached; that is recorded.
        """
        rule = self.rule
        if rule is None:
            return self._reached()
        outside = self._box.outside
        has_parent = any(self._parent(is_plain=is_plain) is not None for is_plain in (False, True))
        if has_parent and self._host in self._box.unknown:
            return ()
        try:
            async with self._box.lookups, asyncio.timeout(LOOK_SECONDS if has_parent else None):
                answers = await outside.resolver.addresses(self._host)
            own = outside.own()
        except (NotResolved, TimeoutError) as fault:
            if has_parent:
                self._box.unknown.add(self._host)
                return ()
            raise DialRefused(self.fail(str(fault))) from fault
        except OSError as fault:
            raise DialRefused(self.fail(fault.strerror or str(fault))) from fault
        judged = judge_addresses(self.network, rule, self._host, answers, port=self._port, own=own)
        if judged.verdict is not Verdict.ALLOW:
            raise DialRefused(self._box.refuse(self._door, self._host.text, self._port, judged))
        return answers

    def _parent(self, *, is_plain: bool) -> ParentProxy | None:
        return self._box.outside.parents().of(self._host, self._port, is_plain=is_plain)

    async def connect(self, *, is_plain: bool = False) -> socket.socket:
        """A socket to an address that was looked at, or to the host through the parent proxy.

        Args:
            is_plain: whether it is for HTTP without TLS, which may have another parent.

        Raises:
            DialRefused: none may be reached, or none answers.
        """
        answers = await self.addresses()
        if not self._box.meter.may_dial():
            raise DialRefused(self.fail("too many connections to servers are open already"))
        outside, parent = self._box.outside, self._parent(is_plain=is_plain)
        try:
            if parent is not None and self.rule is not None:
                dialling = connect_by(parent, self._host, self._port, outside.resolver, outside.dialer)
                connected, address = await dialling
                self.parent = parent.shown
            else:
                connected, address = await outside.dialer.connect(answers, self._port)
        except ParentRefused as fault:
            raise DialRefused(self.fail(str(fault))) from fault
        except TimeoutError as fault:
            raise DialRefused(self.fail(f"{self._host.in_url}:{self._port} does not answer")) from fault
        except OSError as fault:
            why = fault.strerror or str(fault)
            raise DialRefused(self.fail(f"{self._host.in_url}:{self._port} cannot be reached: {why}")) from fault
        self._box.meter.dialled(connected)
        self.address = str(address)
        return connected

    def _reached(self) -> tuple[Address, ...]:
        if not is_reached(self.network, self._host, self._port) or _LOOPBACK.address is None:
            raise DialRefused(self.fail("no rule names it"))
        return (_LOOPBACK.address,)

    def spend(self, sent: int) -> bool:
        return self._box.meter.spend(self.rule, sent)

    def record(self, event: NetworkEvent) -> None:
        if event.verdict is Verdict.ALLOW and not event.address:  # whoever looked into it does not know who was dialled
            approval = event.approval or self.approval
            event = replace(event, address=self.address, parent=self.parent, approval=approval)
        if event.inspected:
            event = self._requests.ends(event)
        self._box.outside.happened(event)

    def fail(self, why: str) -> Refusal:
        return Refusal(502, reason_line(why))

    async def begins(self) -> None:
        """Tell that bytes are about to pass that nobody looks into: from now on there is a record of it."""
        self._number = next_number()
        await until_recorded(self._box.outside.began(self._event(), True))

    def ended(
        self, *, sent: int = 0, received: int = 0, status: int = 0, reason: str = "", denied: bool = False
    ) -> None:
        """Record a connection that nobody looked into."""
        told = replace(self._event(), bytes_out=sent, bytes_in=received, status=status)
        verdict = Verdict.DENY if denied else Verdict.ALLOW
        seconds = time.monotonic() - self._started
        self.record(replace(told, verdict=verdict, reason=reason or self.judged.reason, seconds=seconds))

    def _event(self) -> NetworkEvent:
        return NetworkEvent(
            box=self.box,
            door=self._door,
            host=self._host.text,
            port=self._port,
            verdict=Verdict.ALLOW,
            reason=self.judged.reason,
            rule=self.judged.rule,
            place=self.judged.place,
            address=self.address,
            parent=self.parent,
            started_at=self.started_at,
            approval=self.approval,
            number=self._number,
        )

    def _is_answered(self, judged: Judged) -> bool:
        """Whether the yes to the connection is one to this request: always for a host that no rule names, and once for
        a rule that wants to be asked about each."""
        if not self._unused_yes:
            return False
        self._unused_yes = judged.rule == "ask"
        return True

    def _refuse_request(self, head: RequestHead, judged: Judged, *, status: int = 403) -> Refusal:
        told = replace(self._event(), verdict=Verdict.DENY, reason=judged.reason, rule=judged.rule, place=judged.place)
        told = replace(told, allow_by=judged.allow_by, status=status, started_at=time.time(), approval="")
        path = visible(head.path.partition("?")[0])[:1024]
        self._box.outside.happened(replace(told, method=head.method[:32], path=path, inspected=True))
        return Refusal(status, reason_line(judged.reason))
