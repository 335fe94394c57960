"""Host rules: names with wildcards, addresses in every spelling, networks, ports."""

from __future__ import annotations

import pytest

from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule, normal_host
from ringfence.policy.judging import on_host
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.values.facts import HostFact, Span
from ringfence.values.verdict import Verdict

HERE = Mark("p.yaml", 1)


def matches(rule: str, host: str, port: int | None = 443, *, surely: bool = True) -> bool:
    return HostRule.parse(rule, HERE).matches(normal_host(host), port, surely=surely)


@pytest.mark.req("B5")
@pytest.mark.parametrize(
    ("rule", "host"),
    [
        ("api.example.com", "API.example.com."),
        ("*.example.com", "a.example.com"),
        ("*.example.com", "a.b.example.com"),
        ("*.internal.*", "db.internal.corp"),
        ("api-*.example.com", "api-7.example.com"),
        ("bücher.de", "xn--bcher-kva.de"),
        ("127.*", "127.0.0.1"),
        ("127.*", "127.1"),
        ("127.*", "0x7f000001"),
        ("127.*", "2130706433"),
        ("127.*", "0177.0.0.1"),
        ("127.*", "[::ffff:127.0.0.1]"),
        ("10.0.0.0/8", "10.200.3.4"),
        ("::1", "[::1]"),
        ("fe80::/10", "fe80::1%eth0"),
        ("localhost", "127.0.0.5"),
        ("localhost", "::1"),
        ("example.com:443", "example.com"),
    ],
)
def test_a_rule_matches_every_spelling_of_its_host(rule: str, host: str) -> None:
    assert matches(rule, host)


@pytest.mark.parametrize(
    ("rule", "host"),
    [
        ("*.example.com", "example.com"),
        ("*.example.com", "evil-example.com"),
        ("*.example.com", "a.example.com.evil.net"),
        ("example.com", "examplexcom"),
        ("api-*.example.com", "api-7.evil.example.com"),
        ("10.*", "10.evil.net"),
        ("10.0.0.0/8", "11.0.0.1"),
        ("example.com:80", "example.com"),
    ],
)
def test_a_rule_spares_other_hosts(rule: str, host: str) -> None:
    assert not matches(rule, host)


def test_a_port_that_is_not_known_is_denied_and_not_allowed() -> None:
    assert matches("example.com:22", "example.com", None, surely=False)
    assert not matches("example.com:22", "example.com", None)


POLICY = """
policies: {default: {network_access: true}}
network:
  default: none
  allowlist: {enabled: true, domains: ["*.example.com", localhost], ips: [192.0.2.0/24]}
  denylist: {enabled: true, domains: ["*.internal.*", "127.*", "secret.example.com"], ports: [22]}
"""


def verdict(host: str, port: int | None = 443, text: str = POLICY) -> Verdict:
    terms = effective((load_policy(text, "p.yaml"),), "fetch")
    return max(
        (vote.verdict for vote in on_host(terms, HostFact(host, port, Span(0, 0), "fetch"))), default=Verdict.ALLOW
    )


@pytest.mark.req("B5")
def test_deny_beats_allow_and_what_no_list_names_is_refused() -> None:
    assert verdict("www.example.com") is Verdict.ALLOW
    assert verdict("192.0.2.7") is Verdict.ALLOW
    assert verdict("secret.example.com") is Verdict.DENY
    assert verdict("www.example.com", 22) is Verdict.DENY
    assert verdict("127.0.0.1") is Verdict.DENY
    assert verdict("example.org") is Verdict.DENY


def test_an_empty_allow_list_allows_no_host() -> None:
    for text in ("network: {allowlist: {enabled: true}}", "policies: {default: {allowed_domains: []}}"):
        assert verdict("www.example.com", text=text) is Verdict.DENY


def test_a_list_that_is_switched_off_does_not_count() -> None:
    assert verdict("10.0.0.1", text="network: {denylist: {enabled: false, domains: ['10.*']}}") is Verdict.ALLOW


def test_no_network_access_beats_every_list() -> None:
    assert (
        verdict("www.example.com", text=POLICY.replace("network_access: true", "network_access: false")) is Verdict.DENY
    )
