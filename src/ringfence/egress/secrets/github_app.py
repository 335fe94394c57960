"""GitHub App: a token of an installation, which is good for an hour.

The source holds a JSON object: `app_id`, `installation_id`, `private_key` (PEM); `repositories` and `permissions` make
the token narrower, `api_url` is for GitHub Enterprise.
"""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Final

from ringfence.egress.secrets.answers import read_answer, read_held, read_token, secure_url
from ringfence.egress.secrets.jwt import rs256
from ringfence.egress.secrets.minting import MintingFailed, Post, Token, TokenRequest

NAME = "github-app"
_API: Final = "https://api.github.com"
_BEFORE: Final = 60
"""Seconds by which our clock may be ahead of GitHub's."""
_LIFE: Final = 540
"""GitHub takes at most ten minutes."""


class GitHubApp:
    """`github-app`."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    async def exchange(self, held: bytes, post: Post) -> Token:
        found = read_held(held, NAME, "app_id", "installation_id", "private_key")
        now = int(self._clock())
        claims = {"iat": now - _BEFORE, "exp": now + _LIFE, "iss": str(found["app_id"])}
        installation = str(found["installation_id"])
        if not installation.isdigit():
            raise MintingFailed("installation_id is no number")
        base = str(found.get("api_url") or _API).rstrip("/")
        url = secure_url(f"{base}/app/installations/{installation}/access_tokens")
        narrower = {name: found[name] for name in ("repositories", "permissions") if found.get(name)}
        headers = (
            ("authorization", f"Bearer {rs256(claims, str(found['private_key']))}"),
            ("accept", "application/vnd.github+json"),
            ("content-type", "application/json"),
            ("user-agent", "ringfence"),
            ("x-github-api-version", "2022-11-28"),
        )
        answer = read_answer(await post(TokenRequest(url, json.dumps(narrower).encode(), headers)))
        return Token(read_token(answer, "token"), self._seconds(answer.get("expires_at")))

    def _seconds(self, ends: object) -> float | None:
        if not isinstance(ends, str):
            return None
        try:
            return datetime.fromisoformat(ends.replace("Z", "+00:00")).timestamp() - self._clock()
        except ValueError:
            return None
