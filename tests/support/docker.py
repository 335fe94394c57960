"""The Docker daemon that tests may use: the one that DOCKER_HOST names, with an image that exists already.

Nothing is installed or started from here. `scripts/docker-engine.sh up DIRECTORY`, as root, gives one.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from ringfence.engines.docker.daemon import Daemon
from ringfence.engines.docker.engine import DockerEngine
from ringfence.engines.docker.janitor import MANAGER_LABEL, is_orphan, own_name
from ringfence.engines.docker.settings import DockerSettings, read_docker_settings
from ringfence.errors import RingfenceError
from ringfence.values.grant import Grant

_DEFAULT_IMAGE = "ringfence/test"


def settings() -> DockerSettings:
    """The daemon and image to test with; skips the test where there are none."""
    if reason := missing():
        pytest.skip(reason)
    return _settings()


def gvisor_settings() -> DockerSettings:
    """The same with gVisor as the runtime; skips the test where the daemon has none."""
    chosen = settings()
    if "runsc" not in runtimes():
        pytest.skip("no gVisor in Docker: RINGFENCE_RUNSC_PATH was not set when scripts/docker-engine.sh started it")
    return replace(chosen, runtime="runsc")


@cache
def runtimes() -> tuple[str, ...]:
    """The names of the daemon's runtimes."""

    async def ask() -> tuple[str, ...]:
        async with Daemon(_settings().url) as daemon:
            return tuple(each.name for each in (await daemon.about()).runtimes)

    return asyncio.run(ask())


@cache
def missing() -> str:
    """Why no test can use Docker; empty if it can."""
    if not os.environ.get("DOCKER_HOST"):
        return "no Docker: DOCKER_HOST is not set (scripts/docker-engine.sh up DIRECTORY, as root, starts a daemon)"
    try:
        asyncio.run(_look())
    except RingfenceError as fault:
        return f"no Docker: {fault}"
    return ""


def needs_groups() -> None:
    """Skip a test that needs the daemon's control groups: a rootless one may have none, and then cannot pause, nor hold
    cores."""
    if _holds_nothing():
        pytest.skip("the daemon has no control groups: it is rootless, and none are delegated to it")


@cache
def _holds_nothing() -> bool:
    async def ask() -> bool:
        async with Daemon(_settings().url) as daemon:
            about = await daemon.about()
            return about.is_rootless and not about.bounds_memory

    return asyncio.run(ask())


def leftovers() -> list[str]:
    """Containers of this process that the daemon still knows."""
    return [container for container, manager in labelled() if manager == own_name()]


def labelled() -> tuple[tuple[str, str], ...]:
    """(id, manager) of all containers of ours, whoever made them."""

    async def ask() -> tuple[tuple[str, str], ...]:
        async with Daemon(_settings().url) as daemon:
            return await daemon.labelled(MANAGER_LABEL)

    return asyncio.run(ask())


def orphans() -> list[str]:
    """Containers whose manager is dead: somebody did not clean up."""
    return [container for container, manager in labelled() if is_orphan(manager)]


def environment(runtime: str = "") -> dict[str, str]:
    """What a process needs in its environment to run its boxes in containers."""
    chosen = _settings()
    own = {"RINGFENCE_TOOL_ENGINE": "docker", "DOCKER_HOST": chosen.url, "RINGFENCE_DOCKER_IMAGE": chosen.image}
    return own | ({"RINGFENCE_DOCKER_RUNTIME": runtime} if runtime else {})


@cache
def has(program: str) -> bool:
    """Whether the image has it."""

    async def ask() -> bool:
        with tempfile.TemporaryDirectory(prefix="ringfence-ask-") as empty:
            box = await DockerEngine(_settings()).open(Grant(workspace=Path(os.path.realpath(empty))))
            try:
                return box.find_program((program,)) is not None
            finally:
                await box.close()

    return asyncio.run(ask())


def command(*words: str, stdin: bytes | None = None, check: bool = True) -> str:
    """Have the person at the machine do something with Docker, behind our back."""
    line = ["docker", "--host", _settings().url, *words]
    done = subprocess.run(line, input=stdin, capture_output=True, timeout=60, check=check)
    return done.stdout.decode().strip()


def small_image(*programs: str, links: dict[str, str] | None = None, scripts: dict[str, str] | None = None) -> bytes:
    """The archive of an image that holds these programs of the host, what they load, and nothing else but scripts."""
    needed: dict[str, None] = {}
    for program in programs:
        path = shutil.which(program)
        assert path is not None, f"{program} is not on this machine"
        loaded = subprocess.run(["ldd", path], capture_output=True, check=False, timeout=10).stdout.decode()
        for word in (path, *(word for word in loaded.split() if word.startswith("/"))):
            needed[word] = None
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for above in sorted({str(above) for name in (*needed, *(links or {})) for above in Path(name).parents} - {"/"}):
            # Or the daemon makes it, and a rootless one so that its owner, who is the box, cannot enter it.
            directory = tarfile.TarInfo(above.lstrip("/"))
            directory.type, directory.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(directory)
        for path in needed:
            archive.add(os.path.realpath(path), path.lstrip("/"))
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name.lstrip("/"))
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, text in (scripts or {}).items():
            script = tarfile.TarInfo(name.lstrip("/"))
            script.size, script.mode = len(text), 0o755
            archive.addfile(script, io.BytesIO(text.encode()))
        empty = tarfile.TarInfo("tmp")
        empty.type, empty.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(empty)
    return packed.getvalue()


def _settings() -> DockerSettings:
    return read_docker_settings(os.environ, image=os.environ.get("RINGFENCE_DOCKER_IMAGE") or _DEFAULT_IMAGE)


async def _look() -> None:
    async with Daemon(_settings().url) as daemon:
        await daemon.about()
        await daemon.image(_settings().image)
