"""Makes native boxes: chooses the wall, builds the view, starts the launcher, waits until PID 1 has confined itself."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace

from ringfence.confinement.base import Confiner, Prepared
from ringfence.confinement.choose import build_view, choose, notification_filter
from ringfence.engines.boxes.box import HelperBox
from ringfence.engines.boxes.helper import is_python
from ringfence.engines.boxes.identity import INSIDE, stand_in
from ringfence.engines.boxes.programs import HostPrograms, find_python
from ringfence.engines.boxes.standby import Setting
from ringfence.engines.native.starting import Started, helper, start
from ringfence.engines.native.surroundings import NativeSurroundings
from ringfence.errors import InitializationFailed, Internal
from ringfence.limits.base import Holder
from ringfence.limits.choose import choose as choose_holder
from ringfence.values.grant import Explain, Grant
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.outcome import SandboxAudit

_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
_READY_SECONDS = 20.0
_BY_LIMITS = frozenset({Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED})
"""Every holder gives these: the kernel by a control group, or we by looking."""
_HINTS = {
    "cannot map the owner": "its file system cannot map owners; run as an ordinary user, or use ext4, xfs or btrfs",
    "No such file or directory": "something in the workspace vanished while the box was being made; try again",
}


class NativeEngine:
    name = "native"

    def __init__(
        self, confiners: tuple[Confiner, ...], environ: Mapping[str, str], home: str, *, only: str | None = None
    ) -> None:
        self._confiners = confiners
        self._environ = environ
        self._home = home
        self._only = only

    async def open(self, grant: Grant) -> HelperBox:
        helper()
        if grant.strict:
            grant = replace(grant, requires=grant.requires | {Guarantee.DENIED_AT_OPEN})
        confiner = choose(self._confiners, grant.requires - _BY_LIMITS, only=self._only)
        if grant.strict and is_python():
            raise InitializationFailed(
                "the grant is strict, and only our helper in C can open files for a box",
                hint="build it: install a C compiler and install again; or unset RINGFENCE_HELPER",
            )
        if Guarantee.PROTECTED_PATHS not in confiner.probe().guarantees:
            grant = replace(grant, protected=())  # nobody requires it, and this wall could not cover a placeholder
        identity = stand_in(tuple(map(os.fspath, grant.writable_roots)))
        uid, gid = (INSIDE, INSIDE) if identity else (os.getuid(), os.getgid())
        host_path = self._environ.get("PATH", "")
        if grant.python is not None:
            host_path = f"{os.path.dirname(grant.python)}:{host_path}"
        prepared = build_view(grant, home=self._home, host_path=host_path, uid=uid, gid=gid)
        try:
            room = grant.limits.processes + confiner.probe().own_processes
            holder = choose_holder(replace(grant.limits, processes=room))
            try:
                started = start(confiner, prepared, holder, grant.limits, identity, self._notification(grant))
            except BaseException:
                holder.close()
                raise
        finally:
            prepared.close()
        box = self._box(started, grant, confiner, prepared, holder)
        try:
            async with asyncio.timeout(_READY_SECONDS):
                await box.wait_ready()
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

    def _notification(self, grant: Grant) -> bytes:
        """The filter that has refusals explained; only our helper in C can look."""
        return b"" if is_python() else notification_filter(grant)

    def _box(self, started: Started, grant: Grant, confiner: Confiner, prepared: Prepared, holder: Holder) -> HelperBox:
        probe = confiner.probe()
        guarantees = probe.guarantees | _BY_LIMITS
        if not grant.strict:
            guarantees -= {Guarantee.DENIED_AT_OPEN}
        if grant.read_outside:
            guarantees -= {Guarantee.HOST_FILES_HIDDEN, Guarantee.HOST_NAMES_HIDDEN}
        notes = (*probe.notes, *prepared.notes)
        if started.notify < 0 and grant.explain is not Explain.OFF:
            why = (
                "our helper in C is needed for that" if started.launch.explained else "nobody outside sees single calls"
            )
            notes = (*notes, f"refusals by the kernel are not explained: {why}")
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
        audit = SandboxAudit(confiner.name, _redacted(started, grant, self._home))
        env |= dict(grant.env)
        setting = Setting(
            cwd=os.fspath(grant.workspace),
            env=tuple(f"{name}={value}" for name, value in env.items()),
            programs=HostPrograms(env["PATH"]),
            shell=shell,
            python=grant.python or find_python(env["PATH"]),
            preload=grant.preload,
        )
        around = NativeSurroundings(started, grant, prepared.view)
        return HelperBox(around, grant, holder, wall, audit, setting)


def _redacted(started: Started, grant: Grant, home: str) -> tuple[str, ...]:
    """The wrapped command without paths of the host: what is granted shows as its name inside."""
    names = {os.fspath(grant.workspace): "/workspace", home: "~"}
    names |= {os.fspath(path): f"<writable {index}>" for index, path in enumerate(grant.writable, 1)}
    names |= {os.fspath(path): f"<readable {index}>" for index, path in enumerate(grant.readable, 1)}
    ordered = sorted(names.items(), key=lambda item: -len(item[0]))

    def shown(word: str) -> str:
        for path, name in ordered:
            if word == path or word.startswith(path.rstrip("/") + "/"):
                return name + word[len(path.rstrip("/")) :]
        return word

    program = "runsc" if started.launch.description else "bwrap" if started.launch.options else "ringfence-box"
    return (program, *map(shown, started.launch.options))
