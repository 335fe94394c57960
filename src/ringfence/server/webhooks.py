"""Tells people who are not looking that a question waits: a signed request to an address of the configuration.

It says that there is a question, whose and until when: not the command, and nothing that would answer it. Whoever gets
it checks `Ringfence-Signature: t=SECONDS,v1=HEX`, HMAC-SHA256 over `SECONDS.BODY` with the shared secret, and opens the
console. Sent again for a while if it does not arrive; `id` is the same each time.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ringfence.errors import InvalidConfig

if TYPE_CHECKING:
    from ringfence.approvals.base import Question
    from ringfence.server.settings import Webhook

_PAUSES: Final = (0.0, 1.0, 4.0, 15.0, 60.0)
"""Before each try."""
_SECONDS: Final = 10.0
_MOST_AT_ONCE: Final = 100
_log = logging.getLogger("ringfence.server")


class Webhooks:
    def __init__(self, hooks: tuple[Webhook, ...], *, pauses: tuple[float, ...] = _PAUSES) -> None:
        self._hooks = [(hook.url, _secret(hook.secret)) for hook in hooks]
        self._pauses = pauses
        self._sending: set[asyncio.Task[None]] = set()

    def tell(self, tenant: str, question: Question) -> None:
        """In the background; nobody waits for it."""
        for url, secret in self._hooks:
            if len(self._sending) >= _MOST_AT_ONCE:
                _log.warning("a webhook was left out: %d are being sent already", len(self._sending))
                return
            body = msgspec.json.encode(
                {
                    "type": "question.asked",
                    "id": question.id,
                    "tenant": tenant,
                    "session_id": question.session,
                    "risk": question.risk.name.lower(),
                    "expires_at": question.expires_at,
                }
            )
            task = asyncio.get_running_loop().create_task(self._send(url, secret, body, question.expires_at))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)

    async def _send(self, url: str, secret: bytes, body: bytes, until: float) -> None:
        import httpx

        async with httpx.AsyncClient(timeout=_SECONDS, follow_redirects=False, trust_env=False) as client:
            for pause in self._pauses:
                await asyncio.sleep(pause)
                if time.time() > until:
                    return
                try:
                    answer = await client.post(url, content=body, headers=signed(secret, body, time.time()))
                except httpx.HTTPError as fault:
                    _log.warning("a webhook did not arrive: %s", type(fault).__name__)
                    continue
                if answer.is_success:
                    return
                _log.warning("a webhook was answered with %d", answer.status_code)

    async def close(self) -> None:
        for task in self._sending:
            task.cancel()
        if self._sending:
            await asyncio.wait(self._sending)


def signed(secret: bytes, body: bytes, at: float) -> dict[str, str]:
    """The headers of a webhook."""
    digest = hmac.new(secret, b"%d." % int(at) + body, hashlib.sha256).hexdigest()
    return {"Content-Type": "application/json", "Ringfence-Signature": f"t={int(at)},v1={digest}"}


def _secret(source: str) -> bytes:
    """
    Raises:
        InvalidConfig: it is not there.
    """
    kind, _, name = source.partition(":")
    try:
        if kind == "env":
            return os.environ[name].encode()
        if kind == "file":
            return Path(name).read_bytes().strip()
    except (KeyError, OSError):
        raise InvalidConfig(f"webhooks: the secret {source!r} is not there", hint="set it, or name another") from None
    raise InvalidConfig("webhooks: a secret is named as env:NAME or file:PATH", hint="never written in the file itself")
