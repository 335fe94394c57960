"""The values that a desk has: asked for when they are needed, one question at a time, within a deadline."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from ringfence.egress.base import FetchSecret, SecretValue
from ringfence.egress.secrets.placeholders import SHORTEST
from ringfence.values.network import SecretGrant

DEADLINE_SECONDS: Final = 8.0
"""Clients give up after ten."""
_FAILED_SECONDS: Final = 2.0
"""How long a source that failed is not asked again: it may be a program, and the box decides how often it asks."""
_LONGEST: Final = 64 * 1024
_SHOWN: Final = 120


class NoValue(Exception):
    """A source gave nothing that can be used; the message says why and never holds a value."""


class Vault:
    """Values by the name of their secret, as long as they are good."""

    def __init__(
        self,
        fetch: FetchSecret,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch = fetch
        self._deadline_seconds = deadline_seconds
        self._clock = clock
        self._values: dict[str, SecretValue] = {}
        self._failed: dict[str, tuple[float, str]] = {}
        self._asking: dict[str, asyncio.Task[SecretValue]] = {}

    async def value(self, secret: SecretGrant) -> bytes:
        """The value of a secret.

        Raises:
            NoValue: its source failed, was too slow, or gave what cannot be used.
        """
        now = self._clock()
        known = self._values.get(secret.name)
        if known is not None and (not known.good_until or now < known.good_until):
            return known.value
        until, why = self._failed.get(secret.name, (0.0, ""))
        if now < until:
            raise NoValue(why)
        task = self._asking.get(secret.name)
        if task is None:
            task = self._asking[secret.name] = asyncio.ensure_future(self._ask(secret))
            task.add_done_callback(lambda done: self._asked(secret.name, done))
        return (await asyncio.shield(task)).value

    def _asked(self, name: str, task: asyncio.Task[SecretValue]) -> None:
        self._asking.pop(name, None)
        if task.cancelled():
            return
        if (failure := task.exception()) is None:
            self._values[name] = task.result()
        else:
            self._values.pop(name, None)
            self._failed[name] = (self._clock() + _FAILED_SECONDS, str(failure))

    async def _ask(self, secret: SecretGrant) -> SecretValue:
        try:
            found = await asyncio.wait_for(self._fetch(secret), self._deadline_seconds)
        except TimeoutError:
            raise NoValue(f"its source gave nothing in {self._deadline_seconds:g} s") from None
        except Exception as failure:  # somebody else's code, and whatever it was: the request is refused
            raise NoValue(f"its source failed: {_line(failure)}") from None
        if not SHORTEST <= len(found.value) <= _LONGEST:
            size = "empty" if not found.value else "shorter than 8 bytes" if len(found.value) < SHORTEST else "too long"
            raise NoValue(f"its source gave a value that is {size}")
        return found


def _line(failure: BaseException) -> str:
    """What went wrong, on one line of ASCII."""
    text = str(failure) or type(failure).__name__
    clean = "".join(letter if " " <= letter <= "~" else " " for letter in text)
    return " ".join(clean.split())[:_SHOWN]
