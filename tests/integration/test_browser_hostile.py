"""A browser that is none, one that dies, one that two want at once: typed errors by their deadline, nothing left."""

import asyncio
import resource
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from ringfence import (
    BrowserAction,
    BrowserError,
    BrowserGone,
    BrowserRouter,
    BrowserSettings,
    BrowserTimeout,
    Closed,
    CommandNotAllowed,
    InvalidArgument,
    Network,
    NotInstalled,
    RingfenceError,
    Sandbox,
    WrongType,
)
from ringfence.browser.actions import ACTIONS
from ringfence.browser.cdp import Connection
from ringfence.browser.wire import Frames, PipeWire
from ringfence.manager.browsing import LIMITS, browser_options
from ringfence.values.limits import Limits
from tests.support.browser_pages import ALL, HAVE, driving, pages

NEEDS = pytest.mark.skipif(not HAVE, reason="no browser is installed here (ringfence browser install)")
FAKE = Path(__file__).parent.parent / "support" / "fake_browser.py"
LIES = (
    *("ends", "silent", "no-nul", "garbage", "deep", "no-object", "not-a-number", "huge-number", "strays", "flood"),
    *("bad-events", "wrong-types", "no-results", "errors", "half"),
)
GROWTH = 64 * 1024 * 1024
WALLED = {"is_research": True}


def fake(directory: Path, how: str) -> str:
    directory.chmod(0o755)
    path = directory / f"headless-{how}"
    shutil.copy(FAKE, path)
    path.chmod(0o755)
    return str(path)


@pytest.mark.req("E5")
def test_a_liar_in_chromiums_place_is_a_typed_error_by_the_deadline(tmp_path_factory: pytest.TempPathFactory) -> None:
    async def main() -> None:
        for how in LIES:
            settings = BrowserSettings(program=fake(tmp_path_factory.mktemp("lies"), how), start_seconds=1.0)
            async with BrowserRouter("s", settings=settings, network="off") as router:
                before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, time.monotonic()
                with pytest.raises((BrowserGone, BrowserTimeout, BrowserError)) as fault:
                    await router.execute(BrowserAction("navigate", {"url": "https://a.test"}), context=WALLED)
                took = time.monotonic() - began
                grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
                assert took < 15, (how, took, fault.value)
                assert grown < GROWTH, (how, grown)
                assert router._router.browser is None, how  # its box is gone by the time that we are told

    asyncio.run(main())


@NEEDS
@pytest.mark.req("E5")
def test_one_browser_at_a_time_and_switching_closes_the_other(tmp_path: Path) -> None:
    async def main() -> None:
        with pages() as (port, _):
            url = f"http://127.0.0.1:{port}/second"
            async with (
                Sandbox(workspace=tmp_path, network=Network(reach=[port])) as box,
                BrowserRouter("s", session=box) as router,
            ):
                go = BrowserAction(action="navigate", params={"url": url})
                kinds = []
                for context in ({"is_research": True}, {}, {"needs_file_access": True}):
                    result = await router.execute(go, context=context)
                    kinds.append((result.browser, result.walled))
                    if router._router.browser is not None:
                        kept = router._router.browser
                assert kinds == [("sandboxed", True), ("external", False), ("sandboxed", True)]
                assert kept.alive
                # two at once take turns
                both = await asyncio.gather(
                    *(router.execute(BrowserAction("read", {"form": "text"}), context=WALLED) for _ in range(2))
                )
                assert both[0].page == both[1].page != ""
                # the session ends in the middle of an action
                waiting = asyncio.ensure_future(
                    router.execute(BrowserAction("wait", {"text": "never"}), context=WALLED)
                )
                await asyncio.sleep(0.3)
                began = time.monotonic()
                await router.close()
                with pytest.raises(BrowserError):
                    await waiting
                assert time.monotonic() - began < 3
                with pytest.raises(Closed):
                    await router.execute(go, context=WALLED)

    asyncio.run(main())


@NEEDS
def test_a_browser_that_is_killed_is_said_and_the_next_action_has_a_new_one(tmp_path: Path) -> None:
    async def main() -> None:
        with pages() as (port, _):
            async with driving("boxed", tmp_path, port) as page:
                await page.go("/")
                assert page.browser is not None
                tab = page.browser.tab()
                page.browser.connection.post("Page.crash", session=tab.session)
                with pytest.raises(BrowserGone, match="crashed"):
                    for _ in range(100):
                        await page.do("read")
                        await asyncio.sleep(0.05)
                assert (await page.go("/second")).values["title"] == "Second"  # the tab lives again
                page.browser.connection.post("Browser.crash")
                with pytest.raises(BrowserGone):
                    for _ in range(100):
                        await page.do("read")
                        await asyncio.sleep(0.05)
                assert (await page.go("/second")).values["title"] == "Second"

    asyncio.run(main())


@pytest.mark.req("E5")
@pytest.mark.parametrize("role", ["careful", None])
def test_a_policy_can_refuse_the_browser_that_no_wall_holds(tmp_path: Path, role: str | None) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("policies:\n  agent_roles:\n    careful:\n      tools: [browser_automation]\n")

    async def main() -> None:
        async with BrowserRouter("s", policy=policy, role=role, settings=BrowserSettings(program="/nowhere")) as router:
            look = BrowserAction("read")
            with pytest.raises(CommandNotAllowed) as refused:
                await router.execute(look)
            assert "browser_external" in str(refused.value) or "approve" in str(refused.value)
            with pytest.raises(NotInstalled):  # the sandboxed one is not refused: it is looked for
                await router.execute(look, context=WALLED)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("action", "params", "kind"),
    [
        ("clik", {}, InvalidArgument),
        ("click", {"reff": "e1"}, InvalidArgument),
        ("read", {"timeout": -1}, InvalidArgument),
        ("read", {"timeout": "long"}, WrongType),
        ("read", {"timeout": 10**9}, InvalidArgument),
    ],
)
def test_actions_that_make_no_sense_start_no_browser(
    action: str, params: dict[str, Any], kind: type[RingfenceError]
) -> None:
    async def main() -> None:
        async with BrowserRouter("s", settings=BrowserSettings(program="/nowhere")) as router:
            with pytest.raises(kind):
                await router.execute(BrowserAction(action, params), context=WALLED)

    asyncio.run(main())


def test_a_browsers_box_is_granted_nothing_of_the_sessions_files(tmp_path: Path) -> None:
    with Sandbox_grant(tmp_path) as (plain, browser):
        assert browser.workspace != plain.workspace and not browser.readable and not browser.writable
        assert browser.limits.cpu_seconds == LIMITS.cpu_seconds
        assert plain.limits == Limits() and plain.requires == browser.requires  # nothing changes for other boxes


class Sandbox_grant:
    """The grants of a session's box and of its browser's."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> tuple[Any, Any]:
        (self._path / "other").mkdir()
        plain = Sandbox(workspace=self._path, read=["/usr/share"], env={"KEY": "secret"})
        asked = browser_options(plain.options, str(self._path / "other"), LIMITS)
        browser = Sandbox(asked)
        assert "KEY" not in dict(browser.grant.env)
        return plain.grant, browser.grant

    def __exit__(self, *fault: object) -> None: ...


@NEEDS
@pytest.mark.req("E5")
def test_sessions_in_a_row_leave_nothing(tmp_path: Path) -> None:
    """The fixture looks for processes, mounts, control groups and files; here, for descriptors and memory of ours."""
    count = 200 if ALL else 6

    async def main() -> None:
        used = []
        for number in range(count):
            async with Sandbox(workspace=tmp_path) as box:
                done = await box.browser.execute(BrowserAction("evaluate", {"script": "1 + 1"}), context=WALLED)
                assert done.values["value"] == 2
                if number % 3 == 1:
                    assert box.browser._router.browser is not None
                    box.browser._router.browser.connection.post("Browser.crash")
            used.append(len(list(Path("/proc/self/fd").iterdir())))
        assert max(used[2:]) <= used[1] + 2, used

    asyncio.run(main())


# --- the client alone -------------------------------------------------------------------------------------------------


def test_a_stream_is_taken_apart_however_it_comes() -> None:
    frames = Frames(most=10)
    assert frames.feed(b"ab") == []
    assert frames.feed(b"c\0de\0\0f") == [b"abc", b"de", b""]
    assert frames.feed(b"g\0") == [b"fg"]
    with pytest.raises(BrowserGone, match="more than 10 bytes"):
        frames.feed(b"x" * 11)


def test_every_action_is_documented_as_a_tool() -> None:
    from ringfence.tools.world.browser import BROWSER_TOOLS

    offered = {tool.name.removeprefix("browser_") for tool in BROWSER_TOOLS}
    assert set(ACTIONS) - offered == {"back", "forward", "reload", "console", "network"}
    assert offered - set(ACTIONS) == {"log"}


def test_calls_that_are_not_answered_end_by_their_deadline_and_late_answers_are_no_fault() -> None:
    import json
    import socket

    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        lost: list[BrowserGone] = []
        connection = Connection(PipeWire(ours), lambda *_: None, lost.append)
        with pytest.raises(BrowserTimeout):
            await connection.call("Slow.call", seconds=0.1)
        asked = json.loads((await loop.sock_recv(theirs, 1000)).rstrip(b"\0"))
        await loop.sock_sendall(theirs, json.dumps({"id": asked["id"], "result": {}}).encode() + b"\0")
        call = asyncio.ensure_future(connection.call("Next.call", seconds=2))
        asked = json.loads((await loop.sock_recv(theirs, 1000)).rstrip(b"\0"))
        await loop.sock_sendall(theirs, json.dumps({"id": asked["id"], "result": {"a": 1}}).encode() + b"\0")
        assert await call == {"a": 1} and not lost
        theirs.close()
        with pytest.raises(BrowserGone):
            await connection.call("After.end", seconds=2)
        await connection.close()
        assert len(lost) == 1

    asyncio.run(main())
