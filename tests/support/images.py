"""The Docker daemon that tests use: the one that DOCKER_HOST names, else the machine's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version

import pytest

IMAGE = os.environ.get("RINGFENCE_TEST_SANDBOX_IMAGE", f"ringfence/sandbox:{version('ringfence')}")
"""Made by `ringfence image build`."""

_HOW = (
    "as root: scripts/docker-engine.sh up DIRECTORY, set DOCKER_HOST as it says, scripts/image-base.sh, "
    "ringfence image build --network host"
)


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    out: str
    err: str


@cache
def why_no_daemon() -> str:
    """Empty if a daemon answers."""
    if shutil.which("docker") is None:
        return f"there is no docker command; {_HOW}"
    try:
        done = subprocess.run(["docker", "version"], capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return "the Docker daemon does not answer"
    return "" if done.returncode == 0 else f"no Docker daemon answers ({done.stderr.strip()[:200]}); {_HOW}"


@cache
def why_no_image(image: str = IMAGE) -> str:
    """Empty if the daemon has the image."""
    if why_no_daemon():
        return why_no_daemon()
    done = subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False)
    return "" if done.returncode == 0 else f"the daemon has no image {image}; {_HOW}"


def docker(*arguments: str, stdin: str | None = None, seconds: float = 100.0) -> Ran:
    """Run the docker command."""
    done = subprocess.run(
        ["docker", *arguments], input=stdin, capture_output=True, text=True, timeout=seconds, check=False
    )
    return Ran(done.returncode, done.stdout, done.stderr)


needs_daemon = pytest.mark.skipif(bool(why_no_daemon()), reason=why_no_daemon() or "-")
needs_image = pytest.mark.skipif(bool(why_no_image()), reason=why_no_image() or "-")
