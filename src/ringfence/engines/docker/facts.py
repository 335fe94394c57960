"""What `doctor` says about Docker: whether a daemon answers, is new enough, and has the image.

Asked with the standard library alone and a short deadline, so that a report works without the extra, and beside a
daemon that hangs.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from ringfence.engines.docker.daemon import OLDEST, About, parse_version
from ringfence.engines.docker.engine import guarantees_of
from ringfence.engines.docker.runtimes import check_runtime
from ringfence.engines.docker.settings import read_docker_settings
from ringfence.errors import InitializationFailed, InvalidConfig
from ringfence.values.guarantee import Guarantee

_SECONDS = 2.0
_ANSWER_MAX = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class DockerFact:
    """What was found; `missing` says why boxes cannot be containers here."""

    guarantees: frozenset[Guarantee] = frozenset()
    missing: str = ""
    hint: str = ""


def docker_fact(environ: Mapping[str, str]) -> DockerFact:
    """Never raises for what it finds."""
    try:
        settings = read_docker_settings(environ)
    except InvalidConfig as fault:
        return DockerFact(missing=fault.message, hint=fault.hint)
    try:
        said = _get(settings.url, "/version")
        info = _get(settings.url, "/info")
        image = _get(settings.url, f"/images/{quote(settings.image, safe='/:@')}/json")
    except (OSError, http.client.HTTPException, ValueError) as fault:
        why = f"no Docker daemon answers at {settings.url} ({fault})"
        return DockerFact(missing=why, hint="only for containers: start dockerd, or set DOCKER_HOST")
    if parse_version(str(said.get("ApiVersion", "0"))) < OLDEST:
        return DockerFact(missing="the Docker daemon is too old", hint="use Docker 20.10 or later")
    if "Id" not in image:
        return DockerFact(
            missing=f"Docker {said.get('Version')} answers, but has no image {settings.image!r}",
            hint="run `ringfence image build`, or name another one in RINGFENCE_DOCKER_IMAGE",
        )
    about = About.parse(said, info)
    try:
        check_runtime(about, settings.runtime)
    except InitializationFailed as fault:
        return DockerFact(missing=fault.message, hint=fault.hint)
    return DockerFact(guarantees_of(about))


def _get(url: str, path: str) -> dict[str, Any]:
    connection = _connection(url)
    try:
        connection.request("GET", path, headers={"Host": "docker"})
        answer = json.loads(connection.getresponse().read(_ANSWER_MAX))
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise ValueError("what answers is no Docker daemon")
    return answer


def _connection(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https":
        raise ValueError("daemons behind TLS are not looked at")
    connection = http.client.HTTPConnection(parts.hostname or "docker", parts.port or 2375, timeout=_SECONDS)
    if parts.scheme == "unix":
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(_SECONDS)
        try:
            connection.sock.connect(parts.path)
        except OSError:
            connection.sock.close()
            raise
    return connection
