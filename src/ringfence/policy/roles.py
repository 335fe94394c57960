"""Roles: which settings one has after those that it inherits."""

import difflib
from collections.abc import Iterator
from typing import Final

from ringfence.policy.document import Mark
from ringfence.policy.model import Policy, Role

MAX_DEPTH: Final = 50  # an organisation chart has fewer levels, and the walk up is a recursion
BASE = "default"
"""What a role may name instead of another role: `policies.default`, which every role starts from anyway."""


def check_roles(policy: Policy) -> None:
    """Refuse what cannot be resolved.

    Raises:
        InvalidConfig: a role inherits one that is not there, or itself.
    """
    for role in policy.roles.values():
        for _ in lineage(policy, role):
            pass


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
        if parent.text not in policy.roles:
            known = (BASE, *policy.roles)
            near = difflib.get_close_matches(parent.text, known, n=1)
            raise parent.mark.fault(
                f"the role {role.name!r} inherits {parent.text!r}, which is not there",
                f"did you mean {near[0]!r}?" if near else f"roles of this file: {', '.join(known)}",
            )
        _visit(policy, policy.roles[parent.text], parent.mark, (*chain, role.name), done)
    done[role.name] = role
