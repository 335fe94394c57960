"""Builds the view of a box from its grant: which directories, which tools, which covers."""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringfence.confinement.base import KNOWN_HOSTS, SSH_CONFIG, SSH_SETTINGS, Layered, Prepared, Shared, Trust, View
from ringfence.confinement.linux.host import GIT_ENVIRONMENT, etc_view, synthetic_etc, system_view
from ringfence.confinement.linux.masks import Masks, find_masks
from ringfence.confinement.linux.own import own_code, own_notes
from ringfence.confinement.linux.tools import find_tools
from ringfence.confinement.linux.trust import trusting
from ringfence.dataclass import replace
from ringfence.errors import Busy
from ringfence.policy.globs import PathRules, compiled
from ringfence.values.paths import is_below, is_inside

if TYPE_CHECKING:
    from ringfence.values.grant import Grant, Shadowing

_NEVER_OUTSIDE = frozenset({"proc", "sys", "dev", "run", "tmp", "etc", "boot", "lost+found"})
"""Top-level directories that are not shown even where reading outside is allowed: they have a private counterpart, or
hold sockets, devices and kernel knobs. /etc stays an allow-list, because its secrets are not all known by name."""

_PLAIN_HOME = "/home/agent"


def build_view(
    grant: Grant,
    *,
    home: str,
    host_path: str,
    uid: int,
    gid: int,
    names: bool = False,
    trust: Trust | None = None,
) -> Prepared:
    """The view for a grant; makes the placeholders that it needs.

    Args:
        home: the caller's home directory; inside, an empty one lies at the same place, unless the system is there.
        host_path: the caller's PATH.
        uid, gid: what the box's own processes see as theirs.
        names: whether the guardian makes the names of the box.
        trust: whom programs trust, where that is not the system's own choice.
    """
    rules = compiled(grant.denied)
    system, links = system_view()
    etc, copied = etc_view()
    writable = tuple(dict.fromkeys(map(os.fspath, grant.writable_roots)))
    readable = [os.fspath(path) for path in grant.readable]
    notes = list(own_notes(writable))
    if grant.read_outside:
        readable += _outside(system)
        notes.append(
            "the rest of the host is readable; names such as **/.env are hidden in granted directories and the home; "
            "there are no unix sockets, because a socket that can be seen can be connected to"
        )
    tools = find_tools(
        host_path,
        home=home,
        workspaces=tuple(map(os.fspath, grant.roots)),
        visible=(*system, *(link for link, _ in links)),
        denied=rules.matches,
    )
    shown = [path for path in (*readable, *tools.roots) if path not in writable and rules.matches(path) is None]
    # Tools are not searched for names: their trees are large, and programs are all that they hold.
    searched = [*map(os.fspath, grant.readable), *([os.path.realpath(home)] if grant.read_outside else [])]
    masks, layered = cover(grant, writable, rules, names=names)
    ignored = tuple(name for name in sorted(rules.names) if name.isprintable() and not set(name) & set("*?[\\!# "))
    inside = _home_inside(home, (*system, *(link for link, _ in links)))
    view = View(
        uid=uid,
        gid=gid,
        home=inside,
        system=system,
        links=(*links, *_aliases(grant, (*writable, *shown, inside))),
        etc=etc,
        texts=(*copied, *synthetic_etc(uid, gid, inside, ignored, has_network=grant.network is not None)),
        readable=tuple(dict.fromkeys((*shown, *(inside for inside, _ in grant.placed)))),
        linked=(
            *((path, real) for path in tools.roots if (real := os.path.realpath(path)) != path),
            *((inside, os.path.realpath(source)) for inside, source in grant.placed),
        ),
        writable=writable,
        layered=layered,
        covers=tuple(masks.covers),
        unmade=tuple(masks.unmade),
        named=tuple(dict.fromkeys(each.root for each in masks.unmade)),
        hidden=hidden_in(shown, searched, rules, writable),
        tmp_bytes=grant.limits.tmp_bytes,
        unix_sockets=not grant.read_outside,
    )
    if trust is not None:
        files, replaced = trusting(view, trust)
        known = ((KNOWN_HOSTS, trust.known_hosts), (SSH_CONFIG, SSH_SETTINGS)) if trust.known_hosts else ()
        view = replace(view, files=files, replaced=replaced, texts=(*view.texts, *known))
    env = (("PATH", tools.path), *GIT_ENVIRONMENT.items())
    return Prepared(view, env, tuple(masks.shared), tuple(notes))


def cover(
    grant: Grant, writable: tuple[str, ...], rules: PathRules, *, as_files: bool = False, names: bool = False
) -> tuple[Masks, tuple[Layered, ...]]:
    """What is covered in writable directories, and which of them are shadows, whose locks are held with the others.

    What is hidden in a shadow was taken out of it when it was made, and what is protected is held back at commit.
    """
    layered = _layered(grant)
    live = tuple(path for path in writable if path not in {each.root for each in layered})
    own = (*own_code(), *grant.kept)
    masks = find_masks(live, rules=rules, protected=grant.protected, own=own, as_files=as_files, names=names)
    if grant.shadow is not None:
        masks.shared.append(_in_use(grant.shadow))
    return masks, layered


def _layered(grant: Grant) -> tuple[Layered, ...]:
    if grant.shadow is None:
        return ()
    shadow = grant.shadow
    return (Layered(os.fspath(grant.workspace), os.fspath(shadow.directory), shadow.is_copy, shadow.memory_bytes),)


def _in_use(shadow: Shadowing) -> Shared:
    """Its lock, for as long as the box lives; two boxes must not change one shadow.

    Raises:
        PermissionDenied: somebody else uses it.
    """
    lock = shadow.directory / "lock"
    descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise Busy(f"the shadow {shadow.directory.name} is in use", hint="end what uses it, or fork it") from None
    return Shared(descriptor, os.fspath(shadow.directory), [])


def _home_inside(home: str, system: tuple[str, ...]) -> str:
    """A service's home may be `/` or lie in the system's directories, where an empty one would cover what is needed."""
    if home in ("/", "/etc", "/run", "/tmp", "/var/tmp"):
        return _PLAIN_HOME
    taken = (*system, "/dev", "/proc", "/sys")
    return _PLAIN_HOME if any(is_below(home, top) for top in taken) else home


def _aliases(grant: Grant, shown: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Second names for the workspace and for /tmp, unless something that is shown lies there itself."""
    aliases = (("/workspace", os.fspath(grant.workspace)), ("/var/tmp", "/tmp"))
    return tuple((name, target) for name, target in aliases if not any(is_below(path, name) for path in shown))


def _outside(system: tuple[str, ...]) -> list[str]:
    return [
        entry.path
        for entry in os.scandir("/")
        if entry.is_dir(follow_symlinks=False) and entry.name not in _NEVER_OUTSIDE and entry.path not in system
    ]


def hidden_in(shown: list[str], searched: list[str], rules: PathRules, writable: tuple[str, ...]) -> tuple[str, ...]:
    """What the blacklist hides in the readable directories; the writable ones have covers of their own."""
    # A row that leads through a link cannot be covered under that name; what it leads to has a row of its own.
    found = [
        path
        for path in rules.literals
        if any(is_inside(path, root) for root in shown) and os.path.exists(path) and os.path.realpath(path) == path
    ]
    for root in searched:
        found += (path for path in _matching(root, rules) if any(is_inside(path, top) for top in shown))
    # What lies below something hidden is hidden with it, and can no longer be found.
    return tuple(
        path for path in dict.fromkeys(found) if not any(is_inside(path, other) for other in (*writable, *found))
    )


def _matching(root: str, rules: PathRules) -> Iterator[str]:
    """What the blacklist names below a directory, and where its links lead; and sockets, which a host may listen on."""
    waiting = [root] if os.path.isdir(root) else []
    while waiting:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.name in rules.names or (rules.globs and rules.matches(entry.path)):
                        real = os.path.realpath(entry.path)
                        if os.path.exists(real):  # else a link that leads nowhere: there is nothing to cover
                            yield real
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False) and _is_socket(entry):
                        yield entry.path
        except OSError:
            continue  # it stays closed to the box too, which sees it read-only


def _is_socket(entry: os.DirEntry[str]) -> bool:
    return not entry.is_symlink() and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
