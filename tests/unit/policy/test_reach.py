"""The judge: who may be reached, by which rule, and what would allow the rest."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidConfig
from ringfence.policy.reach import Judged, Wanted, check_network, judge, judge_addresses
from ringfence.policy.reach_rules import ANY_PORT, fault_of
from ringfence.values.hosts import canonical_host
from ringfence.values.network import (
    Asking,
    Budget,
    DenyRule,
    Inspection,
    NetworkDoor,
    NetworkGrant,
    NetworkRule,
    SecretGrant,
)
from ringfence.values.verdict import Verdict

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY


def rule(host: str, **more: object) -> NetworkRule:
    return NetworkRule(host=host, **more)  # type: ignore[arg-type]


def wants(network: NetworkGrant, host: str, port: int = 443, **more: object) -> Judged:
    door = more.pop("door", NetworkDoor.CONNECT)
    return judge(network, Wanted(host=canonical_host(host), port=port, door=door, **more))  # type: ignore[arg-type]


def test_an_empty_grant_is_nothing() -> None:
    judged = wants(NetworkGrant(), "example.com")
    assert judged.verdict is DENY and judged.allow_by == "--allow example.com:443"


def test_a_name_alone_is_for_the_web() -> None:
    network = NetworkGrant(rules=(rule("example.com"),))
    assert [wants(network, "example.com", port).verdict for port in (80, 443, 22, 8080)] == [ALLOW, ALLOW, DENY, DENY]
    assert wants(network, "example.com", 22).allow_by == "--allow example.com:22"


def test_a_rule_that_names_the_host_counts_before_a_wildcard() -> None:
    network = NetworkGrant(rules=(rule("*.example.com"), rule("files.example.com", ports=(443,))))
    assert wants(network, "files.example.com", 80).verdict is DENY
    assert wants(network, "other.example.com", 80).verdict is ALLOW
    twin = NetworkGrant(rules=(rule("*.example.com"),))
    assert wants(twin, "files.example.com", 80).verdict is ALLOW


def test_deny_beats_allow() -> None:
    rules = (rule("*.example.com"),)
    network = NetworkGrant(rules=rules, denied=(DenyRule(host="bad.example.com", place="p.yaml:3"),))
    judged = wants(network, "bad.example.com")
    assert (judged.verdict, judged.place, judged.allow_by) == (DENY, "p.yaml:3", "")
    assert wants(NetworkGrant(rules=rules), "bad.example.com").verdict is ALLOW


@pytest.mark.parametrize("mode", ["ask_unlisted", "learn"])
def test_neither_asking_nor_learning_goes_over_deny(mode: str) -> None:
    network = NetworkGrant(denied=(DenyRule(host="*.bad.com", ports=(443,)),), **{mode: True})  # type: ignore[arg-type]
    assert wants(network, "x.bad.com").verdict is DENY
    assert wants(network, "x.good.com").verdict is (ASK if mode == "ask_unlisted" else ALLOW)
    assert wants(network, "metadata.google.internal", 80).verdict is DENY


def test_a_deny_rule_that_cannot_be_read_denies_all() -> None:
    assert wants(NetworkGrant(rules=(rule("a.com"),), denied=(DenyRule(host="https://"),)), "a.com").verdict is DENY


@pytest.mark.parametrize(
    "host", ["*", "*.", "", " ", "**", "*.*", "*:443", "https://a.com/", "a.com/x", "0.0.0.0/0", "::/0", "*.*.*", "a.*"]
)
def test_patterns_that_mean_nearly_all_or_nothing_are_refused_and_match_nothing(host: str) -> None:
    network = NetworkGrant(rules=(rule(host),))
    assert fault_of(network.rules[0])
    with pytest.raises(InvalidConfig):
        check_network(network)
    assert wants(network, "evil.com").verdict is DENY


@pytest.mark.parametrize(
    "more", [{"ports": (0,)}, {"methods": ("get",)}, {"paths": ("x",)}, {"private": ("ten",)}, {"private": ("a.com",)}]
)
def test_rules_that_cannot_be_held_are_refused(more: dict[str, object]) -> None:
    assert fault_of(rule("a.com", **more))


@pytest.mark.parametrize("host", ["localhost", "x.localhost", "metadata.google.internal", "instance-data"])
def test_names_of_the_machine_need_a_rule_of_their_own(host: str) -> None:
    wide = NetworkGrant(rules=(rule("*.internal"), rule("*.localhost"), rule("*.google.internal"), rule("*-data.com")))
    assert wants(wide, host).verdict is DENY
    assert wants(NetworkGrant(rules=(rule(host),)), host).verdict is ALLOW


def test_methods_and_paths_are_decided_on_the_request() -> None:
    network = NetworkGrant(rules=(rule("a.com", methods=("GET",), paths=("/simple/**",)),))
    tunnel = wants(network, "a.com")
    assert tunnel.verdict is ALLOW and tunnel.inspect
    assert wants(network, "a.com", method="GET", path="/simple/x").verdict is ALLOW
    posted = wants(network, "a.com", method="POST", path="/simple/x")
    assert posted.verdict is DENY and "methods: [POST]" in posted.allow_by and "ports: [443]" in posted.allow_by
    elsewhere = wants(network, "a.com", method="GET", path="/x")
    assert elsewhere.verdict is DENY and 'paths: ["/x"]' in elsewhere.allow_by
    assert wants(network, "a.com", method="GET", path="/simple/%2e%2e/x").verdict is DENY
    assert wants(NetworkGrant(rules=(rule("a.com"),)), "a.com", method="GET", path="/%2e%2e/x").verdict is ALLOW


def test_rules_of_one_host_add_up() -> None:
    network = NetworkGrant(rules=(rule("a.com", methods=("GET",)), rule("a.com", methods=("POST",), paths=("/up",))))
    assert wants(network, "a.com", method="POST", path="/up").verdict is ALLOW
    assert wants(network, "a.com", method="POST", path="/down").verdict is DENY
    assert wants(network, "a.com", method="GET", path="/down").verdict is ALLOW


def test_inspection_is_where_it_is_needed() -> None:
    secret = SecretGrant(name="token", hosts=("api.com",))
    network = NetworkGrant(rules=(rule("a.com"), rule("api.com"), rule("b.com", budget=Budget(body_bytes=1))))
    assert [wants(network, host).inspect for host in ("a.com", "api.com", "b.com")] == [False, False, True]
    with_secret = NetworkGrant(rules=network.rules, secrets=(secret,))
    assert [wants(with_secret, host).inspect for host in ("a.com", "api.com")] == [False, True]
    opaque = NetworkGrant(rules=(rule("api.com", inspection=Inspection.NEVER),), secrets=(secret,))
    assert not wants(opaque, "api.com").inspect
    assert wants(NetworkGrant(rules=opaque.rules, inspect_all=True), "api.com").inspect


def test_a_secret_opens_no_host() -> None:
    assert wants(NetworkGrant(secrets=(SecretGrant(name="t", hosts=("api.com",)),)), "api.com").verdict is DENY


def test_raw_bytes_need_a_raw_rule() -> None:
    closed = NetworkGrant(rules=(rule("db.com", ports=(5432,)),))
    judged = wants(closed, "db.com", 5432, is_raw=True)
    assert judged.verdict is DENY and "raw: true" in judged.allow_by
    opened = NetworkGrant(rules=(rule("db.com", ports=(5432,), raw=True),))
    assert wants(opened, "db.com", 5432, is_raw=True).verdict is ALLOW
    assert wants(NetworkGrant(rules=opened.rules, inspect_all=True), "db.com", 5432, is_raw=True).verdict is DENY
    narrowed = NetworkGrant(rules=(rule("db.com", ports=(5432,), raw=True, methods=("GET",)),))
    assert wants(narrowed, "db.com", 5432, is_raw=True).verdict is DENY


def test_asking_of_rules() -> None:
    network = NetworkGrant(rules=(rule("e.com", asking=Asking.EACH), rule("c.com", asking=Asking.CHANGES)))
    assert wants(network, "e.com").verdict is ASK
    assert wants(network, "e.com", ANY_PORT, door=NetworkDoor.DNS).verdict is ALLOW
    assert wants(network, "c.com", method="GET", path="/").verdict is ALLOW
    assert wants(network, "c.com", method="PUT", path="/").verdict is ASK
    assert wants(network, "c.com").verdict is ALLOW and wants(network, "c.com").inspect


def test_ports_of_the_host_are_opened_one_by_one() -> None:
    network = NetworkGrant(reach=(5173,))
    assert wants(network, "127.0.0.1", 5173).verdict is ALLOW
    assert wants(network, "localhost", 5173).verdict is ALLOW
    assert wants(network, "127.0.0.1", 5174).verdict is DENY
    assert wants(network, "127.0.0.2", 5173).verdict is DENY
    assert wants(NetworkGrant(), "127.0.0.1", 5173).verdict is DENY


CLOSED = [
    *("127.0.0.1", "127.9.9.9", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "169.254.170.2", "169.254.42.42", "100.64.0.1", "100.100.100.200", "168.63.129.16"),
    *("192.0.0.192", "192.0.2.1", "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.7", "224.0.0.1"),
    *("239.255.255.255", "240.0.0.1", "255.255.255.255", "::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd12::1"),
    *("fd00:ec2::254", "fd20:ce::254", "ff02::1", "::ffff:10.0.0.1", "::10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
    *("64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2001::1", "2001:db8::1", "::ffff:0:10.0.0.1", "2002:808:808::1", "100::1"),
    *("2606:4700::5efe:a00:1", "3fff::1", "5f00::1", "192.88.99.1"),
]
OPEN = ["93.184.216.34", "1.1.1.1", "8.8.8.8", "172.32.0.1", "2606:4700::1111", "64:ff9b::808:808", "100.128.0.1"]


def addresses(judged_rule: NetworkRule, *answers: str, **more: object) -> Judged:
    found = tuple(map(ipaddress.ip_address, answers))
    network = NetworkGrant(rules=(judged_rule,), denied=more.pop("denied", ()))  # type: ignore[arg-type]
    return judge_addresses(network, judged_rule, canonical_host("a.com"), found, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("address", CLOSED)
def test_addresses_that_are_not_global_are_refused_and_so_is_a_mixture(address: str) -> None:
    assert addresses(rule("a.com"), address).verdict is DENY
    assert addresses(rule("a.com"), "93.184.216.34", address).verdict is DENY


@pytest.mark.parametrize("address", OPEN)
def test_global_addresses_pass(address: str) -> None:
    assert addresses(rule("a.com"), address).verdict is ALLOW


def test_no_answer_is_a_refusal() -> None:
    assert addresses(rule("a.com")).verdict is DENY


def test_a_rule_opens_private_networks_and_never_the_machine() -> None:
    closed = addresses(rule("a.com"), "10.1.2.3")
    assert 'private: ["10.1.2.3"]' in closed.allow_by
    opened = rule("a.com", private=("10.1.0.0/16", "0.0.0.0/0", "::/0"))
    assert addresses(opened, "10.1.2.3", "fd12::1").verdict is ALLOW
    for never in ("127.0.0.1", "::1", "169.254.169.254", "100.100.100.200", "0.0.0.0", "fe80::1", "224.0.0.1"):
        judged = addresses(opened, never)
        assert judged.verdict is DENY and not judged.allow_by
    assert addresses(opened, "64:ff9b::7f00:1").verdict is DENY


def test_our_own_addresses_are_refused_even_if_they_are_global() -> None:
    own = frozenset({ipaddress.ip_address("93.184.216.34")})
    opened = rule("a.com", private=("93.184.0.0/16",))
    assert addresses(opened, "93.184.216.34", own=own).verdict is DENY
    assert addresses(opened, "::ffff:93.184.216.34", own=own).verdict is DENY
    assert addresses(opened, "93.184.216.34").verdict is ALLOW


def test_denied_networks_hold_for_what_a_name_resolves_to() -> None:
    denied = (DenyRule(host="93.184.0.0/16", ports=(443,)),)
    assert addresses(rule("a.com"), "93.184.216.34", denied=denied, port=443).verdict is DENY
    assert addresses(rule("a.com"), "93.184.216.34", denied=denied, port=80).verdict is ALLOW


@given(st.integers(0, 2**32 - 1))
def test_no_carrier_makes_a_closed_address_open(number: int) -> None:
    plain = ipaddress.IPv4Address(number)
    if addresses(rule("a.com"), str(plain)).verdict is DENY:
        for carrier in (0xFFFF << 32, 0x64FF9B << 96, 0x2002 << 112, 0):
            shift = 80 if carrier == 0x2002 << 112 else 0
            carried = ipaddress.IPv6Address(carrier | (number << shift))
            assert addresses(rule("a.com"), str(carried)).verdict is DENY


@given(st.ip_addresses())
def test_what_passes_is_global(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    if addresses(rule("a.com"), str(address)).verdict is ALLOW:
        assert address.is_global or str(address).startswith("64:ff9b::")
        assert not (address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified)


NEVER_BY_NAME = (
    "127.0.0.1",
    "127.8.9.1",
    "[::1]",
    "169.254.169.254",
    "[fe80::1]",
    "[fd00:ec2::254]",
    "100.100.100.200",
)


def at_itself(network: NetworkGrant, host: str, *own: str) -> Judged:
    named = canonical_host(host)
    judged = judge(network, Wanted(host=named, port=443, door=NetworkDoor.CONNECT))
    assert judged.matched is not None and named.address is not None
    return judge_addresses(
        network, judged.matched, named, (named.address,), port=443, own=frozenset(map(ipaddress.ip_address, own))
    )


@pytest.mark.parametrize("host", ["10.0.0.1", "192.168.7.9", "[fc00::1]"])
def test_a_private_address_that_a_rule_names_outright_is_open(host: str) -> None:
    assert at_itself(NetworkGrant(rules=(rule(host),)), host).verdict is ALLOW
    assert at_itself(NetworkGrant(rules=(rule(host),)), host, host.strip("[]")).verdict is DENY  # ours


@pytest.mark.parametrize("host", NEVER_BY_NAME)
def test_no_rule_opens_the_machine_or_metadata(host: str) -> None:
    network = NetworkGrant(rules=(rule(host, private=("0.0.0.0/0", "::/0")),))
    assert at_itself(network, host).verdict is DENY


@pytest.mark.parametrize("host", ["10.0.0.0/24", "10.0.0.*"])
def test_a_wider_rule_opens_no_private_address(host: str) -> None:
    assert at_itself(NetworkGrant(rules=(rule(host),)), "10.0.0.1").verdict is DENY


@pytest.mark.parametrize("mode", ["learn", "ask_unlisted"])
def test_a_rule_that_nobody_wrote_opens_no_private_address(mode: str) -> None:
    assert at_itself(NetworkGrant(**{mode: True}), "10.0.0.1").verdict is DENY  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", ["::ffff:93.184.216.34", "64:ff9b::5db8:d822", "93.184.216.34"])
def test_a_denied_network_is_denied_in_every_carrier(answer: str) -> None:
    wide = rule("*.example.com")
    host, answers = canonical_host("a.example.com"), (ipaddress.ip_address(answer),)
    denied = NetworkGrant(rules=(wide,), denied=(DenyRule(host="93.184.216.0/24"),))
    assert judge_addresses(denied, wide, host, answers, port=443).verdict is DENY
    assert judge_addresses(NetworkGrant(rules=(wide,)), wide, host, answers, port=443).verdict is ALLOW


@pytest.mark.parametrize("host", ["0x7f.1", "2130706433", "127.1", "[::ffff:93.184.216.34]", "::ffff:93.184.216.0/120"])
def test_an_address_in_a_spelling_that_no_host_has_is_no_rule(host: str) -> None:
    """A rule that denies it would deny nothing."""
    assert "write that" in fault_of(DenyRule(host=host)) and "write that" in fault_of(rule(host))
    with pytest.raises(InvalidConfig):
        check_network(NetworkGrant(denied=(DenyRule(host=host),)))
    assert not fault_of(DenyRule(host="127.0.0.1")) and not fault_of(DenyRule(host="93.184.216.0/24"))
