"""Puts together what boxes see as /__runner__, and compiles modules in a box of their own."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import py_compile
import sys
import tempfile
from functools import cache as remembered
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.bundles.reasons import Reason
from ringfence.engines.wasi.cache import Cache
from ringfence.errors import BundleRefused, NotInstalled
from ringfence.values.grant import Grant, Trace
from ringfence.values.guarantee import Guarantee
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited
from ringfence.values.request import Request

if TYPE_CHECKING:
    from ringfence.engines.base import Box, Engine

RUNNER: Final = "/__runner__"
PYTHON: Final = "python"
"""The label of the one guest that is a component."""
_VERSION: Final = "50."
"""Of wasmtime, whose C interface the runner calls; runner/wasm.py has the same."""
_FILES: Final = ("run.py", "wasm.py", "programs.py", "lines.py", "session.py", "beneath.py", "javascript.mjs")
_LIBRARY: Final = "_libwasmtime.so"
_HERE: Final = Path(__file__).parent / "runner"
_COMPILE: Final = Limits().changed(
    wall_seconds=300, memory_bytes=3 * 1024**3, file_bytes=1024**3, disk_bytes=2 * 1024**3, processes=128
)
_EXTRA: Final = "pip install 'ringfence[wasi]'"


def python() -> str:
    """The interpreter that runs the runner: the one that runs us, without the virtual environment around it."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@remembered
def find_library() -> Path:
    """wasmtime's library, as its package brings it.

    Raises:
        NotInstalled: it is not there, or of a version that the runner does not know.
    """
    try:
        version = importlib.metadata.version("wasmtime")
    except importlib.metadata.PackageNotFoundError:
        raise NotInstalled("the engine wasi needs the package `wasmtime`", hint=_EXTRA) from None
    if not version.startswith(_VERSION):
        raise NotInstalled(f"the engine wasi needs wasmtime {_VERSION}*, and {version} is installed", hint=_EXTRA)
    spec = importlib.util.find_spec("wasmtime")
    machine = f"linux-{platform.machine()}"
    path = Path(spec.origin or "").parent / machine / _LIBRARY if spec is not None else Path()
    if not path.is_file():
        raise NotInstalled(f"the package `wasmtime` has no library for {machine}", hint=_EXTRA)
    return path


@remembered
def _runner_stamp() -> str:
    """Changes with the runner, and with the interpreter that its bytecode is for."""
    parts = [importlib.metadata.version("wasmtime"), sys.version]
    return _digest([*parts, *((_HERE / name).read_text("utf-8") for name in _FILES)])


@remembered
def _code_stamp() -> str:
    """Changes with all that code is compiled for: wasmtime, its configuration, the processor."""
    configuration = (_HERE / "wasm.py").read_text("utf-8").partition("class Bytes")[0]
    return _digest([importlib.metadata.version("wasmtime"), platform.machine(), _processor(), configuration])


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:20]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            return next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        return ""


class Stage:
    """What boxes see as /__runner__: the runner itself, compiled code, and the files of bundles."""

    def __init__(self, cache: Cache) -> None:
        self.cache = cache
        self.directory = cache.directory / f"runner-{_runner_stamp()}"
        self._parts = {"code": cache.directory / f"code-{_code_stamp()}", "bundles": cache.directory / "bundles"}

    @property
    def placed(self) -> tuple[tuple[str, Path], ...]:
        """For a grant."""
        return ((RUNNER, self.directory), *((f"{RUNNER}/{name}", path) for name, path in self._parts.items()))

    def variables(self, at: str) -> tuple[str, ...]:
        """By which the runner finds the parts, where a box calls the first of them `at`."""
        if at == RUNNER:
            return tuple(f"RUNNER_{name.upper()}={RUNNER}/{name}" for name in self._parts)
        return tuple(f"RUNNER_{name.upper()}={path}" for name, path in self._parts.items())

    def make(self) -> None:
        """Have it complete, and unchanged.

        Raises:
            NotInstalled: wasmtime is not there.
            Damaged: somebody has changed something in it.
            FileError, PermissionDenied: it cannot be made.
        """
        library = find_library()
        self.cache.make()
        with self.cache.alone("runner"):
            inner = (self.directory / name for name in self._parts)  # where the others are mounted
            for directory in (self.directory, *inner, *self._parts.values()):
                directory.mkdir(mode=0o755, exist_ok=True)
                directory.chmod(0o755)  # whatever the umask: in a box of root's, others read it
            for name in _FILES:
                if not self.cache.has(self.directory / name):
                    self.cache.put(self.directory / name, (_HERE / name).read_bytes())
            self._compile_runner()
            if not self.cache.has(self.directory / _LIBRARY):
                self.cache.put(self.directory / _LIBRARY, library.read_bytes())

    def _compile_runner(self) -> None:
        """Its bytecode, checked by the hash of the source: what is mounted read-only cannot be written later."""
        place = self.directory / "__pycache__"
        place.mkdir(mode=0o755, exist_ok=True)
        place.chmod(0o755)
        for name in _FILES:
            target = Path(importlib.util.cache_from_source(os.fspath(self.directory / name)))
            if name.endswith(".py") and name != "run.py" and not self.cache.has(target):
                with tempfile.TemporaryDirectory(prefix="ringfence-wasi-") as scratch:
                    made = os.path.join(scratch, "made.pyc")
                    py_compile.compile(
                        os.fspath(self.directory / name),
                        cfile=made,
                        dfile=f"{RUNNER}/{name}",
                        doraise=True,
                        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
                    )
                    self.cache.put(target, Path(made).read_bytes())

    def compiled(self, label: str, key: str) -> str:
        """The name of a module's machine code; empty if there is none yet.

        Args:
            key: stands for the module's bytes.

        Raises:
            Damaged: what is there was changed.
        """
        path = self._code(label, key)
        return path.name if self.cache.has(path) else ""

    async def compile(self, engine: Engine, label: str, key: str, module: bytes) -> str:
        """The name of a module's machine code, which is there afterwards.

        Raises:
            BundleRefused: the compiler does not take it.
            Damaged: what is there was changed.
        """
        if not (name := self.compiled(label, key)):
            kind = "component" if label == PYTHON else "module"
            path = self._code(label, key)
            self.cache.put(path, await _compile(engine, self, module, kind, label))
            name = path.name
        return name

    def _code(self, label: str, key: str) -> Path:
        return self._parts["code"] / f"{label}-{key}.cwasm"

    def put_files(self, digest: str, files: dict[str, bytes]) -> None:
        """A bundle's own files, which its tool sees as /bundle."""
        top = self._parts["bundles"]
        for name, data in files.items():
            path = top / digest / name
            for directory in reversed(path.relative_to(top).parents[:-1]):
                place = top / directory
                place.mkdir(mode=0o755, exist_ok=True)
                place.chmod(0o755)
            if not self.cache.has(path):
                self.cache.put(path, data)


def shown_at(box: Box, directory: Path) -> str:
    """What a box calls the stage: a wall that builds no view shows it where it lies."""
    return RUNNER if Guarantee.HOST_NAMES_HIDDEN in box.wall.guarantees else os.fspath(directory)


def words(verb: str, *more: str, at: str) -> tuple[str, ...]:
    """How the runner is started."""
    return (python(), "-I", "-S", f"{at}/run.py", verb, *more)


async def _compile(engine: Engine, stage: Stage, module: bytes, kind: str, label: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="ringfence-wasi-", ignore_cleanup_errors=True) as scratch:
        source, target = Path(scratch, "module.wasm"), Path(scratch, "module.cwasm")
        source.write_bytes(module)
        place = Path(os.path.realpath(scratch))
        grant = Grant(workspace=place, placed=stage.placed, limits=_COMPILE, trace=Trace.OFF)
        box = await engine.open(grant)
        try:
            at = shown_at(box, stage.directory)
            argv = words("compile", str(source.resolve()), str(target.resolve()), kind, at=at)
            done = await box.run(Request(argv=argv))
        finally:
            await box.close()
        if done.ending != Exited(0):
            said = done.stderr.strip().splitlines()
            why = "; ".join(line.strip() for line in said[:3]) or str(done.ending)
            raise BundleRefused(Reason.NOT_COMPILED, f"{label}: {why}")
        # What was written in a box may be a link by now.
        with open(os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            return file.read()
