"""What a box in a container needs of the Linux walls: covers over the workspace, a synthetic /etc, filters, Landlock.

The container engine brings the root file system, the namespaces and the control groups. What it knows nothing of is
decided here, by the same modules as for the native walls, so that the two cannot drift apart.
"""

from __future__ import annotations

import json
import os
import stat
from functools import cache
from typing import TYPE_CHECKING

from ringfence.confinement.base import (
    BUNDLE,
    KNOWN_HOSTS,
    SSH_CONFIG,
    SSH_SETTINGS,
    ContainerFilter,
    How,
    Prepared,
    Trust,
    View,
)
from ringfence.confinement.linux import landlock, seccomp
from ringfence.confinement.linux.host import GIT_ENVIRONMENT, synthetic_etc
from ringfence.confinement.linux.inside import landlock_words
from ringfence.confinement.linux.own import own_notes
from ringfence.confinement.linux.seccomp_json import docker_profile
from ringfence.confinement.linux.view import cover, hidden_in
from ringfence.dataclass import replace
from ringfence.errors import InitializationFailed
from ringfence.policy.globs import compiled

if TYPE_CHECKING:
    from ringfence.confinement.linux.masks import Masks
    from ringfence.values.grant import Grant


def build_container_view(
    grant: Grant, *, home: str, uid: int, gid: int, own_kernel: bool, trust: Trust | None = None
) -> Prepared:
    """What of the host shows in a container with this grant; makes the placeholders that it needs.

    Args:
        own_kernel: whether it has one. Nothing can be mounted over a socket or a pipe there, and none of the host's can
            be opened, so that those need no cover.
        trust: whom programs trust, where that is not the image's own choice. It is for variables: where an image keeps
            its list, and whether by a link, is its own business.

    Raises:
        InitializationFailed: a box that has none uses the workspace at this moment; their placeholders differ. Or what
            is protected is a socket or a pipe.
    """
    rules = compiled(grant.denied)
    writable = tuple(dict.fromkeys(map(os.fspath, grant.writable_roots)))
    shown = [path for path in map(os.fspath, grant.readable) if path not in writable and rules.matches(path) is None]
    masks, layered = cover(grant, writable, rules, as_files=own_kernel)
    ignored = [name for name in sorted(rules.names) if _is_plain(name)]
    if own_kernel:  # git would take an empty file for one of the project's, which it does not with a socket
        ignored += (f"/{below}" for shared in masks.shared for below in shared.placeholders if _is_plain(below))
    etc = dict(synthetic_etc(uid, gid, home, tuple(ignored), has_network=grant.network is not None))
    names = ("passwd", "group", "gitignore", *(("resolv.conf",) if grant.network is not None else ()))
    texts = [(name, etc[name]) for name in names]
    if trust is not None:
        texts.append((BUNDLE.removeprefix("/etc/"), trust.bundle.decode("utf-8", errors="replace")))
        texts += [(KNOWN_HOSTS, trust.known_hosts), (SSH_CONFIG, SSH_SETTINGS)] if trust.known_hosts else []
    view = View(
        uid=uid,
        gid=gid,
        home=home,
        system=(),
        texts=tuple(texts),
        readable=tuple(dict.fromkeys(shown)),
        writable=writable,
        layered=layered,
        covers=tuple(masks.covers),
        hidden=hidden_in(shown, shown, rules, writable),
        tmp_bytes=grant.limits.tmp_bytes,
    )
    notes = list(own_notes(writable))
    if own_kernel:
        protected = tuple(name.removeprefix("/") for root in grant.writable_roots for name in grant.protected_in(root))
        try:
            view = _mountable(view, masks, protected)
        except BaseException:
            masks.give_up()
            raise
    elif not landlock.abi():
        notes.append("this kernel has no Landlock: the mounts stand alone")
    if grant.read_outside:
        notes.append("the rest of the host is not readable: a container shows its image, and what is granted by name")
    return Prepared(view, tuple(GIT_ENVIRONMENT.items()), tuple(masks.shared), tuple(notes))


def _is_plain(name: str) -> bool:
    """Whether a list of patterns takes it as the name that it is."""
    return name.isprintable() and not set(name) & set("*?[\\!# ")


def _mountable(view: View, masks: Masks, protected: tuple[str, ...]) -> View:
    """Without covers over what bears no mount there: neither a socket nor a pipe of the host can be opened anyway, and
    gVisor would wait for somebody at the other end of a pipe, for ever.

    Raises:
        InitializationFailed: one has to be covered all the same, so that nobody puts something else in its place.
    """
    placeholders = {os.path.join(shared.root, below) for shared in masks.shared for below in shared.placeholders}
    covers = []
    for each in view.covers:
        path = os.path.join(each.root, each.below)
        if _bears_a_mount(path):
            covers.append(each)
        elif path in placeholders:
            raise InitializationFailed(
                f"another box uses {each.root}, and protects {each.below} in a way that a kernel of its own cannot",
                hint="end that box first, or use the same wall for both",
            )
        elif each.how is not How.HIDE or f"/{each.below}".endswith(tuple(f"/{name}" for name in protected)):
            raise InitializationFailed(
                f"{path} is not a plain file, and a kernel of its own cannot protect it", hint="remove it"
            )
    return replace(view, covers=tuple(covers), hidden=tuple(filter(_bears_a_mount, view.hidden)))


def _bears_a_mount(path: str) -> bool:
    """Also what has gone, or is a device: about those, whoever makes the mounts complains."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return True
    return not stat.S_ISSOCK(mode) and not stat.S_ISFIFO(mode)


def container_filter(
    view: View, private: tuple[str, ...], *, for_root: bool, makes_users: bool = False
) -> ContainerFilter:
    """The same refusals twice: as the engine's profile, which holds from the first instruction, and for PID 1 to apply
    itself, because engines skip calls that their library does not know by name.

    Args:
        private: further directories that the box has for itself.
        for_root: whether something that the box writes will belong to root.
        makes_users: whether its first process makes a user namespace of its own, which the engine's profile has to let
            pass. The filter that it then applies does not.
    """
    profile = seccomp.Profile(openat2=not for_root)
    return ContainerFilter(
        _profile(profile, makes_users=makes_users), seccomp.assemble(profile), landlock_words(view, private)
    )


@cache
def _profile(profile: seccomp.Profile, *, makes_users: bool) -> str:
    return json.dumps(docker_profile(profile, makes_users=makes_users))
