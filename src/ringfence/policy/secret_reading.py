"""Reads the secrets that a policy names: where each may go, never where it comes from.

A source is what a person has: a variable, a file, a command. Were it written in a policy that lies in a workspace, an
agent could have written it.
"""

import re
from collections.abc import Mapping
from typing import Final

from ringfence.dataclass import replace
from ringfence.policy.document import Node, Scalar, Section, kind_of
from ringfence.policy.hosts import HostRule
from ringfence.policy.node_fields import items_of, members_of, text_of, word_of
from ringfence.values.network import SecretGrant, SecretPlace, SecretStyle

SECRET_KEYS: Final = ("hosts", "places", "style", "header", "template", "variable", "signer")
SIGNERS: Final = ("aws-sigv4", "oauth-refresh", "oauth-client", "github-app", "google-service-account")

_SOURCES: Final = ("source", "value", "from", "env", "file", "command")
"""Keys by which others would write a source."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")


def read_secret(name: Scalar, node: Node) -> SecretGrant:
    """A secret as a policy names it: where it may go, never where it comes from.

    Raises:
        InvalidConfig: something of it makes no sense.
    """
    if not _VARIABLE.fullmatch(name.text):
        raise name.mark.fault(f"{name.text!r} cannot be the name of a secret", "letters, digits and _")
    if not isinstance(node, Section):
        raise node.mark.fault(
            f"the secret {name.text} has to be a section, not {kind_of(node)}", "such as {hosts: [api.example.com]}"
        )
    for key, _ in node.entries:
        if key.text in _SOURCES:
            raise key.mark.fault(
                f"a policy does not say where the secret {name.text} comes from, nor what it is",
                f"give --secret {name.text}=SOURCE, or write network.secrets in your own sandbox.json",
            )
    members = members_of(node, SECRET_KEYS, "a secret")
    hosts = tuple(_secret_host(item, name.text) for item in items_of(members, "hosts"))
    if not hosts:
        raise name.mark.fault(f"the secret {name.text} has no hosts", "write hosts: [api.example.com]")
    grant = SecretGrant(name=name.text, hosts=hosts, variable=_variable(members, name.text))
    if "places" in members:
        grant = replace(grant, places=tuple(_place(item) for item in items_of(members, "places")))
    if SecretPlace.SSH in grant.places:
        if len(grant.places) > 1 or members.keys() - {"hosts", "places"}:
            raise name.mark.fault(
                f"the secret {name.text}: a key for SSH goes nowhere else", "write places: [ssh] alone"
            )
        return replace(grant, variable="", style=SecretStyle.INJECT)
    style = word_of(members, "style", tuple(SecretStyle), SecretStyle.PLACEHOLDER)
    header = text_of(members["header"], "header") if "header" in members else ""
    if header and not _TOKEN.fullmatch(header):
        raise members["header"].mark.fault(f"{header!r} is not the name of a header", "such as X-Api-Key")
    template = text_of(members["template"], "template") if "template" in members else ""
    if template and (template.count("{}") != 1 or not template.isprintable()):
        raise members["template"].mark.fault("`template` has to hold {} once", 'such as "Bearer {}"')
    signer = word_of(members, "signer", SIGNERS, "")
    return replace(
        grant,
        style=SecretStyle(style),
        header=header,
        template=template or ("{}" if header and header.lower() != "authorization" else grant.template),
        signer=signer,
    )


def _secret_host(node: Node, name: str) -> str:
    rule = HostRule.parse(text_of(node, "hosts"), node.mark)
    if rule.matches_everything:
        raise node.mark.fault(f"the secret {name} would go to every host", "name the hosts that it is for")
    if rule.port is not None:
        raise node.mark.fault(f"the secret {name}: a host without its port", "the rule that allows it says the port")
    return rule.bare


def _variable(members: Mapping[str, Node], name: str) -> str:
    if "variable" not in members:
        return name
    text = text_of(members["variable"], "variable")
    if not _VARIABLE.fullmatch(text):
        raise members["variable"].mark.fault(f"{text!r} is not the name of a variable", "such as GH_TOKEN")
    return text


def _place(node: Node) -> SecretPlace:
    text = text_of(node, "places").lower()
    if text not in tuple(SecretPlace):
        raise node.mark.fault(f"{text!r} is not a place in a request", f"one of {', '.join(SecretPlace)}")
    return SecretPlace(text)
