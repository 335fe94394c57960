"""Makes one container with our helper as its first process, by one of two ways, and proves that it is as ordered.

    on the host's kernel       the helper connects to a socket of ours; the kernel is asked about everything
    on a kernel of its own     everything goes over its stdin and stdout; the host's kernel is asked about what it sees,
                               and the box itself, before anything else runs in it, about which kernel it is on

What has been made so far can be undone at every step, also when we are cancelled.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ringfence.confinement.base import Cover, How, Prepared, StandIn
from ringfence.confinement.choose import container_filter
from ringfence.dataclass import dataclass, replace
from ringfence.engines.boxes.waiting import wait_through_cancel
from ringfence.engines.docker import stage, verify
from ringfence.engines.docker.connecting import accept, peer
from ringfence.engines.docker.container import ContainerPlan, container_config
from ringfence.engines.docker.host import DockerHost
from ringfence.engines.docker.janitor import BOX_LABEL, MANAGER_LABEL, own_name
from ringfence.engines.docker.mounts import HELPER, Mount, check_fields, plan
from ringfence.engines.docker.relay import Relay, attach
from ringfence.engines.docker.runtimes import Kernel, Runtime
from ringfence.errors import InitializationFailed
from ringfence.limits import rlimits
from ringfence.values.request import Request, Stream

if TYPE_CHECKING:
    from ringfence.engines.boxes.box import HelperBox
    from ringfence.engines.docker.daemon import About, Daemon, Image
    from ringfence.engines.docker.identity import Identity
    from ringfence.engines.docker.stage import Stage
    from ringfence.values.grant import Grant

_GVISOR_PROCESSES = 2048
"""Threads of gVisor itself, and those in which guest code runs, several for each of its processes. Inside, gVisor holds
the box to its own number."""
_GVISOR_DEVICES = ("/dev/net",)
"""It makes tunnels of its own; nobody needs them where there is no network."""
_GVISOR_MOUNTS = 230
"""With hardly more it does not start, and does not say why."""
_BOOT_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Order:
    """What a container is made from."""

    url: str
    about: About
    runtime: Runtime
    image: Image
    grant: Grant
    prepared: Prepared
    stand_in: StandIn | None
    identity: Identity


@dataclass(frozen=True, slots=True)
class Made:
    """A container that runs, with a way to its first process."""

    around: DockerHost
    host_pid: int
    """Its first process, or what runs its kernel."""
    has_groups: bool
    """Whether it is in control groups of its own."""


async def make(daemon: Daemon, order: Order) -> Made:
    """
    Raises:
        InitializationFailed: it could not be made, or is not as it was ordered.
    """
    undo = AsyncExitStack()
    try:
        made = await _build(daemon, order, undo)
    except BaseException:
        await _to_the_end(undo.aclose())
        raise
    undo.pop_all()
    return made


async def check_kernel(box: HelperBox, runtime: Runtime) -> None:
    """Ask a new box, in which nothing but our helper has run yet, which kernel it is on.

    Raises:
        InitializationFailed: it is the host's, whatever the runtime is called.
    """
    said = bytearray()

    def listen(stream: Stream, piece: bytes) -> None:
        if stream is Stream.STDOUT:
            said.extend(piece)

    done = await box.run(Request(argv=(HELPER, "kernel"), on_output=listen))
    boot, _, _ = said.decode(errors="replace").partition(" ")
    if not done.ok or not _BOOT_ID.fullmatch(boot):
        raise InitializationFailed(
            f"the box does not say which kernel it is on, which should be {runtime.kernel}",
            hint="are the limits too tight for it? Else use another runtime",
        )
    if boot == Path("/proc/sys/kernel/random/boot_id").read_text().strip():
        raise InitializationFailed(
            f"the runtime {runtime.name!r} should give {runtime.kernel}, and runs containers on the host's",
            hint="look at how it is registered in the daemon's settings",
        )


async def _build(daemon: Daemon, order: Order, undo: AsyncExitStack) -> Made:
    view, is_carried = order.prepared.view, order.runtime.has_own_kernel
    for_root = order.stand_in is not None and order.stand_in.for_root
    own_users = order.identity.has_own_users
    confinement = container_filter(view, ("/var/tmp", *order.image.volumes), for_root=for_root, makes_users=own_users)
    staged = await stage.build(
        order.prepared,
        order.stand_in,
        confinement.profile,
        is_carried=is_carried,
        is_rootless=order.about.is_rootless,
    )
    undo.push_async_callback(staged.take_down)
    if order.runtime.kernel is Kernel.MACHINE:
        view = replace(view, covers=tuple(map(_freeze_pinned, view.covers)))
    mounts = plan(view, staged.sources)
    if order.runtime.kernel is Kernel.GVISOR and len(mounts) > _GVISOR_MOUNTS:
        raise InitializationFailed(
            f"what is hidden and protected takes {len(mounts)} mounts, and gVisor supports at most {_GVISOR_MOUNTS}",
            hint="give a smaller part of it as the workspace, or use a wall on the host's kernel",
        )
    if order.about.is_podman:
        check_fields(mounts)
    wanted = verify.expected(mounts)
    profile = staged.sources.profile if order.about.is_podman else confinement.profile
    plan_of_it = _plan(order, mounts, profile, os.urandom(8).hex())
    config = container_config(plan_of_it)
    name = f"ringfence-{dict(plan_of_it.labels)[BOX_LABEL]}"
    undo.push_async_callback(daemon.remove, name)
    container = await _to_the_end(daemon.create(config, name))
    if is_carried:
        relay, host_pid, first_process = await _attach(daemon, order, container, undo)
        control = relay.control
        if order.runtime.kernel is Kernel.GVISOR:
            verify.prove_gvisor(host_pid, container, wanted)
        configure = (*rlimits.words(order.grant.limits), "reaper")
    else:
        relay = None
        control, host_pid, first_process = await _connect(daemon, order, container, staged, undo)
        memory = tuple(config["HostConfig"]["Tmpfs"])
        _prove(order, host_pid, wanted, memory)
        configure = (*rlimits.words(order.grant.limits, counts_processes=own_users), *confinement.configure)
    staged.close_door()
    staged.entrust(first_process)
    around = DockerHost(
        url=order.url,
        container=container,
        stage=staged,
        control=control,
        first_process=first_process,
        configure=("umask", str(0o022), *configure),
        seccomp=confinement.seccomp,
        owner=None if order.stand_in is None else (order.stand_in.uid, order.stand_in.gid),
        relay=relay,
    )
    return Made(around, host_pid, verify.belongs_to(_groups(host_pid), container))


def _prove(order: Order, pid: int, wanted: Mapping[str, tuple[str, str, bool]], memory: tuple[str, ...]) -> None:
    who = order.identity
    own_users = (who.inside.uid, who.inside.gid) if who.has_own_users else None
    verify.prove(pid, wanted, memory, who.outside.uid, who.outside.gid, _namespaces(order), own_users)


def _plan(order: Order, mounts: tuple[Mount, ...], profile: str, box_id: str) -> ContainerPlan:
    is_gvisor = order.runtime.kernel is Kernel.GVISOR
    who = order.identity
    return ContainerPlan(
        image=order.image,
        uid=who.named.uid,
        gid=who.named.gid,
        becomes=(who.inside.uid, who.inside.gid) if who.has_own_users else None,
        mounts=mounts,
        seccomp=profile,
        limits=order.grant.limits,
        cores=order.grant.cores,
        runtime=order.runtime.name,
        is_carried=order.runtime.has_own_kernel,
        empty=_GVISOR_DEVICES if is_gvisor else (),
        own_processes=1 + (_GVISOR_PROCESSES if is_gvisor else 0),  # our first process counts too
        labels=((MANAGER_LABEL, own_name()), (BOX_LABEL, box_id)),
        for_podman=order.about.is_podman,
        has_network=order.grant.network is not None,
    )


def _freeze_pinned(cover: Cover) -> Cover:
    """What holds a name in place is a mount of the kernel that moves files: whether a virtual machine's does is nothing
    that we have seen. So it is read-only there."""
    return replace(cover, how=How.FREEZE) if cover.how is How.PIN else cover


async def _connect(
    daemon: Daemon, order: Order, container: str, staged: Stage, undo: AsyncExitStack
) -> tuple[socket.socket, int, int]:
    if staged.listener is None:
        raise AssertionError("a stage that nobody can connect to")
    await daemon.start(container)
    control = await accept(daemon, container, staged.listener)
    undo.callback(control.close)
    said_pid = await daemon.first_pid(container) if order.about.is_rootless else None
    first_pid = peer(control, order.identity.outside.uid, container, said_pid)
    first_process = os.pidfd_open(first_pid)
    undo.callback(os.close, first_process)
    return control, first_pid, first_process


async def _attach(daemon: Daemon, order: Order, container: str, undo: AsyncExitStack) -> tuple[Relay, int, int]:
    async def attached() -> Relay:
        relay = await attach(order.url, container)
        undo.push_async_callback(relay.abort)
        return relay

    relay = await _to_the_end(attached())
    await daemon.start(container)
    host_pid = await daemon.first_pid(container)
    try:
        first_process = os.pidfd_open(host_pid)
    except OSError as fault:
        raise InitializationFailed(
            f"what runs the container cannot be seen ({fault.strerror})", hint="the daemon has to run on this machine"
        ) from fault
    undo.callback(os.close, first_process)
    if not verify.belongs_to(_groups(host_pid), container):
        raise InitializationFailed(
            "what runs the container is in no control group of it, so that nothing holds its memory",
            hint="register the runtime without --ignore-cgroups; or has it just ended? See the daemon's own log",
        )
    return relay, host_pid, first_process


def _groups(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_text()
    return ""


def _namespaces(order: Order) -> tuple[str, ...]:
    """Podman decides by itself about control groups: with version 1 of them a container is in the host's namespace. It
    then sees their names; where they are mounted, below /sys, it sees nothing either way."""
    names = (*verify.NAMESPACES, *(["user"] if order.identity.has_own_users else []))
    return tuple(name for name in names if name != "cgroup" or not order.about.is_podman)


async def _to_the_end(work: Awaitable[_T]) -> _T:
    """A daemon goes on making what nobody waits for any more, and then nobody would remove it: wait, and only then be
    cancelled."""
    task = asyncio.ensure_future(work)
    if await wait_through_cancel(task):
        task.exception()  # looked at: whoever cancelled does not want to know
        raise asyncio.CancelledError
    return task.result()
