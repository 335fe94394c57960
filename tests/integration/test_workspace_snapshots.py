"""Snapshots of shadows and of sessions: saved, put back, forked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ringfence import InvalidArgument, SandboxManager
from ringfence.errors import AlreadyExists
from ringfence.sync import Workspaces
from ringfence.workspace.shadow import ShadowKind
from tests.integration.stage import Place

pytestmark = pytest.mark.req("X5")


@pytest.fixture
def workspaces(place: Place) -> Iterator[Workspaces]:
    with Workspaces() as opened:
        yield opened


@pytest.mark.parametrize("kind", list(ShadowKind))
def test_a_shadow_comes_back_as_it_was_saved(place: Place, workspaces: Workspaces, kind: ShadowKind) -> None:
    (place.workspace / "kept").write_text("host\n")
    (place.workspace / "removed").write_text("host\n")
    shadow = workspaces.new(place.workspace, kind=kind)
    place.run("echo one > made; rm removed; mkdir d; echo x > d/x", shadow=shadow)
    before = workspaces.changes(shadow)
    workspaces.save(shadow, "first")
    place.run("echo two > made; rm -r d; echo back > removed; rm kept", shadow=shadow)
    workspaces.save(shadow, "second")

    workspaces.restore(shadow, "first")

    assert [(one.kind, one.path) for one in workspaces.changes(shadow)] == [(one.kind, one.path) for one in before]
    assert place.run("cat made d/x kept; ls", shadow=shadow).stdout == "one\nx\nhost\nd\nkept\nmade\n"
    assert {"made", "d/x"} <= {one.path for one in workspaces.compare("first", "second")}


def test_a_fork_goes_its_own_way(place: Place, workspaces: Workspaces) -> None:
    shadow = workspaces.new(place.workspace)
    place.run("echo one > made", shadow=shadow)
    workspaces.save(shadow, "here")

    fork = workspaces.fork("here", shadow_name="other")
    place.run("echo two > made", shadow=fork)

    assert fork.id != shadow.id and workspaces.find("other") == fork
    assert place.run("cat made", shadow=shadow).stdout == "one\n"
    assert place.run("cat made", shadow=fork).stdout == "two\n"
    assert workspaces.commit(fork).is_done
    assert (place.workspace / "made").read_text() == "two\n"
    with pytest.raises(InvalidArgument, match="another shadow"):
        workspaces.restore(fork, "here")


def test_a_session_is_saved_put_back_and_forked(place: Place) -> None:
    async def work() -> tuple[str, str, str]:
        async with SandboxManager(pool_size=1) as manager:
            await manager.execute_shell("echo one > made; mkdir d; echo x > d/x", session_id="a")
            await manager.save_snapshot("first", session_id="a")
            await manager.execute_shell("echo two > made; rm -r d; echo > more", session_id="a")
            await manager.fork_session("first", "b")
            forked = await manager.execute_shell("cat made d/x; ls", session_id="b")
            other = await manager.execute_shell("cat made; ls", session_id="a")
            await manager.restore_snapshot("first", session_id="a")
            restored = await manager.execute_shell("cat made; ls; echo works > new; cat new", session_id="a")
            with pytest.raises(AlreadyExists, match="already"):
                await manager.fork_session("first", "b")
            return forked.stdout, other.stdout, restored.stdout

    forked, other, restored = asyncio.run(work())

    assert forked == "one\nx\nd\nmade\n"
    assert other == "two\nmade\nmore\n"
    assert restored == "one\nd\nmade\nworks\n"
