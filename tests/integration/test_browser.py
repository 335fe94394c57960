"""Every action of the browser, against pages of our own: in a box, and, with `make test-browser`, wherever else."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from ringfence import (
    BrowserError,
    BrowserTimeout,
    ElementBlocked,
    ElementNotFound,
    NavigationFailed,
    PersonInput,
    StaleRef,
)
from tests.support.browser_pages import ALL, HAVE, KINDS, Driver, driving, pages

pytestmark = pytest.mark.skipif(not HAVE, reason="no browser is installed here (ringfence browser install)")
BROWSERS = pytest.mark.parametrize("kind", KINDS if ALL else KINDS[:1])
PNG = b"\x89PNG\r\n\x1a\n"

Story = Callable[[Driver], Coroutine[None, None, None]]


def in_browser(kind: str, workspace: Path, story: Story, **settings: Any) -> None:
    async def main() -> None:
        with pages() as (port, _):
            async with driving(kind, workspace, port, **settings) as driver:
                await story(driver)

    asyncio.run(main())


@pytest.mark.req("E5", "E8")
@BROWSERS
def test_what_a_person_does_with_mouse_and_keys_can_be_done(kind: str, tmp_path: Path) -> None:
    async def story(page: Driver) -> None:
        async def out() -> Any:
            return await page.js("out.textContent")

        first = await page.go("/")
        assert (first.values["title"], first.walled) == ("Form", kind.startswith("boxed"))
        assert ("no wall holds" in first.said) is (kind in ("host", "remote"))
        await page.do("type", role="textbox", name="Name", text="Ada", submit=True)
        assert await out() == "sent Ada"
        await page.do("type", selector="#n", text=" Lovelace", append=True)
        await page.do("click", role="button", name="Send")
        assert await out() == "sent Ada Lovelace"
        await page.do("press", selector="#n", key="Control+a")
        await page.do("press", key="x")
        assert await page.js("n.value") == "x"
        assert (await page.do("select", role="combobox", name="Colour", values=["blue"])).values["chosen"] == ["blue"]
        assert "it has red, blue" in await page.fails(ElementBlocked, "select", selector="#c", values=["green"])
        await page.do("hover", selector="#h")
        assert await out() == "over"
        await page.do("click", role="button", name="Double", double=True)
        assert await out() == "twice"
        await page.do("drag", selector="#box", to_selector="#drop")
        assert await out() == "dropped"
        await page.do("scroll", dy=500)
        await page.do("wait", text="it is late", timeout=5)
        assert await page.js("scrollY") > 0
        await page.do("scroll", selector="#low")
        low = await page.js("low.getBoundingClientRect().y")
        assert 0 < low < 720
        x, y = await page.js("[low.getBoundingClientRect().x + 5, low.getBoundingClientRect().y + 5]")
        await page.js("low.onclick = () => out.textContent = 'by point'")
        await page.do("click", x=x, y=y)
        assert await out() == "by point"

    in_browser(kind, tmp_path, story)


@BROWSERS
def test_dialogs_history_and_tabs(kind: str, tmp_path: Path) -> None:
    async def story(page: Driver) -> None:
        await page.go("/")
        asked = await page.do("click", role="button", name="Ask")
        assert asked.values["dialog"] == {"kind": "confirm", "message": "Sure?"}
        assert "accept or dismiss it" in await page.fails(BrowserError, "read")  # nothing goes on meanwhile
        await page.do("dialog", accept=False)
        assert await page.js("out.textContent") == "alert no"
        await page.do("click", role="link", name="second")
        assert (await page.do("back")).values["title"] == "Form"
        assert (await page.do("forward")).values["url"].endswith("/second")
        assert (await page.do("reload")).values["title"] == "Second"
        assert "no page further on" in await page.fails(NavigationFailed, "forward")
        opened = await page.do("tabs", do="new", url=page.at + "/inner")
        first, second = (tab["id"] for tab in opened.values["tabs"])
        assert (await page.do("read", form="text", tab=first)).page.startswith("Second")
        assert (await page.do("read", form="text")).page == "Inside"
        await page.do("tabs", do="select", tab=first)
        assert (await page.do("tabs", do="close", tab=second)).values["tabs"][0]["current"]
        popup = await page.do("evaluate", script=f"void open('{page.at}/inner')")
        await page.do("wait", seconds=0.5)
        assert len((await page.do("tabs")).values["tabs"]) == 2, popup

    in_browser(kind, tmp_path, story)


@pytest.mark.req("E5")
@BROWSERS
def test_what_is_on_a_page_can_be_read_and_pictured(kind: str, tmp_path: Path) -> None:
    async def story(page: Driver) -> None:
        await page.go("/second")
        assert (await page.do("read")).page == "# Second\n\nMore **text**\n\n| a | b |\n| --- | --- |\n| 1 | 2 |"
        cut = await page.do("read", form="text", max_chars=6)
        assert (cut.page, cut.values["next_offset"]) == ("Second", 6)
        assert "<b>text</b>" in (await page.do("read", form="html", selector="p")).page
        await page.go("/")
        assert ["second", page.at + "/second"] in (await page.do("read", form="links")).values["links"]
        (form,) = (await page.do("read", form="forms")).values["forms"]
        assert next(each["label"] or each["kind"] for each in form["fields"]) == "Name"
        assert "[log] hello from the page" in (await page.do("console")).page
        assert any(each["status"] == 200 for each in (await page.do("network")).values["requests"])
        (window,) = (await page.do("screenshot")).files
        (full,) = (await page.do("screenshot", full=True)).files
        (one,) = (await page.do("screenshot", selector="#box")).files
        assert window.data.startswith(PNG) and (kind == "remote" or _size(window.data) == (1280, 720))
        assert _size(full.data)[1] > 3000 and _size(one.data) == (50, 50)
        marked = await page.do("screenshot", annotate=True)
        assert "are marked" in marked.said and marked.files[0].data != window.data
        assert await page.js("document.querySelector('ringfence-labels')") is None  # and taken away again
        (pdf,) = (await page.do("pdf")).files
        assert pdf.data.startswith(b"%PDF")
        await page.do("screenshot", kind="jpeg", save_to="shots/one.jpg")
        assert (tmp_path / "shots/one.jpg").read_bytes()[:2] == b"\xff\xd8"
        assert (await page.do("cookies", set=[{"name": "a", "value": "b"}])).values["cookies"][0]["value"] == "b"
        assert (await page.do("cookies", clear=True)).values["cookies"] == []
        assert (await page.do("storage", set={"k": "v"})).values["storage"] == {"k": "v"}
        await page.do("settings", width=400, height=300, locale="de-DE", timezone="Asia/Tokyo", user_agent="Tester/1")
        told = await page.js("[innerWidth, navigator.language, new Date(0).getHours(), navigator.userAgent]")
        assert told == [400, "de-DE", 9, "Tester/1"]
        assert "threw: Error: no" in await page.fails(BrowserError, "evaluate", script="throw Error('no')")

    in_browser(kind, tmp_path, story)


@BROWSERS
def test_snapshots_are_of_the_size_asked_for_and_refs_hold_in_frames_and_shadow_roots(
    kind: str, tmp_path: Path
) -> None:
    async def story(page: Driver) -> None:
        await page.go("/frames")
        await page.do("wait", network_quiet=True)
        seen = (await page.do("snapshot")).page
        buttons = [line.strip() for line in seen.splitlines() if "button" in line]
        assert [line.split('"')[1] for line in buttons] == ["Inside", "Inside", "In open", "In closed"], seen
        refs = [line.split("[ref=")[1].rstrip("]") for line in buttons]
        await page.do("click", ref=refs[0])  # a frame of another site, in a process of its own
        await page.do("click", ref=refs[1])
        changed = (await page.do("snapshot", diff=True)).page
        assert "Pressed at localhost" in changed and "Pressed at 127.0.0.1" in changed and "In open" not in changed
        for ref, title in zip(refs[2:], ("open", "closed"), strict=True):
            assert (await page.do("click", ref=ref)).values["title"] == title
        frame = next(line.split("[ref=")[1].rstrip("]") for line in seen.splitlines() if "Iframe" in line)
        inside = (await page.do("snapshot", within=frame, interactive=True)).page
        assert inside.count("\n") == 0 and "Pressed at localhost" in inside
        await page.go("/many")
        assert "take a new snapshot" in await page.fails(StaleRef, "click", ref=refs[0])
        cut = await page.do("snapshot", max_chars=2000)
        assert len(cut.page) <= 2000 and cut.values["lines"] >= 5000 and "max_chars" in cut.said
        last = (await page.do("snapshot", interactive=True, max_chars=200_000)).page.splitlines()[-1]
        assert 'button "Button 4999"' in last
        await page.do("click", ref=last.split("[ref=")[1].rstrip("]"))
        assert "5000 elements are button" in await page.fails(ElementNotFound, "click", role="button")

    in_browser(kind, tmp_path, story)


@BROWSERS
def test_what_a_person_could_not_click_is_not_clicked(kind: str, tmp_path: Path) -> None:
    async def story(page: Driver) -> None:
        await page.go("/awkward")
        for name, why in (
            ("Covered", "covered by <div id=lid>"),
            ("Moving", "does not stand still"),
            ("Disabled", "it is disabled"),
        ):
            said = await page.fails(ElementBlocked, "click", role="button", name=name, timeout=0.5)
            assert why in said, said
        await page.js("lid.remove()")
        await page.do("click", role="button", name="Covered")  # the same, without what covered it
        assert "there is no button" in await page.fails(ElementNotFound, "click", role="button", name="Nobody")
        seen = (await page.do("snapshot", interactive=True)).page
        ref = next(line for line in seen.splitlines() if "Vanishing" in line).split("[ref=")[1].rstrip("]")
        await page.do("click", ref=ref)
        assert "is stale" in await page.fails(StaleRef, "click", ref=ref)
        assert "no snapshot" in await page.fails(StaleRef, "hover", ref="e99999")

    in_browser(kind, tmp_path, story)


@pytest.mark.parametrize("kind", KINDS[:3] if ALL else KINDS[:1])
def test_files_come_from_the_workspace_and_go_there(kind: str, tmp_path: Path) -> None:
    async def story(page: Driver) -> None:
        (tmp_path / "data.csv").write_text("a,b\n")
        (tmp_path / "page.html").write_text("<title>Mine</title><p>from a file")
        await page.go("/")
        await page.do("upload", selector="#up", paths=["data.csv"])
        assert await page.js("out.textContent") == "data.csv 4"
        await page.do("click", role="link", name="get")
        for _ in range(2):
            (row,) = (await page.do("downloads")).values["downloads"]
        name = row["saved"].removeprefix("downloads/")
        assert "/" not in name and "\t" not in name and not name.startswith("."), name
        assert (tmp_path / "downloads" / name).read_bytes() == b"x" * 1000
        await page.do("navigate", path="page.html")
        assert (await page.do("read", form="text")).page == "from a file"

    in_browser(kind, tmp_path, story)


@pytest.mark.req("E5")
def test_pages_that_never_end_end_with_a_typed_error_by_the_deadline(tmp_path: Path) -> None:
    async def story(page: Driver) -> None:
        loop = asyncio.get_running_loop()
        await page.go("/")
        for action, params in (
            ("navigate", {"url": page.at + "/never"}),
            ("wait", {"text": "what never comes"}),
            ("evaluate", {"script": "new Promise(() => {})"}),
        ):
            began = loop.time()
            await page.fails(BrowserTimeout, action, timeout=1, **params)
            assert loop.time() - began < 4
        await page.go("/")
        await page.do("evaluate", script="setTimeout(() => { while (true); }, 0)")
        await page.fails(BrowserTimeout, "read", timeout=1)
        assert (await page.do("tabs", do="new", url=page.at + "/second")).values["title"] == "Second"  # others go on
        await page.do("evaluate", script="setTimeout(() => { for (let i = 0; i < 300; i++) open('about:blank') }, 0)")
        await page.do("wait", seconds=2)
        assert len((await page.do("tabs")).values["tabs"]) <= 16
        await page.do("evaluate", script="setInterval(() => { for (let i = 0; i < 2000; i++) console.log(i) }, 1)")
        await page.do("wait", seconds=1)
        said = (await page.do("console")).values["console"]
        assert len(said) <= 300 and "writes too much" in said[-1]["text"]
        other = (await page.do("tabs")).values["tabs"][-1]["id"]
        await page.do("tabs", do="close", tab=other)
        new = await page.do("tabs", do="new", url=page.at + "/inner", timeout=90)  # two pages keep two processors busy
        assert new.values["title"] == "Inner"

    in_browser("boxed", tmp_path, story)


def test_a_person_sees_the_tab_and_takes_over(tmp_path: Path) -> None:
    async def story(page: Driver) -> None:
        await page.go("/")
        frames = page.router.frames()
        frame = await anext(frames)
        assert frame.data[:2] == b"\xff\xd8" and (frame.width, frame.height) == (1280, 720)
        x, y = await page.js("[n.getBoundingClientRect().x + 5, n.getBoundingClientRect().y + 5]")
        for kind in ("mousePressed", "mouseReleased"):
            await page.router.act(PersonInput(kind=kind, x=x, y=y, button="left", clicks=1))
        await page.router.act(PersonInput(kind="text", text="by hand"))
        await page.router.act(PersonInput(kind="key", key="Enter"))
        assert await page.js("out.textContent") == "sent by hand"
        assert (await anext(frames)).data != frame.data
        await frames.aclose()

    in_browser("boxed", tmp_path, story)


def _size(png: bytes) -> tuple[int, int]:
    return int.from_bytes(png[16:20]), int.from_bytes(png[20:24])
