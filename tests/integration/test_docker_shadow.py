"""A shadow in a container: a copy stands in for the workspace, and an overlay is refused."""

from __future__ import annotations

import asyncio

import pytest

from ringfence import InitializationFailed, Sandbox
from ringfence.manager.options import Docker
from ringfence.sync import Workspaces
from ringfence.workspace.shadow import ShadowKind
from tests.integration.stage import SECRET, Place
from tests.support import docker

pytestmark = pytest.mark.req("D7", "E7")


def test_a_copy_stands_in_for_the_workspace(place: Place) -> None:
    chosen = docker.settings()
    (place.workspace / "text").write_text("old\n")
    (place.workspace / ".env").write_text(SECRET)

    async def work(workspaces: Workspaces) -> tuple[str, str]:
        shadow = workspaces.new(place.workspace, kind=ShadowKind.COPY)
        async with Sandbox(place.workspace, shadow=shadow, engine=Docker(url=chosen.url, image=chosen.image)) as box:
            done = await box.shell("cat text; ls -A; echo new > text; cat /workspace/text")
        before = (place.workspace / "text").read_text()
        assert workspaces.commit(shadow).is_done
        return done.stdout, before

    with Workspaces() as workspaces:
        said, before = asyncio.run(work(workspaces))

    assert said == "old\ntext\nnew\n"
    assert before == "old\n"
    assert (place.workspace / "text").read_text() == "new\n"


def test_an_overlay_is_refused(place: Place) -> None:
    chosen = docker.settings()

    async def work(workspaces: Workspaces) -> None:
        shadow = workspaces.new(place.workspace, kind=ShadowKind.OVERLAY)
        box = Sandbox(place.workspace, shadow=shadow, engine=Docker(url=chosen.url, image=chosen.image))
        try:
            await box.shell("true")
        finally:
            await box.close()

    with Workspaces() as workspaces, pytest.raises(InitializationFailed, match="copy"):
        asyncio.run(work(workspaces))
