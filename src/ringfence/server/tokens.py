"""Tokens: made, shown once, kept as hashes, looked up, revoked.

A token is `rf_ID_SECRET`: the id finds the row, the secret is 256 random bits, of which only the SHA-256 is kept. So
many random bits need no slow hash; the comparison takes the same time wherever the two differ.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, NotFound
from ringfence.server.tenants import Scope

if TYPE_CHECKING:
    import sqlite3

    from ringfence.server.store import Store

_FORM: Final = re.compile(r"rf_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_NOBODY: Final = hashlib.sha256(b"").digest()
_NOTE_USE_SECONDS: Final = 60.0
"""How exactly the last use is known: writing it at every request would cost each a write."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenInfo:
    """A token as it is kept."""

    id: str
    tenant: str
    name: str
    scopes: frozenset[Scope]
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    used_at: float | None

    def is_good(self, now: float) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Tokens:
    def __init__(self, store: Store) -> None:
        self._store = store

    def create(
        self, *, tenant: str, name: str, scopes: Iterable[Scope], lives_seconds: float | None = None
    ) -> tuple[str, TokenInfo]:
        """A new token; its text is returned here and never again.

        Raises:
            InvalidArgument: no name, no scopes, or a life that is none.
        """
        chosen = frozenset(scopes)
        if not name.strip() or len(name) > 128:
            raise InvalidArgument("a token needs a name of 1 to 128 characters", argument="name")
        if not chosen:
            raise InvalidArgument("a token without scopes opens nothing", argument="scopes", hint=", ".join(Scope))
        if lives_seconds is not None and not lives_seconds > 0:
            raise InvalidArgument(f"a token cannot live for {lives_seconds!r} s", hint="give a time above zero")
        ident, secret, now = os.urandom(6).hex(), secrets.token_urlsafe(32), time.time()
        expires = None if lives_seconds is None else now + lives_seconds
        self._store.do(
            "INSERT INTO tokens (id, hash, tenant, name, scopes, created_at, expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            ident,
            _digest(secret),
            tenant,
            name,
            " ".join(sorted(chosen)),
            now,
            expires,
        )
        made = self.get(ident)
        assert made is not None
        return f"rf_{ident}_{secret}", made

    def check(self, text: str) -> TokenInfo | None:
        """The token that this is; None if it is none, or not good any more."""
        match = _FORM.fullmatch(text)
        ident, secret = match.groups() if match is not None else ("", "")
        row = self._store.one("SELECT * FROM tokens WHERE id = ?", ident)
        kept = row["hash"] if row is not None else _NOBODY
        if not hmac.compare_digest(kept, _digest(secret)) or row is None:
            return None
        found, now = _info(row), time.time()
        if not found.is_good(now):
            return None
        if found.used_at is None or not 0 <= now - found.used_at < _NOTE_USE_SECONDS:
            self._store.do("UPDATE tokens SET used_at = ? WHERE id = ?", now, ident)
        return found

    def get(self, ident: str) -> TokenInfo | None:
        row = self._store.one("SELECT * FROM tokens WHERE id = ?", ident)
        return None if row is None else _info(row)

    def list(self, tenant: str | None = None) -> tuple[TokenInfo, ...]:
        """Those of a tenant, or all, the oldest first."""
        rows = self._store.all(
            "SELECT * FROM tokens WHERE ? IS NULL OR tenant = ? ORDER BY created_at, id", tenant, tenant
        )
        return tuple(map(_info, rows))

    def revoke(self, ident: str, tenant: str | None = None) -> TokenInfo:
        """From now on it opens nothing.

        Raises:
            NotFound: there is no such token, or it is another tenant's.
        """
        self._store.do(
            "UPDATE tokens SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL AND (? IS NULL OR tenant = ?)",
            time.time(),
            ident,
            tenant,
            tenant,
        )
        found = self.get(ident)
        if found is None or (tenant is not None and found.tenant != tenant):
            raise NotFound(f"there is no token {ident!r}", hint="ringfence token list")
        return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _info(row: sqlite3.Row) -> TokenInfo:
    return TokenInfo(
        id=row["id"],
        tenant=row["tenant"],
        name=row["name"],
        scopes=frozenset(Scope(word) for word in row["scopes"].split() if word in set(Scope)),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        used_at=row["used_at"],
    )
