"""What a box in a container needs of the Linux walls: covers over the workspace, a synthetic /etc, filters, Landlock.

The container engine brings the root file system, the namespaces and the control groups. What it knows nothing of is
decided here, by the same modules as for the native walls, so that the two cannot drift apart.
"""

import json
import os
from functools import cache

from ringfence.confinement.base import ContainerFilter, Prepared, View
from ringfence.confinement.linux import landlock, seccomp
from ringfence.confinement.linux.host import GIT_ENVIRONMENT, synthetic_etc
from ringfence.confinement.linux.inside import landlock_words
from ringfence.confinement.linux.seccomp_json import docker_profile
from ringfence.confinement.linux.view import cover, hidden_in
from ringfence.policy.globs import compiled
from ringfence.values.grant import Grant


def build_container_view(grant: Grant, *, home: str, uid: int, gid: int) -> Prepared:
    """What of the host shows in a container with this grant; makes the placeholders that it needs."""
    rules = compiled(grant.denied)
    writable = tuple(dict.fromkeys(map(os.fspath, grant.writable_roots)))
    shown = [path for path in map(os.fspath, grant.readable) if path not in writable and rules.matches(path) is None]
    masks, layered = cover(grant, writable, rules)
    ignored = tuple(name for name in sorted(rules.names) if name.isprintable() and not set(name) & set("*?[\\!# "))
    etc = dict(synthetic_etc(uid, gid, home, ignored))
    view = View(
        uid=uid,
        gid=gid,
        home=home,
        system=(),
        texts=tuple((name, etc[name]) for name in ("passwd", "group", "gitignore")),
        readable=tuple(dict.fromkeys(shown)),
        writable=writable,
        layered=layered,
        covers=tuple(masks.covers),
        hidden=hidden_in(shown, shown, rules, writable),
        tmp_bytes=grant.limits.tmp_bytes,
    )
    notes = []
    if grant.read_outside:
        notes.append("the rest of the host is not readable: a container shows its image, and what is granted by name")
    if not landlock.abi():
        notes.append("this kernel has no Landlock: the mounts stand alone")
    return Prepared(view, tuple(GIT_ENVIRONMENT.items()), tuple(masks.shared), tuple(notes))


def container_filter(view: View, private: tuple[str, ...], *, for_root: bool) -> ContainerFilter:
    """The same refusals twice: as the engine's profile, which holds from the first instruction, and for PID 1 to apply
    itself, because engines skip calls that their library does not know by name.

    Args:
        private: further directories that the box has for itself.
        for_root: whether something that the box writes will belong to root.
    """
    profile = seccomp.Profile(openat2=not for_root)
    return ContainerFilter(_profile(profile), seccomp.assemble(profile), landlock_words(view, private))


@cache
def _profile(profile: seccomp.Profile) -> str:
    return json.dumps(docker_profile(profile))
