"""The file tools on one sandbox: what they see is what its commands see."""

import asyncio
import json

import pytest

from ringfence import FileEditTool, FileReadTool, FileWriteTool, InvalidArgument, Sandbox, SandboxManager, SearchTool
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A6", "B3")


def test_they_work_on_what_commands_see_wherever_it_lies(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        assert (await FileWriteTool(box).execute("/tmp/a", "one")).ok
        assert (await FileEditTool(box).execute("/tmp/a", "one", "two")).ok
        assert (await box.shell("cat /tmp/a")).stdout == "two"
        await box.shell("echo made > b")
        assert (await FileReadTool(box).execute("b")).stdout == "made\n"
        hidden = await FileReadTool(box).execute(str(place.home / "diary"))
        assert not hidden.ok

    place.in_box(work)
    assert (place.workspace / "b").read_text() == "made\n" and (place.home / "diary").read_text()


def test_what_git_keeps_is_searched_only_where_it_is_asked_for(place: Place) -> None:
    for name in ("a", ".git/b", "sub/.git/c", ".gitignore"):
        path = place.workspace / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("word\n")

    async def work(box: Sandbox) -> None:
        assert (await SearchTool(box).list()).stdout.split() == [".gitignore", "a"]
        assert (await SearchTool(box).execute("word")).stdout.splitlines() == [".gitignore:1: word", "a:1: word"]
        assert (await SearchTool(box).list("sub/.git")).stdout.split() == ["sub/.git/c"]

    place.in_box(work)


def test_the_same_holds_for_a_session(place: Place) -> None:
    async def work() -> None:
        async with SandboxManager("s", pool_size=1) as manager:
            await manager.execute_shell("mkdir -p .git; echo word > .git/b; echo word > a")
            assert (await SearchTool(manager).list()).stdout.split() == ["a"]
            assert (await SearchTool(manager).list(".git")).stdout.split() == [".git/b"]

    asyncio.run(work())


def test_a_sandbox_has_no_sessions(place: Place) -> None:
    with place.box_closed() as box, pytest.raises(InvalidArgument, match="no sessions"):
        FileReadTool(box, "s")


def test_a_search_is_one_record_however_many_files_it_reads(place: Place) -> None:
    for number in range(5):
        (place.workspace / f"{number}.txt").write_text("needle\n")
    (place.workspace / ".env").write_text("needle=1\n")

    async def work(box: Sandbox) -> None:
        found = await SearchTool(box).execute("needle")
        assert found.stdout.count("needle") == 5 and ".env" not in found.stdout

    place.in_box(work)
    journal = next(place.home.rglob("journal.jsonl"))
    assert [json.loads(line)["tool"] for line in journal.read_text().splitlines()] == ["search"]
