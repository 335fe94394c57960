"""Logins of browsers: a token, or a code that stands for one, is swapped for a cookie, which scripts of the page cannot
read.

The cookie is a random name for a row in memory; a restart ends all logins. Each use looks at the token again, so that
revoking it ends them too. What changes something needs the CSRF token besides, which only the page itself was told.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass

if TYPE_CHECKING:
    from ringfence.server.tokens import TokenInfo

COOKIE: Final = "ringfence_login"
CSRF_HEADER: Final = "ringfence-csrf"
LIFE_SECONDS: Final = 12 * 3600.0
CODE_SECONDS: Final = 300.0
_MOST: Final = 10_000


@dataclass(frozen=True, slots=True)
class Login:
    token_id: str
    csrf_token: str
    until: float
    """Monotonic."""
    is_by_code: bool
    """Whether it began with a code: the server prints those for a person. A token's holder may be a program."""


class Logins:
    def __init__(self) -> None:
        self._known: dict[bytes, Login] = {}
        self._codes: dict[bytes, tuple[str, float]] = {}

    def make_code(self, token: TokenInfo) -> str:
        """For an address that a person opens: signs in once, as this token, within five minutes."""
        code = secrets.token_urlsafe(24)
        self._codes[_digest(code)] = token.id, time.monotonic() + CODE_SECONDS
        return code

    def redeem(self, code: str) -> str | None:
        """The id of the token that a code stands for; it works once."""
        ident, until = self._codes.pop(_digest(code), ("", 0.0))
        return ident if time.monotonic() < until else None

    def begin(self, token: TokenInfo, *, is_by_code: bool) -> tuple[str, Login]:
        """The cookie's value, and the login."""
        now = time.monotonic()
        self._known = {name: login for name, login in self._known.items() if login.until > now}
        while len(self._known) >= _MOST:
            del self._known[next(iter(self._known))]
        cookie = secrets.token_urlsafe(32)
        login = Login(token.id, secrets.token_urlsafe(32), now + LIFE_SECONDS, is_by_code)
        self._known[_digest(cookie)] = login
        return cookie, login

    def find(self, cookie: str) -> Login | None:
        login = self._known.get(_digest(cookie))
        return login if login is not None and login.until > time.monotonic() else None

    def end(self, cookie: str) -> None:
        self._known.pop(_digest(cookie), None)


def is_csrf_token(login: Login, given: str) -> bool:
    return hmac.compare_digest(login.csrf_token.encode(), given.encode())


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
