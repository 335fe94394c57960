"""One spelling of a host: whatever a text could mean to somebody who connects, it means one thing here, or nothing."""

import dataclasses
import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.values.hosts import BadHost, Host, canonical_host, host_of

SAME = [
    ("EXAMPLE.com", "example.com"),
    ("example.com.", "example.com"),
    ("\uff45xample.com", "example.com"),
    ("example。com", "example.com"),
    ("bücher.example", "xn--bcher-kva.example"),
    ("127.1", "127.0.0.1"),
    ("0177.0.0.1", "127.0.0.1"),
    ("0x7f.1", "127.0.0.1"),
    ("2130706433", "127.0.0.1"),
    ("017700000001", "127.0.0.1"),
    ("\uff11\uff12\uff17.0.0.1", "127.0.0.1"),
    ("[::ffff:127.0.0.1]", "127.0.0.1"),
    ("::ffff:7f00:1", "127.0.0.1"),
    ("[::1]", "::1"),
    ("0:0:0:0:0:0:0:1", "::1"),
    ("_dmarc.example.com", "_dmarc.example.com"),
]

BAD = [
    *("", ".", "..", "a..b", ".example.com", "example.com..", "exam ple.com", "evil.com\0.example.com", "a\tb.com"),
    *("evil.com/x", "evil.com\\x", "a@b", "a#b", "a?b", "a%b", "%65vil.com", "a:b", "example.com:443", "[example.com]"),
    *("[127.0.0.1]", "[::1", "::1]", "[[::1]]", "[]", "[fe80::1%25eth0]", "fe80::1%eth0", "::ffff:1.2.3", ":::"),
    *("1.2.3.4.5", "256.1.1.1", "08.1.1.1", "1.2.3.256", "4294967296", "123456789012345", "0xfffffffff", "foo.123"),
    *("foo.0x1f", "-a.com", "a-.com", "a" * 64 + ".com", "a." * 127 + "aa", "a" * 2000, "faß.de", "a\u200db.com"),
    *("℀.com", "exa\u2028mple.com", "example.com\n", "\u00a0example.com", "*.example.com", "x,y.com", "a\x7f.com"),
]


@pytest.mark.parametrize(("text", "canonical"), SAME)
def test_spellings_of_one_host_are_one_host(text: str, canonical: str) -> None:
    assert canonical_host(text).text == canonical


@pytest.mark.parametrize("text", BAD)
def test_what_two_programs_could_read_in_two_ways_is_no_host(text: str) -> None:
    with pytest.raises(BadHost):
        canonical_host(text)


def test_a_look_alike_is_another_host() -> None:
    assert canonical_host("ex\u0430mple.com") != canonical_host("example.com")


def test_nothing_else_makes_a_host() -> None:
    host = canonical_host("example.com")
    with pytest.raises(TypeError):
        Host("evil.com", None, object())
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(host, text="evil.com")
    assert not hasattr(host, "maker") or not callable(getattr(host, "maker", None))


def test_a_zone_does_not_survive() -> None:
    assert host_of(ipaddress.IPv6Address("fe80::1%eth0")).text == "fe80::1"


@given(st.text(max_size=80))
def test_a_host_is_its_own_spelling(text: str) -> None:
    try:
        host = canonical_host(text)
    except BadHost:
        return
    assert host.text.isascii() and host.text == host.text.lower() and len(host.text) <= 253
    assert canonical_host(host.text) == host
    assert not set(host.text) & set("/\\@#?%[] \0\r\n\t*")
    assert (host.address is None) == (":" not in host.text and not host.text.rpartition(".")[2].isdigit())


@given(st.text(alphabet="0123456789abcdefx.", min_size=1, max_size=24))
def test_an_address_is_what_the_c_library_would_dial(text: str) -> None:
    """Whatever inet_aton takes is that address, or nothing; never a name, which would be matched as one."""
    try:
        packed = socket.inet_aton(text)
    except OSError:
        return
    try:
        host = canonical_host(text)
    except BadHost:
        return
    assert host.address == ipaddress.IPv4Address(packed)


@given(st.integers(0, 2**32 - 1))
def test_mapped_addresses_are_the_address(number: int) -> None:
    plain = ipaddress.IPv4Address(number)
    assert canonical_host(f"[::ffff:{plain}]") == canonical_host(str(plain)) == canonical_host(hex(number))
    assert canonical_host(str(number)).address == plain


@given(st.integers(0, 2**128 - 1))
def test_every_v6_spelling_is_one(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    assert canonical_host(address.exploded) == canonical_host(f"[{address.compressed.upper()}]")
