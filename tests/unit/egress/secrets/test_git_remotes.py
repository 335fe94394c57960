"""Remotes by SSH become HTTPS, and git carries a placeholder, by variables alone."""

import base64

from ringfence.egress.secrets.git_remotes import git_variables
from ringfence.values.network import NetworkGrant, NetworkRule, SecretGrant, SecretPlace, SecretStyle

GITHUB = NetworkRule(host="github.com")
TOKEN = SecretGrant(name="gh", hosts=("github.com", "api.github.com"), placeholder="ghp_sham")


def settings(network: NetworkGrant, count: int = 0) -> list[tuple[str, str]]:
    found = dict(git_variables(network, count=count))
    if not found:
        return []
    last = int(found["GIT_CONFIG_COUNT"])
    return [(found[f"GIT_CONFIG_KEY_{index}"], found[f"GIT_CONFIG_VALUE_{index}"]) for index in range(count, last)]


def test_every_spelling_of_a_remote_by_ssh_becomes_https() -> None:
    found = settings(NetworkGrant(rules=(GITHUB,)))

    assert found == [
        ("url.https://github.com/.insteadOf", "git@github.com:"),
        ("url.https://github.com/.insteadOf", "ssh://git@github.com/"),
        ("url.https://github.com/.insteadOf", "ssh://git@github.com:22/"),
    ]


def test_settings_that_are_there_already_stay() -> None:
    found = dict(git_variables(NetworkGrant(rules=(GITHUB,)), count=2))

    assert found["GIT_CONFIG_COUNT"] == "5"
    assert "GIT_CONFIG_KEY_1" not in found
    assert "GIT_CONFIG_KEY_4" in found


def test_hosts_that_are_not_one_or_not_by_https_get_nothing() -> None:
    for rule in (
        NetworkRule(host="*.example.com"),
        NetworkRule(host="10.0.0.0/8"),
        NetworkRule(host="192.0.2.1"),
        NetworkRule(host="github.com", ports=(80,)),
    ):
        assert git_variables(NetworkGrant(rules=(rule,))) == ()
    assert git_variables(NetworkGrant()) == ()


def test_a_rule_that_lets_ssh_pass_leaves_remotes_as_they_are() -> None:
    ssh = NetworkRule(host="github.com", ports=(22,), raw=True)

    assert git_variables(NetworkGrant(rules=(GITHUB, ssh))) == ()
    assert settings(NetworkGrant(rules=(GITHUB,)))


def test_https_carries_the_placeholder_for_hosts_that_are_allowed_and_named() -> None:
    found = settings(NetworkGrant(rules=(GITHUB,), secrets=(TOKEN,)))

    (key, header) = found[-1]
    assert key == "http.https://github.com/.extraHeader"
    assert base64.b64decode(header.rpartition(" ")[2]) == b"x-access-token:ghp_sham"
    assert not any("api.github.com" in name for name, _ in found)


def test_a_secret_that_is_injected_or_not_for_basic_is_not_told_to_git() -> None:
    for changed in (
        SecretGrant(name="gh", hosts=("github.com",), style=SecretStyle.INJECT),
        SecretGrant(name="gh", hosts=("github.com",), placeholder="x", places=(SecretPlace.HEADER,)),
        SecretGrant(name="gh", hosts=("github.com",), placeholder="x", signer="aws-sigv4"),
    ):
        assert not any("extraHeader" in key for key, _ in settings(NetworkGrant(rules=(GITHUB,), secrets=(changed,))))
