"""What a policy and a request let a box reach: rules, presets, layers that only tighten."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ringfence.errors import InvalidConfig, NetworkAccessDenied
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.policy.network import NetworkRequest, network_of
from ringfence.policy.network_clients import Clients
from ringfence.policy.network_meeting import host_covers, meet, path_covers
from ringfence.policy.network_reading import text_rules
from ringfence.policy.reach import Wanted, judge
from ringfence.policy.terms import Terms
from ringfence.values.hosts import canonical_host
from ringfence.values.network import (
    GIT_PUSH,
    GIT_READ,
    Asking,
    Budget,
    Inspection,
    NetworkDoor,
    NetworkGrant,
    NetworkRule,
    SecretGrant,
    SecretPlace,
)
from ringfence.values.verdict import Verdict


def terms(*documents: dict[str, Any], tool: str = "shell_exec") -> Terms:
    policies = [load_policy(yaml.safe_dump(document), f"p{at}.yaml") for at, document in enumerate(documents)]
    return effective(policies, tool)


def network(**section: Any) -> dict[str, Any]:
    return {"network": section}


def granted(*documents: dict[str, Any], request: NetworkRequest | None = None, **given: Any) -> NetworkGrant:
    found = network_of(terms(*documents), request, **given).grant
    assert found is not None
    return found


def asking(*texts: str, **more: Any) -> NetworkRequest:
    rules = tuple(rule for text in texts for rule in text_rules(text, Mark("", 1), "--allow", Clients()))
    return NetworkRequest(rules=rules or None, **more)


def hosts(grant: NetworkGrant) -> list[str]:
    return [rule.host for rule in grant.rules]


def fault_of(text: str) -> str:
    with pytest.raises(InvalidConfig) as caught:
        load_policy(text, "p.yaml")
    return f"{caught.value} {caught.value.hint}"


def test_a_policy_without_a_word_about_hosts_gives_no_network() -> None:
    assert network_of(terms({"policies": {"default": {"mode": "normal"}}})).grant is None
    assert network_of(None).grant is None
    assert network_of(terms(network(default="allow"))).grant is None, "which opens nothing by itself"


def test_the_section_of_the_requirements_takes_effect() -> None:
    grant = granted(
        network(
            default="none",
            allowlist={"enabled": True, "domains": ["*.example.com", "db.example.org:5432"], "ips": ["192.0.2.0/24"]},
            denylist={"enabled": True, "domains": ["*.internal.*", "10.*"], "ports": [22, 3306]},
        )
    )

    assert hosts(grant) == ["*.example.com", "db.example.org", "192.0.2.0/24"]
    assert [rule.ports for rule in grant.rules] == [(), (5432,), ()]
    assert grant.rules[2].private == ("192.0.2.0/24",), "a rule that names addresses means them"
    assert [(rule.host, rule.ports) for rule in grant.denied] == [("*.internal.*", ()), ("10.*", ()), ("*", (22, 3306))]
    assert all(rule.place.startswith("p0.yaml:") for rule in (*grant.rules, *grant.denied))


def test_a_list_that_is_switched_off_counts_for_nothing_and_an_empty_one_is_nothing() -> None:
    off = network(allowlist={"enabled": False, "domains": ["example.com"]})

    assert network_of(terms(off)).grant is None
    assert network_of(terms(network(allow=[]))).grant is None
    with pytest.raises(NetworkAccessDenied, match=r"network.allow at p0.yaml:\d"):
        network_of(terms(network(allow=[])), asking("example.com"))


def test_hosts_of_tools_are_theirs_alone() -> None:
    tools = {
        "fetch": {"network_access": True, "allowed_domains": ["docs.example.com"]},
        "shell_exec": {"network_access": False},
    }
    document = {"policies": {"tools": tools}, **network(allow=["example.com"])}

    assert network_of(terms(document)).grant is None
    fetch = network_of(terms(document, tool="fetch")).grant
    assert fetch is not None and hosts(fetch) == ["docs.example.com"]
    with pytest.raises(NetworkAccessDenied, match=r"network_access at p0\.yaml"):
        network_of(terms(document), asking("example.com"))


def test_a_rule_says_ports_methods_paths_and_the_rest() -> None:
    rule = {
        "host": "api.example.com",
        "ports": [443, 8443],
        "methods": ["get", "POST"],
        "paths": ["/v1/**"],
        "ask": "changes",
        "private": ["10.1.2.3/16"],
        "budget": {"body": "1MB", "requests_per_minute": 60, "connections": 4, "total_out": "5MB"},
    }
    (found,) = granted(network(allow=[rule])).rules

    assert found == NetworkRule(
        host="api.example.com",
        ports=(443, 8443),
        methods=("GET", "POST"),
        paths=("/v1/**",),
        asking=Asking.CHANGES,
        private=("10.1.0.0/16",),
        budget=Budget(body_bytes=1 << 20, requests_per_minute=60, connections=4, total_bytes_out=5 << 20),
        written="network.allow api.example.com",
        place="p0.yaml:9",
    )
    pinned, raw = granted(
        network(allow=[{"host": "pinned.example.com", "opaque": True}, {"host": "db.example.com:5432", "raw": True}])
    ).rules
    assert pinned.inspection is Inspection.NEVER and raw.raw and raw.ports == (5432,)


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("'*'", "allows every host"),
        ("'*.*'", "allows every host"),
        ("0.0.0.0/0", "allows every host"),
        ("{host: '*', methods: [GET]}", "allows every host"),
        ("https://example.com/x", "is a URL"),
        ("{host: a.example.com, method: [GET]}", "did you mean 'methods'?"),
        ("{methods: [GET]}", "without `host`"),
        ("{host: a.example.com, opaque: true, methods: [GET]}", "what is not looked into"),
        ("{host: a.example.com, opaque: true, inspect: true}", "`inspect` and `opaque`"),
        ("{host: a.example.com, raw: true, paths: [/x]}", "bytes that are no HTTP"),
        ("{host: 'a.example.com:80', ports: [80]}", "given twice"),
        ("{host: a.example.com, ports: [0]}", "is not a port"),
        ("{host: a.example.com, ports: []}", "`ports` is empty"),
        ("{host: a.example.com, paths: [x]}", "is not a path"),
        ("{host: a.example.com, paths: ['/x?y=1']}", "is not a path"),
        ("{host: a.example.com, methods: ['G T']}", "is not a method"),
        ("{host: a.example.com, private: ['0.0.0.0/0']}", "is every address"),
        ("{host: a.example.com, private: [corp]}", "is not a network"),
        ("{host: a.example.com, ask: perhaps}", "write true, each, changes or never"),
        ("{host: a.example.com, budget: {total: 1MB}}", "did you mean 'total_out'?"),
        ("{host: pip}", "is a preset"),
        ("pipp", "did you mean 'pip'?"),
        ("github-push", "needs ORG/REPO"),
        ("github-push ../x", "needs ORG/REPO"),
        ("pip 3", "takes nothing after its name"),
        ("git", "nothing for a policy"),
        ("[a.example.com]", "is a list"),
    ],
)
def test_what_is_wrong_is_refused_at_load_with_its_place(rule: str, says: str) -> None:
    text = fault_of(f"network:\n  allow:\n    - {rule}\n")

    assert says in text and "p.yaml:3" in text


def test_layers_only_tighten() -> None:
    organisation = network(allow=["*.example.com", {"host": "api.example.org", "methods": ["GET", "POST"]}])
    project = network(
        allow=["docs.example.com", {"host": "api.example.org", "methods": ["POST", "DELETE"]}, "evil.example.net"]
    )

    both = network_of(terms(organisation, project))
    assert both.grant is not None
    assert [(rule.host, rule.methods) for rule in both.grant.rules] == [
        ("docs.example.com", ()),
        ("api.example.org", ("POST",)),
    ]
    assert any("evil.example.net" in note for note in both.notes)
    assert network_of(terms(organisation, network(allow=[]))).grant is None
    assert hosts(granted(organisation)) == ["*.example.com", "api.example.org"]


def test_a_list_by_the_one_name_binds_one_by_the_other() -> None:
    """Else a later file could open by `network.allow` what an earlier one closes by `allowed_domains`."""
    found = network_of(
        terms({"policies": {"default": {"allowed_domains": ["a.example.com"]}}}, network(allow=["b.example.com"]))
    )

    assert found.grant is None


def test_other_settings_tighten_too() -> None:
    first = network(
        allow=["a.example.com"],
        ask_unlisted=True,
        budget={"total_out": "10MB", "connections": 8},
        private=["10.0.0.0/8"],
        reach=[5432, 6379],
        publish=[8000, "9000:19000"],
    )
    later = network(
        ask_unlisted=False,
        inspect=True,
        budget={"total_out": "1GB", "connections": 4},
        private=["10.1.0.0/16", "192.168.0.0/16"],
        reach=[5432, 22],
        publish=["9000:19000"],
    )
    grant = granted(first, later)

    assert not grant.ask_unlisted and grant.inspect_all
    assert grant.budget == Budget(total_bytes_out=10 << 20, connections=4)
    assert grant.rules[0].private == ("10.1.0.0/16",)
    assert grant.reach == (5432,) and grant.publish == ((9000, 19000),)
    alone = granted(first)
    assert alone.ask_unlisted and alone.reach == (5432, 6379) and alone.publish == ((8000, 0), (9000, 19000))


def test_a_request_is_the_last_layer() -> None:
    policy = network(allow=["*.example.com", {"host": "api.example.org", "methods": ["GET"]}])

    assert hosts(granted(policy, request=asking("docs.example.com"))) == ["docs.example.com"]
    (rule,) = granted(policy, request=asking("api.example.org")).rules
    assert rule.methods == ("GET",) and rule.written == "--allow api.example.org"
    assert len(granted(policy, request=NetworkRequest()).rules) == 2, "what it does not name stays"
    for beyond in ("evil.example.net", "example.com", "docs.example.com:22", "10.0.0.1"):
        with pytest.raises(NetworkAccessDenied, match=r"network.allow at p0.yaml:\d") as caught:
            network_of(terms(policy), asking(beyond))
        assert caught.value.hint.startswith("add ")


def test_without_a_policy_or_where_it_has_no_opinion_the_request_has_what_it_asks() -> None:
    for no_opinion in (None, terms({"policies": {"default": {"mode": "normal"}}}), terms(network(default="allow"))):
        found = network_of(no_opinion, asking("example.com:8443", reach=(5432,), publish=((80, 0),))).grant
        assert found is not None and found.rules[0].ports == (8443,)
        assert (found.reach, found.publish) == ((5432,), ((80, 0),))
    with pytest.raises(NetworkAccessDenied, match=r"network\.default at p0\.yaml"):
        network_of(terms(network(default="none")), asking("example.com"))


@pytest.mark.parametrize(
    "more", [{"reach": (22,)}, {"publish": ((22, 0),)}, {"ask_unlisted": True}, {"learn": True}], ids=str
)
def test_ports_asking_and_learning_are_closed_where_the_network_is(more: dict[str, Any]) -> None:
    with pytest.raises(NetworkAccessDenied, match=r"p0\.yaml"):
        network_of(terms(network(allow=["example.com"])), NetworkRequest(**more))
    assert network_of(None, NetworkRequest(**more)).grant is not None


def test_a_request_may_deny_and_inspect_more() -> None:
    grant = granted(
        network(allow=["*.example.com"]),
        request=NetworkRequest(denied=(HostRule.parse("x.example.com", Mark("", 1)),), inspect_all=True),
    )

    assert grant.inspect_all and [rule.host for rule in grant.denied] == ["x.example.com"]


SECRET = {"GH_TOKEN": {"hosts": ["api.github.com", "github.com"], "places": ["header", "basic"]}}


def test_secrets_are_named_by_policies_and_need_a_source() -> None:
    policy = network(allow=["api.github.com"], secrets=SECRET)

    left_out = network_of(terms(policy))
    assert left_out.grant is not None and left_out.grant.secrets == ()
    assert any("GH_TOKEN has no source" in note for note in left_out.notes)
    (secret,) = granted(policy, sources={"GH_TOKEN"}).secrets
    assert (secret.hosts, secret.variable) == (("api.github.com", "github.com"), "GH_TOKEN")
    (narrow,) = granted(
        policy, request=NetworkRequest(secrets=(SecretGrant(name="GH_TOKEN", hosts=("github.com",)),))
    ).secrets
    assert narrow.hosts == ("github.com",) and narrow.places == (SecretPlace.HEADER, SecretPlace.BASIC)
    for beyond in (
        SecretGrant(name="GH_TOKEN", hosts=("evil.example",)),
        SecretGrant(name="OTHER", hosts=("github.com",)),
    ):
        with pytest.raises(NetworkAccessDenied, match=r"network\.secrets at p0\.yaml"):
            network_of(terms(policy), NetworkRequest(secrets=(beyond,)))


def test_a_later_file_cannot_send_a_secret_elsewhere() -> None:
    later = network(secrets={"GH_TOKEN": {"hosts": ["github.com", "evil.example"], "places": ["header", "query"]}})
    (secret,) = granted(network(allow=["github.com"], secrets=SECRET), later, sources={"GH_TOKEN"}).secrets

    assert secret.hosts == ("github.com",) and secret.places == (SecretPlace.HEADER,)


def test_a_secret_opens_no_host() -> None:
    assert network_of(terms(network(secrets=SECRET)), sources={"GH_TOKEN"}).grant is None


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ("{hosts: [a.example.com], source: 'env:X'}", "does not say where"),
        ("{hosts: [a.example.com], value: hunter2}", "does not say where"),
        ("{places: [header]}", "has no hosts"),
        ("{hosts: ['*']}", "every host"),
        ("{hosts: ['a.example.com:443']}", "without its port"),
        ("{hosts: [a.example.com], places: [cookie]}", "is not a place"),
        ("{hosts: [a.example.com], style: plain}", "one of inject, placeholder"),
        ("{hosts: [a.example.com], header: 'X Y'}", "not the name of a header"),
        ("{hosts: [a.example.com], template: Bearer}", "has to hold {} once"),
        ("{hosts: [a.example.com], variable: 'A=B'}", "not the name of a variable"),
        ("{hosts: [a.example.com], signer: md5}", "one of aws-sigv4"),
        ("hunter2", "has to be a section"),
    ],
)
def test_a_secret_that_makes_no_sense_is_refused(secret: str, says: str) -> None:
    assert says in fault_of(f"network:\n  secrets:\n    KEY: {secret}\n")


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("*.example.com", "a.example.com", True),
        ("*.example.com", "*.a.example.com", True),
        ("*.example.com", "*.example.com", True),
        ("*.example.com", "example.com", False),
        ("a.example.com", "*.example.com", False),
        ("x*.example.com", "*.example.com", False),
        ("**.example.com", "*.example.com", False),  # one label, and one or more
        ("a*.example.com", "ab*.example.com", True),
        ("10.0.0.0/8", "10.1.0.0/16", True),
        ("10.*", "10.1.2.3", True),
        ("10.1.2.3", "10.*", False),
        ("*.example.com", "10.0.0.1", False),
        ("10.0.0.0/8", "a.example.com", False),
    ],
)
def test_one_pattern_covers_another_only_if_that_is_sure(wide: str, narrow: str, holds: bool) -> None:
    assert host_covers(wide, narrow) is holds


@pytest.mark.parametrize(
    ("wide", "narrow", "holds"),
    [
        ("/v1/**", "/v1/x", True),
        ("/v1/**", "/v1/*/y", True),
        ("/v1/*", "/v1/**", False),
        ("/v1/*", "/v1/a*", True),
        ("/**", "/v1/**", True),
        ("/v1/x", "/v1/*", False),
    ],
)
def test_one_path_covers_another_only_if_that_is_sure(wide: str, narrow: str, holds: bool) -> None:
    assert path_covers(wide, narrow) is holds


def test_two_rules_meet_in_what_both_allow() -> None:
    wide = NetworkRule(host="*.example.com", ports=(443, 22), raw=True, private=("10.0.0.0/8",))
    narrow = NetworkRule(host="a.example.com", methods=("GET",), inspection=Inspection.NEVER, asking=Asking.EACH)

    both = meet(wide, narrow)
    assert both == NetworkRule(
        host="a.example.com", ports=(443,), methods=("GET",), asking=Asking.EACH, private=("10.0.0.0/8",)
    )
    assert meet(wide, NetworkRule(host="b.example.org")) is None
    assert meet(wide, NetworkRule(host="a.example.com", ports=(80,))) is None
    assert meet(narrow, NetworkRule(host="a.example.com", methods=("POST",))) is None


# --- git by SSH -------------------------------------------------------------------------------------------------------


def by_ssh(**more: Any) -> dict[str, Any]:
    return network(allow=[{"host": "git.example.com", "ssh": "read", "paths": ["/org/*"], **more}])


def test_git_by_ssh_is_for_its_port_its_user_and_its_services() -> None:
    (rule,) = granted(by_ssh()).rules

    assert (rule.ports, rule.ssh_user, rule.paths) == ((22,), "git", ("/org/*",))
    assert rule.methods == GIT_READ
    (pushing,) = granted(by_ssh(ssh="push", user="forge", ports=[2222], paths=["/org/repo.git"])).rules
    assert (pushing.ports, pushing.ssh_user, pushing.paths) == ((2222,), "forge", ("/org/repo",))
    assert pushing.methods == (*GIT_READ, *GIT_PUSH)


@pytest.mark.parametrize(
    "more",
    [
        {"ssh": "write"},
        {"ssh": "true"},
        {"user": "-oProxyCommand=id"},
        {"methods": ["GET"]},
        {"raw": True},
        {"opaque": True},
        {"budget": {"body": "1MB"}},
    ],
    ids=str,
)
def test_what_makes_no_sense_for_ssh_is_refused(more: dict[str, Any]) -> None:
    assert "ssh" in fault_of(yaml.safe_dump(by_ssh(**more))) or "user" in more


def test_a_user_without_ssh_is_refused() -> None:
    assert "`user` without `ssh`" in fault_of(yaml.safe_dump(network(allow=[{"host": "a.example.com", "user": "git"}])))


def test_layers_tighten_git_by_ssh() -> None:
    (rule,) = granted(by_ssh(ssh="push"), by_ssh(paths=["/org/repo"])).rules

    assert (rule.methods, rule.paths) == (GIT_READ, ("/org/repo",))
    assert network_of(terms(by_ssh(), by_ssh(user="other"))).grant is None
    plain = {"host": "git.example.com", "ports": [22], "raw": True}
    assert network_of(terms(by_ssh(), network(allow=[plain]))).grant is None


@pytest.mark.parametrize(
    ("wanted", "verdict"),
    [
        ({"method": "GIT-UPLOAD-PACK", "path": "/org/repo", "is_ssh": True}, Verdict.ALLOW),
        ({"method": "GIT-RECEIVE-PACK", "path": "/org/repo", "is_ssh": True}, Verdict.DENY),
        ({"method": "GIT-UPLOAD-PACK", "path": "/other/repo", "is_ssh": True}, Verdict.DENY),
        ({"method": "GIT-UPLOAD-PACK", "path": "/org/repo"}, Verdict.DENY),
        ({"method": "GET", "path": "/org/repo"}, Verdict.DENY),
    ],
    ids=str,
)
def test_on_a_port_for_ssh_only_git_is_allowed(wanted: dict[str, Any], verdict: Verdict) -> None:
    grant = granted(network(allow=[*by_ssh()["network"]["allow"], {"host": "git.example.com", "ports": [22, 443]}]))

    asked = Wanted(host=canonical_host("git.example.com"), port=22, door=NetworkDoor.TRANSPARENT, **wanted)
    assert judge(grant, asked).verdict is verdict


def test_asking_about_changes_means_a_push() -> None:
    grant = granted(by_ssh(ssh="push", ask="changes"))

    def verdict(method: str) -> Verdict:
        host = canonical_host("git.example.com")
        wanted = Wanted(host=host, port=22, door=NetworkDoor.SOCKS, method=method, path="/org/a", is_ssh=True)
        return judge(grant, wanted).verdict

    assert verdict("GIT-UPLOAD-PACK") is Verdict.ALLOW
    assert verdict("GIT-RECEIVE-PACK") is Verdict.ASK


@pytest.mark.parametrize(
    ("word", "near"), [("pyp", "pip"), ("nosuchpreset", "net presets"), ("githubread", "github-read")]
)
def test_a_word_that_is_neither_a_preset_nor_a_host_is_an_error_with_the_nearest(word: str, near: str) -> None:
    with pytest.raises(InvalidConfig, match="neither a preset nor a host") as refused:
        text_rules(word, Mark("", 0), "--allow", Clients())
    assert near in refused.value.hint and f"{word}:443" in refused.value.hint


@pytest.mark.parametrize("word", ["gitlab:443", "localhost", "pip", "api.example.com"])
def test_a_host_without_a_dot_is_one_with_its_port(word: str) -> None:
    assert text_rules(word, Mark("", 0), "--allow", Clients())
