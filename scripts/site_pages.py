"""Pages of the site that lie elsewhere in the repository, and links between them and the rest.

README and the like are read on their own too, so they stay where people look for them; here they become pages.
"""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
PAGES = {
    "architecture.md": "ARCHITECTURE.md",
    "security.md": "SECURITY.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
}
_LINK = re.compile(r"\]\((?!https?://|#)([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside docs/, and an index of the decisions."""
    for name, source in PAGES.items():
        files.append(File.generated(config, name, content=(ROOT / source).read_text(encoding="utf-8")))
    files.append(File.generated(config, "adr/index.md", content=_decisions()))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they hold in the repository become links of the site; to files that are no pages, plain text."""
    at = PAGES.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def linked(match: re.Match[str]) -> str:
        target = _target(at, match[1])
        if target is None:
            return match[0]
        depth = page.file.src_uri.count("/")
        return f"]({'../' * depth}{target}{match[2] or ''})"

    without = re.sub(r"\[([^\]]+)\]\(([^)#\s]+)\)", lambda match: _plain(at, match), markdown)
    return _LINK.sub(linked, without)


def _target(at: str, link: str) -> str | None:
    """The page that a link of a file of the repository leads to; None if it is none of ours."""
    path = _resolved(at, link)
    for page, source in PAGES.items():
        if path == source:
            return page
    return path.removeprefix("docs/") if path.startswith("docs/") else None


def _plain(at: str, match: re.Match[str]) -> str:
    if match[2].startswith(("http://", "https://")):
        return match[0]
    path = _resolved(at, match[2])
    is_page = path in PAGES.values() or path.startswith("docs/")
    return match[0] if is_page else f"{match[1]} (`{path}`)"


def _resolved(at: str, link: str) -> str:
    parts: list[str] = at.split("/")[:-1]
    for part in link.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


def _decisions() -> str:
    lines = ["# Decisions", "", "One page for each decision that was worth writing down, with what was measured.", ""]
    for path in sorted((ROOT / "docs" / "adr").glob("0*.md")):
        title = path.read_text(encoding="utf-8").splitlines()[0].lstrip("# ")
        lines.append(f"- [{title}]({path.name})")
    return "\n".join([*lines, ""])
