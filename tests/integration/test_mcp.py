"""`ringfence mcp` by the official SDK's own client over real stdio, in both eras of the protocol."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import mcp_types as types
import pytest
from mcp.client.client import Client

from tests.support.browser_pages import HAVE
from tests.support.mcp_client import ERAS, LEGACY, MODERN, Stage, accept, said, staged, texts, values
from tests.support.users import User, me, ordinary
from tests.support.web_server import Reply, web_server

pytestmark = pytest.mark.req("A6", "X3")
EVERY_ERA = pytest.mark.parametrize("era", ERAS)
EVERYBODY = pytest.mark.parametrize("user", dict.fromkeys([ordinary(), me()]), ids=lambda user: f"uid{user.uid}")
ASK = "policies: {default: {approvals: {ask_for: {patterns: [touch]}, timeout: 60s}}}\n"


@pytest.fixture
def stage() -> Iterator[Stage]:
    with staged() as made:
        yield made


def test_the_sdk_speaks_both_eras() -> None:
    assert ERAS == (LEGACY, MODERN) and MODERN >= "2026-07-28"


@EVERYBODY
@EVERY_ERA
def test_code_commands_and_files_work_and_state_is_kept(stage: Stage, era: str, user: User) -> None:
    stage = Stage(stage.top, user).prepare()

    async def talk() -> None:
        async with stage.connected(era) as client:
            first = await client.call_tool("run_code", {"code": "x = 6 * 7\nx"})
            assert (values(first)["value"], values(first)["sandbox"], first.is_error) == ("42", "main", False)
            assert values(await client.call_tool("run_code", {"code": "x + 1"}))["value"] == "43"
            await client.call_tool("write_file", {"path": "src/a.txt", "content": "one\ntwo\n"})
            changed = await client.call_tool("edit_file", {"path": "src/a.txt", "old": "two", "new": "three"})
            assert not changed.is_error
            assert values(await client.call_tool("read_file", {"path": "src/a.txt"}))["content"] == "one\nthree\n"
            assert values(await client.call_tool("search_files", {}))["lines"] == ["src/a.txt"]
            found = await client.call_tool("search_files", {"pattern": "thr.e"})
            assert values(found)["lines"] == ["src/a.txt:2: three"]
            ran = await client.call_tool("bash", {"command": "cat src/a.txt; echo no >&2; exit 3"})
            assert (values(ran)["exit_code"], values(ran)["stderr"], ran.is_error) == (3, "no\n", False)
            assert texts(ran)[1:] == ["stdout:\none\nthree\n", "stderr:\nno\n"]

    asyncio.run(talk())
    assert (stage.project / "src/a.txt").read_text() == "one\nthree\n"
    assert (stage.project / "src/a.txt").stat().st_uid == user.uid


@EVERY_ERA
def test_results_are_as_the_schemas_say(stage: Stage, era: str) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("run_code", {"code": "1/0"}),
        ("bash", {"command": "cat /etc/shadow"}),
        ("write_file", {"path": "a", "content": "x"}),
        ("edit_file", {"path": "a", "old": "y", "new": "z"}),
        ("read_file", {"path": "missing"}),
        ("search_files", {"pattern": "x"}),
        ("fetch", {"url": "https://unlisted.example/"}),
        ("browser", {"action": "navigate", "url": "https://unlisted.example/"}),
        ("review", {"action": "diff"}),
        ("bash", {"command": 7}),
    ]

    async def talk() -> None:
        async with stage.connected(era, "--shadow") as client:
            schemas = {tool.name: tool.output_schema for tool in (await client.list_tools()).tools}
            assert len(schemas) == 8
            assert ("browser" in schemas) is bool(HAVE) and ("fetch" in schemas) is not bool(HAVE)
            for name, arguments in calls:
                if name == ("fetch" if HAVE else "browser"):
                    continue  # one of the two, for there are eight at most
                result = await client.call_tool(name, arguments)
                jsonschema.validate(values(result), schemas[name])  # type: ignore[arg-type]
                assert texts(result)

    asyncio.run(talk())


def test_sandboxes_share_the_workspace_and_nothing_else(stage: Stage) -> None:
    async def talk() -> None:
        async with stage.connected(MODERN) as client:
            await client.call_tool("run_code", {"code": "x = 1; open('/tmp/mine', 'w').close(); open('ours', 'w')"})
            other = await client.call_tool("run_code", {"code": "'x' in globals()", "sandbox": "new"})
            name = values(other)["sandbox"]
            assert (name != "main", values(other)["value"]) == (True, "False")
            seen = await client.call_tool("bash", {"command": "ls /tmp/mine ours", "sandbox": name})
            assert values(seen)["stdout"] == "ours\n"
            unknown = await client.call_tool("bash", {"command": "true", "sandbox": "guessed"})
            assert unknown.is_error and f"known: main, {name}" in said(unknown)

    asyncio.run(talk())


def test_figures_and_pictures_come_as_images(stage: Stage) -> None:
    figure = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.show()"
    dot = b"\x89PNG\r\n\x1a\n" + b"\0" * 40

    async def talk() -> None:
        async with stage.connected(MODERN, "--python", sys.executable) as client:
            drawn = await client.call_tool("run_code", {"code": figure})
            (image,) = [each for each in drawn.content if isinstance(each, types.ImageContent)]
            assert (image.mime_type, values(drawn)["pictures"]) == ("image/png", 1)
            (stage.project / "dot.png").write_bytes(dot)
            read = await client.call_tool("read_file", {"path": "dot.png"})
            assert [each.type for each in read.content] == ["text", "image"]

    asyncio.run(talk())


# --- what is refused --------------------------------------------------------------------------------------------------


@EVERY_ERA
def test_a_refusal_is_a_result_with_reason_rule_and_remedy(stage: Stage, era: str) -> None:
    policy = stage.top / "policy.yaml"
    policy.write_text("policies: {default: {denied_commands: [wget]}}\n")

    async def talk(*options: str) -> types.CallToolResult:
        async with stage.connected(era, *options) as client:
            return await client.call_tool("bash", {"command": "wget --version"})

    refused = asyncio.run(talk("--policy", str(policy)))
    assert refused.is_error and values(refused)["ending"] == "refused"
    assert "denied_commands wget" in said(refused) and "policy.yaml:1" in said(refused)
    assert "Only the person can change this" in said(refused)
    assert not asyncio.run(talk()).is_error


def test_the_wall_holds_for_files_and_says_by_which_rule(stage: Stage) -> None:
    (stage.project / ".git").mkdir()

    async def talk() -> None:
        async with stage.connected(MODERN) as client:
            hook = await client.call_tool("write_file", {"path": ".git/hooks/pre-commit", "content": "x"})
            assert hook.is_error and said(hook).count("protected .git/hooks") == 1
            outside = await client.call_tool("read_file", {"path": str(stage.top / "secret")})
            assert outside.is_error
            assert not (await client.call_tool("write_file", {"path": "plain", "content": "x"})).is_error

    (stage.top / "secret").write_text("s")
    asyncio.run(talk())
    assert not (stage.project / ".git/hooks").exists()


@EVERY_ERA
def test_the_person_is_asked_by_a_form_and_a_yes_runs_it_once(stage: Stage, era: str) -> None:
    policy = stage.top / "policy.yaml"
    policy.write_text(ASK)
    asked: list[str] = []

    def answer(message: str) -> types.ElicitResult:
        asked.append(message)
        return accept()(message)

    async def talk() -> None:
        async with stage.connected(era, "--policy", str(policy), answer=answer) as client:
            done = await client.call_tool("bash", {"command": "touch made; echo n >> times"})
            assert not done.is_error, said(done)

    asyncio.run(talk())
    assert (stage.project / "made").exists() and (stage.project / "times").read_text() == "n\n"
    assert len(asked) == 1 and "touch made" in asked[0]


@EVERY_ERA
@pytest.mark.parametrize(
    "form",
    [
        types.ElicitResult(action="decline"),
        types.ElicitResult(action="cancel"),
        types.ElicitResult(action="accept", content={"decision": "no"}),
        types.ElicitResult(action="accept", content={"decision": "perhaps"}),
        types.ElicitResult(action="accept", content={"decision": "yes for this session"}),  # was not offered
        types.ElicitResult(action="accept"),
        None,
    ],
    ids=["decline", "cancel", "no", "nonsense", "not-offered", "empty", "no-elicitation"],
)
def test_everything_but_a_clear_yes_is_a_readable_refusal(
    stage: Stage, era: str, form: types.ElicitResult | None
) -> None:
    policy = stage.top / "policy.yaml"
    policy.write_text(ASK)

    async def talk() -> None:
        answer = None if form is None else lambda _: form
        async with stage.connected(era, "--policy", str(policy), answer=answer) as client:
            refused = await client.call_tool("bash", {"command": "touch made"})
            assert refused.is_error and values(refused)["ending"] == "refused"
            assert form is not None or "lacks elicitation" in said(refused)
            assert not (await client.call_tool("bash", {"command": "true"})).is_error

    asyncio.run(talk())
    assert not (stage.project / "made").exists()


@EVERY_ERA
def test_the_policy_holds_for_the_tools_that_write_files(stage: Stage, era: str) -> None:
    policy = stage.top / "policy.yaml"
    policy.write_text("policies: {default: {approvals: {ask_for: {tools: [file_write]}, timeout: 60s}}}\n")
    asked: list[str] = []

    def answer(message: str) -> types.ElicitResult:
        asked.append(message)
        return accept("yes" if "good" in message else "no")(message)

    async def talk() -> None:
        async with stage.connected(era, "--policy", str(policy), answer=answer) as client:
            assert not (await client.call_tool("write_file", {"path": "good", "content": "x"})).is_error
            refused = await client.call_tool("write_file", {"path": "bad", "content": "x"})
            assert refused.is_error and "policy.yaml" in said(refused)
            assert not (await client.call_tool("read_file", {"path": "good"})).is_error

    asyncio.run(talk())
    assert [each.name for each in stage.project.iterdir()] == ["good"] and len(asked) == 2


# --- shadows ----------------------------------------------------------------------------------------------------------


@EVERYBODY
@EVERY_ERA
def test_on_a_shadow_nothing_reaches_the_project_before_the_person_says_yes(stage: Stage, era: str, user: User) -> None:
    stage = Stage(stage.top, user).prepare()
    (stage.project / "a").write_text("old\n")
    os.chown(stage.project / "a", user.uid, user.gid)
    asked: list[str] = []

    def answer(message: str) -> types.ElicitResult:
        asked.append(message)
        return accept("no" if len(asked) == 1 else "yes")(message)

    async def talk() -> None:
        async with stage.connected(era, "--shadow", answer=answer) as client:
            await client.call_tool("bash", {"command": "echo new > a; echo b > b"})
            diff = await client.call_tool("review", {"action": "diff"})
            assert "-old" in values(diff)["patch"] and "+new" in values(diff)["patch"]
            refused = await client.call_tool("review", {"action": "commit"})
            assert refused.is_error and "ringfence workspace commit" in said(refused)
            assert (stage.project / "a").read_text() == "old\n"
            done = await client.call_tool("review", {"action": "commit", "paths": ["a"]})
            assert not done.is_error, said(done)
            assert (stage.project / "a").read_text() == "new\n" and not (stage.project / "b").exists()
            assert values(await client.call_tool("bash", {"command": "cat a b"}))["stdout"] == "new\nb\n"

    asyncio.run(talk())
    assert len(asked) == 2 and "+new" in asked[1]
    assert "changes wait in shadow" in stage.log.read_text()


def test_a_shadow_without_changes_is_gone_with_the_server(stage: Stage) -> None:
    async def talk() -> None:
        async with stage.connected(MODERN, "--shadow") as client:
            await client.call_tool("bash", {"command": "true"})

    asyncio.run(talk())
    assert [each.name for each in (stage.home / ".ringfence/shadows").iterdir() if each.name[0] != "."] == []


def test_changes_that_are_kept_in_memory_are_shown_too(stage: Stage) -> None:
    async def talk() -> None:
        async with stage.connected(MODERN, "--shadow", "--shadow-size", "20MB") as client:
            await client.call_tool("bash", {"command": "echo new > a"})
            assert "+new" in values(await client.call_tool("review", {"action": "diff"}))["patch"]
            assert values(await client.call_tool("bash", {"command": "cat a"}))["stdout"] == "new\n"

    asyncio.run(talk())
    assert not (stage.project / "a").exists()


def test_a_shadow_that_is_there_is_worked_on_by_one_sandbox(stage: Stage) -> None:
    made = [sys.executable, "-m", "ringfence.cli.app", "workspace", "new", "--name", "mine"]
    subprocess.run(made, env=stage.environment, cwd=stage.project, capture_output=True, timeout=60, check=True)

    async def talk(line: str) -> str:
        async with stage.connected(MODERN, "--use-shadow", "mine") as client:
            done = await client.call_tool("bash", {"command": line})
            second = await client.call_tool("bash", {"command": "true", "sandbox": "new"})
            assert second.is_error and "one sandbox at a time" in said(second)
            return str(values(done)["stdout"])

    asyncio.run(talk("echo kept > a"))
    assert asyncio.run(talk("cat a")) == "kept\n"
    assert not (stage.project / "a").exists()


# --- what tools say of themselves -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "read_only", "destructive", "open_world"),
    [
        ((), False, True, False),
        (("--shadow",), True, False, False),
        (("--read-only",), True, False, False),
        (("--read-only", "--allow", "example.com"), False, False, True),
        (("--shadow", "--write", "."), False, True, False),
    ],
)
def test_hints_follow_from_what_is_granted(
    stage: Stage, options: tuple[str, ...], read_only: bool, destructive: bool, open_world: bool
) -> None:
    (stage.project / "sub").mkdir()
    chosen = [str(stage.top / "more") if word == "." else word for word in options]
    (stage.top / "more").mkdir()

    async def talk() -> None:
        async with stage.connected(MODERN, *chosen) as client:
            hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
            bash, read = hints["bash"], hints["read_file"]
            assert bash is not None and read is not None
            assert (bash.read_only_hint, bash.destructive_hint, bash.open_world_hint) == (
                read_only,
                destructive,
                open_world,
            )
            assert read.read_only_hint is True

    asyncio.run(talk())


@EVERY_ERA
def test_roots_are_the_workspace_only_if_the_person_says_so(stage: Stage, era: str) -> None:
    root = stage.top / "root of the client"
    root.mkdir()

    async def where(*options: str, roots: list[Path] | None) -> types.CallToolResult:
        async with stage.connected(era, *options, roots=roots) as client:
            return await client.call_tool("bash", {"command": "pwd"})

    assert values(asyncio.run(where(roots=[root])))["stdout"] == f"{stage.project}\n"
    assert values(asyncio.run(where("--roots", roots=[root])))["stdout"] == f"{root}\n"
    none = asyncio.run(where("--roots", roots=None))
    assert none.is_error and "--workspace" in said(none)


def test_fetch_reaches_what_is_allowed_and_saves_in_the_box(stage: Stage) -> None:
    async def talk(port: int, *options: str) -> list[types.CallToolResult]:
        async with Stage(stage.top, ports={80: port}).connected(MODERN, *options) as client:
            page = await client.call_tool("fetch", {"url": "http://site.example/page"})
            saved = await client.call_tool("fetch", {"url": "http://site.example/dot.png"})
            return [page, saved]

    with web_server() as server:
        server.replies["/page"] = Reply(headers={"content-type": "text/html"}, body=b"<h1>Head</h1><p>\x1b[1mx</p>")
        server.replies["/dot.png"] = Reply(headers={"content-type": "image/png"}, body=b"\x89PNG")
        page, saved = asyncio.run(talk(server.port, "--allow", "site.example:80"))
        refused, _ = asyncio.run(talk(server.port, "--allow", "unlisted.example"))
    assert "# Head" in values(page)["text"] and "\\x1b" in values(page)["text"], said(page)
    assert (stage.project / values(saved)["saved"]).read_bytes() == b"\x89PNG"
    assert refused.is_error and values(refused)["error_code"] == "network_access_denied" and "--allow" in said(refused)


@EVERY_ERA
def test_a_host_is_asked_about_in_the_middle_of_a_command(stage: Stage, era: str) -> None:
    asked: list[str] = []

    def answer(message: str) -> types.ElicitResult:
        asked.append(message)
        return accept()(message)

    async def talk(port: int) -> types.CallToolResult:
        async with Stage(stage.top, ports={80: port}).connected(era, "--ask-network", answer=answer) as client:
            await client.call_tool("bash", {"command": "true"})  # whose call is over when the question comes
            line = "echo n >> times; curl -sS -m 60 http://site.example/page"
            return await client.call_tool("bash", {"command": line})

    with web_server() as server:
        server.replies["/page"] = Reply(body=b"reached")
        done = asyncio.run(talk(server.port))
    assert values(done)["stdout"] == "reached", said(done)
    assert (stage.project / "times").read_text() == "n\n"
    assert len(asked) == 1 and "site.example" in asked[0]


def test_calls_are_in_the_journal(stage: Stage) -> None:
    async def talk() -> None:
        async with stage.connected(MODERN) as client:
            await client.call_tool("bash", {"command": "echo recorded"})
            await client.call_tool("write_file", {"path": "a", "content": "x"})

    asyncio.run(talk())
    words = [sys.executable, "-m", "ringfence.cli.app", "audit", "export"]
    done = subprocess.run(words, env=stage.environment, cwd=stage.project, capture_output=True, text=True, timeout=60)
    assert "echo recorded" in done.stdout and "file_write" in done.stdout, done.stderr


# --- long calls -------------------------------------------------------------------------------------------------------


@EVERY_ERA
def test_a_long_call_says_that_it_goes_on(stage: Stage, era: str) -> None:
    heard: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, message))

    async def talk() -> None:
        async with stage.connected(era) as client:
            wait = "echo begun; until [ -e go ]; do sleep 0.05; done"
            call = asyncio.create_task(client.call_tool("bash", {"command": wait}, progress_callback=hear))
            await until(lambda: len(heard) >= 2)
            (stage.project / "go").touch()
            assert not (await call).is_error

    asyncio.run(talk())
    assert [value for value, _ in heard] == sorted({value for value, _ in heard})
    assert "running, 6 bytes of output" in (heard[-1][1] or "")


@EVERY_ERA
def test_a_cancelled_call_is_killed_and_the_next_one_runs(stage: Stage, era: str) -> None:
    async def talk() -> None:
        async with stage.connected(era) as client:
            line = "while :; do echo x >> beats; sleep 0.05; done"
            await cancelled(client, stage, "bash", {"command": line})
            await cancelled(client, stage, "run_code", {"code": f"import os; os.system({line!r})"})
            async with asyncio.timeout(60):  # the client does not wait for the end of what it has cancelled
                while await count(client) != "0":
                    await asyncio.sleep(0.1)

    asyncio.run(talk())


async def count(client: Client) -> str:
    """How many of them run in the box."""
    found = await client.call_tool("bash", {"command": "ps -eo args | grep -c '[b]eats'"})
    return str(values(found)["stdout"]).strip()


async def cancelled(client: Client, stage: Stage, tool: str, arguments: dict[str, Any]) -> None:
    """Cancel a call once it runs."""
    beats = stage.project / "beats"
    beats.unlink(missing_ok=True)
    call = asyncio.create_task(client.call_tool(tool, arguments))
    await until(beats.exists)
    assert await count(client) != "0"
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


async def until(holds: Any, seconds: float = 60) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.02)
