"""Answers a box's look-ups: names that a rule allows get an address that stands for them, others do not exist.

Nothing goes upstream, so that a look-up carries nothing out. IPv6, HTTPS and SVCB records are empty: no client learns
of keys for an encrypted name, of HTTP/3, or of an address that we do not lead back. No host has a service (SRV); who
looks for one of a host that is not allowed is told so.
"""

import time
from collections import OrderedDict
from typing import Final

import dnslib  # type: ignore[import-untyped]  # it has no types

from ringfence.egress.arriving import LONGEST_QUERY
from ringfence.egress.flow import Box
from ringfence.policy.reach import Judged
from ringfence.policy.reach_rules import ANY_PORT
from ringfence.values.hosts import BadHost, Host, canonical_host
from ringfence.values.network import NetworkDoor
from ringfence.values.verdict import Verdict

_TTL_SECONDS: Final = 60
_SAID_AGAIN_SECONDS: Final = 30.0  # clients ask for two kinds of records, three times: one event for all of these
_SAID: Final = 256
_HEADER: Final = 12
_IN: Final = 1
_NXDOMAIN, _FORMERR, _NOTIMP, _REFUSED = 3, 1, 4, 5


class NameService:
    """Look-ups of one box."""

    def __init__(self, box: Box) -> None:
        self._box = box
        self._said: OrderedDict[str, float] = OrderedDict()

    def answer(self, query: bytes) -> bytes | None:
        """The answer to one message; None if it deserves none."""
        if not _HEADER <= len(query) <= LONGEST_QUERY or query[2] & 0x80:
            return None  # cut short, endless, or itself an answer
        try:
            asked = dnslib.DNSRecord.parse(query)
        except (dnslib.DNSError, ValueError, IndexError, KeyError, UnicodeError, RecursionError, OverflowError):
            return _bare(query, _FORMERR)
        header = asked.header
        if header.opcode != dnslib.QR.QUERY and header.opcode != 0:
            return _bare(query, _NOTIMP)
        if len(asked.questions) != 1 or asked.rr or asked.auth:
            return _bare(query, _FORMERR)
        question = asked.questions[0]
        if question.qclass != _IN:
            return _bare(query, _REFUSED)
        reply = dnslib.DNSRecord(dnslib.DNSHeader(id=header.id, qr=1, aa=1, ra=1, rd=header.rd), q=question)
        try:
            self._fill(reply, question)
            return bytes(reply.pack())
        except (dnslib.DNSError, ValueError, UnicodeError):
            return _bare(query, _FORMERR)

    def _fill(self, reply: dnslib.DNSRecord, question: dnslib.DNSQuestion) -> None:
        labels: tuple[bytes, ...] = question.qname.label
        is_service = question.qtype == dnslib.QTYPE.SRV and len(labels) > 2 and labels[0][:1] == labels[1][:1] == b"_"
        # apt asks where the service is, and then for its host.
        host = self._host(labels, skipped=2 if is_service else 0)
        if host is None or is_service:
            reply.header.rcode = _NXDOMAIN
        elif host.text == "localhost":
            if question.qtype == dnslib.QTYPE.A:
                _add(reply, question, "127.0.0.1")
        elif question.qtype == dnslib.QTYPE.A:
            _add(reply, question, str(self._box.stand_ins.address_of(host)))

    def _host(self, labels: tuple[bytes, ...], *, skipped: int = 0) -> Host | None:
        """The host, if it may be reached.

        Args:
            skipped: labels before it, which are looked at for what may be in no name.
        """
        try:
            if any(b"." in label for label in labels):
                raise BadHost("a label with a dot in it")
            host = canonical_host(b".".join(labels).decode("ascii"))
        except (BadHost, UnicodeDecodeError) as bad:
            shown = b".".join(labels).decode("ascii", "replace")
            self._refuse(shown, Judged(verdict=Verdict.DENY, reason=f"a look-up of no host name: {bad}"))
            return None
        if host.text == "localhost":
            return host
        if host.address is not None:
            self._refuse(host.text, Judged(verdict=Verdict.DENY, reason=f"a look-up of an address, {host}"))
            return None
        if self._box.astray(NetworkDoor.DNS, host, 0) is not None:
            return None
        if skipped:
            return self._host(labels[skipped:])
        judged = self._box.judge(NetworkDoor.DNS, host, ANY_PORT)
        if judged.verdict is Verdict.DENY:
            if not host.text.endswith(".arpa"):  # reverse look-ups are made for logs, by nobody's wish
                self._refuse(host.text, judged)
            return None
        return host

    def _refuse(self, name: str, judged: Judged) -> None:
        now = time.monotonic()
        if self._said.get(name, float("-inf")) > now - _SAID_AGAIN_SECONDS:
            return
        self._said[name] = now
        self._said.move_to_end(name)
        if len(self._said) > _SAID:
            self._said.popitem(last=False)
        self._box.refuse(NetworkDoor.DNS, "".join(c if " " < c <= "~" else "?" for c in name), 0, judged, status=0)


def _add(reply: dnslib.DNSRecord, question: dnslib.DNSQuestion, address: str) -> None:
    reply.add_answer(dnslib.RR(question.qname, dnslib.QTYPE.A, _IN, _TTL_SECONDS, dnslib.A(address)))


def _bare(query: bytes, code: int) -> bytes:
    """A header alone, with the number of the query and why it is refused."""
    flags = 0x8000 | (int.from_bytes(query[2:4], "big") & 0x7900) | code
    return query[:2] + flags.to_bytes(2, "big") + bytes(8)
