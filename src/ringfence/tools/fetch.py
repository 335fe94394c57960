"""`FetchTool`: a page as text or Markdown, a picture or PDF into the workspace (requirement A6).

Goes through the same judge as the box, by `HttpTool`. What is no text is written by the workspace's own file calls, so
that neither a name of the server's nor a link in the workspace leads anywhere else.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Literal, Protocol
from urllib.parse import unquote, urlsplit

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, NotInstalled
from ringfence.tools.charsets import decoded, media_type
from ringfence.tools.http import USUAL_BYTES, USUAL_SECONDS, HttpAnswer, HttpTool

if TYPE_CHECKING:
    from ringfence.tools.carrying import Carrier, Opener

USUAL_CHARACTERS: Final = 20_000
"""Of a page at once: what a model can well read."""
_DIRECTORY: Final = "downloads"
_MOST_NAMES: Final = 1000
_PAGES: Final = ("text/html", "application/xhtml+xml")
_TEXTS: Final = re.compile(
    r"text/.*|application/(.*\+)?(json|xml|yaml|javascript|toml|x-ndjson|x-sh|sql)|image/svg\+xml"
)
_ENDINGS: Final = {
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/webp": ".webp",
}

Form = Literal["markdown", "text", "raw"]


class Storage(Protocol):
    """Where files go: `AgentWorkspace`."""

    def write(self, path: str, data: bytes, /) -> None: ...

    def exists(self, path: str, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Fetched:
    """A page, or where a file went."""

    url: str
    status: int
    content_type: str
    title: str = ""
    text: str = ""
    """From `offset` on."""
    links: tuple[tuple[str, str], ...] = ()
    """(text, address), on the first piece only"""
    length: int = 0
    """Characters of the whole text, or bytes of a file."""
    offset: int = 0
    next_offset: int | None = None
    """Where to go on; None at the end."""
    saved: str = ""
    """The file in the workspace."""
    redirects: tuple[str, ...] = ()
    is_cut: bool = False
    """Whether the answer was longer than is ever read."""


class FetchTool:
    """Fetches what is on the web.

    Args:
        opener: gives a connection to the proxy (`EgressService.connect`).
        workspace: where pictures, PDFs and other files go; without it these are refused.
    """

    name = "fetch"

    def __init__(
        self,
        opener: "Opener",
        *,
        workspace: Storage | None = None,
        authority: bytes = b"",
        seconds: float = USUAL_SECONDS,
        most_bytes: int = USUAL_BYTES,
        carrier: "Carrier | None" = None,
    ) -> None:
        self._http = HttpTool(opener, authority=authority, seconds=seconds, most_bytes=most_bytes, carrier=carrier)
        self._workspace = workspace

    async def execute(
        self,
        url: str,
        *,
        form: Form = "markdown",
        offset: int = 0,
        limit: int = USUAL_CHARACTERS,
        save_to: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Fetched:
        """
        Args:
            form: of a page; `raw` is its HTML.
            offset: the first character that is wanted.
            limit: how many are.
            save_to: a path in the workspace for the answer as it is, whatever it is.

        Raises:
            InvalidArgument, NetworkAccessDenied, ResourceLimitExceeded, Timeout: as `HttpTool.execute`.
            PathAccessDenied: the file may not be written there.
        """
        if offset < 0 or limit < 1:
            raise InvalidArgument("offset and limit count characters", argument="offset")
        if form not in ("markdown", "text", "raw"):
            raise InvalidArgument(f"{form!r} is no form", argument="form", hint="there are markdown, text and raw")
        answer = await self._http.execute("GET", url, headers)
        kind = media_type(answer.header("content-type"))[0] or _guessed(answer.body)
        if save_to or (answer.body and not _TEXTS.fullmatch(kind) and kind not in _PAGES):
            return await self._saved(answer, kind, save_to)
        return await self._page(answer, kind, form, offset, limit)

    async def _page(self, answer: HttpAnswer, kind: str, form: Form, offset: int, limit: int) -> Fetched:
        is_page = kind in _PAGES
        text = decoded(answer.body, answer.header("content-type"), is_page=is_page)
        title = ""
        links: tuple[tuple[str, str], ...] = ()
        if is_page and form != "raw":
            try:
                from ringfence.tools.pages import readable
            except ImportError as fault:
                raise NotInstalled("the tool fetch needs packages", hint="pip install 'ringfence[fetch]'") from fault
            found = await asyncio.to_thread(readable, text, answer.url, as_markdown=form == "markdown")
            title, text, links = found.title, found.text, found.links
        end = min(offset + limit, len(text))
        return Fetched(
            url=answer.url,
            status=answer.status,
            content_type=kind,
            title=title,
            text=text[offset:end],
            links=links if offset == 0 else (),
            length=len(text),
            offset=offset,
            next_offset=end if end < len(text) else None,
            redirects=answer.redirects,
        )

    async def _saved(self, answer: HttpAnswer, kind: str, save_to: str | None) -> Fetched:
        if self._workspace is None:
            raise InvalidArgument(
                f"it is no text but {kind or 'a file'}, and there is no workspace to save it into", argument="url"
            )
        path = save_to if save_to else await asyncio.to_thread(self._free_name, answer.url, kind)
        await asyncio.to_thread(self._workspace.write, path, answer.body)
        return Fetched(
            url=answer.url,
            status=answer.status,
            content_type=kind,
            length=len(answer.body),
            saved=path,
            redirects=answer.redirects,
        )

    def _free_name(self, url: str, kind: str) -> str:
        assert self._workspace is not None
        stem, ending = file_name(url, kind)
        for number in range(_MOST_NAMES):
            path = f"{_DIRECTORY}/{stem}{f'-{number}' if number else ''}{ending}"
            if not self._workspace.exists(path):
                return path
        raise InvalidArgument(f"there are {_MOST_NAMES} files called {stem}{ending} already", argument="save_to")


def file_name(url: str, kind: str) -> tuple[str, str]:
    """A harmless name for what a URL leads to, and its ending."""
    last = unquote(urlsplit(url).path).rstrip("/").rpartition("/")[2]
    clean = re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip(".-")[-80:].lstrip(".-")
    stem, dot, ending = clean.rpartition(".")
    if not dot or not stem or len(ending) > 8:
        stem, ending = clean, ""
    known = _ENDINGS.get(kind, "")
    return stem or "file", known or (f".{ending}" if ending else ".bin")


def _guessed(body: bytes) -> str:
    """What a body without a type is."""
    start = body[:512].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    if body.startswith(b"%PDF-"):
        return "application/pdf"
    return "text/plain" if b"\0" not in body[:4096] else "application/octet-stream"
