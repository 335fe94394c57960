"""Which daemon, which image and which runtime: what the caller says, else what the environment says."""

from collections.abc import Mapping

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidConfig
from ringfence.version import VERSION

URL_VARIABLE = "DOCKER_HOST"
IMAGE_VARIABLE = "RINGFENCE_DOCKER_IMAGE"
RUNTIME_VARIABLE = "RINGFENCE_DOCKER_RUNTIME"
_DEFAULT_URL = "unix:///var/run/docker.sock"
_SCHEMES = ("unix://", "tcp://", "http://", "https://")


@dataclass(frozen=True, slots=True)
class DockerSettings:
    url: str
    image: str
    runtime: str | None = None
    """By which of the daemon's runtimes containers are made; None for its default."""


def read_docker_settings(
    environ: Mapping[str, str], url: str | None = None, image: str | None = None, runtime: str | None = None
) -> DockerSettings:
    """What is given counts, then the variables, then Docker's usual socket, our own image and the default runtime.

    Raises:
        InvalidConfig: the address is none of a daemon.
    """
    chosen = url or environ.get(URL_VARIABLE, "").strip() or _DEFAULT_URL
    if not chosen.startswith(_SCHEMES) or chosen in _SCHEMES:
        raise InvalidConfig(
            f"{chosen!r} is not the address of a Docker daemon",
            hint="give unix:///path/to/docker.sock or tcp://host:port",
        )
    named = image or environ.get(IMAGE_VARIABLE, "").strip() or f"ringfence/sandbox:{VERSION}"
    return DockerSettings(chosen, named, runtime or environ.get(RUNTIME_VARIABLE, "").strip() or None)
