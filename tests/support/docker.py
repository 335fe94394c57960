"""The Docker daemon that tests may use: the one that DOCKER_HOST names, with an image that is there already.

Nothing is installed or started from here. `scripts/docker-engine.sh up DIRECTORY`, as root, gives one.
"""

from __future__ import annotations

import asyncio
import os
from functools import cache

import pytest

from ringfence.engines.docker.daemon import Daemon
from ringfence.engines.docker.janitor import MANAGER_LABEL, own_name
from ringfence.engines.docker.settings import DockerSettings, read_docker_settings
from ringfence.errors import RingfenceError

_DEFAULT_IMAGE = "ringfence/test"


def settings() -> DockerSettings:
    """The daemon and image to test with; skips the test where there are none."""
    if reason := missing():
        pytest.skip(reason)
    return _settings()


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


def leftovers() -> list[str]:
    """Containers of this process that the daemon still knows."""
    return [container for container, manager in labelled() if manager == own_name()]


def labelled() -> tuple[tuple[str, str], ...]:
    """(id, manager) of all containers of ours, whoever made them."""

    async def ask() -> tuple[tuple[str, str], ...]:
        async with Daemon(_settings().url) as daemon:
            return await daemon.labelled(MANAGER_LABEL)

    return asyncio.run(ask())


def _settings() -> DockerSettings:
    return read_docker_settings(os.environ, image=os.environ.get("RINGFENCE_DOCKER_IMAGE") or _DEFAULT_IMAGE)


async def _look() -> None:
    async with Daemon(_settings().url) as daemon:
        await daemon.about()
        await daemon.image(_settings().image)
