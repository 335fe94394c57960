"""Which programs there are in a box of this engine, and what each of them is run with."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from ringfence.bundles.archive import content_of
from ringfence.dataclass import dataclass
from ringfence.engines.wasi.guests import PythonGuest, quickjs, userland
from ringfence.engines.wasi.staging import PYTHON

if TYPE_CHECKING:
    from ringfence.bundles.manifest import Manifest
    from ringfence.bundles.store import BundleStore
    from ringfence.engines.base import Engine
    from ringfence.engines.wasi.staging import Stage
    from ringfence.values.limits import Limits

TOOLS: Final = frozenset(
    [
        ":",
        "[",
        "basename",
        "cat",
        "cp",
        "cut",
        "diff",
        "dirname",
        "echo",
        "env",
        "false",
        "find",
        "grep",
        "head",
        "jq",
        "ls",
        "mkdir",
        "mv",
        "printenv",
        "printf",
        "pwd",
        "rm",
        "rmdir",
        "sed",
        "seq",
        "sleep",
        "sort",
        "tac",
        "tail",
        "tar",
        "tee",
        "test",
        "touch",
        "tr",
        "true",
        "uniq",
        "wc",
        "yes",
    ]
)
"""Of the userland, by their first argument."""
PYTHONS: Final = ("python3", "python")
NODES: Final = ("node", "nodejs", "qjs")
_TABLES: Final = 100_000
_MIB: Final = 1024 * 1024
_LEAST: Final = 64 * _MIB
"""CPython does not start with less."""


@dataclass(frozen=True, slots=True)
class Program:
    """One program: which code, and what it may have of what the box has."""

    kind: str
    """`tool`, `python`, `javascript` or `module`."""
    code: str
    """Its file below /__runner__/code."""
    arguments: tuple[str, ...] = ()
    """Before those of the caller."""
    bundle: str = ""
    """The directory below /__runner__/bundles that it sees as /bundle."""
    writable: bool | None = True
    """None: it sees no workspace."""
    environment: tuple[str, ...] | None = None
    """Which variables it gets of those that were granted; None: all of them."""
    memory_bytes: int = 0
    cpu_seconds: int = 0
    wall_seconds: int = 0
    table_elements: int = 0
    name: str = ""
    """Of the bundle."""

    def stage(
        self, argv: list[Any], env: dict[str, str], redirects: list[Any], limits: Limits, *, read_only: bool
    ) -> dict[str, Any]:
        """What the runner has to know."""
        shown = env if self.environment is None else {name: env[name] for name in self.environment if name in env}
        memory = min(self.memory_bytes or limits.memory_bytes, limits.memory_bytes)
        return {
            "kind": self.kind,
            "code": self.code,
            "argv": [argv[0], *self.arguments, *argv[1:]],
            "env": sorted(shown.items()),
            "redirects": redirects,
            "bundle": self.bundle,
            "writable": self.writable and not read_only if self.writable is not None else None,
            "memory": max(memory, _LEAST) if self.kind == "python" else memory,
            "tables": min(self.table_elements or _TABLES, _TABLES) if self.kind != "python" else _TABLES,
            "cpu": self.cpu_seconds,
        }


@dataclass(slots=True)
class Programs:
    """The programs of one engine. Guests are compiled when it is made, bundles when they are first called."""

    stage: Stage
    engine: Engine
    """Makes the boxes that modules are compiled in."""
    store: BundleStore
    userland: str
    javascript: str
    python: str
    """The names of the guests' code; empty for what is not there."""

    def find(self, names: tuple[str, ...]) -> str | None:
        """The first of these that is there, as `Box.find_program` has it."""
        return next((name for name in names if self.has(name)), None)

    def has(self, word: str) -> bool:
        if word in TOOLS:
            return bool(self.userland)
        if word in PYTHONS:
            return bool(self.python)
        if word in NODES:
            return bool(self.javascript)
        return "/" in word and any(row.name == word and row.digest for row in self.store.installed())

    async def get(self, word: str) -> Program | None:
        """The program that a word stands for; None if there is none.

        Raises:
            BundleRefused: it is a bundle that may not run.
        """
        name = word.rpartition("/")[2] if word.startswith(("/usr/bin/", "/bin/")) else word
        if name in TOOLS and self.userland:
            return Program("tool", self.userland)
        if name in PYTHONS and self.python:
            return Program("python", self.python)
        if name in NODES and self.javascript:
            return Program("javascript", self.javascript)
        if "/" not in word or word.startswith(("/", ".")) or not self.has(word):
            return None
        return await self._bundle(word)

    async def _bundle(self, name: str) -> Program | None:
        loaded = self.store.load(name)
        manifest = loaded.manifest
        content = content_of(loaded.files)
        code = {"python": self.python, "javascript": self.javascript}.get(manifest.runtime, "")
        if manifest.runtime == "wasm":
            module = content.pop(manifest.entry)
            code = await self.stage.compile(self.engine, "tool", manifest.files[manifest.entry].sha256, module)
        if not code:
            return None
        if content:
            self.stage.put_files(loaded.digest, content)
        return _program(manifest, code, loaded.digest if content else "")


def _program(manifest: Manifest, code: str, bundle: str) -> Program:
    limits = manifest.limits
    kind = "module" if manifest.runtime == "wasm" else manifest.runtime
    return Program(
        kind,
        code,
        arguments=() if kind == "module" else (f"/bundle/{manifest.entry}",),
        bundle=bundle,
        writable=next((mount.mode == "read-write" for mount in manifest.mounts), None),
        environment=manifest.environment,
        memory_bytes=limits.memory_bytes,
        cpu_seconds=limits.cpu_seconds,
        wall_seconds=limits.wall_seconds,
        table_elements=limits.table_elements,
        name=manifest.name,
    )


async def make_programs(stage: Stage, engine: Engine, store: BundleStore) -> Programs:
    """The programs, with the guests that are there compiled.

    Raises:
        BundleRefused: wasmtime does not take a guest.
        Damaged: somebody has changed the cache.
    """
    codes = []
    for label, module in (("userland", userland()), ("javascript", quickjs())):
        key = hashlib.sha256(module or b"").hexdigest()[:32]
        codes.append(await stage.compile(engine, label, key, module) if module is not None else "")
    return Programs(stage, engine, store, codes[0], codes[1], await compiled_python(stage, engine))


async def compiled_python(stage: Stage, engine: Engine) -> str:
    """The name of the CPython guest's code, compiled if need be; empty if the guest was not built yet."""
    guest = PythonGuest(stage.cache)
    if name := stage.compiled(PYTHON, guest.key):
        return name
    component = guest.read()
    return await stage.compile(engine, PYTHON, guest.key, component) if component is not None else ""
