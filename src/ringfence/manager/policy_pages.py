"""What the command line shows of policies: the effective settings, the remarks, what they mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ringfence.policy import judging
from ringfence.policy.editors import schema_text as schema_text  # front doors see it through us
from ringfence.policy.hosts import HostRule
from ringfence.policy.isolation import isolation_of
from ringfence.policy.layer import shown
from ringfence.policy.lint import Remark as Remark
from ringfence.policy.lint import lint, opens_nothing, promises
from ringfence.policy.model import BUILT_IN, Policy, Setting
from ringfence.policy.network import network_of
from ringfence.policy.schema import Tighter, Type
from ringfence.values.limits import Limits
from ringfence.values.network import Asking, Inspection, NetworkGrant, NetworkRule, SecretGrant
from ringfence.values.sizes import show_size
from ringfence.values.verdict import Verdict

if TYPE_CHECKING:
    from ringfence.manager.policing import PolicyEngine
    from ringfence.policy.terms import Terms


def meaning(engine: PolicyEngine, tool: str = "shell_exec") -> tuple[tuple[str, str], ...]:
    """What a policy means for commands, in a few sentences: (what it is about, the sentence)."""
    terms = engine.terms(tool)
    limits = terms.limits(Limits())
    denied = [rule.written for rule in terms.value("denied_commands", ())]
    asked = [rule.written for rule in terms.value("approvals.ask_for.patterns", ())]
    hidden = [rule.written for rule in terms.value("filesystem.deny", ())]
    found = [
        ("writes", "the workspace alone"),
        ("network", _reached(terms)),
        ("hidden", ", ".join((*hidden, "and the built-in blacklist"))),
        ("limits", f"{limits.wall_seconds:g} s and {show_size(limits.memory_bytes)} for one command"),
    ]
    if denied:
        found.append(("refused", ", ".join(denied)))
    if asked:
        found.append(("asked about", ", ".join(asked)))
    return tuple(found)


def _reached(terms: Terms) -> str:
    found = network_of(terms).grant
    if found is None:
        return "off"
    hosts = dict.fromkeys(rule.host for rule in found.rules)
    return f"{', '.join(hosts) or 'no host'}, through the proxy outside; nothing else"


def remarks(policy: Policy, earlier: Sequence[Policy] = ()) -> tuple[Remark, ...]:
    """What is worth a second look in a policy."""
    return lint(policy, earlier)


def unkept_promises(policy: Policy) -> tuple[Remark, ...]:
    """What sounds in a policy as if it opened the network, and opens nothing."""
    return promises(policy)


def network_notes(terms: Terms | None) -> tuple[str, ...]:
    """What of the settings sounds as if it opened the network, and opens nothing, with the places that say so."""
    return tuple(str(remark) for remark in opens_nothing(terms.settings)) if terms is not None else ()


def reach_note(network: NetworkGrant | None) -> str:
    """What a box with this network reaches, in one line."""
    if network is None:
        return "network: off"
    parts = [*dict.fromkeys(map(shown_rule, network.rules))]
    parts += ["anything that nothing denies, for the record"] if network.learn else []
    parts += ["a person is asked about other hosts"] if network.ask_unlisted else []
    parts += [f"the host's port {port}" for port in network.reach]
    parts += [f"port {inside} is published" for inside, _ in network.publish]
    return f"network: {', '.join(parts)}; through the proxy outside"


def explained(terms: Terms) -> dict[str, Any]:
    """What holds for a tool in a role, as plain values, each with the place that says so."""
    against = next((vote for vote in judging.on_tool(terms) if vote.verdict is Verdict.DENY), None)
    return {
        "usable": against is None,
        "why": str(against) if against else "",
        "risk": terms.risk.value,
        "handling": terms.handling,
        "settings": {
            name: {"value": _plain(setting), "at": _at(name, setting)}
            for name, setting in terms.settings.items()
            if name != "tools"
        },
        "isolates": isolation.sentence if (isolation := isolation_of(terms)) is not None else "",
        "notes": [*terms.notes, *network_notes(terms)],
    }


def _at(name: str, setting: Setting) -> str:
    """Where a setting is written, and as which key if that is another one."""
    place = BUILT_IN.source if setting.mark == BUILT_IN else str(setting.mark)
    return place if setting.written == name else f"{setting.written}, {place}"


Part = dict[str, Any]


def in_common(page: Mapping[str, Part]) -> tuple[Part, tuple[tuple[tuple[str, ...], Part], ...]]:
    """What every usable tool of a page has, and what the others have beyond that, tools with the same together."""
    usable = {name: found for name, found in page.items() if found["usable"]}
    every = list(usable.values()) if len(usable) > 1 else []
    settings = every[0]["settings"] if every else {}
    common: Part = {
        "settings": {
            name: value
            for name, value in settings.items()
            if all(each["settings"].get(name) == value for each in every)
        },
        "isolates": every[0]["isolates"] if len({each["isolates"] for each in every}) == 1 else "",
        "notes": [
            text for text in (every[0]["notes"] if every else ()) if all(text in each["notes"] for each in every)
        ],
    }
    groups: dict[str, tuple[list[str], Part]] = {}
    for name, found in usable.items():
        part = _beyond(found, common)
        groups.setdefault(repr(part), ([], part))[0].append(name)
    return common, tuple((tuple(names), part) for names, part in groups.values())


def _beyond(found: Part, common: Part) -> Part:
    """What of a tool is not in common; its built-in risk is not repeated, for the handling says it."""
    own = {name: value for name, value in found["settings"].items() if name not in common["settings"]}
    if own.get("risk_level", {}).get("at") == BUILT_IN.source:
        del own["risk_level"]
    return {
        "handling": found["handling"],
        "settings": own,
        "isolates": "" if common["isolates"] else found["isolates"],
        "notes": [text for text in found["notes"] if text not in common["notes"]],
    }


def _plain(setting: Setting) -> Any:
    value = setting.value
    if setting.key.type is Type.SIZE:
        return show_size(value)
    if setting.key.type is Type.DURATION:
        return f"{value:g}s"
    if setting.key.tighter is Tighter.EVERY_LIST:
        lists = [[_row(row) for row in rows] for rows in value]
        return lists[0] if len(lists) == 1 else [f"every one of: {' | '.join(map(str, rows))}" for rows in lists]
    if isinstance(value, tuple):
        return [_row(row) for row in value]
    return shown(value)


def _row(row: Any) -> Any:
    if isinstance(row, tuple):  # a port of the box, and the one outside
        return ":".join(str(port) for port in row if port)
    if isinstance(row, SecretGrant):
        return f"{row.name} for {', '.join(row.hosts)}"
    if isinstance(row, HostRule) and row.allow is not None:
        return shown_rule(row.allow)
    return getattr(row, "written", None) or getattr(row, "text", None) or row


def shown_rule(rule: NetworkRule) -> str:
    """A rule in a few words: `pypi.org:443 GET,HEAD /simple/**`."""
    ports = f":{','.join(map(str, rule.ports))}" if rule.ports else ""
    extras = (
        f"git by SSH as {rule.ssh_user}:" if rule.ssh_user else "",
        ",".join(rule.methods),
        " ".join(rule.paths),
        "raw" if rule.raw else "",
        "" if rule.inspection is Inspection.WHERE_NEEDED else _INSPECTIONS[rule.inspection],
        "" if rule.asking is Asking.NEVER else f"ask: {rule.asking}",
    )
    return " ".join((rule.host + ports, *filter(None, extras)))


_INSPECTIONS = {Inspection.ALWAYS: "inspected", Inspection.NEVER: "opaque"}
