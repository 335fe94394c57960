"""Makes native boxes: chooses the wall, builds the view, starts the launcher, waits until PID 1 has confined itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ringfence.confinement.base import BUNDLE, Confiner, Prepared, StandIn, Trust
from ringfence.confinement.choose import (
    WRITTEN_THROUGH,
    build_view,
    choose,
    give_up,
    look_anew,
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
from ringfence.engines.boxes.programs import HostPrograms, find_python, forget_programs
from ringfence.engines.boxes.standby import BoxSetting
from ringfence.engines.descriptors import no_box, out_of_descriptors
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
    from ringfence.engines.native.ahead import NativeAhead
    from ringfence.engines.native.drawing import Drawing, Pins, drawing_of
    from ringfence.engines.native.zygote import Zygote, Zygotes
    from ringfence.engines.networking.attaching import BoxNetwork, attach, no_provider
    from ringfence.engines.networking.trusting import make_trust
    from ringfence.engines.networking.variables import network_variables
    from ringfence.limits.base import ResourceController
else:
    NativeAhead = deferred("ringfence.engines.native.ahead", "NativeAhead")
    Pins = deferred("ringfence.engines.native.drawing", "Pins")
    drawing_of = deferred("ringfence.engines.native.drawing", "drawing_of")
    attach = deferred("ringfence.engines.networking.attaching", "attach")
    no_provider = deferred("ringfence.engines.networking.attaching", "no_provider")
    make_trust = deferred("ringfence.engines.networking.trusting", "make_trust")
    network_variables = deferred("ringfence.engines.networking.variables", "network_variables")

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_READY_SECONDS = 20.0
_BY_LIMITS = frozenset({Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED})
"""Every holder gives these: the kernel by a control group, or we by looking."""
_VANISHED = "something in what is granted vanished while the box was being made; try again"
_WITHOUT_ZYGOTE = "try again: the next box is made without one, if that is why"
_HINTS = {
    "cannot map the owner": "its file system cannot map owners; run as an ordinary user, or use ext4, xfs or btrfs",
    "control socket": "PID 1 needs more than 64 open files; raise `ulimit -n`",
    "No such file or directory": _VANISHED,
    "ringfence-box: network": "no network namespace can be made or filled here; `ringfence doctor` says what works",
    "Read-only file system": _VANISHED,  # the directory of something that is hidden is gone, and cannot be made anew
}
_FEW = 16
"""Files in a directory that is small."""
_TRIES = 3
"""Directories that others work in, such as /tmp, may be granted: what vanishes once need not vanish again."""


class NativeEngine:
    name = "native"
    _has_prepared = False
    """Whether the walls have been tried in this process, which takes its time."""

    def __init__(
        self,
        confiners: tuple[Confiner, ...],
        environ: Mapping[str, str],
        home: str,
        *,
        only: str | None = None,
        network: NetworkProvider | None = None,
        zygotes: Zygotes | None = None,
    ) -> None:
        """Args:
        network: who serves boxes that have one.
        zygotes: whom boxes are forked from, with an interpreter; else each starts its own.
        """
        self._zygotes = zygotes
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
                if fault.hint not in (_VANISHED, _WITHOUT_ZYGOTE) or not tries_left:
                    raise
            except OSError as fault:
                raise no_box(fault) from fault
        raise AssertionError("the last try returns or raises")

    async def open_ahead(self, grant: Grant) -> NativeAhead | None:
        """A box for a call that is yet to come. Nothing waits in it: what a call starts is in its record.

        Returns:
            None if this grant's boxes are not made ahead, or something changed while it was made.

        Raises:
            RingfenceError: as `open`.
        """
        drawing = self.draw(grant)
        if drawing is None:
            return None
        pins = Pins(drawing)
        try:
            box = await self.open(grant)
        except BaseException:
            pins.close()
            raise
        try:
            if self.draw(grant) == drawing:
                return NativeAhead(box, drawing, pins)
        except BaseException:
            pins.close()
            await box.close()
            raise
        pins.close()
        await box.close()
        return None

    def can_take(self, ahead: NativeAhead, grant: Grant) -> bool:
        """Whether a box that was made ahead is what `open` would make now."""
        return ahead.is_like(self.draw(grant))

    def draw(self, grant: Grant) -> Drawing | None:
        """What a box with this grant would be made from now; None if that cannot be said by looking, because opening
        it starts or changes something besides.

        Raises:
            RingfenceError: as `open`.
        """
        if grant.network is not None or grant.shadow is not None or grant.mediate_opens:
            return None
        look_anew()
        forget_programs()
        confiner, asked, identity, prepared = self._prepare(grant, None)
        has_placeholders = any(shared.placeholders for shared in prepared.shared)
        give_up(prepared)
        if has_placeholders:
            return None
        path = (dict(prepared.env) | dict(asked.env))["PATH"]
        programs = (_find_shell(), asked.python or find_python(path))
        return drawing_of(confiner, asked, identity, prepared, programs)

    async def _open(self, grant: Grant) -> HelperBox:
        helper.path()  # missing, it is said before anything is prepared
        trust = await self._trust(grant)
        prepare = partial(self._prepare, grant, trust)
        if self._has_prepared and _are_small(grant.grown_roots):
            made = prepare()
        else:
            made = await aside(prepare, undo=lambda made: give_up(made[-1]))
        confiner, grant, identity, prepared = made
        NativeEngine._has_prepared = True
        try:
            room = grant.limits.processes + confiner.probe().own_processes
            holder = choose_holder(replace(grant.limits, processes=room))
            try:
                setting = self._setting(grant, prepared)
                zygote = await self._zygote(confiner, grant, setting)
                notification = notification_filter(grant, prepared.view)
                begin = partial(start, confiner, prepared, holder, grant.limits, identity, notification)
                started = self._start(begin, zygote, has_network=grant.network is not None)
            except BaseException:
                holder.close()
                raise
        except BaseException:
            give_up(prepared)
            raise
        prepared.close()
        around = NativeHost(started, grant, prepared.view)
        box = self._box(around, started, grant, confiner, prepared, holder, setting)
        try:
            await around.prepare()
            async with asyncio.timeout(_READY_SECONDS), self._attaching(grant, around) as attached:
                await box.wait_ready()
                if attached is not None:
                    box.join_network(await attached)
        except Internal as fault:
            await box.close()
            if zygote is not None and self._zygotes is not None and not started.launcher.pid:
                self._zygotes.failed(zygote)
                raise InitializationFailed("the zygote could not make a launcher", hint=_WITHOUT_ZYGOTE) from fault
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
        """The box's network is handed over while its wall is still being built: the socket maker stands before."""
        if grant.network is None or self._network is None or around.maker is None:
            yield None
            return
        task = asyncio.get_running_loop().create_task(attach(self._network, grant.network, around.maker))
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

    async def _zygote(self, confiner: Confiner, grant: Grant, setting: BoxSetting) -> Zygote | None:
        """Whom the box is forked from, with an interpreter; None if it starts its own."""
        if self._zygotes is None or not confiner.probe().stays or grant.network is not None:
            return None
        return await self._zygotes.get(setting.python, setting.env)

    def _start(self, begin: Callable[..., Started], zygote: Zygote | None, *, has_network: bool) -> Started:
        """By the zygote, and without it if it does not answer."""
        if zygote is not None and self._zygotes is not None:
            try:
                return begin(zygote=zygote)
            except OSError as fault:
                if out_of_descriptors(fault):
                    raise
                self._zygotes.failed(zygote)
        return begin(has_network=has_network)

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
        setting: BoxSetting,
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
        audit = SandboxAudit(confiner.name, _redacted(started, grant, self._home))
        box = HelperBox(around, grant, holder, wall, audit, replace(setting, resumes=started.resumes))
        if Guarantee.PROTECTED_PATHS in guarantees:
            box.held = prepared.view.held
        return box

    def _setting(self, grant: Grant, prepared: Prepared) -> BoxSetting:
        """What everything in the box starts with."""
        shell = _find_shell()
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
        env |= dict(grant.env)
        return BoxSetting(
            cwd=os.fspath(grant.workspace),
            env=tuple(f"{name}={value}" for name, value in env.items()),
            programs=HostPrograms(env["PATH"]),
            shell=shell,
            python=grant.python or find_python(env["PATH"]),
            preload=grant.preload,
        )


def _are_small(roots: Iterable[Path]) -> bool:
    """Whether they hold next to nothing, so that they are looked through sooner than a thread would begin to."""
    with suppress(OSError):
        for root in roots:
            with os.scandir(root) as entries:
                for count, entry in enumerate(entries):
                    if count == _FEW or entry.is_dir(follow_symlinks=False):
                        return False
        return True
    return False


def _find_shell() -> str:
    return next(shell for shell in _SHELLS if os.path.exists(shell))


def _redacted(started: Started, grant: Grant, home: str) -> tuple[str, ...]:
    """The wrapped command without paths of the host: what is granted shows as its name inside."""
    names = {os.fspath(grant.workspace): "/workspace", home: "~"}
    names |= {os.fspath(path): f"<writable {index}>" for index, path in enumerate(grant.writable, 1)}
    names |= {os.fspath(path): f"<readable {index}>" for index, path in enumerate(grant.readable, 1)}
    names |= {os.path.realpath(path): inside for inside, path in grant.placed}
    ordered = sorted(names.items(), key=lambda item: -len(item[0]))

    def shown(word: str) -> str:
        for path, name in ordered:
            if is_below(word, path):
                return name + word[len(path.rstrip("/")) :]
        return word

    program = "runsc" if started.launch.description else "bwrap" if started.launch.options else "ringfence-box"
    return (program, *map(shown, started.launch.options))
