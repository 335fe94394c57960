"""The modules that come with the engine: the userland, QuickJS, and CPython, which is built once on each machine.

The userland is compiled from C when the package is built. QuickJS is data of a package from the index. A CPython that
could be shipped is 35 MB and is not the same bytes twice, so that it is made here, by the Bytecode Alliance's own tool,
and believed because it was made here: its seal is the cache's.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache as remembered
from pathlib import Path
from typing import Final

from ringfence.engines.wasi.cache import Cache
from ringfence.errors import InitializationFailed, NotInstalled

TOOL: Final = "componentize-py"
_USERLAND: Final = Path(__file__).parents[2] / "_native" / "userland.wasm"
_GUEST: Final = Path(__file__).parent / "guest"
_SECONDS_MAX: Final = 900
_QUICKJS: Final = "qjs-wasi-reactor.wasm"

Told = Callable[[str], None]
"""Hears what is being done."""


def userland() -> bytes | None:
    """The module with the small tools; None if the package was built without it."""
    return _USERLAND.read_bytes() if _USERLAND.is_file() else None


def quickjs() -> bytes | None:
    """QuickJS; None if its package is not installed."""
    try:
        files = importlib.metadata.files(_QUICKJS) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = next((file for file in files if file.name.endswith(".wasm")), None)
    path = Path(str(found.locate())) if found is not None else None
    return path.read_bytes() if path is not None and path.is_file() else None


class PythonGuest:
    """CPython with its standard library in memory, as a component."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self.key = _guest_version()
        self._path = cache.directory / "guests" / f"python-{self.key}.wasm"

    def read(self) -> bytes | None:
        """The component; None if it was not built yet.

        Raises:
            Damaged: somebody has changed it.
        """
        return self._path.read_bytes() if self._cache.has(self._path) else None

    def build(self, told: Told = lambda _: None) -> bytes:
        """The component, built if it is not there: it takes a quarter of a minute.

        Raises:
            NotInstalled: the tool that makes it is not there.
            InitializationFailed: it could not be made.
        """
        self._cache.make()
        with self._cache.alone("python"):
            made = self.read()
            if made is None:
                told("building CPython for WASI")
                made = _build()
                self._cache.put(self._path, made)
        return made


@remembered
def _guest_version() -> str:
    """Changes with what a guest is made of, and with the tool that makes it."""
    try:
        tool = importlib.metadata.version(TOOL)
    except importlib.metadata.PackageNotFoundError:
        tool = ""
    text = "".join((_GUEST / name).read_text("utf-8") for name in ("app.py", "python.wit", "environment.wit"))
    return hashlib.sha256(f"{tool}\0{text}".encode()).hexdigest()[:20]


def _build() -> bytes:
    program = Path(sys.prefix) / "bin" / TOOL
    found = os.fspath(program) if program.is_file() else shutil.which(TOOL)
    if found is None:
        raise NotInstalled(
            f"the CPython guest is made by the package `{TOOL}`", hint="pip install 'ringfence[wasi,wasi-python]'"
        )
    with tempfile.TemporaryDirectory(prefix="ringfence-wasi-") as scratch:
        wit, app = Path(scratch, "wit"), Path(scratch, "app")
        (wit / "deps" / "cli").mkdir(parents=True)
        app.mkdir()
        shutil.copyfile(_GUEST / "python.wit", wit / "python.wit")
        shutil.copyfile(_GUEST / "environment.wit", wit / "deps" / "cli" / "environment.wit")
        shutil.copyfile(_GUEST / "app.py", app / "app.py")
        target = Path(scratch, "python.wasm")
        argv = [found, "-d", str(wit), "-w", "python", "componentize", "-p", str(app), "app", "-o", str(target)]
        clean = {"PATH": "/usr/bin:/bin", "HOME": scratch, "LANG": "C.UTF-8"}
        try:
            done = subprocess.run(argv, capture_output=True, cwd=scratch, env=clean, timeout=_SECONDS_MAX)
        except (OSError, subprocess.TimeoutExpired) as fault:
            raise InitializationFailed(f"the CPython guest could not be built: {fault}") from None
        if done.returncode != 0 or not target.is_file():
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()[-3:]
            raise InitializationFailed(
                f"the CPython guest could not be built: {'; '.join(said) or done.returncode}",
                hint="is there room for 200 MB in the temporary directory?",
            )
        return target.read_bytes()
