"""`Host`: the one spelling of a host's name or address, which nothing but this module makes.

Matcher, resolver, SNI check and certificates all take a `Host`, so that no two of them can mean different hosts by one
text: no trailing dot, no capitals, no NUL, no zone, `0x7f.1` is 127.0.0.1 and `::ffff:10.0.0.1` is 10.0.0.1. What two
programs could read in two ways is refused: brackets around a name, a name whose last label is a number, and the four
characters that the two editions of international names translate differently.
"""

import ipaddress
import re
from dataclasses import InitVar, dataclass
from typing import Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|[0-9]+")  # of any length: what is too long is refused, not taken as a name
_V6: Final = re.compile(r"[0-9a-fA-F:.]{2,45}")
_DEVIATIONS: Final = frozenset("\u00df\u1e9e\u03c2\u200c\u200d")  # IDNA 2003 folds them, IDNA 2008 keeps them
_MAKER: Final = object()
_LONGEST: Final = 253
_LONGEST_INPUT: Final = 1024


class BadHost(ValueError):
    """A text that can be no host; its message says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """A host name in ASCII and small letters, or an address."""

    text: str
    address: Address | None
    maker: InitVar[object]
    """Not kept, so that neither `dataclasses.replace` nor a look at another `Host` gives it away."""

    def __post_init__(self, maker: object) -> None:
        if maker is not _MAKER:
            raise TypeError("only canonical_host makes a Host")

    def __str__(self) -> str:
        return self.text

    @property
    def in_url(self) -> str:
        return f"[{self.text}]" if isinstance(self.address, ipaddress.IPv6Address) else self.text


def canonical_host(text: str) -> Host:
    """The host that `text` means to whoever would connect to it.

    Raises:
        BadHost: none; it holds what no host name holds, or can be read in two ways.
    """
    if not text:
        raise BadHost("there is no host")
    if len(text) > _LONGEST_INPUT:
        raise BadHost("the name is too long")
    in_brackets = text[0] == "[" and text[-1] == "]"
    bare = text[1:-1] if in_brackets else text
    if "%" in bare and ":" in bare:
        raise BadHost("an address with a zone")
    if in_brackets or ":" in bare:
        if not _V6.fullmatch(bare):
            raise BadHost("neither a name nor an address")
        return _v6(bare)
    return _name_or_v4(bare)


def host_of(address: Address) -> Host:
    """An address as a host; one that only carries an IPv4 address is that."""
    if isinstance(address, ipaddress.IPv6Address):
        plain: Address = address.ipv4_mapped or ipaddress.IPv6Address(int(address))  # the number has no zone
    else:
        plain = address
    return Host(str(plain), plain, _MAKER)


def _v6(text: str) -> Host:
    try:
        return host_of(ipaddress.IPv6Address(text))
    except ValueError:
        raise BadHost("neither a name nor an address") from None


def _name_or_v4(text: str) -> Host:
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in text):
        raise BadHost("it holds a blank or a control character")
    name = _ascii(text).removesuffix(".")
    if not name:
        raise BadHost("there is no host")
    if len(name) > _LONGEST:
        raise BadHost("the name is too long")
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        return host_of(_old_address(labels))
    if not all(map(_LABEL.fullmatch, labels)):
        raise BadHost("a label of it is empty, too long, or holds a character that no host name holds")
    return Host(name, None, _MAKER)


def _ascii(name: str) -> str:
    if name.isascii():
        return name.lower()
    if _DEVIATIONS.intersection(name):
        raise BadHost("it holds a character that old and new programs translate differently")
    try:
        made = name.encode("idna").decode("ascii").lower()
    except UnicodeError:  # also a label that is empty or too long, and what Unicode has added since
        raise BadHost("it is no international name") from None
    return made


def _old_address(labels: list[str]) -> ipaddress.IPv4Address:
    """An IPv4 address in the spellings of inet_aton(3): `127.1`, `0x7f.0.1`, `017700000001`."""
    if len(labels) > 4 or not all(map(_NUMBER.fullmatch, labels)):
        raise BadHost("its last label is a number, and it is no address")
    if any(len(label) > 12 for label in labels):
        raise BadHost("neither a name nor an address")
    try:
        numbers = [_number(label) for label in labels]
    except ValueError:
        raise BadHost("neither a name nor an address") from None
    *heads, last = numbers
    if any(head > 255 for head in heads) or last >= 256 ** (4 - len(heads)):
        raise BadHost("neither a name nor an address")
    value = last
    for index, head in enumerate(heads):
        value += head << (24 - 8 * index)
    return ipaddress.IPv4Address(value)


def _number(label: str) -> int:
    if label.startswith("0x"):
        return int(label[2:] or "0", 16)
    return int(label, 8 if label.startswith("0") and len(label) > 1 else 10)
