"""Short-lived tokens in exchange for what a source holds: one exchange at a time, renewed before they end.

What a source holds for these signers (a refresh token, a client's secret, a private key) stays with whoever runs the
exchange, outside the proxy; the proxy gets the token alone. Whoever runs it gives the way to the token endpoint.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from ringfence.dataclass import dataclass, field
from ringfence.egress.base import SecretValue

_EARLY_SHARE: Final = 0.1
_EARLY_SECONDS: Final = 300.0
"""A token is renewed when a tenth of its time is left, at most five minutes before its end."""
_LEAST_SECONDS: Final = 5.0
_USUAL_SECONDS: Final = 600.0
"""Of a token whose answer does not say how long it is good."""


class MintingFailed(Exception):
    """No token was given; the message says why, and holds no secret."""


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """What is sent to a token endpoint: a POST over TLS."""

    url: str
    body: bytes = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class TokenResponse:
    status: int
    body: bytes = field(repr=False)


Post = Callable[[TokenRequest], Awaitable[TokenResponse]]
"""Sends a request to a token endpoint. Raises OSError if it cannot be reached."""


@dataclass(frozen=True, slots=True)
class Token:
    """What an exchange gave."""

    value: str = field(repr=False)
    seconds: float | None
    """For how long it is good."""


class Signer(Protocol):
    """One kind of exchange."""

    async def exchange(self, held: bytes, post: Post) -> Token:
        """A token for what the source holds.

        Raises:
            MintingFailed: there is none.
        """


class Mint:
    """Exchanges, and keeps what it got until shortly before its end."""

    def __init__(self, signers: dict[str, Signer], post: Post, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._signers = signers
        self._post = post
        self._clock = clock
        self._tokens: dict[tuple[str, str], SecretValue] = {}
        self._under_way: dict[tuple[str, str], asyncio.Task[SecretValue]] = {}

    async def token(self, signer: str, held: bytes) -> SecretValue:
        """The token for what a source holds; callers at the same time share one exchange.

        Raises:
            MintingFailed: no such signer, or no token.
        """
        key = (signer, hashlib.sha256(held).hexdigest())
        known = self._tokens.get(key)
        if known is not None and self._clock() < known.good_until:
            return known
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.ensure_future(self._exchange(signer, held))
            task.add_done_callback(lambda done: self._ended(key, done))
        return await asyncio.shield(task)

    def _ended(self, key: tuple[str, str], task: asyncio.Task[SecretValue]) -> None:
        self._under_way.pop(key, None)
        if not task.cancelled() and task.exception() is None:
            self._tokens[key] = task.result()

    async def _exchange(self, signer: str, held: bytes) -> SecretValue:
        exchange = self._signers.get(signer)
        if exchange is None:
            raise MintingFailed(f"there is no signer {signer!r}")
        started = self._clock()
        try:
            token = await exchange.exchange(held, self._post)
        except OSError as fault:
            raise MintingFailed(
                f"the token endpoint cannot be reached: {fault.strerror or type(fault).__name__}"
            ) from None
        seconds = _USUAL_SECONDS if token.seconds is None else token.seconds
        early = min(_EARLY_SECONDS, seconds * _EARLY_SHARE)
        return SecretValue(token.value.encode(), started + max(seconds - early, _LEAST_SECONDS))
