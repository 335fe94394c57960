"""One box of the WASI engine: a box of the native engine in which nothing runs but the runner.

Requests are turned into jobs of the runner (`lines.py` takes shell lines apart); all else, from the pipes to the limits
and the files, is the box's around it. What a module sees is named by the job: the workspace as /workspace, and the
variables that were granted.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import replace
from ringfence.engines.wasi.lines import CannotRun, Pipeline, Stage, take_apart
from ringfence.engines.wasi.programs import NODES, PYTHONS, Program
from ringfence.errors import FileError, SpawnFailed
from ringfence.values.outcome import Observed, Refused, Result, SandboxAudit, Usage
from ringfence.values.paths import is_below
from ringfence.values.request import INTERPRETED, Request

if TYPE_CHECKING:
    from ringfence.engines.base import Agree, Process
    from ringfence.engines.boxes.box import HelperBox
    from ringfence.engines.wasi.programs import Programs
    from ringfence.values.files import FileOperation, Performed
    from ringfence.values.grant import Grant
    from ringfence.values.guarantee import Wall
    from ringfence.values.violation import Violation

WORKSPACE: Final = "/workspace"
_RULE: Final = "wasi"
_SHELLS: Final = frozenset({"sh", "bash", "/bin/sh", "/bin/bash"})
_ALLOW: Final = (
    "use programs with pipes, `;`, `&&`, `||` and redirections; or write it in Python or JavaScript; or use the engine "
    "native"
)
_KEPT: Final = 64
_GUESTS: Final = {
    **dict.fromkeys(PYTHONS, "the CPython guest is built once: ringfence bundle prepare"),
    **dict.fromkeys(NODES, "QuickJS comes with the extra: pip install 'ringfence[wasi]'"),
}


class WasiBox:
    def __init__(self, box: HelperBox, programs: Programs, grant: Grant) -> None:
        self._box = box
        self._programs = programs
        self._grant = grant
        self._env = dict(grant.env)
        self._workspace = os.fspath(grant.workspace)
        self._asked: dict[int, tuple[Request, Request]] = {}
        """By the id of a request: itself, and what the box around was asked."""

    # --- what the box around it answers -------------------------------------------------------------------------------

    @property
    def wall(self) -> Wall:
        return self._box.wall

    @property
    def audit(self) -> SandboxAudit:
        return self._box.audit

    @property
    def alive(self) -> bool:
        return self._box.alive

    network_name = ""
    published: tuple[tuple[int, int], ...] = ()

    def note(self, text: str) -> None:
        self._box.note(text)

    @property
    def held(self) -> frozenset[str]:
        return self._box.held

    @property
    def window(self) -> int:
        return self._box.window

    @property
    def memory(self) -> int:
        return self._box.memory

    @property
    def interprets(self) -> frozenset[str]:
        return INTERPRETED if self._programs.python else frozenset()

    def last_seen(self, request: Request) -> tuple[tuple[Violation, ...], Observed | None]:
        _, asked = self._asked.pop(id(request), (request, request))
        return self._box.last_seen(asked)

    def find_program(self, names: tuple[str, ...]) -> str | None:
        return self._programs.find(names)

    async def perform(
        self, operation: FileOperation, agree: Agree, data: AsyncIterator[bytes] | None = None
    ) -> Performed:
        return await self._box.perform(operation, agree, data)

    def processes(self) -> tuple[Process, ...]:
        return self._box.processes()

    def contexts(self) -> tuple[tuple[str, str], ...]:
        return self._box.contexts()

    def interrupt(self, name: str, language: str) -> bool:
        return self._box.interrupt(name, language)

    async def restart(self, name: str, language: str) -> None:
        await self._box.restart(name, language)

    async def warm(self) -> None:
        await self._box.warm()

    def probe(self) -> bool:
        return self._box.probe()

    def when_lost(self, tell: Callable[[], None]) -> None:
        self._box.when_lost(tell)

    def usage(self) -> Usage:
        return self._box.usage()

    async def close(self) -> None:
        await self._box.close()

    # --- what runs in it ----------------------------------------------------------------------------------------------

    async def run(self, request: Request) -> Result:
        """As `Box.run`; a shell line that is more than programs and how they are joined is refused.

        Raises:
            BundleRefused: a bundle that may not run. Otherwise as `Box.run`.
        """
        if request.code is not None:
            asked = replace(request, env=(), cwd=self._inside(request.cwd))
            return self._told(await self._ask(request, asked), ("python3", f"<{request.context or 'main'}>"))
        if request.context is not None:
            return self._refused("a shell that keeps its state")
        try:
            asked, shown = await self._job(request)
        except CannotRun as fault:
            return self._refused(str(fault))
        return self._told(await self._ask(request, asked), shown)

    async def start(
        self, request: Request, *, terminal: tuple[int, int] | None = None, channel: int | None = None
    ) -> Process:
        """As `Box.start`, without terminals.

        Raises:
            SpawnFailed: it is a line that cannot be run here.
        """
        if terminal is not None:
            raise SpawnFailed(request.shown, "there are no terminals for WASI modules", hint="leave it out")
        if channel is not None:
            raise SpawnFailed(request.shown, "WASI modules are given no descriptors", hint="use the native engine")
        try:
            asked, _ = await self._job(request)
        except CannotRun as fault:
            raise SpawnFailed(request.shown, str(fault), hint=_ALLOW) from None
        return await self._box.start(asked)

    async def _ask(self, request: Request, asked: Request) -> Result:
        while len(self._asked) >= _KEPT:
            del self._asked[next(iter(self._asked))]
        self._asked[id(request)] = request, asked
        result = await self._box.run(asked)
        del self._asked[id(request)]
        return result

    def _told(self, result: Result, command: tuple[str, ...]) -> Result:
        runner = ("wasmtime", "--dir", WORKSPACE, *command)
        return replace(result, inner_audits=(SandboxAudit("wasi", runner),))

    def _refused(self, what: str) -> Result:
        return Result(
            ending=Refused(f"the engine wasi has no shell for this: {what}", _RULE, _ALLOW),
            wall=self.wall,
            audit=self.audit,
        )

    async def _job(self, request: Request) -> tuple[Request, tuple[str, ...]]:
        """The request to the runner, and what it is about as a person would write it.

        Raises:
            CannotRun: a line that is more than programs and how they are joined.
            SpawnFailed: there is no such program.
            BundleRefused: it is a bundle that may not run.
        """
        env = self._env | dict(request.env)
        argv, line = request.argv, request.command
        if argv is not None and argv[0] in _SHELLS and len(argv) == 3 and argv[1] == "-c":
            line = argv[2]
            argv = None
        if argv is not None:
            lines: tuple[Pipeline, ...] = (Pipeline((Stage(argv, (), ()),), ""),)
        else:
            lines = take_apart(line or "", {**env, "PWD": WORKSPACE})
        seconds = [request.timeout] if request.timeout is not None else []
        items = []
        for pipeline in lines:
            stages = []
            for stage in pipeline.stages:
                if stage.is_builtin and argv is None:
                    stages.append({"kind": stage.program, "argv": stage.argv, "redirects": list(stage.redirects)})
                    continue
                program = await self._program(stage.program, is_line=argv is None)
                seconds += [program.wall_seconds] if program.wall_seconds else []
                words = [word if isinstance(word, list) else self._rewritten(word) for word in stage.argv]
                redirects = [[at, how, self._target(how, to)] for at, how, to in stage.redirects]
                given = env | dict(stage.env)
                limits, read_only = self._grant.limits, self._grant.read_only
                stages.append(program.stage(words, given, redirects, limits, read_only=read_only))
            items.append({"stages": stages, "joint": pipeline.joint})
        place = self._inside(request.cwd)
        directory = "" if place is None else os.fspath(place).removeprefix(WORKSPACE).lstrip("/")
        text = json.dumps({"directory": directory, "items": items}, ensure_ascii=True)
        asked = replace(request, command=text, argv=None, env=(), cwd=None, timeout=min(seconds, default=None))
        shown = argv if argv is not None else (line or "",)
        return asked, tuple(word.replace(self._workspace, WORKSPACE) for word in shown)

    async def _program(self, word: str, *, is_line: bool) -> Program:
        program = await self._programs.get(word)
        if program is not None:
            return program
        if is_line:
            raise CannotRun("a program that is not there", word)
        hint = _GUESTS.get(word, "programs here are modules: docs/wasi.md lists them, `ringfence bundle list` yours")
        raise SpawnFailed(word, os.strerror(errno.ENOENT), number=errno.ENOENT, hint=hint)

    def _rewritten(self, word: str) -> str:
        """A word in which a path of the workspace is the one that modules know; also behind `--option=`."""
        if word.startswith(self._workspace) and is_below(word, self._workspace):
            return WORKSPACE + word[len(self._workspace) :]
        option, sign, value = word.partition("=")
        if sign and option.startswith("-") and value.startswith("/") and is_below(value, self._workspace):
            return f"{option}={WORKSPACE}{value[len(self._workspace) :]}"
        return word

    def _target(self, how: str, to: str | int) -> str | int:
        return self._rewritten(to) if isinstance(to, str) and how != "text" else to

    def _inside(self, place: Path | None) -> Path | None:
        """A directory of the host as modules know it.

        Raises:
            FileError: they do not see it.
        """
        if place is None:
            return None
        path = os.path.normpath(place)
        if is_below(path, WORKSPACE):
            return Path(path)
        if not is_below(path, self._workspace):
            raise FileError.of(errno.EACCES, path, "modules see the workspace only", hint="work in the workspace")
        if not os.path.isdir(path) and self._box.window < 0:
            raise FileError.of(errno.ENOENT, path, "the working directory cannot be used", hint="make it first")
        return Path(WORKSPACE + path[len(self._workspace) :])
