"""Sandbox images: builds them, lists them, and checks whether boxes can be made of one.

Building is left to the `docker` command, looking to Docker's HTTP API. The command knows how to log in to registries
for the base image, has BuildKit where that is installed, and shows its progress; the API offers none of it. The API
needs no program on this machine, which is what an engine wants that looks at an image before its first box.

An image is tagged by the hash of everything that goes into it (files, arguments, version of this package), so that the
same inputs are never built twice, and a tag never means two things. The version's tag is what engines ask for.
"""

import asyncio
import hashlib
import io
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from ringfence.dataclass import dataclass
from ringfence.engines.docker.image import ImageFacts, connected, probe_image
from ringfence.engines.docker.settings import IMAGE_VARIABLE, DockerSettings, read_docker_settings
from ringfence.errors import InitializationFailed, InvalidArgument
from ringfence.manager.set_id import set_id_programs
from ringfence.policy.settings import read_settings
from ringfence.version import VERSION

REPOSITORY: Final = "ringfence/sandbox"
CONTEXT: Final = ("Dockerfile", "entrypoint.sh", "install.sh", "requirements-sandbox.txt")
"""The files that an image is made from."""

_LABEL: Final = "ringfence.image"
_INPUTS_LABEL: Final = "ringfence.inputs"
_PACKAGED: Final = Path(__file__).parents[1] / "_image"
_CHECKOUT: Final = Path(__file__).parents[3] / "deploy"
_SECONDS_FOR_ARCHIVE: Final = 900.0
_ARGUMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# From Docker's reference grammar, without a registry's port being told from a tag: Docker itself has the last word.
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._/:@-]{0,254}", re.IGNORECASE)


# --- building ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an image is made from."""

    files: Mapping[str, bytes]
    arguments: Mapping[str, str]
    ringfence: str

    @property
    def hash(self) -> str:
        """Of everything in it, each part with its length, so that no two recipes give the same text."""
        found = hashlib.sha256()
        parts = [self.ringfence.encode()]
        for name, content in sorted(self.files.items()):
            parts += [name.encode(), content]
        for name, value in sorted(self.arguments.items()):
            parts += [name.encode(), value.encode()]
        for part in parts:
            found.update(len(part).to_bytes(8, "big") + part)
        return found.hexdigest()

    @property
    def tags(self) -> tuple[str, str]:
        """By content, and by version."""
        return f"{REPOSITORY}:{self.hash[:16]}", f"{REPOSITORY}:{self.ringfence}"

    @property
    def context(self) -> bytes:
        """The files as an archive that is the same wherever it is made."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for name, content in sorted(self.files.items()):
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                entry.mode = 0o755 if name.endswith(".sh") else 0o644
                archive.addfile(entry, io.BytesIO(content))
        return packed.getvalue()


def recipe(arguments: Iterable[str] = (), *, base: str | None = None, with_data: bool = True) -> Recipe:
    """The recipe for this version, changed by arguments such as `SNAPSHOT=20250520T000000Z`.

    Raises:
        InvalidArgument: an argument is no `NAME=VALUE`, or the Dockerfile has none of that name.
        InitializationFailed: this installation came without the files.
    """
    directory = next((place for place in (_PACKAGED, _CHECKOUT) if (place / CONTEXT[0]).is_file()), None)
    if directory is None:
        raise InitializationFailed(
            "the files that images are made from did not come with this installation",
            hint="install Ringfence from a wheel or a checkout",
        )
    files = {name: (directory / name).read_bytes() for name in CONTEXT}
    known = frozenset(re.findall(r"^ARG ([A-Z_]+)", files[CONTEXT[0]].decode(), re.MULTILINE))
    given = dict(_argument(each, known) for each in arguments)
    if base is not None:
        given["BASE"] = _checked_name(base)
    if not with_data:
        given["DATA"] = ""
    return Recipe(files=files, arguments=given, ringfence=VERSION)


def _argument(text: str, known: frozenset[str]) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not _ARGUMENT.fullmatch(name):
        raise InvalidArgument(f"{text!r} is not a build argument", hint="write it as NAME=VALUE")
    if name not in known:
        raise InvalidArgument(f"the Dockerfile has no argument {name!r}", hint=f"it has {', '.join(sorted(known))}")
    return name, value


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidArgument(
            f"{name!r} is not a name of an image", hint="write it as NAME, NAME:TAG or NAME@sha256:DIGEST"
        )
    return name


def build_command(
    made: Recipe, *, docker_url: str | None, network: str | None = None, no_cache: bool = False
) -> list[str]:
    """The command that builds; it reads `made.context` from its standard input.

    Raises:
        InitializationFailed: there is no `docker` command.
    """
    program = shutil.which("docker")
    if program is None:
        raise InitializationFailed("building an image needs the `docker` command", hint="install Docker's client")
    command = [program, *(("--host", docker_url) if docker_url else ()), "build"]
    for tag in made.tags:
        command += ["--tag", tag]
    for name, value in sorted(made.arguments.items()):
        command += ["--build-arg", f"{name}={value}"]
    command += ["--label", f"{_INPUTS_LABEL}=sha256:{made.hash}"]
    if network is not None:
        command += ["--network", network]
    if no_cache:
        command += ["--no-cache"]
    return [*command, "-"]


def build(made: Recipe, *, docker_url: str | None, network: str | None = None, no_cache: bool = False) -> None:
    """Build the image; Docker's own progress goes to our stdout and stderr.

    Raises:
        InitializationFailed: it could not be built.
    """
    command = build_command(made, docker_url=docker_url, network=network, no_cache=no_cache)
    code = subprocess.run(command, input=made.context, check=False).returncode
    if code != 0:
        raise InitializationFailed(
            f"docker could not build the image (exit code {code})",
            hint="see its words above; without a bridge network, add --network host",
        )


# --- looking ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListedImage:
    tags: tuple[str, ...]
    id: str
    created: float
    """Seconds since 1970."""
    size_bytes: int
    inputs: str
    """The hash of what it was made from; empty if it was not made by `ringfence image build`."""


async def list_images(docker_url: str | None) -> tuple[ListedImage, ...]:
    """The sandbox images that the daemon has, newest first.

    Raises:
        InitializationFailed: no daemon answers.
    """
    async with connected(docker_url) as docker:
        # All of them, and not by a filter: versions of aiodocker disagree on how one is written.
        found = [each for each in await docker.images.list() if _LABEL in (each.get("Labels") or {})]
    return tuple(sorted(map(_listed, found), key=lambda image: -image.created))


def _listed(entry: Mapping[str, Any]) -> ListedImage:
    return ListedImage(
        tags=tuple(entry.get("RepoTags") or ()),
        id=str(entry["Id"]),
        created=float(entry["Created"]),
        size_bytes=int(entry["Size"]),
        inputs=str((entry.get("Labels") or {}).get(_INPUTS_LABEL, "")),
    )


async def is_built(made: Recipe, docker_url: str | None) -> bool:
    """Whether the daemon has an image of just these inputs.

    Raises:
        InitializationFailed: no daemon answers.
    """
    return any(made.tags[0] in image.tags for image in await list_images(docker_url))


def image_in_use(environ: Mapping[str, str]) -> DockerSettings | None:
    """Which image the environment asks boxes to be made of, and of which daemon; None where it asks for no container.

    Raises:
        InvalidConfig: a setting makes no sense.
    """
    if read_settings(environ).tool_engine != "docker" and not environ.get(IMAGE_VARIABLE, "").strip():
        return None
    return read_docker_settings(environ)


# --- checking ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """One claim about an image."""

    claim: str
    ok: bool
    needed: bool
    """Whether the image is unfit if it does not hold; otherwise it is worth knowing."""
    found: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class ImageReport:
    facts: ImageFacts
    set_id: tuple[str, ...]
    checks: tuple[ImageCheck, ...]

    @property
    def fit(self) -> bool:
        return all(check.ok for check in self.checks if check.needed)


async def check_image(docker_url: str | None, image: str) -> ImageReport:
    """Try out whether boxes can be made of `image`, and what they would find in it.

    Raises:
        InvalidArgument: that is not a name of an image.
        InitializationFailed: no daemon answers, or it has no such image.
    """
    facts = await probe_image(docker_url, _checked_name(image))
    set_id = await _set_id(docker_url, facts.id)
    return ImageReport(facts, set_id, tuple(judge(facts, set_id)))


def judge(facts: ImageFacts, set_id: tuple[str, ...]) -> Iterator[ImageCheck]:
    """Each claim, and whether it holds."""
    yield ImageCheck(
        "our helper runs in it",
        not facts.helper_fault,
        True,
        facts.helper_fault or f"as the first process, on {facts.architecture}",
        "" if not facts.helper_fault else "use an image for this machine's architecture",
    )
    yield ImageCheck(
        "it has a shell",
        facts.has_shell,
        True,
        facts.programs["sh"].path if facts.has_shell else "no /bin/sh starts in it",
        "" if facts.has_shell else "build on a base with a shell, such as debian:bookworm-slim",
    )
    who = f"uid {facts.uid}" if facts.uid is not None else f"user {facts.user!r}, which no shell could confirm"
    yield ImageCheck(
        "its user is not root",
        not facts.runs_as_root,
        True,
        who,
        "end its Dockerfile with USER 1000:1000" if facts.runs_as_root else "",
    )
    yield ImageCheck(
        "no program in it runs as somebody else",
        not set_id,
        True,
        ", ".join(set_id[:5]) + (f" and {len(set_id) - 5} more" if len(set_id) > 5 else "")
        or "no set-id bit, no capability",
        "remove the bits: find / -xdev -type f -perm /6000 -exec chmod a-s {} +" if set_id else "",
    )
    for name, use in (("bash", "shell commands"), ("python3", "Python"), ("node", "JavaScript"), ("git", "git")):
        program = facts.programs.get(name)
        yield ImageCheck(
            f"it has {name}",
            program is not None,
            False,
            f"{program.path}: {program.version}" if program else f"{use} cannot be run in it",
            "" if program else f"install {name} in its Dockerfile, if it is wanted",
        )


def _some(paths: tuple[str, ...], most: int = 5) -> str:
    return ", ".join(paths[:most]) + (f" and {len(paths) - most} more" if len(paths) > most else "")


async def _set_id(docker_url: str | None, image_id: str) -> tuple[str, ...]:
    async with (
        connected(docker_url) as docker,
        docker.images.export_image(image_id, timeout=_SECONDS_FOR_ARCHIVE) as content,
    ):
        return await asyncio.to_thread(set_id_programs, _Pulled(content, asyncio.get_running_loop()))


@dataclass(frozen=True, slots=True)
class _Pulled:
    """An answer that comes in, for a thread that reads it as a file."""

    content: Any
    loop: asyncio.AbstractEventLoop

    def read(self, count: int, /) -> bytes:
        return bytes(asyncio.run_coroutine_threadsafe(self.content.read(count), self.loop).result())
