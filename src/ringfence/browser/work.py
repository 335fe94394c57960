"""One action underway: what was asked, in which tab, with which files; and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfence.browser.base import PageFile, Workspace
from ringfence.browser.browser import Browser
from ringfence.browser.tab import Tab
from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument, WrongType


@dataclass(frozen=True, slots=True)
class Done:
    """What an action of ours came to: our words, and what the page says."""

    said: str
    page: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[PageFile, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    browser: Browser
    given: Mapping[str, Any]
    seconds: float
    files: Workspace | None

    @property
    def tab(self) -> Tab:
        """The tab that is meant, if it can be used.

        Raises:
            DialogOpened: a dialog is open in it.
        """
        tab = self.browser.tab(self.given.get("tab", ""))
        if tab.dialog is not None:
            tab.check()
        return tab

    def text(self, name: str, *, may_be_empty: bool = False) -> str:
        value = self.given.get(name)
        if not isinstance(value, str):
            raise WrongType(name, value, "a text")
        if not value and not may_be_empty:
            raise InvalidArgument(f"{name} is empty", argument=name)
        return value

    def number(self, name: str, usual: int, most: int) -> int:
        value = self.given.get(name, usual)
        if isinstance(value, bool) or not isinstance(value, int):
            raise WrongType(name, value, "a whole number")
        if not 0 <= value <= most:
            raise InvalidArgument(f"{name} is {value}", argument=name, hint=f"from 0 to {most}")
        return value

    def workspace(self) -> Workspace:
        """
        Raises:
            InvalidArgument: there is none.
        """
        if self.files is None:
            raise InvalidArgument("this browser has no workspace", hint="open it for a sandbox or a session")
        return self.files

    async def network_refusals(self) -> str:
        """What the network said no to, as an addition to a message."""
        refused = self.browser.running.refused
        found = await refused() if refused is not None else ()
        return f" ({'; '.join(found[-3:])})" if found else ""
