"""Looks at an image before boxes are made of it: does our helper run in it, who is its user, which programs has it?

Two containers are made of it and thrown away. They are walled in like a box: no network, no capabilities, no new
privileges, our own system-call filter, little memory, few processes, a deadline. In the first our own static helper is
started, which needs nothing of the image: if that fails, no box can be made of it. In the second the image's own shell
says which programs are there.

The helper is copied into the container and not mounted, so that a daemon on another machine can be asked as well.

What this does not protect against: an image that lies. The versions that its programs print are its own word. They are
for people to read; no wall depends on them. That it holds no set-uid program is looked at elsewhere, from outside.
"""

import asyncio
import io
import json
import os
import tarfile
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from ringfence.confinement.choose import container_profile
from ringfence.dataclass import dataclass
from ringfence.errors import InitializationFailed

if TYPE_CHECKING:
    from aiodocker import Docker
    from aiodocker.containers import DockerContainer

PROGRAMS: Final = ("sh", "bash", "python3", "node", "git", "pip3")
"""What is looked for; a box needs `sh`, the others are for the languages and for people."""

_HELPER: Final = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "_native", "ringfence-box"))
_PROBE_LABEL: Final = "ringfence.probe"
_HELPER_AT: Final = "ringfence-box"
_ANSWER_SECONDS: Final = 60.0
"""For one question to the daemon. Making a container of a large image on a slow disk takes seconds."""
_NOT_HTTP: Final = 900
"""From here on, a status is aiodocker's own way of saying that there was no answer."""
_STALE_SECONDS: Final = 600.0
"""A probe's container that is older than this belongs to a process that was killed."""
_OUTPUT_MAX: Final = 64 * 1024
_VERSION_MAX: Final = 200
_MISSING_PROGRAM_CODE: Final = 127

# Only what every POSIX shell has built in: an image need not hold anything else.
_QUESTIONS: Final = f"""\
while read -r key real rest; do
    if [ "$key" = Uid: ]; then echo "uid $real"; fi
done </proc/self/status
for name in {" ".join(PROGRAMS)}; do
    path=$(command -v "$name") || continue
    if [ "$name" = sh ]; then echo "program sh $path"; continue; fi
    "$path" --version </dev/null 2>&1 | {{ IFS= read -r version; echo "program $name $path $version"; }}
done
"""


@dataclass(frozen=True, slots=True)
class ImageProgram:
    """One that the image's own shell finds."""

    path: str
    version: str
    """The first line that it prints about itself; its own word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFacts:
    """What was found out about one image."""

    image: str
    """The name that was asked for."""
    id: str
    """The hash of its configuration and layers: the same id is the same image."""
    architecture: str
    size_bytes: int
    created: str
    """As the daemon says it, in ISO 8601."""
    labels: Mapping[str, str]
    user: str
    """What the image says about its user; empty means root."""
    uid: int | None
    """What that turned out to be; None if no shell was there to tell."""
    programs: Mapping[str, ImageProgram]
    helper_fault: str
    """Why our helper does not run in it; empty if it does."""

    @property
    def runs_as_root(self) -> bool:
        """Also if it cannot be told: a name, and no shell to ask."""
        if self.uid is not None:
            return self.uid == 0
        return not self.user.partition(":")[0].lstrip("0").isdecimal()

    @property
    def has_shell(self) -> bool:
        return "sh" in self.programs


async def probe_image(docker_url: str | None, image: str) -> ImageFacts:
    """Find out what `image` is.

    Args:
        docker_url: where the daemon is; None for what DOCKER_HOST, the docker command's context or custom says.

    Raises:
        InitializationFailed: no daemon answers, it has no such image, or aiodocker is not installed.
    """
    async with connected(docker_url) as docker:
        await _remove_stale(docker)
        found = await _inspect(docker, image)
        config = found.get("Config") or {}
        helper_fault = await _try_helper(docker, image)
        uid, programs = await _ask_shell(docker, image)
        return ImageFacts(
            image=image,
            id=str(found["Id"]),
            architecture=str(found.get("Architecture", "")),
            size_bytes=int(found.get("Size", 0)),
            created=str(found.get("Created", "")),
            labels=dict(config.get("Labels") or {}),
            user=str(config.get("User") or ""),
            uid=uid,
            programs=programs,
            helper_fault=helper_fault,
        )


@asynccontextmanager
async def connected(docker_url: str | None) -> AsyncIterator["Docker"]:
    """A client of a daemon that answers; what goes wrong while it is used becomes an error of ours.

    Raises:
        InitializationFailed: no daemon answers, or it says no.
    """
    try:
        import aiodocker
        import aiohttp
    except ImportError:
        raise InitializationFailed(
            "speaking to Docker needs a package that is not installed", hint="pip install 'ringfence[docker]'"
        ) from None
    place = docker_url or os.environ.get("DOCKER_HOST") or "the usual places"
    hint = "start Docker, or say where it is: --docker-url, or DOCKER_HOST"
    try:
        # An assertion is how aiodocker says that it found no daemon's socket.
        docker = aiodocker.Docker(url=docker_url, timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS))
    except (AssertionError, ValueError, OSError, aiodocker.DockerError) as fault:
        raise InitializationFailed(
            f"no Docker daemon is known ({place}): {str(fault) or 'no socket'}", hint=hint
        ) from fault
    async with docker:
        try:
            yield docker
        except aiodocker.DockerError as fault:
            if fault.status >= _NOT_HTTP:
                raise InitializationFailed(f"no Docker daemon answers: {fault.message}", hint=hint) from fault
            raise InitializationFailed(f"Docker said no: {fault.message}", hint=f"asked was {place}") from fault
        except TimeoutError as fault:
            raise InitializationFailed(f"the Docker daemon at {place} does not answer", hint=hint) from fault
        except (aiohttp.ClientError, OSError) as fault:
            raise InitializationFailed(f"no Docker daemon answers at {place}: {fault}", hint=hint) from fault


async def _inspect(docker: "Docker", image: str) -> dict[str, Any]:
    import aiodocker

    try:
        return await docker.images.inspect(image)
    except aiodocker.DockerError as fault:
        if fault.status != 404:
            raise
        raise InitializationFailed(
            f"Docker has no image {image!r}", hint="make it with `ringfence image build`, or pull it"
        ) from None


# --- two short-lived containers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ended:
    code: int
    output: str
    fault: str = ""
    """Why it could not be started."""


async def _try_helper(docker: "Docker", image: str) -> str:
    if not os.access(_HELPER, os.X_OK):
        return "this installation has no native helper; install Ringfence again"
    done = await _run(docker, image, (f"/{_HELPER_AT}", "version"), files=(_HELPER,))
    if done.fault:
        return done.fault
    if done.code != 0:
        return f"it ended with {done.code}: {done.output.strip() or 'no words'}"
    if not done.output.strip().isdecimal():
        return f"it does not say its version: {done.output.strip()!r}"
    return ""


async def _ask_shell(docker: "Docker", image: str) -> tuple[int | None, dict[str, ImageProgram]]:
    done = await _run(docker, image, ("/bin/sh", "-c", _QUESTIONS))
    return (None, {}) if done.fault else read_answers(done.output)


def read_answers(output: str) -> tuple[int | None, dict[str, ImageProgram]]:
    """The uid and the programs from what the shell said; lines that make no sense are left out."""
    uid: int | None = None
    programs: dict[str, ImageProgram] = {}
    for line in output.splitlines():
        match line.split(" ", 3):
            case ["uid", number] if number.isdecimal():
                uid = int(number)
            case ["program", name, path, *version] if name in PROGRAMS:
                programs[name] = ImageProgram(path, "".join(version)[:_VERSION_MAX])
    return uid, programs


async def _run(docker: "Docker", image: str, argv: tuple[str, ...], files: Iterable[str] = ()) -> _Ended:
    import aiodocker

    container = await docker.containers.create(_walled_in(image, argv))
    try:
        for path in files:
            await container.put_archive("/", _archive(path))  # type: ignore[no-untyped-call]  # aiodocker names no types
        try:
            await container.start()
        except aiodocker.DockerError as fault:
            return _Ended(_MISSING_PROGRAM_CODE, "", fault.message)
        async with asyncio.timeout(_ANSWER_SECONDS):
            ended = await container.wait()
        return _Ended(int(ended["StatusCode"]), await _output(container))
    finally:
        await container.delete(force=True, v=True)


def _walled_in(image: str, argv: tuple[str, ...]) -> dict[str, Any]:
    return {
        "Image": image,
        "Entrypoint": [argv[0]],
        "Cmd": list(argv[1:]),
        "WorkingDir": "/",
        "Labels": {_PROBE_LABEL: "1"},
        "Healthcheck": {"Test": ["NONE"]},
        "HostConfig": {
            "NetworkMode": "none",
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges", f"seccomp={json.dumps(container_profile())}"],
            "PidsLimit": 64,
            "Memory": 512 * 1024 * 1024,
            "MemorySwap": 512 * 1024 * 1024,
            "LogConfig": {"Type": "json-file", "Config": {"max-size": "1m"}},
        },
    }


def _archive(path: str) -> io.BytesIO:
    """The helper as Docker takes files: root's, and executable for everybody."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive, open(path, "rb") as program:
        entry = tarfile.TarInfo(_HELPER_AT)
        entry.size = os.fstat(program.fileno()).st_size
        entry.mode = 0o755
        archive.addfile(entry, program)
    packed.seek(0)  # a file, and not its bytes: a helper that was linked with a large C library would hold up the loop
    return packed


async def _output(container: "DockerContainer") -> str:
    lines = await container.log(stdout=True, stderr=True)
    return "".join(lines)[:_OUTPUT_MAX]


async def _remove_stale(docker: "Docker") -> None:
    """What a probe left behind that was killed half way."""
    import aiodocker

    for container in await docker.containers.list(all=True, filters=json.dumps({"label": [_PROBE_LABEL]})):
        if time.time() - float(container["Created"]) > _STALE_SECONDS:
            with suppress(aiodocker.DockerError):  # another probe was quicker
                await container.delete(force=True, v=True)
