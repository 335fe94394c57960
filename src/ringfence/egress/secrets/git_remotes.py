"""Settings of git for a box, as variables: remotes by SSH become HTTPS, and HTTPS carries a placeholder.

`GIT_CONFIG_COUNT` and its pairs beat every file and leave none behind. Nothing in them is a secret.
"""

import base64
from collections.abc import Iterator
from typing import Final

from ringfence.values.hosts import BadHost, canonical_host
from ringfence.values.network import SSH_PORT, NetworkGrant, NetworkRule, SecretGrant, SecretPlace, SecretStyle

_HTTPS: Final = 443
_USERS: Final = {"gitlab.com": "oauth2", "bitbucket.org": "x-token-auth"}
_USUAL_USER: Final = "x-access-token"
"""What GitHub takes beside a token; most others take any name."""

Settings = tuple[tuple[str, str], ...]


def git_variables(network: NetworkGrant, *, count: int = 0) -> Settings:
    """The variables of a box that may reach hosts by HTTPS.

    Args:
        count: how many settings it has by `GIT_CONFIG_COUNT` already; these stay.
    """
    settings = tuple(_settings(network))
    if not settings:
        return ()
    pairs = [("GIT_CONFIG_COUNT", str(count + len(settings)))]
    for index, (key, value) in enumerate(settings, start=count):
        pairs += ((f"GIT_CONFIG_KEY_{index}", key), (f"GIT_CONFIG_VALUE_{index}", value))
    return tuple(pairs)


def _settings(network: NetworkGrant) -> Iterator[tuple[str, str]]:
    by_https = dict.fromkeys(host for rule in network.rules if (host := _only_by_https(rule)))
    by_ssh = {_name(rule.host) for rule in network.rules if (rule.raw or rule.ssh_user) and SSH_PORT in rule.ports}
    for host in by_https:
        if host in by_ssh:
            continue  # a rule lets SSH itself pass, or ends it
        for written in (f"git@{host}:", f"ssh://git@{host}/", f"ssh://git@{host}:22/"):
            yield f"url.https://{host}/.insteadOf", written
    told: set[str] = set()
    for secret in network.secrets:
        for host in filter(None, map(_name, secret.hosts)):
            if host in by_https and host not in told and _goes_by_basic(secret):
                told.add(host)
                pair = f"{_USERS.get(host, _USUAL_USER)}:{secret.placeholder}".encode()
                yield f"http.https://{host}/.extraHeader", f"Authorization: Basic {base64.b64encode(pair).decode()}"


def _goes_by_basic(secret: SecretGrant) -> bool:
    return (
        secret.style is SecretStyle.PLACEHOLDER
        and bool(secret.placeholder)
        and not secret.signer.startswith("aws")
        and SecretPlace.BASIC in secret.places
    )


def _only_by_https(rule: NetworkRule) -> str:
    """The one host that a rule names and lets be reached by HTTPS; else empty."""
    return _name(rule.host) if not rule.ports or _HTTPS in rule.ports else ""


def _name(pattern: str) -> str:
    """A pattern that is one host name, as such; else empty."""
    name = pattern.removesuffix(":443")
    if "*" in name or "/" in name:
        return ""
    try:
        host = canonical_host(name)
    except BadHost:
        return ""
    return host.text if host.address is None else ""
