"""Which runtime makes the containers, and whether our way into a box works with it.

A daemon can have several: programs that make a container of what it orders. Most use the host's kernel, and differ in
nothing that we see. Some give each container a kernel of its own, which neither a socket of the host nor a descriptor
passes into; a box lives on both, and the host's kernel could not be asked whether it is confined. Those are known by
name and refused. One under another name is not known, and fails when its first process cannot connect: no box either
way.
"""

from typing import Final

from ringfence.engines.docker.daemon import About
from ringfence.errors import InitializationFailed

_OWN_KERNEL: Final = (
    ("runsc", "gVisor: a kernel in user space"),
    ("io.containerd.runsc.v1", "gVisor by its own shim"),
    ("kata", "Kata Containers, as packages name it: a virtual machine for each container"),
    ("kata-runtime", "Kata Containers before 2.0"),
    ("io.containerd.kata.v2", "Kata Containers by its own shim"),
    ("krun", "libkrun: a virtual machine for each container"),
)
"""The names by which runtimes with a kernel of their own are registered, and what each is."""
_NATIVE: Final = "for a kernel of its own use the native engine with RINGFENCE_PROCESS_SANDBOX=gvisor"


def check_runtime(about: About, asked: str | None) -> None:
    """Refuse a runtime that is not there, or that no box can be made with; also if it is the daemon's default.

    Raises:
        InitializationFailed: says which, and which ones there are.
    """
    chosen = asked or about.default_runtime
    if chosen != about.default_runtime and about.is_podman:
        raise InitializationFailed(
            f"Podman makes containers by {about.default_runtime or 'its default'}, whatever runtime is asked for",
            hint=f"start its service with --runtime {asked}, and leave RINGFENCE_DOCKER_RUNTIME out",
        )
    if chosen != about.default_runtime and chosen not in about.runtimes:
        raise InitializationFailed(
            f"the Docker daemon has no runtime {asked!r}; it has {', '.join(about.runtimes) or 'named none'}",
            hint="register it in the daemon's settings, or name another one in RINGFENCE_DOCKER_RUNTIME",
        )
    what = dict(_OWN_KERNEL).get(chosen.rpartition("/")[2])  # Podman may say where it lies
    if what is not None:
        raise InitializationFailed(
            f"no box can be made by the runtime {chosen!r} ({what}): neither a socket nor a descriptor passes into it",
            hint=f"name another one in RINGFENCE_DOCKER_RUNTIME ({', '.join(_usable(about)) or 'runc'}); {_NATIVE}",
        )


def _usable(about: About) -> tuple[str, ...]:
    own = {name for name, _ in _OWN_KERNEL}
    return tuple(name for name in about.runtimes if name not in own)
