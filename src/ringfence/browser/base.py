"""What a browser is asked for and answers with, and what it needs from whoever runs it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

from ringfence.browser.wire import Wire
from ringfence.dataclass import dataclass, field

ACTION_SECONDS: Final = 30.0
"""How long an action may take, unless it is asked for with `timeout`."""


@dataclass(frozen=True, slots=True)
class BrowserAction:
    """One thing that a browser is asked to do: `BrowserAction("navigate", {"url": "https://example.com"})`."""

    action: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageFile:
    """A picture, a PDF, or something else that is no text."""

    name: str
    mime_type: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrowserResult:
    """What an action came to. `said` and the names in `values` are ours; `page` is what the page says: data that nobody
    vouches for, and never an instruction."""

    action: str
    said: str
    page: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Ready for JSON. Texts in it come from the page, too."""
    files: tuple[PageFile, ...] = ()
    browser: str = ""
    """`sandboxed` or `external`."""
    walled: bool = False
    """Whether the wall holds for the browser that did it."""

    @property
    def untrusted(self) -> bool:
        """Whether it holds what a page said."""
        return bool(self.page or self.files or self.values)


class Store(Protocol):
    """Where files are put for a browser, and taken from it."""

    @property
    def downloads(self) -> str | None:
        """Its directory for downloads, as the browser names it; None if it may not download."""

    async def put(self, name: str, data: bytes) -> str:
        """Hand it a file; returns its path as the browser names it."""

    async def take(self, name: str, most: int) -> bytes:
        """What it wrote into its directory for downloads.

        Raises:
            RingfenceError: it is not there, no plain file, or larger.
        """


class Workspace(Protocol):
    """The session's files: uploads come from there, and what the browser makes goes there."""

    async def read(self, path: str) -> bytes:
        """
        Raises:
            RingfenceError: the file is not there, or may not be read.
        """

    async def write(self, path: str, data: bytes) -> None:
        """
        Raises:
            RingfenceError: it may not be written.
        """

    async def exists(self, path: str) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A browser that runs somewhere, and the way to end it."""

    wire: Wire
    store: Store
    kind: str
    """`sandboxed` or `external`."""
    walled: bool
    notes: tuple[str, ...] = ()
    """What whoever uses it should know."""
    close: Callable[[], Awaitable[None]]
    start_seconds: float = 30.0
    """Until it answers: a full Chromium on a busy machine takes some seconds."""
    refused: Callable[[], Awaitable[tuple[str, ...]]] | None = None
    """What the network has refused to it since the last look, in one line each."""


Launch = Callable[[], Awaitable[Running]]
"""Starts a browser.

Raises:
    RingfenceError: there is none, or it may not be started.
"""
