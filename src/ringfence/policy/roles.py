"""Roles: which settings one has after those that it inherits."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from ringfence.errors import InvalidConfig

if TYPE_CHECKING:
    from ringfence.policy.document import Mark
    from ringfence.policy.faults import Faults
    from ringfence.policy.model import Name, Policy, Role

MAX_DEPTH: Final = 50  # an organisation chart has fewer levels, and the walk up is a recursion
BASE = "default"
"""What a role may name instead of another role: `policies.default`, which every role starts from anyway."""


def check_roles(policy: Policy, faults: Faults) -> None:
    """Find what cannot be resolved: a role that inherits one that is not there, or itself."""
    for role in policy.roles.values():
        faults.each(partial(_parent, policy, role), role.inherits)
    circles: set[str] = set()
    for role in policy.roles.values():
        if role.name in circles:
            continue  # every role of a circle finds the same one
        try:
            lineage(policy, role)
        except InvalidConfig as fault:
            faults.add(fault)
            circles |= _reached(policy, role)


def _reached(policy: Policy, role: Role) -> set[str]:
    found, todo = {role.name}, list(role.inherits)
    while todo:
        name = todo.pop().text
        if name in policy.roles and name not in found:
            found.add(name)
            todo += policy.roles[name].inherits
    return found


def lineage(policy: Policy, role: Role) -> Iterator[Role]:
    """The role and all that it inherits from, ancestors first, each once; of several parents the later ones count more.

    Raises:
        InvalidConfig: an unknown role, or a cycle; names the chain.
    """
    done: dict[str, Role] = {}
    _visit(policy, role, role.mark, (), done)
    return iter(done.values())


def _visit(policy: Policy, role: Role, mark: Mark, chain: tuple[str, ...], done: dict[str, Role]) -> None:
    if role.name in chain:
        raise mark.fault(f"roles inherit in a circle: {' -> '.join((*chain, role.name))}", "remove one `inherits`")
    if len(chain) > MAX_DEPTH:
        raise mark.fault(f"roles inherit more than {MAX_DEPTH} levels deep", "let them inherit from fewer")
    if role.name in done:
        return
    for parent in role.inherits:
        if parent.text == BASE:
            continue
        _visit(policy, _parent(policy, role, parent), parent.mark, (*chain, role.name), done)
    done[role.name] = role


def _parent(policy: Policy, role: Role, parent: Name) -> Role:
    """A role that another one names; the base counts as itself."""
    if parent.text == BASE:
        return role
    if parent.text not in policy.roles:
        known = (BASE, *policy.roles)
        near = difflib.get_close_matches(parent.text, known, n=1)
        raise parent.mark.fault(
            f"the role {role.name!r} inherits {parent.text!r}, which is not there",
            f"did you mean {near[0]!r}?" if near else f"roles of this file: {', '.join(known)}",
        )
    return policy.roles[parent.text]
