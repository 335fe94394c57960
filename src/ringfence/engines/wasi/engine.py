"""Makes boxes in which WebAssembly modules run: a runner behind the native wall (requirements D2, D5).

    stage       what boxes see as /__runner__, compiled code included, made once and sealed      (staging.py, cache.py)
    wall        the native engine's: bubblewrap, or what this machine has; no network, seccomp, Landlock, limits
    box         a runner waits in it; requests become jobs of it                                 (box.py, runner/)

Two walls stand around a module: it can only call what WASI gives it, on the directory that was opened for it; and
should a fault of wasmtime let it out of that, it is in a process that sees the workspace and the runner.

What this does not protect against: a fault of wasmtime together with one of the kernel. Two modules of one line share
the workspace; a module can fill it up to the limits of the box.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ringfence.bundles.store import BundleStore
from ringfence.dataclass import replace
from ringfence.engines.base import Engine
from ringfence.engines.boxes.standby import BoxSetting, Starters
from ringfence.engines.wasi.box import WORKSPACE, WasiBox
from ringfence.engines.wasi.cache import Cache
from ringfence.engines.wasi.facts import GIVEN, LACKING
from ringfence.engines.wasi.places import WasiPlaces
from ringfence.engines.wasi.programs import Programs, compiled_python, make_programs
from ringfence.engines.wasi.staging import RUNNER, Stage, python, shown_at, words
from ringfence.errors import BundleRefused, Damaged, FileError, InitializationFailed, NotInstalled
from ringfence.values.guarantee import Wall

if TYPE_CHECKING:
    from ringfence.engines.boxes.box import HelperBox
    from ringfence.values.grant import Grant

_JOB_BYTES = 60_000
"""What a pipe takes at once."""
_NO_NETWORK = "modules have no network, so that nothing of what the grant allows can be reached"
_NOT_SEEN = "modules see the workspace only, none of the further directories that are granted"


class WallEngine(Engine, Protocol):
    """Makes the boxes around the runner."""

    async def open(self, grant: Grant) -> HelperBox:
        """As `Engine.open`."""


class WasiEngine:
    name = "wasi"

    def __init__(self, native: WallEngine, places: WasiPlaces) -> None:
        self._native = native
        self._places = places
        self._programs: Programs | None = None

    async def open(self, grant: Grant) -> WasiBox:
        """As `Engine.open`.

        Raises:
            InitializationFailed: also if wasmtime is not installed, or what was compiled cannot be believed.
        """
        if lacking := grant.requires & LACKING:
            raise InitializationFailed(
                f"the engine wasi lacks: {', '.join(sorted(lacking))}", hint="use the engine native"
            )
        try:
            programs = await self.programs()
        except (NotInstalled, Damaged, BundleRefused, FileError) as fault:
            raise InitializationFailed(f"the engine wasi cannot be used: {fault.message}", hint=fault.hint) from fault
        around = replace(
            grant,
            network=None,
            read_outside=False,
            python=None,
            preload=(),
            env=(),
            placed=programs.stage.placed,
            requires=grant.requires - GIVEN,
        )
        box = await self._native.open(around)
        box.settle(_setting(box, programs, grant))
        box.call_wall(_wall(box.wall, grant))
        return WasiBox(box, programs, grant)

    async def programs(self) -> Programs:
        """What can be run; guests that are there are compiled first.

        Raises:
            NotInstalled, Damaged, BundleRefused, FileError: it cannot be put together.
        """
        if self._programs is None:
            stage = Stage(Cache(self._places.cache))
            stage.make()
            self._programs = await make_programs(stage, self._native, BundleStore(self._places.bundles))
        elif not self._programs.python:
            self._programs.python = await compiled_python(self._programs.stage, self._native)
        return self._programs


def _wall(around: Wall, grant: Grant) -> Wall:
    notes = around.notes
    if grant.network is not None:
        notes = (*notes, _NO_NETWORK)
    if grant.writable or any(path != grant.workspace for path in grant.readable) or grant.read_outside:
        notes = (*notes, _NOT_SEEN)
    return Wall(f"wasi in {around.name}", (around.guarantees | GIVEN) - LACKING, around.limits_by, notes)


def _setting(box: HelperBox, programs: Programs, grant: Grant) -> BoxSetting:
    at = shown_at(box, programs.stage.directory)
    workspace = WORKSPACE if at == RUNNER else os.fspath(grant.workspace)
    session = {
        "code": programs.python,
        "env": sorted(dict(grant.env).items()),
        "writable": not grant.read_only,
        "memory": grant.limits.memory_bytes,
    }
    ahead = [code for code in (programs.userland, programs.python) if code]
    starters = Starters(
        line=words("line", workspace, at=at),
        script=words("file", workspace, at=at),
        waiting=words("wait", workspace, *ahead, at=at),
        waiting_max=_JOB_BYTES,
        interpreter=words("session", workspace, json.dumps(session), at=at),
    )
    return BoxSetting(
        cwd="/",
        env=("LANG=C.UTF-8", "PATH=/usr/bin:/bin", *programs.stage.variables(at)),
        programs=programs,
        shell="run.py",
        python=python() if programs.python else None,
        preload=(),
        starters=starters,
    )


def engine_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """What the native engine around the runner goes by: nothing of PATH but where the interpreter is."""
    return {"PATH": f"{os.path.dirname(python())}:/usr/bin:/bin"} | {
        name: environ[name] for name in ("HOME", "TMPDIR") if name in environ
    }
