"""Chooses the wall: the first confiner that gives what is required, or an error that says what each one lacks."""

import sys
from collections.abc import Iterable
from typing import Any

from ringfence.confinement.base import Confiner, ContainerFilter, Prepared, View
from ringfence.errors import InitializationFailed
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee


def confiners(*, bwrap_path: str | None = None) -> tuple[Confiner, ...]:
    """The confiners of this platform, in the order of preference: the quickest of those that give everything first.

    Raises:
        InitializationFailed: there are none for this platform.
    """
    if sys.platform == "linux":
        from ringfence.confinement.linux.bwrap import Bubblewrap
        from ringfence.confinement.linux.gvisor import GVisor
        from ringfence.confinement.linux.landlock_only import LandlockOnly
        from ringfence.confinement.linux.unshare import Unshare

        return (Bubblewrap(bwrap_path), Unshare(), GVisor(), LandlockOnly())
    if sys.platform == "darwin":
        raise InitializationFailed(
            "running behind sandbox-exec is not built yet; only its profile is",
            hint="run Ringfence on Linux, for instance in a virtual machine",
        )
    raise InitializationFailed(
        f"there is no wall for the platform {sys.platform!r}",
        hint="Ringfence runs on Linux; use a Linux virtual machine",
    )


def build_view(grant: Grant, *, home: str, host_path: str, uid: int, gid: int) -> Prepared:
    """What a box with this grant sees; see the platform's own `build_view`."""
    from ringfence.confinement.linux.view import build_view as build

    return build(grant, home=home, host_path=host_path, uid=uid, gid=gid)


def build_container_view(grant: Grant, *, home: str, uid: int, gid: int, own_kernel: bool) -> Prepared:
    """What of the host a box in a container sees; see the platform's own `build_container_view`."""
    from ringfence.confinement.linux.container import build_container_view as build

    return build(grant, home=home, uid=uid, gid=gid, own_kernel=own_kernel)


def container_filter(
    view: View, private: tuple[str, ...], *, for_root: bool, makes_users: bool = False
) -> ContainerFilter:
    """How the kernel's surface is reduced in a container; see the platform's own `container_filter`."""
    from ringfence.confinement.linux.container import container_filter as make

    return make(view, private, for_root=for_root, makes_users=makes_users)


def notification_filter(grant: Grant) -> bytes:
    """The filter that stops calls to be looked at; empty if nothing is to be looked at."""
    from ringfence.confinement.linux.notify import assemble

    return assemble(grant.explain, strict=grant.strict)


def notification_rules(grant: Grant, view: View, owner: tuple[int, int] | None) -> tuple[str, ...]:
    """What the guardian lets pass without asking, and with whose rights it opens files where the grant is strict.

    Args:
        owner: run by root, the ids that commands run with.
    """
    from ringfence.confinement.linux.notify import rules
    from ringfence.confinement.linux.strict import strict_words

    return (*rules(grant, view), *(strict_words(grant, view, owner) if grant.strict else ()))


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
        reasons.append(f"{adapter.name} {f'lacks: {lacking}' if probe.usable else f'cannot be had: {probe.missing}'}")
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
    if not lacking:
        raise InitializationFailed(f"there is no adapter called {only!r}", hint="run `ringfence doctor` for the names")
    raise InitializationFailed(
        f"no wall on this machine gives what is required ({'; '.join(lacking)})",
        hint="; ".join(dict.fromkeys(hints)) or "run `ringfence doctor`",
    )
