"""Which browser does an action: one at a time per session, the sandboxed or the external one.

`needs_file_access` and `is_research` in the context go to the sandboxed one, everything else to the external one; where
only one of the two may be used, that does all it may. Switching closes the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from ringfence.browser.actions import check, perform, seconds_for
from ringfence.browser.base import BrowserAction, BrowserResult, Launch, Workspace
from ringfence.browser.browser import Browser, open_browser
from ringfence.dataclass import replace
from ringfence.errors import BrowserGone, Closed

SANDBOXED: Final = "sandboxed"
EXTERNAL: Final = "external"
_OPEN_SECONDS: Final = 45.0


def route(context: Mapping[str, Any]) -> str:
    """Where an action goes."""
    needs_wall = bool(context.get("needs_file_access") or context.get("is_research"))
    return SANDBOXED if needs_wall else EXTERNAL


class Router:
    """
    Args:
        launches: how each of the two is started.
        files: the session's workspace.
    """

    def __init__(
        self,
        launches: Mapping[str, Launch],
        files: Workspace | None,
    ) -> None:
        self._launches = dict(launches)
        self._files = files
        self._turn = asyncio.Lock()
        self._closing = asyncio.Lock()
        self._is_closed = False
        self.browser: Browser | None = None
        """The one that runs."""

    async def execute(self, action: BrowserAction, where: str) -> BrowserResult:
        """Do one action; a second one waits for it.

        Raises:
            BrowserError: it cannot be done, or not in time.
            InvalidArgument, WrongType: it makes no sense.
            RingfenceError: the browser may not be used, or cannot be started.
        """
        check(action)
        seconds_for(action.params)
        async with self._turn:
            before = self.browser
            browser = await self._the(where)
            notes = browser.running.notes if browser is not before else ()
            try:
                done = await perform(browser, action, self._files)
                return replace(done, said=" ".join((*(f"Note: {note}." for note in notes), done.said)).strip())
            except BrowserGone:
                if not browser.alive:
                    await self._end()  # the next action starts a new one
                raise

    async def _the(self, where: str) -> Browser:
        if self._is_closed:
            raise Closed("the browser's session is closed", hint="make a new one")
        if self.browser is not None and (self.browser.running.kind != where or not self.browser.alive):
            await self._end()
        if self.browser is None:
            opened = await open_browser(await self._launches[where]())
            if self._is_closed:
                await opened.close()
                raise Closed("the browser's session was closed", hint="make a new one")
            self.browser = opened
        return self.browser

    async def _end(self) -> None:
        async with self._closing:
            browser, self.browser = self.browser, None
            if browser is not None:
                await browser.close()

    async def close(self) -> None:
        """End the browser, also in the middle of an action, which then ends with `BrowserGone`."""
        self._is_closed = True
        await self._end()
