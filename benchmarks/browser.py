"""What the wall costs a browser: the same client, program and flags, bare and in a box; Playwright beside them.

    python -m benchmarks.browser [ROUNDS]

Interleaved in shuffled rounds, medians as ratios to the bare one. A page of 350 controls, shown from memory, so that no
server and no network is measured.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.rounds import Case, measure, report
from ringfence import BrowserAction, BrowserSettings, Sandbox
from ringfence.browser.actions import perform
from ringfence.browser.browser import Browser, open_browser
from ringfence.browser.external import launch
from ringfence.browser.finding import find_program
from ringfence.manager.browsing import launch_boxed

PAGE = "<h1>Bench</h1>" + "".join(f"<label>Field {n} <input></label><button>Go {n}</button>" for n in range(175))
SHOW = f"document.body.innerHTML = {PAGE!r}; document.querySelectorAll('button').length"
START_GOAL, ACTION_GOAL, MEMORY_GOAL = 1.2, 1.2, 1.05
CLICK = BrowserAction("click", {"role": "button", "name": "Go 0"})
EVAL = BrowserAction("evaluate", {"script": "1 + 1"})
SHOT = BrowserAction("screenshot")
SNAPSHOT = BrowserAction("snapshot", {"interactive": True})

Open = Callable[[], Awaitable[Browser]]


async def bare() -> Browser:
    return await open_browser(await launch())


async def boxed(workspace: Path) -> Browser:
    options = Sandbox(workspace=workspace, network="off").options
    return await open_browser(await launch_boxed(options, BrowserSettings()))


async def shown(open: Open) -> Browser:
    browser = await open()
    await perform(browser, BrowserAction("evaluate", {"script": SHOW}), None)
    return browser


def pss(marker: int) -> int:
    """Bytes of every process below one, ourselves not counted."""
    children: dict[int, list[int]] = {}
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                parent = int((each / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(each.name))
    waiting, total = list(children.get(marker, [])), 0
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


async def starts(rounds: int, workspace: Path, console: Console) -> None:
    async def one(open: Open) -> None:
        await (await shown(open)).close()

    cases = [
        Case("bare, our client", lambda: one(bare), group="bare"),
        Case("boxed, with its box", lambda: one(lambda: boxed(workspace)), group="ringfence", at_most=START_GOAL),
    ]
    if playwright := await _playwright():
        cases.append(Case("bare, Playwright", playwright, group="playwright"))
    await measure(cases, rounds, console)
    report(cases, "start to first page, and close", console)


async def actions(rounds: int, workspace: Path, console: Console) -> None:
    # Each alone: two at once share their program's pages, and the second would look small.
    used = []
    for open in (bare, lambda: boxed(workspace)):
        browser = await shown(open)
        used.append(pss(os.getpid()))
        await browser.close()
    ratio = used[1] / used[0]
    console.print(f"memory (PSS), boxed to bare: {ratio:.2f} (goal {MEMORY_GOAL}); bare {used[0] >> 20} MiB")
    plain = await shown(bare)
    walled = await shown(lambda: boxed(workspace))

    def runs(browser: Browser, action: BrowserAction) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await perform(browser, action, None)

        return run

    def tabs(browser: Browser) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            await browser.close_tab(await browser.new_tab())

        return run

    try:
        for name, action in (("evaluate", EVAL), ("click", CLICK), ("screenshot", SHOT), ("snapshot", SNAPSHOT)):
            cases = [
                Case(f"{name}, bare", runs(plain, action), group="bare"),
                Case(f"{name}, boxed", runs(walled, action), group="ringfence", at_most=ACTION_GOAL),
            ]
            await measure(cases, rounds, console)
            report(cases, name, console)
        cases = [Case("new tab, bare", tabs(plain)), Case("new tab, boxed", tabs(walled), at_most=ACTION_GOAL)]
        await measure(cases, rounds, console)
        report(cases, "new tab, opened and closed (goal 0.2 s)", console)
    finally:
        await plain.close()
        await walled.close()


async def _playwright() -> Callable[[], Awaitable[None]] | None:
    try:
        from playwright.async_api import async_playwright
    except ImportError:
        return None
    program = find_program().path

    async def run() -> None:
        async with async_playwright() as started:
            browser: Any = await started.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = await browser.new_page()
            await page.evaluate(SHOW)
            await browser.close()

    return run


async def main(rounds: int) -> None:
    console = Console()
    with tempfile.TemporaryDirectory() as directory:
        await starts(rounds, Path(directory), console)
        await actions(rounds, Path(directory), console)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10))
