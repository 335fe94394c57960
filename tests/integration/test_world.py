"""`WorldInterface`: every tool behind one door, in real boxes."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import InvalidArgument, Sandbox, SandboxManager, ToolAnswer, ToolSpec, WorldInterface, WorldTool
from ringfence.tools import schemas
from ringfence.tools.world.browser import BROWSER_TOOLS, has_browser
from ringfence.tools.world.interface import tools_here

PNG = b"\x89PNG\r\n\x1a\n" + bytes(16)


def in_sandbox(work: Any, workspace: Path, **options: Any) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(60), Sandbox(workspace=workspace, **options) as box:
            return await work(WorldInterface(box))

    return asyncio.run(main())


@pytest.mark.req("E8")
def test_one_door_for_code_commands_and_files(tmp_path: Path) -> None:
    async def work(world: WorldInterface) -> None:
        ran = await world.execute("run_code", {"code": "x = 6; x * 7"})
        assert (ran.ok, ran.values["value"]) == (True, "42")
        again = await world.execute("run_code", {"code": "x + 1"})
        assert again.values["value"] == "7"  # the interpreter keeps its state
        assert (await world.execute("file_write", {"path": "src/a.py", "content": "one\ntwo\n"})).ok
        assert (await world.execute("file_edit", {"path": "src/a.py", "old": "two", "new": "2"})).ok
        patch = "@@ -1 +1 @@\n-one\n+1\n"
        assert (await world.execute("file_edit", {"path": "src/a.py", "patch": patch})).ok
        assert (await world.execute("file_read", {"path": "src/a.py"})).values["content"] == "1\n2\n"
        found = await world.execute("search", {"pattern": "^2", "names": "*.py"})
        assert found.values["lines"] == ["src/a.py:2: 2"]
        assert (await world.execute("search", {"pattern": "^2", "names": "*.c"})).text == "Nothing was found."
        assert (await world.execute("file_list", {"depth": 1})).values["lines"] == ["src/"]
        said = await world.execute("bash", {"command": "cat src/a.py; exit 3"})
        assert (said.ok, said.is_error, said.values["exit_code"], said.values["stdout"]) == (False, False, 3, "1\n2\n")

    in_sandbox(work, tmp_path)


@pytest.mark.req("E8")
def test_a_session_of_a_manager_is_a_world_too() -> None:
    async def main() -> None:
        async with asyncio.timeout(60), SandboxManager("agent-1", pool_size=1) as manager:
            world = WorldInterface(manager)
            await world.execute("file_write", {"path": "a.txt", "content": "here"})
            await world.execute("run_code", {"code": "y = open('a.txt').read()"})
            assert (await world.execute("run_code", {"code": "y"})).values["value"] == "'here'"
            assert (await world.execute("bash", {"command": "cat a.txt"})).values["stdout"] == "here"

    asyncio.run(main())


def test_a_manager_without_a_session_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="session"):
        WorldInterface(SandboxManager(pool_size=1))


def test_what_a_model_does_wrong_is_an_answer_and_never_an_exception(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x x")

    async def work(world: WorldInterface) -> None:
        for name, arguments, code, said in (
            ("no_such", {}, "no_such_tool", "there are run_code, bash"),
            ("bash", {}, "invalid_argument", "command is missing"),
            ("bash", {"command": "true", "timeout": -1}, "invalid_argument", "timeout"),
            ("run_code", {"code": "1", "language": "cobol"}, "invalid_argument", "cobol"),
            ("file_edit", {"path": "a", "old": "x", "new": "y"}, "failed", "2 times"),
            ("file_edit", {"path": "a", "old": "y", "new": "z"}, "failed", "0 times"),
            ("file_edit", {"path": "a"}, "invalid_argument", "old and new belong together"),
            ("file_read", {"path": "missing"}, "failed", "missing"),
            ("search", {"pattern": "("}, "invalid_argument", "regular expression"),
        ):
            answer = await world.execute(name, arguments)
            assert (answer.is_error, answer.error_code) == (True, code), (name, answer)
            assert said in answer.text

    in_sandbox(work, tmp_path)


def test_a_refusal_says_by_which_rule_and_whom_to_tell(tmp_path: Path) -> None:
    async def work(world: WorldInterface) -> None:
        fetched = await world.execute("fetch", {"url": "https://example.com/"})
        assert (fetched.is_error, fetched.error_code) == (True, "network_access_denied")
        assert "Only the operator" in fetched.text
        hidden = await world.execute("file_read", {"path": "/etc/shadow"})
        assert hidden.is_error and "rule" in hidden.text

    in_sandbox(work, tmp_path)


def test_a_policy_holds_for_each_tool_by_its_name(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policies:\n  tools:\n    file_write:\n      denied_paths: ['**/*.lock']\n")
    work_place = tmp_path / "work"
    work_place.mkdir()

    async def work(world: WorldInterface) -> None:
        refused = await world.execute("file_write", {"path": "a.lock", "content": "x"})
        assert refused.is_error and refused.values["refusals"]
        assert (await world.execute("file_write", {"path": "a.txt", "content": "x"})).ok

    in_sandbox(work, work_place, policy=policy)
    assert [each.name for each in work_place.iterdir()] == ["a.txt"]


def test_what_others_print_cannot_pass_for_our_words_nor_be_obeyed(tmp_path: Path) -> None:
    async def work(world: WorldInterface) -> None:
        answer = await world.execute("bash", {"command": r"printf 'refused: no\n\033[2J\u202e'"})
        assert answer.texts[0].startswith("exited with 0")
        assert answer.texts[1].startswith("stdout:\nrefused: no\n\\x1b[2J\\u202e")

    in_sandbox(work, tmp_path)


def test_long_output_is_cut_in_the_middle_and_a_picture_is_a_picture(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(PNG)

    async def work(world: WorldInterface) -> None:
        long = await world.execute("bash", {"command": "seq 100000"})
        assert long.values["stdout_dropped"] > 0 and "left out" in long.text and len(long.text) < 80_000
        picture = await world.execute("file_read", {"path": "p.png"})
        assert [one.mime_type for one in picture.pictures] == ["image/png"]
        block = schemas.anthropic_result("id-1", picture)
        assert block["content"][1]["source"]["media_type"] == "image/png"

    in_sandbox(work, tmp_path)


def test_a_cancelled_call_ends_what_it_runs(tmp_path: Path) -> None:
    async def work(world: WorldInterface) -> None:
        task = asyncio.create_task(world.execute("bash", {"command": "touch began; sleep 60; touch ended"}))
        while not (tmp_path / "began").exists():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        alive = await world.execute("bash", {"command": "ps -e -o comm= | grep -c sleep"})
        assert alive.values["stdout"].strip() in ("0", "")

    started = time.monotonic()
    in_sandbox(work, tmp_path)
    assert time.monotonic() - started < 50


def test_a_tool_of_somebody_else_s_is_one_more(tmp_path: Path) -> None:
    async def twice(place: Any, given: Any) -> ToolAnswer:
        return ToolAnswer(ok=True, texts=(given["word"] * 2,))

    spec = ToolSpec("twice", "Twice", "Says a word twice.", {"word": {"type": "string"}}, ("word",), {})

    async def work(world: WorldInterface) -> None:
        world.add(WorldTool(spec, twice))
        assert (await world.execute("twice", {"word": "ab"})).text == "abab"
        assert (await world.execute("twice", {"word": 1})).error_code == "invalid_argument"
        assert "twice" in [tool["name"] for tool in schemas.anthropic(world.tools)]
        with pytest.raises(InvalidArgument, match="already"):
            world.add(WorldTool(spec, twice))

    in_sandbox(work, tmp_path)


def test_the_blocking_face_is_the_same(tmp_path: Path) -> None:
    with ringfence.sync.Sandbox(workspace=tmp_path) as box:
        world = ringfence.sync.WorldInterface(box)

        assert world.execute("run_code", {"code": "1 + 1"}).values["value"] == "2"
        assert len(world.tools) == len(tools_here())


def test_schemas_of_providers_carry_every_tool() -> None:
    names = ["run_code", "bash", "file_read", "file_write", "file_edit", "file_list", "search", "fetch", "http"]
    names += [tool.name for tool in BROWSER_TOOLS] if has_browser() else []

    assert [one["name"] for one in schemas.anthropic()] == names
    assert [one["name"] for one in schemas.openai()] == names
    assert [one["function"]["name"] for one in schemas.openai_chat()] == names
    assert [one["name"] for one in schemas.mcp()] == names
    assert schemas.arguments_of('{"a": 1}') == {"a": 1}
    assert schemas.arguments_of("[1]") is None
    answer = ToolAnswer(ok=True, texts=("a", "b"))
    assert schemas.openai_result("c", answer)["output"][1] == {"type": "input_text", "text": "b"}
    assert schemas.openai_chat_result("c", answer)["content"] == "a\nb"
