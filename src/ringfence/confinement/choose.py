"""Chooses the wall: the first confiner that gives what is required, or an error that says what each one lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from ringfence.confinement.base import Confiner, ContainerFilter, Prepared, Probe, Trust, View
from ringfence.deferred import deferred_module
from ringfence.errors import InitializationFailed

if TYPE_CHECKING:
    import shutil

    from ringfence.confinement.adapter import ProcessAdapter
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Guarantee
else:
    shutil = deferred_module("shutil")


_PLATFORMS: Final = {"linux": "Linux", "darwin": "macOS", "win32": "Windows"}
NOT_BUILT: Final = {
    # Adapters that the design documents name and Ringfence does not have: accepted as values, refused with the reason.
    "nsjail": (
        "linux",
        "nsjail",
        "its boxes need a PID 1 that takes commands over a socket, and no adapter does that for nsjail yet",
    ),
    "sandbox-exec": ("darwin", "sandbox-exec", "only its profile can be written yet; nothing runs behind it"),
    "jobobject": (
        "win32",
        "",
        "a job object ends a tree of processes and hides no file, so that it would be no wall by itself",
    ),
}
"""By name: the platform that it is for, its program (none where it is a system call), and why it is not built."""


def probe_of(name: str) -> Probe:
    """What an adapter of this name gives on this machine, and if nothing, why: its platform, its program, or us.

    Raises:
        InitializationFailed: no adapter has this name.
    """
    for adapter in confiners() if sys.platform == "linux" else ():
        if adapter.name == name:
            return adapter.probe()
    if name not in NOT_BUILT:
        raise InitializationFailed(f"there is no adapter called {name!r}", hint="run `ringfence doctor` for the names")
    platform, program, why = NOT_BUILT[name]
    found = shutil.which(program) if program else None
    if sys.platform != platform:
        missing = f"it is for {_PLATFORMS[platform]}, and this is {_PLATFORMS.get(sys.platform, sys.platform)}"
    elif program and found is None:
        missing = f"the program {program} is not installed; besides, {why}"
    else:
        missing = f"{found} is there, but {why}" if found else why
    return Probe(missing=missing, hint="unset RINGFENCE_PROCESS_SANDBOX, or set it to auto: bwrap, unshare, landlock")


def confiners(*, bwrap_path: str | None = None) -> tuple[Confiner, ...]:
    """The confiners of this platform, in the order of preference: the quickest of those that give everything first.

    Args:
        bwrap_path: a bubblewrap of the caller's; it comes first then.

    Raises:
        InitializationFailed: there are none for this platform.
    """
    if sys.platform == "linux":
        from ringfence.confinement.linux.bwrap import Bubblewrap
        from ringfence.confinement.linux.gvisor import GVisor
        from ringfence.confinement.linux.landlock_only import LandlockOnly
        from ringfence.confinement.linux.unshare import Unshare

        bwrap, unshare = Bubblewrap(bwrap_path), Unshare()
        # Who names a bubblewrap wants it.
        return (*((unshare, bwrap) if bwrap_path is None else (bwrap, unshare)), GVisor(), LandlockOnly())
    if sys.platform == "darwin":
        raise InitializationFailed(
            "running behind sandbox-exec is not built yet; only its profile is",
            hint="run Ringfence on Linux, for instance in a virtual machine",
        )
    raise InitializationFailed(
        f"there is no wall for the platform {sys.platform!r}",
        hint="Ringfence runs on Linux; use a Linux virtual machine",
    )


def process_adapters(*, bwrap_path: str | None = None) -> tuple[ProcessAdapter, ...]:
    """Every adapter for a single command line, the strongest first, of every platform; `probe` says which work here."""
    from ringfence.confinement.linux.adapters.bubblewrap import BubblewrapAdapter
    from ringfence.confinement.linux.adapters.firejail import FirejailAdapter
    from ringfence.confinement.linux.adapters.landlock import LandlockAdapter
    from ringfence.confinement.linux.adapters.nsjail import NsjailAdapter
    from ringfence.confinement.linux.adapters.unshare import UnshareAdapter
    from ringfence.confinement.macos.sandbox_exec import SandboxExecAdapter
    from ringfence.confinement.windows.job_object import JobObjectAdapter

    linux = (BubblewrapAdapter(bwrap_path), NsjailAdapter(), UnshareAdapter(), LandlockAdapter(), FirejailAdapter())
    return (*linux, SandboxExecAdapter(), JobObjectAdapter())


def process_adapter(name: str | None = None) -> ProcessAdapter:
    """The adapter of this name, or without one the first that works here.

    Raises:
        InitializationFailed: there is none of that name, or it cannot be used here; says why.
    """
    found = [adapter for adapter in process_adapters() if name in (None, adapter.name)]
    if not found:
        names = ", ".join(adapter.name for adapter in process_adapters())
        raise InitializationFailed(f"there is no adapter called {name!r}", hint=f"choose one of: {names}")
    for adapter in found:
        if adapter.probe().usable:
            return adapter
    probes = [(adapter.name, adapter.probe()) for adapter in found]
    raise InitializationFailed(
        "; ".join(f"{called}: {probe.missing}" for called, probe in probes), hint=probes[0][1].hint
    )


def build_view(
    grant: Grant, *, home: str, host_path: str, uid: int, gid: int, names: bool, trust: Trust | None = None
) -> Prepared:
    """What a box with this grant sees; see the platform's own `build_view`."""
    from ringfence.confinement.linux.view import build_view as build

    return build(grant, home=home, host_path=host_path, uid=uid, gid=gid, names=names, trust=trust)


def system_bundle() -> bytes:
    """Whom the machine trusts with TLS, in PEM."""
    from ringfence.confinement.linux.trust import system_bundle as read

    return read()


def give_up(prepared: Prepared) -> None:
    """There will be no box with this view, and so no launcher that cleans up after it: remove what was made for it."""
    from ringfence.confinement.linux.masks import Masks

    Masks(shared=list(prepared.shared)).give_up()


def build_container_view(
    grant: Grant, *, home: str, uid: int, gid: int, own_kernel: bool, trust: Trust | None = None
) -> Prepared:
    """What of the host a box in a container sees; see the platform's own `build_container_view`."""
    from ringfence.confinement.linux.container import build_container_view as build

    return build(grant, home=home, uid=uid, gid=gid, own_kernel=own_kernel, trust=trust)


def container_filter(
    view: View, private: tuple[str, ...], *, for_root: bool, makes_users: bool = False
) -> ContainerFilter:
    """How the kernel's surface is reduced in a container; see the platform's own `container_filter`."""
    from ringfence.confinement.linux.container import container_filter as make

    return make(view, private, for_root=for_root, makes_users=makes_users)


WRITTEN_THROUGH: Final = (
    "a file with hard links outside of what is granted is written through: nobody sees single calls"
)


def notification_filter(grant: Grant, view: View) -> bytes:
    """The filter that stops calls to be looked at; empty if nothing is to be looked at."""
    from ringfence.confinement.linux.notify import assemble, shared_roots

    return assemble(
        grant.trace, mediate_opens=grant.mediate_opens, shares=bool(shared_roots(grant)), named=bool(view.named)
    )


def led_out(grant: Grant) -> tuple[int, ...]:
    """Ports of any address by which connections of the box come to the proxy."""
    from ringfence.confinement.linux.notify import led_out as ports

    return ports(grant)


def makes_names(grant: Grant, confiner: Confiner) -> bool:
    """Whether names in the box's writable directories are made from outside, by whoever looks at its calls: then a
    protected name that is not there needs no placeholder."""
    from ringfence.confinement.linux.notify import makes_names as sees_them

    return confiner.probe().makes_names and sees_them(grant)


def shares_files(grant: Grant) -> bool:
    """Whether a file that is written to may be one outside of what is granted, too, by a hard link."""
    from ringfence.confinement.linux.notify import shared_roots

    return bool(shared_roots(grant))


def notification_rules(grant: Grant, view: View, owner: tuple[int, int] | None) -> tuple[str, ...]:
    """What the guardian lets pass without asking, and with whose rights it opens and copies files.

    Args:
        owner: run by root, the ids that commands run with.
    """
    from ringfence.confinement.linux.mediation import mediation_words
    from ringfence.confinement.linux.notify import rules

    return (*rules(grant, view, owner), *(mediation_words(grant, view) if grant.mediate_opens else ()))


def look_anew() -> None:
    """Forget what is remembered of the machine's files, where they are others now."""
    from ringfence.confinement.linux.bwrap import find_bwrap
    from ringfence.confinement.linux.host import forget_if_changed as forget_etc
    from ringfence.confinement.linux.own import forget_if_changed as forget_own

    find_bwrap.cache_clear()
    forget_etc()
    forget_own()


def own_programs(confiner: Confiner) -> tuple[str, ...]:
    """What the wall itself is started by, besides our helper."""
    from ringfence.confinement.linux.bwrap import Bubblewrap

    return confiner.programs() if isinstance(confiner, Bubblewrap) else ()


def container_profile() -> dict[str, Any]:
    """The usual system-call filter as container engines take it, as plain data for JSON."""
    from ringfence.confinement.linux.seccomp_json import docker_profile

    return docker_profile()


def facts() -> tuple[tuple[str, bool, str, str], ...]:
    """What the platform offers, for `doctor`: (name, whether it is well, what was found, what to do)."""
    if sys.platform != "linux":
        return ()
    from ringfence.confinement.linux.facts import linux_facts

    return linux_facts()


def why_not_before(adapters: Iterable[Confiner], chosen: Confiner, requires: frozenset[Guarantee]) -> tuple[str, ...]:
    """What was against those that would have been taken before it."""
    reasons = []
    for adapter in adapters:
        if adapter is chosen:
            break
        probe = adapter.probe()
        lacking = ", ".join(sorted(requires - probe.guarantees))
        reasons.append(
            f"{adapter.name} {f'lacks: {lacking}' if probe.usable else f'is not available: {probe.missing}'}"
        )
    return tuple(reasons)


def choose(adapters: Iterable[Confiner], requires: frozenset[Guarantee], *, only: str | None = None) -> Confiner:
    """Return the first adapter that enforces all of `requires`.

    Args:
        only: consider just the adapter of this name.

    Raises:
        InitializationFailed: none does; names what each one lacks.
    """
    lacking: list[str] = []
    hints: list[str] = []
    for adapter in adapters:
        if only is not None and adapter.name != only:
            continue
        probe = adapter.probe()
        missing = requires - probe.guarantees
        if probe.usable and not missing:
            return adapter
        why = probe.missing or f"lacks {', '.join(sorted(missing))}"
        lacking.append(f"{adapter.name}: {why}")
        if probe.hint:
            hints.append(probe.hint)
    if not lacking and only is not None:
        probe = probe_of(only)
        raise InitializationFailed(f"{only} is not available: {probe.missing}", hint=probe.hint)
    raise InitializationFailed(
        f"no wall on this machine gives what is required ({'; '.join(lacking)})",
        hint="; ".join(dict.fromkeys(hints)) or "run `ringfence doctor`",
    )
