"""HTML as Markdown or plain text, with its title and links. Needs the extra `fetch`."""

from typing import Final
from urllib.parse import urljoin, urlsplit

from bs4 import BeautifulSoup
from bs4.element import Tag
from markdownify import ATX, MarkdownConverter

from ringfence.dataclass import dataclass

_DROPPED: Final = ("script", "title", "style", "noscript", "template", "svg", "iframe", "object", "canvas", "head")
_MOST_LINKS: Final = 200
_TITLE: Final = 300
LONGEST: Final = 2 * 1024 * 1024
"""Characters of HTML that are looked at."""


@dataclass(frozen=True, slots=True)
class Readable:
    title: str
    text: str
    links: tuple[tuple[str, str], ...]
    """(text, address)"""


def readable(html: str, base: str, *, as_markdown: bool) -> Readable:
    """What a person would read of a page."""
    soup = BeautifulSoup(html[:LONGEST], "html.parser")
    title = " ".join(soup.title.get_text().split())[:_TITLE] if soup.title else ""
    for tag in soup(_DROPPED):
        tag.decompose()
    links = _links(soup, base)
    return Readable(title, _tidy(_markdown(soup) if as_markdown else soup.get_text("\n")), links)


def _markdown(soup: BeautifulSoup) -> str:
    try:
        return str(MarkdownConverter(heading_style=ATX, bullets="-").convert_soup(soup))
    except RecursionError:  # thousands of boxes in boxes: nobody wrote that for readers
        return str(soup.get_text("\n"))


def _links(soup: BeautifulSoup, base: str) -> tuple[tuple[str, str], ...]:
    """The links of a page, whose addresses are made whole; those that lead to no page are taken out."""
    found: dict[str, str] = {}
    for tag in soup.find_all(["a", "img"]):
        if not isinstance(tag, Tag):
            continue
        name = "href" if tag.name == "a" else "src"
        address = _whole(base, str(tag.get(name) or ""))
        if address:
            tag[name] = address
        else:
            del tag[name]
        if address and tag.name == "a" and len(found) < _MOST_LINKS:
            found.setdefault(address, " ".join(tag.get_text().split())[:_TITLE])
    return tuple((text, address) for address, text in found.items())


def _whole(base: str, address: str) -> str:
    try:
        whole = urljoin(base, address.strip())
        return whole if urlsplit(whole).scheme in ("http", "https", "mailto") else ""
    except ValueError:
        return ""


def _tidy(text: str) -> str:
    """No blanks at ends of lines, and no more than one empty line in a row."""
    lines: list[str] = []
    for line in text.splitlines():
        bare = line.rstrip()
        if bare or (lines and lines[-1]):
            lines.append(bare)
    return "\n".join(lines).strip()
