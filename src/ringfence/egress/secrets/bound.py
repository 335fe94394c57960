"""One secret of a box as the desk uses it: its hosts understood, the spellings of its placeholder at hand."""

import base64
from typing import Final, Self

from ringfence.dataclass import dataclass
from ringfence.egress.base import RequestHead
from ringfence.egress.secrets.forms import spellings
from ringfence.egress.secrets.placeholders import placeholders_of
from ringfence.egress.secrets.swapping import ELSEWHERE, Spot, header_of, spots
from ringfence.errors import InvalidConfig
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.values.hosts import Host
from ringfence.values.network import SecretGrant, SecretPlace, SecretStyle

_SHOWN: Final = 40


@dataclass(frozen=True, slots=True)
class Bound:
    grant: SecretGrant
    rules: tuple[HostRule, ...]
    placeholders: tuple[bytes, ...]
    forms: tuple[bytes, ...]
    """Of its placeholders, for canaries."""
    quoted_to: tuple[HostRule, ...] = ()
    """Where its placeholders may go in a body, as they are."""

    @classmethod
    def of(cls, grant: SecretGrant) -> Self:
        """
        Raises:
            InvalidConfig: a host of it is none, or stands for every host.
        """
        mark = Mark(f"secret {grant.name}", 1)
        rules = tuple(HostRule.parse(host, mark) for host in grant.hosts)
        quoted_to = tuple(HostRule.parse(host, mark) for host in grant.quoted_to)
        if wide := next((rule for rule in (*rules, *quoted_to) if rule.matches_everything), None):
            raise InvalidConfig(
                f"secret {grant.name}: {wide.written!r} stands for every host", hint="name the hosts that it is for"
            )
        held = tuple(text.encode("ascii") for text in placeholders_of(grant))
        forms = tuple(form for text in held for form in (*spellings(text), *_names(text)))
        return cls(grant, rules, held, forms, quoted_to)

    @property
    def name(self) -> str:
        return self.grant.name

    @property
    def shown(self) -> str:
        """Its name for a status line."""
        clean = "".join(letter if "!" <= letter <= "~" else "?" for letter in self.name)
        return clean[:_SHOWN]

    @property
    def is_injected(self) -> bool:
        return self.grant.style is SecretStyle.INJECT and self.grant.signer != "aws-sigv4"

    @property
    def allowed(self) -> frozenset[Spot]:
        """Where its placeholder may stand in a head."""
        if self.is_injected:  # a variable that a client insists on: its header is replaced as a whole
            return frozenset((SecretPlace.HEADER, SecretPlace.BASIC))
        if self.grant.signer == "aws-sigv4":
            return frozenset((SecretPlace.HEADER,))
        return frozenset(self.grant.places)

    def means(self, host: Host, port: int) -> bool:
        return any(rule.matches(host.text, port, surely=True) for rule in self.rules)

    def may_be_quoted(self, host: Host, port: int) -> bool:
        return any(rule.matches(host.text, port, surely=True) for rule in self.quoted_to)

    def spots(self, head: RequestHead) -> frozenset[Spot]:
        """Where in a head its placeholders are."""
        if not self.placeholders:
            return frozenset()
        if self.grant.signer != "aws-sigv4":
            only = self.grant.header or ("authorization" if self.is_injected else "")
            return spots(head, self.placeholders[0], only)
        found = spots(head, self.placeholders[0], "authorization")
        if not header_of(head, b"authorization").startswith(b"AWS4-") and SecretPlace.HEADER in found:
            found = found | {ELSEWHERE}
        return found | {ELSEWHERE} if spots(head, self.placeholders[1]) else found


def _names(text: bytes) -> tuple[bytes, ...]:
    """Spellings that fit into a host name, which is how secrets leave by DNS."""
    return text.hex().encode(), base64.b32encode(text).rstrip(b"=")
