"""Google service account: an access token for a signed assertion.

The source holds the key file as Google gives it (`client_email`, `private_key`, `token_uri`), with `scope` added if it
is not to be the whole platform.
"""

import time
from collections.abc import Callable
from typing import Final
from urllib.parse import urlencode

from ringfence.egress.secrets.answers import read_answer, read_held, read_token, secure_url
from ringfence.egress.secrets.jwt import rs256
from ringfence.egress.secrets.minting import Post, Token, TokenRequest

NAME = "google-service-account"
_SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
_ENDPOINT: Final = "https://oauth2.googleapis.com/token"
_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_LIFE: Final = 3600


class GoogleServiceAccount:
    """`google-service-account`."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock

    async def exchange(self, held: bytes, post: Post) -> Token:
        found = read_held(held, NAME, "client_email", "private_key")
        url = secure_url(str(found.get("token_uri") or _ENDPOINT))
        now = int(self._clock())
        claims = {
            "iss": found["client_email"],
            "scope": str(found.get("scope") or _SCOPE),
            "aud": url,
            "iat": now,
            "exp": now + _LIFE,
        }
        assertion = rs256(claims, str(found["private_key"]), str(found.get("private_key_id", "")))
        body = urlencode({"grant_type": _GRANT, "assertion": assertion}).encode()
        headers = (("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json"))
        answer = read_answer(await post(TokenRequest(url, body, headers)))
        seconds = answer.get("expires_in")
        return Token(read_token(answer, "access_token"), float(seconds) if isinstance(seconds, int) else None)
