"""The documentation's site builds without a warning, fetches nothing from elsewhere, and has a page for everything."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(target)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


def test_no_page_fetches_anything_from_elsewhere(site: Path) -> None:
    fetched = re.compile(r"""(?:src|href)=["'](https?:)?//[^"']+\.(?:js|css|woff2?|png|svg)""")
    found = {page.name: fetched.findall(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}

    assert len(found) > 30
    assert {name: links for name, links in found.items() if links} == {}


def test_every_page_of_the_repository_is_in_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]

    assert [str(page) for page in pages if not (site / page).exists()] == []


def test_the_reference_has_the_signatures(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "reference" / "api.html").read_text(encoding="utf-8"))

    for name in ("shell", "timeout", "SandboxOptions", "Result", "violations"):
        assert name in text
