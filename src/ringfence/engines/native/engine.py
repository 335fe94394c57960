"""Makes native boxes: chooses the wall, builds the view, starts the launcher, waits until PID 1 has confined itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from ringfence.confinement.base import BUNDLE, Confiner, Prepared, StandIn, Trust
from ringfence.confinement.choose import (
    WRITTEN_THROUGH,
    build_view,
    choose,
    give_up,
    makes_names,
    notification_filter,
    shares_files,
    why_not_before,
)
from ringfence.dataclass import replace
from ringfence.deferred import deferred
from ringfence.engines.aside import aside
from ringfence.engines.boxes import helper
from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.boxes.identity import INSIDE, stand_in
from ringfence.engines.boxes.programs import HostPrograms, find_python
from ringfence.engines.boxes.standby import BoxSetting
from ringfence.engines.descriptors import no_box
from ringfence.engines.native.host import NativeHost
from ringfence.engines.native.shims import resolve_program, resolve_shims
from ringfence.engines.native.starting import Started, start
from ringfence.errors import InitializationFailed, Internal, RingfenceError
from ringfence.limits.choose import choose as choose_holder
from ringfence.values.grant import Grant, Trace
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.outcome import SandboxAudit
from ringfence.values.paths import is_below

if TYPE_CHECKING:
    from ringfence.engines.base import NetworkProvider
    from ringfence.engines.networking.attaching import BoxNetwork, attach, no_provider
    from ringfence.engines.networking.trusting import make_trust
    from ringfence.engines.networking.variables import network_variables
    from ringfence.limits.base import ResourceController
else:
    attach = deferred("ringfence.engines.networking.attaching", "attach")
    no_provider = deferred("ringfence.engines.networking.attaching", "no_provider")
    make_trust = deferred("ringfence.engines.networking.trusting", "make_trust")
    network_variables = deferred("ringfence.engines.networking.variables", "network_variables")

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_READY_SECONDS = 20.0
_BY_LIMITS = frozenset({Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED})
"""Every holder gives these: the kernel by a control group, or we by looking."""
_VANISHED = "something in what is granted vanished while the box was being made; try again"
_HINTS = {
    "cannot map the owner": "its file system cannot map owners; run as an ordinary user, or use ext4, xfs or btrfs",
    "control socket": "PID 1 needs more than 64 open files; raise `ulimit -n`",
    "No such file or directory": _VANISHED,
    "ringfence-box: network": "no network namespace can be made or filled here; `ringfence doctor` says what works",
    "Read-only file system": _VANISHED,  # the directory of something that is hidden is gone, and cannot be made anew
}
_TRIES = 3
"""Directories that others work in, such as /tmp, may be granted: what vanishes once need not vanish again."""


class NativeEngine:
    name = "native"

    def __init__(
        self,
        confiners: tuple[Confiner, ...],
        environ: Mapping[str, str],
        home: str,
        *,
        only: str | None = None,
        network: NetworkProvider | None = None,
    ) -> None:
        """Args:
        network: who serves boxes that have one.
        """
        self._confiners = confiners
        self._environ = environ
        self._home = home
        self._only = only
        self._network = network
        self._trusted: tuple[bytes, Trust] | None = None
        """Whose certificate, and what is made of it."""

    async def open(self, grant: Grant) -> HelperBox:
        for tries_left in reversed(range(_TRIES)):
            try:
                return await self._open(grant)
            except RingfenceError as fault:
                if fault.hint != _VANISHED or not tries_left:
                    raise
            except OSError as fault:
                raise no_box(fault) from fault
        raise AssertionError("the last try returns or raises")

    async def _open(self, grant: Grant) -> HelperBox:
        helper.path()  # missing, it is said before anything is prepared
        trust = await self._trust(grant)
        prepare = partial(self._prepare, grant, trust)
        confiner, grant, identity, prepared = await aside(prepare, undo=lambda made: give_up(made[-1]))
        try:
            room = grant.limits.processes + confiner.probe().own_processes
            holder = choose_holder(replace(grant.limits, processes=room))
            try:
                notification = notification_filter(grant, prepared.view)
                has_network = grant.network is not None
                started = start(
                    confiner, prepared, holder, grant.limits, identity, notification, has_network=has_network
                )
            except BaseException:
                holder.close()
                raise
        except BaseException:
            give_up(prepared)
            raise
        prepared.close()
        around = NativeHost(started, grant, prepared.view)
        box = self._box(around, started, grant, confiner, prepared, holder)
        try:
            await around.prepare()
            async with asyncio.timeout(_READY_SECONDS), self._attaching(grant, around) as attached:
                await box.wait_ready()
                if attached is not None:
                    box.join_network(await attached)
        except Internal as fault:
            await box.close()
            hint = next((hint for sign, hint in _HINTS.items() if sign in fault.message), "run `ringfence doctor`")
            raise InitializationFailed(f"the wall could not be built: {fault.message}", hint=hint) from fault
        except TimeoutError as fault:
            await box.close()
            raise InitializationFailed(
                f"the wall was not ready after {_READY_SECONDS:g} s", hint="is the machine overloaded? try again"
            ) from fault
        except BaseException:
            await box.close()
            raise
        return box

    async def _trust(self, grant: Grant) -> Trust | None:
        """Whom programs inside trust, where that is not the system's own choice."""
        if grant.network is None:
            return None
        if self._network is None:
            raise no_provider()
        if not grant.network.inspects:
            return None
        # First, for the proxy is started by it, and loads what it needs for SSH only if the first box does.
        known = await self._network.known_hosts() if grant.network.ends_ssh else ""
        authority = await self._network.authority()
        if self._trusted is None or self._trusted[0] != authority:
            self._trusted = authority, await aside(partial(make_trust, authority))
        return replace(self._trusted[1], known_hosts=known)

    @asynccontextmanager
    async def _attaching(self, grant: Grant, around: NativeHost) -> AsyncIterator[asyncio.Task[BoxNetwork] | None]:
        """The box's network is handed over while its wall is still being built: the keeper stands before."""
        if grant.network is None or self._network is None or around.keeper is None:
            yield None
            return
        task = asyncio.get_running_loop().create_task(attach(self._network, grant.network, around.keeper))
        try:
            yield task
        except BaseException:
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled() and task.exception() is None:
                await task.result().close()
            raise

    def _prepare(self, grant: Grant, trust: Trust | None) -> tuple[Confiner, Grant, StandIn | None, Prepared]:
        """The wall, the grant as that wall takes it, who the box is, and what it sees. The first time every wall that
        might do is tried, and a workspace may be large: this takes its time."""
        if grant.mediate_opens:
            grant = replace(grant, requires=grant.requires | {Guarantee.DENIED_AT_OPEN})
        confiner = choose(self._confiners, grant.requires - _BY_LIMITS, only=self._only)
        if Guarantee.PROTECTED_PATHS not in confiner.probe().guarantees:
            grant = replace(grant, protected=())  # nobody requires it, and this wall could not cover a placeholder
        identity = stand_in(tuple(map(os.fspath, grant.roots)))
        uid, gid = (INSIDE, INSIDE) if identity else (os.getuid(), os.getgid())
        places = {"home": self._home, "workspace": os.fspath(grant.workspace)}
        host_path = resolve_shims(self._environ.get("PATH", ""), self._environ, **places)
        if grant.python is not None:
            grant = replace(grant, python=resolve_program(grant.python, self._environ, **places))
            assert grant.python is not None
            host_path = f"{os.path.dirname(grant.python)}:{host_path}"
        names = makes_names(grant, confiner)
        prepared = build_view(grant, home=self._home, host_path=host_path, uid=uid, gid=gid, names=names, trust=trust)
        return confiner, grant, identity, prepared

    def _why(self, confiner: Confiner, grant: Grant) -> tuple[str, ...]:
        """Why it is not the one that is taken otherwise."""
        if self._only is not None:
            return ()
        against = why_not_before(self._confiners, confiner, grant.requires - _BY_LIMITS)
        return (f"{confiner.name} was chosen: {'; '.join(against)}",) if against else ()

    def _box(
        self,
        around: NativeHost,
        started: Started,
        grant: Grant,
        confiner: Confiner,
        prepared: Prepared,
        holder: ResourceController,
    ) -> HelperBox:
        probe = confiner.probe()
        guarantees = probe.guarantees | _BY_LIMITS
        if not grant.mediate_opens:
            guarantees -= {Guarantee.DENIED_AT_OPEN}
        if grant.network is not None:
            guarantees -= {Guarantee.NETWORK_OFF}
        if grant.read_outside:
            guarantees -= {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN}
        notes = (*probe.notes, *prepared.notes, *self._why(confiner, grant))
        if started.notify < 0 and grant.trace is not Trace.OFF:
            notes = (*notes, "refusals by the kernel are not explained: nobody outside sees single calls")
        if started.notify < 0 and shares_files(grant):
            notes = (*notes, WRITTEN_THROUGH)
        wall = Wall(confiner.name, guarantees, (holder.name,), notes)
        shell = next(shell for shell in _SHELLS if os.path.exists(shell))
        env = {
            **dict(prepared.env),
            "HOME": prepared.view.home,
            "USER": "agent",
            "LOGNAME": "agent",
            "SHELL": shell,
            "TMPDIR": "/tmp",
            "LANG": "C.UTF-8",
        }
        if grant.network is not None:
            bundle = BUNDLE if prepared.view.files else ""
            env |= network_variables(grant.network, bundle)
        audit = SandboxAudit(confiner.name, _redacted(started, grant, self._home))
        env |= dict(grant.env)
        setting = BoxSetting(
            cwd=os.fspath(grant.workspace),
            env=tuple(f"{name}={value}" for name, value in env.items()),
            programs=HostPrograms(env["PATH"]),
            shell=shell,
            python=grant.python or find_python(env["PATH"]),
            preload=grant.preload,
        )
        box = HelperBox(around, grant, holder, wall, audit, setting)
        if Guarantee.PROTECTED_PATHS in guarantees:
            box.held = prepared.view.held
        return box


def _redacted(started: Started, grant: Grant, home: str) -> tuple[str, ...]:
    """The wrapped command without paths of the host: what is granted shows as its name inside."""
    names = {os.fspath(grant.workspace): "/workspace", home: "~"}
    names |= {os.fspath(path): f"<writable {index}>" for index, path in enumerate(grant.writable, 1)}
    names |= {os.fspath(path): f"<readable {index}>" for index, path in enumerate(grant.readable, 1)}
    ordered = sorted(names.items(), key=lambda item: -len(item[0]))

    def shown(word: str) -> str:
        for path, name in ordered:
            if is_below(word, path):
                return name + word[len(path.rstrip("/")) :]
        return word

    program = "runsc" if started.launch.description else "bwrap" if started.launch.options else "ringfence-box"
    return (program, *map(shown, started.launch.options))
