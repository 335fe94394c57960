"""Which runtime makes the containers, and on whose kernel they run.

A daemon can have several: programs that make a container of what it orders. Most use the host's kernel, and differ in
nothing that we see. Some give each container a kernel of its own: gVisor, or a virtual machine. Neither a socket of the
host nor a descriptor passes into those, so everything is carried over the container's stdin and stdout (`relay`), and
the host's kernel can be asked about them only in part (`verify`).

They are known by what they are called or what they run. One that is not known fails when its first process cannot
connect; one that only claims to be of these fails when it is asked which kernel it is: no box either way.

How gVisor is called stands in the daemon's settings, not in ours, and some ways do not hold what we promise: those are
refused, with the settings that do.
"""

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.engines.docker.daemon import About, Registered
from ringfence.errors import InitializationFailed


class Kernel(StrEnum):
    HOST = "the host's kernel"
    GVISOR = "gVisor, a kernel in user space"
    MACHINE = "a virtual machine with a kernel of its own"


@dataclass(frozen=True, slots=True)
class Runtime:
    name: str
    """As the daemon knows it; empty for its default."""
    kernel: Kernel

    @property
    def has_own_kernel(self) -> bool:
        return self.kernel is not Kernel.HOST

    @property
    def wall(self) -> str:
        """What a wall of such containers is called."""
        return WALLS[self.kernel]


WALLS: Final = {Kernel.HOST: "docker", Kernel.GVISOR: "docker-gvisor", Kernel.MACHINE: "docker-microvm"}


_KNOWN: Final = {
    "runsc": Kernel.GVISOR,
    "containerd-shim-runsc-v1": Kernel.GVISOR,
    "io.containerd.runsc.v1": Kernel.GVISOR,
    "kata": Kernel.MACHINE,
    "kata-runtime": Kernel.MACHINE,  # Kata Containers before 2.0
    "containerd-shim-kata-v2": Kernel.MACHINE,
    "io.containerd.kata.v2": Kernel.MACHINE,
    "krun": Kernel.MACHINE,  # libkrun
}
"""Names, programs and types of runtimes that bring a kernel."""
_PREFERRED: Final = (Kernel.GVISOR, Kernel.MACHINE)
_GVISOR_HINT: Final = (
    'register it in the daemon\'s settings as {"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": '
    '["--network=none", "--directfs=false"]}}}'
)
_OFF: Final = ("0", "f", "F", "false", "False", "FALSE")
"""As Go's programs read a switch that is off."""
_NATIVE: Final = "or use the native engine with RINGFENCE_PROCESS_SANDBOX=gvisor, which needs no daemon"


def choose_runtime(about: About, asked: str | None, *, own_kernel: bool) -> Runtime:
    """The one that is asked for, else one with a kernel of its own where that is required, else the daemon's default.

    Raises:
        InitializationFailed: it is not there, or is set up in a way that does not hold; says what would.
    """
    if asked is None and own_kernel:
        registered = _first_with_own_kernel(about)
    else:
        registered = _named(about, asked or about.default_runtime)
    runtime = Runtime(registered.name if registered.name != about.default_runtime else "", kernel_of(registered))
    if own_kernel and not runtime.has_own_kernel:
        raise InitializationFailed(
            f"a kernel of its own is required, and the runtime {registered.name!r} uses the host's",
            hint=f"leave RINGFENCE_DOCKER_RUNTIME out, or name another one; {_NATIVE}",
        )
    if about.is_rootless and runtime.has_own_kernel:
        raise InitializationFailed(
            f"the Docker daemon is rootless, and {runtime.kernel} behind one has not been tried",
            hint=f"use a daemon of root's for that, {_NATIVE}",
        )
    if runtime.kernel is Kernel.GVISOR:
        _check_gvisor(registered)
    return runtime


def kernel_of(registered: Registered) -> Kernel:
    """Whose kernel a runtime's containers run on, by what it is called and what it runs."""
    words = (registered.name, registered.path, registered.type)
    return next((_KNOWN[last] for word in words if (last := word.rpartition("/")[2]) in _KNOWN), Kernel.HOST)


def own_kernels(about: About) -> tuple[Registered, ...]:
    """All runtimes of a daemon that bring a kernel, the preferred ones first."""
    listed = {each.name for each in about.runtimes}
    default = () if about.default_runtime in listed else (Registered(about.default_runtime),)  # as Podman has it
    return tuple(each for kernel in _PREFERRED for each in (*about.runtimes, *default) if kernel_of(each) is kernel)


def _first_with_own_kernel(about: About) -> Registered:
    found = own_kernels(about)
    if not found:
        raise InitializationFailed(
            f"a kernel of its own is required, and the daemon has only {_list(about.runtimes)}",
            hint=f"install gVisor and {_GVISOR_HINT}; {_NATIVE}",
        )
    return found[0]


def _named(about: About, name: str) -> Registered:
    is_default = name == about.default_runtime
    if not is_default and about.is_podman:
        raise InitializationFailed(
            f"Podman makes containers by {about.default_runtime or 'its default'}, whatever runtime is asked for",
            hint=f"start its service with --runtime {name}, and leave RINGFENCE_DOCKER_RUNTIME out",
        )
    found = next((each for each in about.runtimes if each.name == name), None)
    if found is None and not is_default:
        raise InitializationFailed(
            f"the Docker daemon has no runtime {name!r}; it has {_list(about.runtimes)}",
            hint="register it in the daemon's settings, or name another one in RINGFENCE_DOCKER_RUNTIME",
        )
    return found or Registered(name)  # Podman lists no runtimes, and may say where its default lies


def _check_gvisor(registered: Registered) -> None:
    if not registered.path.endswith("runsc"):
        raise InitializationFailed(
            f"how the runtime {registered.name!r} calls gVisor cannot be seen", hint=f"{_GVISOR_HINT}; {_NATIVE}"
        )
    flags = dict(_flags(registered.arguments))
    if flags.get("directfs") != "false":
        raise InitializationFailed(
            f"the runtime {registered.name!r} lets gVisor open files by itself, as root and past the covers over what "
            "is protected",
            hint=_GVISOR_HINT,
        )
    if flags.get("network") == "host":
        raise InitializationFailed(
            f"the runtime {registered.name!r} gives boxes the host's network stack", hint=_GVISOR_HINT
        )
    if flags.get("host-uds", "none") != "none" or _is_on(flags, "fsgofer-host-uds"):  # which older versions call it
        raise InitializationFailed(
            f"the runtime {registered.name!r} lets boxes connect to sockets of the host", hint=_GVISOR_HINT
        )
    if _is_on(flags, "TESTONLY-unsafe-nonroot") or _is_on(flags, "rootless"):
        raise InitializationFailed(
            f"the runtime {registered.name!r} leaves gVisor itself unconfined, as its own tests do", hint=_GVISOR_HINT
        )
    if flags.get("platform") == "kvm":
        raise InitializationFailed(
            f"the runtime {registered.name!r} runs gVisor by kvm, which spins for ever on some machines",
            hint=f"leave --platform out, or name systrap; {_GVISOR_HINT}",
        )


def _is_on(flags: Mapping[str, str], name: str) -> bool:
    return flags.get(name, "false") not in _OFF


def _flags(arguments: Iterable[str]) -> Iterator[tuple[str, str]]:
    """(name, value) as Go's programs read them: one dash or two, the value behind = or as the next word."""
    words = list(arguments)
    for word, following in zip(words, (*words[1:], ""), strict=False):
        if word.startswith("-"):
            name, given, value = word.lstrip("-").partition("=")
            yield name, value if given else following if not following.startswith("-") else "true"


def _list(runtimes: Iterable[Registered]) -> str:
    return ", ".join(each.name for each in runtimes) or "named none"
