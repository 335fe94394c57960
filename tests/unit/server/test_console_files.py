"""The console's files: what is in them, without a browser."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from ringfence.server import console

SCRIPTS = sorted(console.FILES.glob("js/**/*.js"))
VENDORED = {  # @xterm/xterm 6.0.0 of npm, without the line that names its source map
    "xterm.mjs": "3fd3d0046d2604ea5860235e2f96625a2fab158dcf3d4cfb0f7c1655559a5d9a",
    "xterm.css": "854a7c0fb70e8b1a083c16797ab827299fb18744f5ad34f227b48337e33293c6",
}


@pytest.mark.parametrize("name", VENDORED)
def test_what_others_wrote_is_what_was_looked_at(name: str) -> None:
    assert hashlib.sha256((console.FILES / "vendor" / name).read_bytes()).hexdigest() == VENDORED[name]
    assert "Permission is hereby granted" in (console.FILES / "vendor" / "xterm.LICENSE").read_text()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_no_script_makes_html_or_code_of_text(path: Path) -> None:
    text = path.read_text()

    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", text
    )


def test_nothing_comes_from_elsewhere_and_no_code_is_inline() -> None:
    for path in [*console.FILES.glob("*.html"), *console.FILES.glob("*.css"), *SCRIPTS]:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?://(?!example\.com)[a-z]", text), path
    for page in console.FILES.glob("*.html"):
        assert not re.search(r"<script(?![^>]*\bsrc=)|\son[a-z]+=|<style|style=", page.read_text()), page
