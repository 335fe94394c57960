"""What `doctor` says about Docker: whether a daemon answers, is new enough, and has the image.

Asked with the standard library alone and a short deadline, so that a report works without the extra, and beside a
daemon that hangs. A runtime that claims to bring a kernel is tried out: only a box can say on which kernel it is.
"""

import asyncio
import http.client
import json
import os
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ringfence.dataclass import dataclass, replace
from ringfence.engines.docker.address import connect
from ringfence.engines.docker.daemon import OLDEST, About, parse_version
from ringfence.engines.docker.engine import DockerEngine, guarantees_of
from ringfence.engines.docker.identity import rootless_identity
from ringfence.engines.docker.runtimes import WALLS, Kernel, choose_runtime, kernel_of, own_kernels
from ringfence.engines.docker.settings import DockerSettings, read_docker_settings
from ringfence.errors import InitializationFailed, InvalidConfig, RingfenceError
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee

_SECONDS = 2.0
_ANSWER_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DockerFact:
    """What was found; `missing` says why boxes cannot be containers of this kind here."""

    name: str
    guarantees: frozenset[Guarantee] = frozenset()
    missing: str = ""
    hint: str = ""


def docker_facts(environ: Mapping[str, str]) -> tuple[DockerFact, ...]:
    """Containers as they are made if nothing else is said, and those with a kernel of their own. Never raises for what
    it finds."""
    try:
        settings = read_docker_settings(environ)
    except InvalidConfig as fault:
        return (DockerFact("docker", missing=fault.message, hint=fault.hint),)
    try:
        said = _get(settings.url, "/version")
        info = _get(settings.url, "/info")
        image = _get(settings.url, f"/images/{quote(settings.image, safe='/:@')}/json")
    except (OSError, http.client.HTTPException, ValueError) as fault:
        why = f"no Docker daemon answers at {settings.url} ({fault})"
        return (DockerFact("docker", missing=why, hint="only for containers: start dockerd, or set DOCKER_HOST"),)
    if parse_version(str(said.get("ApiVersion", "0"))) < OLDEST:
        return (DockerFact("docker", missing="the Docker daemon is too old", hint="use Docker 20.10 or later"),)
    if "Id" not in image:
        return (
            DockerFact(
                "docker",
                missing=f"Docker {said.get('Version')} answers, but has no image {settings.image!r}",
                hint="run `ringfence image build`, or name another one in RINGFENCE_DOCKER_IMAGE",
            ),
        )
    about = About.parse(said, info)
    if about.is_rootless:
        try:
            rootless_identity(settings.url)
        except InitializationFailed as fault:
            return (DockerFact("docker", missing=fault.message, hint=fault.hint),)
    return (
        _fact("docker", about, settings.runtime),
        *(_own_kernel_fact(settings, about, kernel) for kernel in (Kernel.GVISOR, Kernel.MACHINE)),
    )


def _own_kernel_fact(settings: DockerSettings, about: About, kernel: Kernel) -> DockerFact:
    found = next((each for each in own_kernels(about) if kernel_of(each) is kernel), None)
    if found is None:
        have = ", ".join(each.name for each in about.runtimes)
        hint = f"only for {kernel}: docs/docker.md says how to register a runtime"
        return DockerFact(WALLS[kernel], missing=f"the daemon has no such runtime, only {have}", hint=hint)
    fact = _fact(WALLS[kernel], about, found.name)
    if fact.missing:
        return fact
    with ThreadPoolExecutor(1) as apart:  # whoever asks may have an event loop already
        fault = apart.submit(asyncio.run, _try_out(replace(settings, runtime=found.name))).result()
    return fact if fault is None else DockerFact(fact.name, missing=fault.message, hint=fault.hint)


async def _try_out(settings: DockerSettings) -> RingfenceError | None:
    with tempfile.TemporaryDirectory(prefix="ringfence-docker-probe-") as empty:
        grant = Grant(workspace=Path(os.path.realpath(empty)), requires=frozenset({Guarantee.OWN_KERNEL}))
        try:
            box = await DockerEngine(settings).open(grant)
        except RingfenceError as fault:
            return fault
        await box.close()
    return None


def _fact(name: str, about: About, asked: str | None) -> DockerFact:
    try:
        runtime = choose_runtime(about, asked, own_kernel=False)
    except InitializationFailed as fault:
        return DockerFact(name, missing=fault.message, hint=fault.hint)
    return DockerFact(name, guarantees_of(about, runtime))


def _get(url: str, path: str) -> dict[str, Any]:
    connection = connect(url, _SECONDS)
    try:
        connection.request("GET", path, headers={"Host": "docker"})
        answer = json.loads(connection.getresponse().read(_ANSWER_MAX))
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError("what answers is no Docker daemon")
    return answer
