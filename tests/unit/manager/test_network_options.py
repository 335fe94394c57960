"""`network=` of sandboxes: what it may be, and the grant that comes of it with and without a policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ringfence import (
    InvalidArgument,
    Network,
    NetworkAccessDenied,
    NetworkMode,
    SandboxBuilder,
    SandboxOptions,
    WrongType,
)
from ringfence.manager import network_granting
from ringfence.manager.granting import make_grant
from ringfence.manager.hiding import Caller
from ringfence.manager.policing import PolicyEngine
from ringfence.policy.config import SandboxConfig, parse_config
from ringfence.policy.terms import Terms
from ringfence.values.grant import Grant


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(network_granting, "own_addresses", lambda hosts: {})
    return tmp_path / "home"


def make(
    home: Path, network: Any = None, policy: str = "", config: SandboxConfig | None = None, **environ: str
) -> tuple[Grant, tuple[str, ...]]:
    terms: Terms | None = PolicyEngine.from_text(policy, "p.yaml").terms() if policy else None
    caller = Caller(environ, str(home), home / "state")
    options = SandboxOptions(workspace=home.parent / "work", network=network)
    return make_grant(options, config or SandboxConfig(), caller, {}, terms)


def hosts(grant: Grant) -> list[str]:
    assert grant.network is not None
    return [rule.host for rule in grant.network.rules]


@pytest.mark.req("A5")
@pytest.mark.parametrize("nothing", [None, "off", NetworkMode.OFF, [], Network()])
def test_without_a_host_there_is_no_network(home: Path, nothing: Any) -> None:
    assert make(home, nothing)[0].network is None


def test_a_list_of_hosts_and_presets_is_a_network(home: Path) -> None:
    grant, _ = make(home, ["api.example.com:8443", "github-push Org/repo"])

    assert hosts(grant)[0] == "api.example.com" and "api.github.com" in hosts(grant)
    assert grant.network is not None and grant.network.rules[0].ports == (8443,)
    assert grant.network.rules[0].written == "network api.example.com:8443"


def test_a_network_says_the_rest(home: Path) -> None:
    network = Network(
        allow=[{"host": "api.example.com", "methods": ["GET"], "paths": "/v1/**", "ask": True}],
        deny=["x.example.com"],
        publish=[8000, "9000:19000"],
        reach=[5432],
        ask=True,
        inspect=True,
    )
    found = make(home, network)[0].network

    assert found is not None and found.rules[0].methods == ("GET",)
    assert (found.publish, found.reach) == (((8000, 0), (9000, 19000)), (5432,))
    assert found.ask_unlisted and found.inspect_all and found.denied[0].host == "x.example.com"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("pip", "network is 'pip'"),
        (["*"], "allows every host"),
        (["*.*"], "allows every host"),
        (["https://example.com/"], "is a URL"),
        (["pipp"], "did you mean"),
        (["github-push"], "needs ORG/REPO"),
        ({"allow": []}, "network is of type dict"),
        (7, "network is of type int"),
        ([7], "is of type int"),
        ([{"host": "a.example.com", "port": 1}], "did you mean 'ports'"),
    ],
)
def test_what_makes_no_sense_is_refused_where_it_is_made(given: Any, says: str) -> None:
    with pytest.raises((InvalidArgument, WrongType)) as caught:
        SandboxOptions(network=given)
    assert says in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    "wrong",
    [
        {"allow": "pip"},
        {"reach": [0]},
        {"reach": ["22"]},
        {"publish": ["x"]},
        {"publish": [70000]},
        {"deny": ["https://x"]},
        {"secrets": ["=env:X@h"]},
        {"secrets": "A=env:A@h"},
    ],
    ids=str,
)
def test_a_network_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((InvalidArgument, WrongType)):
        Network(**wrong)


def test_a_policy_is_in_force_for_whoever_asks_for_nothing_and_bounds_who_does(home: Path) -> None:
    policy = "network:\n  allow: ['*.example.com', pypi.org]\n"

    assert hosts(make(home, None, policy)[0]) == ["*.example.com", "pypi.org"]
    assert hosts(make(home, ["pypi.org"], policy)[0]) == ["pypi.org"]
    assert make(home, "off", policy)[0].network is None
    with pytest.raises(NetworkAccessDenied, match=r"evil.example.net.*network.allow at p.yaml:2"):
        make(home, ["evil.example.net"], policy)
    assert hosts(make(home, ["evil.example.net"])[0]) == ["evil.example.net"], "the guard is the policy"


def test_a_preset_brings_the_persons_own_mirror_along(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = home / "packages" / "simple"
    packages.mkdir(parents=True)
    looked: list[str] = []

    def addresses(names: Any) -> dict[str, tuple[str, ...]]:
        looked.extend(names)
        return {name: ("10.1.2.3/32",) for name in names}

    monkeypatch.setattr(network_granting, "own_addresses", addresses)
    environ = {
        "PIP_INDEX_URL": "https://mirror.corp/simple",
        "PIP_EXTRA_INDEX_URL": f"file://{packages} http://localhost:3141/s",
        "PIP_FIND_LINKS": "/does/not/exist",
        "PIP_CONFIG_FILE": "/dev/null",
    }
    grant, notes = make(home, ["pip", "other.corp"], **environ)

    assert hosts(grant) == ["mirror.corp", "other.corp"] and looked == ["mirror.corp"]
    assert grant.network is not None and grant.network.rules[0].private == ("10.1.2.3/32",)
    assert grant.network.rules[1].private == (), "only a host of the person's own clients"
    assert grant.network.reach == (3141,)
    assert packages.parent in grant.readable
    assert ("PIP_INDEX_URL", "https://mirror.corp/simple") in grant.env
    assert any("/does/not/exist" in note for note in notes)


def test_a_preset_of_a_policy_does_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("npm_config_registry", "https://npm.corp/r/")
    monkeypatch.setenv("HOME", str(home))
    grant, _ = make(home, None, "network: {allow: [npm]}", npm_config_registry="https://npm.corp/r/")

    assert set(hosts(grant)) == {"npm.corp"}
    assert ("npm_config_registry", "https://npm.corp/r/") in grant.env


def test_a_mirror_that_the_policy_does_not_let_be_read_is_left_out_and_said(home: Path) -> None:
    packages = home / "packages"
    packages.mkdir()
    policy = "policies: {default: {filesystem_access: workspace_only}}\nnetwork: {allow: [pip]}"
    grant, notes = make(home, None, policy, PIP_FIND_LINKS=str(packages), PIP_CONFIG_FILE="/dev/null")

    assert packages not in grant.readable and any("filesystem.read" in note for note in notes)


def test_callers_variables_beat_those_of_a_preset(home: Path) -> None:
    options = SandboxOptions(workspace=home.parent / "work", network=["pip"], env={"PIP_INDEX_URL": "mine"})
    environ = {"PIP_INDEX_URL": "https://mirror.corp/simple", "PIP_CONFIG_FILE": "/dev/null"}
    grant, _ = make_grant(options, SandboxConfig(), Caller(environ, str(home), home / "state"), {})

    assert dict(grant.env)["PIP_INDEX_URL"] == "mine"


def test_a_secret_comes_from_the_caller_or_from_the_persons_own_configuration(home: Path) -> None:
    policy = "network:\n  allow: [api.example.com]\n  secrets: {KEY: {hosts: [api.example.com]}}\n"
    config = parse_config('{"network": {"secrets": {"KEY": "env:MY_KEY", "OTHER": "env:X"}}}', "sandbox.json")

    typed = make(home, Network(secrets=["KEY=env:MY_KEY"]), policy)[0].network
    configured = make(home, None, policy, config)[0].network
    nobody, notes = make(home, None, policy)
    for found in (typed, configured):
        assert found is not None and [(one.name, one.hosts) for one in found.secrets] == [("KEY", ("api.example.com",))]
    assert nobody.network is not None and nobody.network.secrets == ()
    assert any("KEY has no source" in note for note in notes)
    with pytest.raises(NetworkAccessDenied, match="secret KEY"):
        make(home, Network(secrets=["KEY=env:MY_KEY@evil.example"]), policy)


def test_a_secret_for_a_host_that_nothing_allows_opens_none_and_is_said(home: Path) -> None:
    grant, notes = make(home, Network(allow=["b.example.com"], secrets=["KEY=env:MY_KEY@a.example.com"]))

    assert hosts(grant) == ["b.example.com"] and any("opens no host" in note for note in notes)
    assert make(home, Network(secrets=["KEY=env:MY_KEY@a.example.com"]))[0].network is None


def test_a_secret_is_in_no_repr_of_the_options() -> None:
    assert "hunter2" not in repr(SandboxOptions(network=Network(secrets=["KEY=env:hunter2@a.example.com"])))


@pytest.mark.parametrize("text", ['{"KEY": 7}', '{"K Y": "env:X"}', '{"KEY": " "}', '["KEY"]'])
def test_sources_that_make_no_sense_do_not_count(text: str) -> None:
    try:
        config = parse_config(f'{{"network": {{"secrets": {text}}}}}', "sandbox.json")
    except Exception as fault:  # either answer of the configuration is right
        assert type(fault).__name__ == "InvalidConfig"
    else:
        assert config.secrets == () and config.warnings


def test_the_builder_takes_hosts_and_presets(home: Path) -> None:
    builder = SandboxBuilder().working_dir(home.parent / "work").allow_domain("example.com").allow_domain("github-read")

    grant = builder.build().grant
    assert grant.network is not None and {"example.com", "github.com"} <= {rule.host for rule in grant.network.rules}
