"""The console: a page for people, served as files, with a content policy that lets it run nothing but these files.

The terminal's screen is a page of its own in a frame: its library makes styles while it runs, which the policy of the
other pages forbids. Nothing here knows who asks; what the page shows it asks of the API, with the cookie of a login.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FILES: Final = Path(__file__).parent
_CONTENT: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'{styles}; img-src 'self' data:; connect-src 'self'; "
    "frame-src 'self'; form-action 'self'; frame-ancestors {frames}; base-uri 'none'; "
    "require-trusted-types-for 'script'"
)
_SUFFIXES: Final = frozenset({".html", ".css", ".js", ".mjs", ".svg"})


class _Files(StaticFiles):
    """Files of the page, and no others that lie beside them."""

    def lookup_path(self, path: str) -> tuple[str, Any]:
        if path not in ("", ".") and Path(path).suffix not in _SUFFIXES:
            return "", None
        return super().lookup_path(path)

    async def get_response(self, path: str, scope: Scope) -> Response:
        answer = await super().get_response(path, scope)
        is_screen = path == "terminal.html"
        answer.headers["Content-Security-Policy"] = _CONTENT.format(
            styles=" 'unsafe-inline'" if is_screen else "", frames="'self'" if is_screen else "'none'"
        )
        if is_screen:
            answer.headers["X-Frame-Options"] = "SAMEORIGIN"
        answer.headers["Cache-Control"] = "no-cache"  # asked for anew, with the file's tag: an update is seen at once
        return answer


def _root(request: Any) -> Response:
    return RedirectResponse("/console/")


ROUTES: Final[tuple[BaseRoute, ...]] = (
    Route("/", _root),
    Route("/console", _root),
    Mount("/console", _Files(directory=FILES, html=True)),
)
