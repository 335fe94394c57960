"""Makes boxes in containers: stage, container, connection, proof, box.

    stage       what the host has to have ready, and its guardian           (stage)
    container   as hard as the daemon can make it                           (container, mounts)
    connection  our helper is its first process, and connects to us         (connecting, native/ringfence-box.c)
                or, on a kernel of its own, is carried to over its stdio    (ferry, native/carry.c)
    proof       the kernel says that it is confined as ordered              (making, verify)
    box         the same as any other: sessions, interpreters, terminals    (engines/boxes)

The daemon is needed to make a box and to take it away. In between, calls go over a socket to the box's first process: a
call costs what it costs in a native box, not what `docker exec` does.

A rootless daemon is the user itself in a user namespace; a box of it gets one of its own, with nobody else in it
(`identity`).

What this does not protect against: the daemon itself, which is root or, rootless, the user, and whoever may talk to it;
faults of the kernel, which containers share with the host.
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.confinement.base import BUNDLE, Prepared, Trust
from ringfence.confinement.choose import WRITTEN_THROUGH, build_container_view, give_up, shares_files
from ringfence.dataclass import dataclass
from ringfence.engines.aside import aside
from ringfence.engines.boxes import helper
from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.boxes.identity import stand_in
from ringfence.engines.boxes.standby import BoxSetting
from ringfence.engines.docker import verify
from ringfence.engines.docker.container import HOME
from ringfence.engines.docker.daemon import About, Daemon, Image
from ringfence.engines.docker.identity import identity_of, rootless_identity
from ringfence.engines.docker.janitor import MANAGER_LABEL, is_orphan
from ringfence.engines.docker.making import Order, check_kernel, make
from ringfence.engines.docker.mounts import check_place
from ringfence.engines.docker.programs import ASK, ImagePrograms
from ringfence.engines.docker.runtimes import Kernel, Runtime, choose_runtime
from ringfence.engines.networking.attaching import attach, no_provider
from ringfence.engines.networking.trusting import make_trust
from ringfence.engines.networking.variables import network_variables
from ringfence.errors import InitializationFailed, Internal, SpawnFailed
from ringfence.limits.choose import find as find_holder
from ringfence.limits.choose import watch
from ringfence.values.grant import Grant, Trace
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limits
from ringfence.values.outcome import SandboxAudit
from ringfence.values.request import Overflow, Request, Stream

if TYPE_CHECKING:
    from ringfence.engines.base import NetworkProvider
    from ringfence.engines.docker.settings import DockerSettings

_READY_SECONDS = 20.0
_ASK_SECONDS = 30.0
_LISTING_MAX = 16 * 1024 * 1024
_ALWAYS = frozenset(
    {
        Guarantee.HOST_FILES_HIDDEN,
        Guarantee.HOST_NAMES_HIDDEN,
        Guarantee.WRITES_CONFINED,
        Guarantee.PROTECTED_PATHS,
        Guarantee.NETWORK_OFF,
        Guarantee.OWN_LOOPBACK,
        Guarantee.HOST_PROCESSES_HIDDEN,
        Guarantee.KERNEL_SURFACE_REDUCED,
        Guarantee.NEVER_ROOT,
        Guarantee.TREE_DIES,
    }
)
"""Named one by one: what is promised elsewhere tomorrow is not held here by itself."""
_UNEXPLAINED = "refusals by the kernel are not explained: nobody looks at single calls in a container"
_LOOPBACK_ONLY = (
    "in a container the network is reached by name, or by proxy variables: it cannot be given routes, so that an "
    "address of another machine leads nowhere"
)

_known: dict[tuple[str, str], ImagePrograms] = {}
"""The programs of images, by daemon and image."""


@dataclass(frozen=True, slots=True)
class _Source:
    """Where boxes come from: who makes them, by which runtime, of which image."""

    daemon: Daemon
    about: About
    runtime: Runtime
    image: Image


class DockerEngine:
    name = "docker"

    def __init__(self, settings: DockerSettings, network: NetworkProvider | None = None) -> None:
        """Args:
        network: who serves boxes that have one.
        """
        self._settings = settings
        self._network = network
        self._first = asyncio.Lock()
        self._about: About | None = None
        """What the daemon said of itself; asked again when a box could not be made."""

    async def open(self, grant: Grant) -> HelperBox:
        box: HelperBox | None = None
        try:
            async with Daemon(self._settings.url) as daemon:
                box = await self._open_for(daemon, grant)
        except BaseException as fault:
            if isinstance(fault, InitializationFailed):
                self._about = None
            if box is not None:  # made, and then we were cancelled, or the daemon failed, on the way out
                await box.close()
            raise
        return box

    async def _open_for(self, daemon: Daemon, grant: Grant) -> HelperBox:
        about = await self._meet(daemon)
        runtime = choose_runtime(about, self._settings.runtime, own_kernel=Guarantee.OWN_KERNEL in grant.requires)
        guarantees = guarantees_of(about, runtime)
        if lacking := grant.requires - guarantees:
            raise InitializationFailed(
                f"Docker does not give what is required: {', '.join(sorted(lacking))}",
                hint="use the native engine, or a daemon on a kernel with memory and pids control groups",
            )
        _check_grant(grant)
        if grant.network is not None:
            self._check_network()
        source = _Source(daemon, about, runtime, await daemon.image(self._settings.image))
        programs = _known.get((self._settings.url, source.image.id))
        if programs is None:
            return await self._open_first(source, grant)
        self._check_python(grant, programs)
        box, _ = await self._open(source, grant, programs)
        return box

    def _check_network(self) -> None:
        """
        Raises:
            InitializationFailed: nobody would serve it.
        """
        if self._network is None:
            raise no_provider()

    async def _trust(self, grant: Grant) -> Trust | None:
        if grant.network is None or self._network is None or not grant.network.inspects:
            return None
        known = await self._network.known_hosts() if grant.network.ends_ssh else ""
        return await aside(partial(make_trust, await self._network.authority(), known))

    async def _meet(self, daemon: Daemon) -> About:
        """What kind of daemon it is; the first time, what dead managers left there is removed."""
        async with self._first:
            if (about := self._about) is None:
                about = self._about = await daemon.about()
                for container, manager in await daemon.labelled(MANAGER_LABEL):
                    if is_orphan(manager):
                        await daemon.remove(container)
        return about  # not the attribute: another box that could not be made meanwhile has it asked anew

    async def _open_first(self, source: _Source, grant: Grant) -> HelperBox:
        """A box of an image that nobody knows yet: it is asked what is in it, before it is handed out."""
        box, setting = await self._open(source, grant, ImagePrograms(()))
        try:
            programs = await self._ask(box)
            if programs is None:  # the grant's limits are too tight for the question
                programs = await self._ask_apart(source)
            _known[self._settings.url, source.image.id] = programs
            self._check_python(grant, programs)
            box.settle(setting(programs))
        except BaseException:
            await box.close()
            raise
        return box

    async def _ask_apart(self, source: _Source) -> ImagePrograms:
        with tempfile.TemporaryDirectory(prefix="ringfence-docker-ask-") as empty:
            grant = Grant(workspace=Path(os.path.realpath(empty)), limits=Limits(wall_seconds=_ASK_SECONDS))
            box, _ = await self._open(source, grant, ImagePrograms(()))
            try:
                programs = await self._ask(box)
            finally:
                await box.close()
        if programs is None:
            raise InitializationFailed(
                f"the image {self._settings.image!r} does not list its programs", hint="does its /bin/sh work?"
            )
        return programs

    async def _ask(self, box: HelperBox) -> ImagePrograms | None:
        """What PATH reaches in there; None if the question was not answered to its end.

        Raises:
            InitializationFailed: there is no shell to ask, or the container has gone.
        """
        said = bytearray()

        def listen(stream: Stream, piece: bytes) -> None:
            if stream is Stream.STDOUT and len(said) < _LISTING_MAX:
                said.extend(piece)

        try:
            done = await box.run(Request(argv=ASK, overflow=Overflow.KEEP_ENDS, on_output=listen))
        except SpawnFailed as fault:
            raise InitializationFailed(
                f"the image {self._settings.image!r} has no shell at /bin/sh ({fault.message})",
                hint="run `ringfence image build`, or name an image with one in RINGFENCE_DOCKER_IMAGE",
            ) from fault
        except Internal as fault:
            raise InitializationFailed(f"the image cannot be looked into: {fault.message}", hint="try again") from fault
        return ImagePrograms.parse(bytes(said)) if done.ok else None

    def _check_python(self, grant: Grant, programs: ImagePrograms) -> None:
        if grant.python is not None and not programs.reaches(grant.python):
            raise InitializationFailed(
                f"the image {self._settings.image!r} has no {grant.python}",
                hint=f"leave `python` out for {programs.python or 'none: the image has no Python'}",
            )

    async def _open(
        self, source: _Source, grant: Grant, programs: ImagePrograms
    ) -> tuple[HelperBox, Callable[[ImagePrograms], BoxSetting]]:
        """A box, and how its setting follows from the programs of its image."""
        helper.path()  # missing, it is said before anything is made
        for path in (*grant.writable_roots, *grant.readable):
            check_place(os.fspath(path))
        is_rootless = source.about.is_rootless
        replacing = None if is_rootless else stand_in(tuple(map(os.fspath, grant.roots)))
        who = rootless_identity(self._settings.url) if is_rootless else identity_of(replacing)
        ids = {"uid": who.inside.uid, "gid": who.inside.gid}
        own_kernel = source.runtime.has_own_kernel
        trust = await self._trust(grant)
        build = partial(build_container_view, grant, home=HOME, own_kernel=own_kernel, trust=trust, **ids)
        prepared = await aside(build, undo=give_up)
        try:
            order = Order(
                url=self._settings.url,
                about=source.about,
                runtime=source.runtime,
                image=source.image,
                grant=grant,
                prepared=prepared,
                stand_in=replacing,
                identity=who,
            )
            made = await make(source.daemon, order)
        finally:
            prepared.close()
        holder = find_holder(made.host_pid, grant.limits) if made.has_groups else watch(grant.limits)
        notes = (*prepared.notes, *self._notes(source, grant, made.host_pid, has_groups=made.has_groups))
        guarantees = guarantees_of(source.about, source.runtime)
        wall = Wall(source.runtime.wall, guarantees, (f"Docker, {holder.name}",), notes)
        by = (f"--runtime={source.runtime.name}",) if source.runtime.name else ()
        hard = ("--network=none", "--read-only", "--cap-drop=ALL", *by)
        audit = SandboxAudit(source.runtime.wall, ("docker", "run", *hard, source.image.id))
        setting = partial(_setting, grant, prepared, source.image)
        box = HelperBox(made.around, grant, holder, wall, audit, setting(programs))
        box.held = prepared.view.held
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await box.wait_ready()
                # The network first: what waits in the box after a first command has the variables of then.
                if grant.network is not None and self._network is not None:
                    maker = box.socket_maker_inside(is_carried=source.runtime.has_own_kernel)
                    box.join_network(await attach(self._network, grant.network, maker))
                if source.runtime.has_own_kernel:
                    await check_kernel(box, source.runtime)
        except (Internal, TimeoutError) as fault:
            await box.close()
            why = fault.message if isinstance(fault, Internal) else f"it was not ready after {_READY_SECONDS:g} s"
            closed = "a directory of the image on the way there is closed to others; grant another place"
            hint = closed if os.strerror(errno.EACCES) in why else "run `ringfence doctor`"
            raise InitializationFailed(f"the box in the container did not come up: {why}", hint=hint) from fault
        except BaseException:
            await box.close()
            raise
        return box, setting

    def _notes(self, source: _Source, grant: Grant, host_pid: int, *, has_groups: bool) -> Iterator[str]:
        yield f"{source.about.engine} {source.about.version}, image {self._settings.image}"
        if source.runtime.has_own_kernel:
            yield f"runtime {source.runtime.name or source.about.default_runtime}: {source.runtime.kernel}"
        elif verify.shares(host_pid, "cgroup"):
            yield "the names of the host's control groups can be seen in /proc: this engine does not hide them"
        if source.runtime.kernel is Kernel.MACHINE:
            yield "what is mounted in the virtual machine is the daemon's word: the host's kernel cannot be asked"
        if grant.trace is not Trace.OFF:
            yield _UNEXPLAINED
        if shares_files(grant):
            yield WRITTEN_THROUGH
        if grant.network is not None:
            yield _LOOPBACK_ONLY
        if source.about.is_rootless:
            yield "a rootless daemon: to the machine, the box is the user who runs this, and nothing is root"
        if not has_groups:
            yield "no control group holds the box: its memory is looked at, again and again, and its cores are not held"
        elif not source.about.bounds_swap:
            yield "this kernel does not count swap: a box may use more than its memory limit of it"


def _check_grant(grant: Grant) -> None:
    """Refuse what is asked of a box and would not be held in a container.

    Raises:
        InitializationFailed: says what.
    """
    if grant.mediate_opens:
        raise InitializationFailed(
            "mediate_opens is not available in a container: nobody looks at single calls there",
            hint="use the native engine",
        )
    if grant.shadow is not None and not grant.shadow.is_copy:
        raise InitializationFailed(
            "a daemon mounts no overlay, so a shadow in a container has to be a copy",
            hint="make a copy (`ringfence workspace new --copy`), or use the native engine",
        )


def guarantees_of(about: About, runtime: Runtime) -> frozenset[Guarantee]:
    """What a box in a container of this daemon promises."""
    given = set(_ALWAYS)
    if runtime.has_own_kernel:
        given.add(Guarantee.OWN_KERNEL)
    if about.bounds_memory or about.is_rootless:  # else it is watched
        given.add(Guarantee.MEMORY_BOUNDED)
    if about.bounds_processes or about.is_rootless:  # else they are counted in the box's own user namespace
        given.add(Guarantee.PROCESSES_BOUNDED)
    return frozenset(given)


def _setting(grant: Grant, prepared: Prepared, image: Image, programs: ImagePrograms) -> BoxSetting:
    env = {
        **dict(prepared.env),
        "PATH": image.path,
        "HOME": HOME,
        "USER": "agent",
        "LOGNAME": "agent",
        "SHELL": programs.shell,
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        **({} if grant.network is None else network_variables(grant.network, BUNDLE)),
        **dict(grant.env),
    }
    return BoxSetting(
        cwd=os.fspath(grant.workspace),
        env=tuple(f"{name}={value}" for name, value in env.items()),
        programs=programs,
        shell=programs.shell,
        python=grant.python or programs.python,
        preload=grant.preload,
    )
