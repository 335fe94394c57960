"""Finds what is valid in a policy and still not what its writer can have meant: rules that never fire, or shadowed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from ringfence.dataclass import dataclass
from ringfence.policy.document import Mark
from ringfence.policy.hosts import HostRule
from ringfence.policy.layer import block_of, effective, known_tools
from ringfence.policy.rules import CommandRule, Match, PathList, PathRule
from ringfence.values.facts import Program, Span, Word

if TYPE_CHECKING:
    from ringfence.policy.model import Block, Policy

_INTERPRETERS: Final = """
    bash dash env eval exec ksh lua make node npx perl php python python3 ruby sh ssh sudo xargs zsh
"""
RUNS_ANYTHING: Final = frozenset(_INTERPRETERS.split())
"""Programs that run whatever they are told to, so that a list with one of them holds nothing back by itself."""

_SPAN: Final = Span(0, 0)
_PAIRS: Final = (
    ("allowed_commands", "denied_commands"),
    ("allowed_paths", "denied_paths"),
    ("allowed_domains", "denied_domains"),
)
Rule = CommandRule | PathRule | HostRule


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    mark: Mark
    text: str

    def __str__(self) -> str:
        return f"{self.mark}: {self.text}"


def lint(policy: Policy, earlier: Sequence[Policy] = ()) -> tuple[Remark, ...]:
    """What is worth a second look in a policy, in the order of its lines; with `earlier`, also what they overrule."""
    found: set[Remark] = set()
    for block in (policy.default, *policy.tools.values(), *(role.block for role in policy.roles.values())):
        found.update(_on_lists(block))
        found.update(_on_commands(block))
    for tool in known_tools((policy,)):
        found.update(_on_network(block_of(policy, tool)))
        found.update(_on_isolated(block_of(policy, tool)))
        if earlier:
            before = len(effective(earlier, tool).notes) if tool in known_tools(earlier) else 0
            notes = effective((*earlier, policy), tool).notes[before:]
            found.update(Remark(Mark(policy.source, 1), note) for note in notes)
    for role in policy.roles.values():
        lists = tuple(role.block["tools"].value) if "tools" in role.block else ()
        if any(not names for names in lists):
            found.add(Remark(role.mark, f"the role {role.name} may use no tool at all"))
    return tuple(sorted(found))


def promises(policy: Policy) -> tuple[Remark, ...]:
    """Settings that sound as if they opened the network and open nothing; said, and no fault of the policy's."""
    found: set[Remark] = set()
    for tool in known_tools((policy,)):
        found.update(opens_nothing(block_of(policy, tool)))
    for role in policy.roles.values():
        found.update(opens_nothing({**policy.default, **role.block}))
    return tuple(sorted(found))


def opens_nothing(settings: Block) -> Iterator[Remark]:
    """What of these settings lets hosts be reached without naming one, and names of the box itself."""
    access, default, allowed = (settings.get(name) for name in ("network_access", "network.default", "allowed_domains"))
    if access is not None and not access.value:
        return
    rules = [rule for rules in (allowed.value if allowed is not None else ()) for rule in rules]
    loose = access or (default if default is not None and default.value == "allow" else None)
    if loose is not None and not rules:
        yield Remark(
            loose.mark,
            f"{loose.written} opens no host by itself: a box has no network before hosts are named; "
            "write network.allow: [HOST], or give --allow HOST",
        )
    for rule in rules:
        if rule.matches("127.0.0.1", None, surely=False) and not rule.preset:
            yield Remark(
                rule.mark, f"{rule.written} is the box itself, inside; a port of the host is network.reach: [PORT]"
            )


def covers(wide: Rule, narrow: Rule) -> bool:
    """Whether whatever the narrow rule matches, the wide one, as a deny rule, matches too; no, if that is not sure."""
    if isinstance(wide, CommandRule) and isinstance(narrow, CommandRule):
        words = tuple(Word(word, _SPAN) for word in narrow.words)
        return wide.denies(Program(words, _SPAN)) is Match.YES
    if isinstance(wide, PathRule) and isinstance(narrow, PathRule):
        # A glob is also a name: a wide rule that matches it as one covers it, wherever no wildcard crosses a slash.
        return "**" not in narrow.row.removesuffix("/**") and PathList((wide,)).first((_bare(narrow.row),)) is not None
    if isinstance(wide, HostRule) and isinstance(narrow, HostRule):
        if wide.port is not None and wide.port != narrow.port:
            return False
        if wide.network is not None and narrow.network is not None:
            return wide.network.version == narrow.network.version and narrow.network.subnet_of(wide.network)  # type: ignore[arg-type]  # same version
        return narrow.network is None and wide.matches(
            narrow.written.lower().replace("*", "x"), narrow.port, surely=True
        )
    return False


def _bare(row: str) -> str:
    return "/" + row.removesuffix("/**").strip("/")


def _on_lists(block: Block) -> Iterator[Remark]:
    for allowed_name, denied_name in _PAIRS:
        allowed: list[Rule] = [rule for rules in _value(block, allowed_name) for rule in rules]
        denied: list[Rule] = list(_value(block, denied_name))
        if allowed_name in block and not allowed:
            yield Remark(block[allowed_name].mark, f"{allowed_name} is empty, so nothing is allowed")
        for name, rules in ((allowed_name, allowed), (denied_name, denied)):
            yield from _shadowed(name, rules, exact=name == allowed_name)
        for rule in allowed:
            by = next((other for other in denied if covers(other, rule)), None)
            if by is not None:
                yield Remark(
                    rule.mark, f"{rule.written!r} can never be allowed: {denied_name} {by.written!r} at {by.mark}"
                )


def _shadowed(name: str, rules: Sequence[Rule], *, exact: bool) -> Iterator[Remark]:
    for index, rule in enumerate(rules):
        for other in rules[:index]:
            same = other.written == rule.written
            if same or (not exact and covers(other, rule)) or (exact and _is_prefix(other, rule)):
                yield Remark(rule.mark, f"{name} {rule.written!r} adds nothing to {other.written!r} at {other.mark}")
                break


def _is_prefix(wide: Rule, narrow: Rule) -> bool:
    both_commands = isinstance(wide, CommandRule) and isinstance(narrow, CommandRule)
    return both_commands and narrow.words[: len(wide.words)] == wide.words  # type: ignore[union-attr]  # just checked


def _on_commands(block: Block) -> Iterator[Remark]:
    allowed: list[CommandRule] = [rule for rules in _value(block, "allowed_commands") for rule in rules]
    for rule in allowed:
        if len(rule.words) == 1 and rule.words[0].rpartition("/")[2] in RUNS_ANYTHING:
            yield Remark(rule.mark, f"`{rule.written}` runs whatever it is told to: only the wall holds it back then")
    names = {rule.words[0] for rule in allowed}
    if not allowed or any(set(name) & set("*?[") for name in names):
        return
    wrapping = any(name in RUNS_ANYTHING for name in names)
    for rule in _value(block, "denied_commands"):
        if rule.words[0] not in names and not wrapping:
            yield Remark(
                rule.mark, f"denied_commands {rule.written!r} never fires: allowed_commands leaves it out anyway"
            )


def _on_network(block: Block) -> Iterator[Remark]:
    access = block.get("network_access")
    if access is None or access.value:
        return
    for name in ("allowed_domains",):
        if name in block:
            yield Remark(block[name].mark, f"{block[name].written} never counts: {access.place} is false")


def _on_isolated(block: Block) -> Iterator[Remark]:
    more = set(_value(block, "isolation_requires"))
    if more and more <= set(_value(block, "requires")):
        place = block["requires"].place
        yield Remark(
            block["isolation_requires"].mark, f"isolated code gets no other wall: {place} wants all of it anyway"
        )
    mediates = block.get("filesystem.mediate_opens")
    if "own_kernel" in more and mediates is not None and mediates.value:
        yield Remark(
            block["isolation_requires"].mark,
            f"no wall with a kernel of its own holds what is denied at the moment of opening, as {mediates.place} "
            "wants: code that is isolated does not run",
        )


def _value(block: Block, name: str) -> tuple[Any, ...]:
    return tuple(block[name].value) if name in block else ()
