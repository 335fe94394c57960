"""Layers: what holds for one tool and one role, out of policies of which each later one may only tighten.

In one file, the more specific block replaces: `default`, then the tool, then the role and what it inherits (deny-lists
add up). All of it is written by the same hand. Between files, in the order organisation, project, request, every
setting takes the tighter of two values, and a list of what is allowed counts only together with the earlier ones. The
exception is a setting that the earlier file names in `may_widen`: there the later one replaces it.

A key that the earlier file leaves out is one on which it has no opinion.
"""

import difflib
from collections.abc import Iterable
from typing import Any, Final, assert_never

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidConfig
from ringfence.policy.model import BUILT_IN, EMPTY, Block, Policy, Setting
from ringfence.policy.presets import preset
from ringfence.policy.roles import lineage
from ringfence.policy.schema import BY_NAME, TOOLS, RiskLevel, Tighter
from ringfence.policy.terms import Terms
from ringfence.values.paths import is_below
from ringfence.values.risk import SecurityMode

_STRICT: Final = Setting(BY_NAME["security_mode"], SecurityMode.STRICT.value, BUILT_IN, "security_mode")


@dataclass(slots=True)
class _Merged:
    """The result so far, and what a later layer asked for without effect."""

    block: dict[str, Setting] = field(default_factory=dict)
    may_widen: set[str] = field(default_factory=set)
    said: set[str] = field(default_factory=set)
    """Settings about which some layer has spoken."""
    notes: list[str] = field(default_factory=list)


def known_tools(policies: Iterable[Policy]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*TOOLS, *(tool for policy in policies for tool in policy.tools))))


def known_roles(policies: Iterable[Policy]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(role for policy in policies for role in policy.roles))


def effective(policies: Iterable[Policy], tool: str, role: str | None = None) -> Terms:
    """What holds for a tool in a role.

    Raises:
        InvalidConfig: no policy knows the tool, or the role.
    """
    layers = tuple(policies)
    _check_known(tool, known_tools(layers), "tool")
    if role is not None:
        _check_known(role, known_roles(layers), "role")
    merged = _Merged()
    for policy in layers:
        block = block_of(policy, tool, role)
        if (
            "isolation_requires" in block
        ):  # and if it names no mode: that is no invitation to the other files, before or after it
            block = {"security_mode": _STRICT, **block}
        _tighten(merged, block, policy)
        # The first, most trusted file may set the risk of a tool anew; those after it only raise it.
        merged.block.setdefault("risk_level", _default_risk(tool))
        merged.said.add("risk_level")
    merged.block.setdefault("risk_level", _default_risk(tool))
    return Terms(tool=tool, role=role, settings=merged.block, notes=tuple(merged.notes))


def block_of(policy: Policy, tool: str, role: str | None = None) -> Block:
    """What one file says about a tool in a role."""
    block = overlaid(EMPTY, policy.default)
    block = overlaid(block, policy.tools.get(tool, EMPTY))
    if role is not None and role in policy.roles:
        for ancestor in lineage(policy, policy.roles[role]):
            block = overlaid(block, ancestor.block)
    return block


def overlaid(base: Block, top: Block) -> Block:
    """The more specific block over the more general one of the same file."""
    if "mode" in top:
        mode = top["mode"]
        # The preset speaks from the line that chose it.
        chosen = {
            name: Setting(setting.key, setting.value, mode.mark, f"mode {mode.value} ({setting.written})")
            for name, setting in preset(mode.value).items()
        }
        base = overlaid(base, chosen)
    block = dict(base)
    for name, setting in top.items():
        before = block.get(name)
        if before is not None and setting.key.tighter is Tighter.ANY_LIST:
            setting = _with(before, (*before.value, *(row for row in setting.value if row not in before.value)))
        block[name] = setting
    block.pop("mode", None)
    return block


def _tighten(merged: _Merged, later: Block, policy: Policy) -> None:
    for name, setting in later.items():
        before = merged.block.get(name)
        if before is None or name in merged.may_widen:
            merged.block[name] = setting
        else:
            merged.block[name] = tighter(before, setting, merged.notes)
    # A layer passes on the leave to widen that it has: where it was given it, or where nobody has spoken before.
    passed_on = {name for name in policy.may_widen if name in merged.may_widen or name not in merged.said}
    merged.may_widen = passed_on | (merged.may_widen - later.keys())
    merged.said |= later.keys()


def tighter(earlier: Setting, later: Setting, notes: list[str]) -> Setting:
    """One setting that allows nothing that either of the two does not."""
    match earlier.key.tighter:
        case Tighter.TRUE:
            return _pick(earlier, later, later.value or not earlier.value, notes)
        case Tighter.FALSE:
            return _pick(earlier, later, not later.value or earlier.value, notes)
        case Tighter.LESS:
            return _pick(earlier, later, later.value <= earlier.value, notes)
        case Tighter.LATER_CHOICE:
            order = earlier.key.choices.index
            return _pick(earlier, later, order(later.value) >= order(earlier.value), notes)
        case Tighter.SAME:
            return _pick(earlier, later, later.value == earlier.value, notes)
        case Tighter.EVERY_LIST:
            return _with(later, (*earlier.value, *(rows for rows in later.value if rows not in earlier.value)))
        case Tighter.ANY_LIST:
            return _with(earlier, (*earlier.value, *(row for row in later.value if row not in earlier.value)))
        case Tighter.BELOW:
            inside = tuple(row for row in later.value if any(is_below(row.path, top.path) for top in earlier.value))
            for row in later.value:
                if row not in inside:
                    notes.append(
                        f"{row.mark}: {later.written} {row.written} is not in {earlier.place}, so it does not count"
                    )
            return _with(later, inside)
        case _:
            assert_never(earlier.key.tighter)


def _pick(earlier: Setting, later: Setting, is_tighter: bool, notes: list[str]) -> Setting:
    if is_tighter:
        return later
    notes.append(
        f"{later.mark}: {later.written} {shown(later.value)} is wider than {shown(earlier.value)}, which "
        f"{earlier.place} sets and which stays in force; to let it, add {earlier.key.name} to may_widen there"
    )
    return earlier


def shown(value: Any) -> str:
    """A plain value as a policy writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with(setting: Setting, value: Any) -> Setting:
    return Setting(setting.key, value, setting.mark, setting.written)


def _default_risk(tool: str) -> Setting:
    return Setting(BY_NAME["risk_level"], TOOLS.get(tool, RiskLevel.HIGH), BUILT_IN, "risk_level")


def _check_known(name: str, known: tuple[str, ...], what: str) -> None:
    if name in known:
        return
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        hint = f"did you mean {near[0]!r}?"
    else:
        hint = f"known: {', '.join(known)}" if known else f"name a policy that defines the {what}"
    raise InvalidConfig(f"no policy knows the {what} {name!r}", hint=hint)
