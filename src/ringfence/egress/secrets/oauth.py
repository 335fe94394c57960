"""OAuth 2: an access token for a refresh token, or for a client's own credentials.

The source holds a JSON object: `token_url`, `client_id`, and `refresh_token` or `client_secret`; `scope` and `audience`
if they are needed, and `client_auth: basic` for endpoints that take the client's secret in a header only. A refresh
token that the endpoint renews is kept in memory and used from then on.
"""

import base64
import hashlib
from typing import Any
from urllib.parse import quote, urlencode

from ringfence.egress.secrets.answers import read_answer, read_held, read_token, secure_url
from ringfence.egress.secrets.minting import Post, Token, TokenRequest

REFRESH = "oauth-refresh"
CLIENT = "oauth-client"


class RefreshToken:
    """`oauth-refresh`."""

    def __init__(self) -> None:
        self._renewed: dict[str, str] = {}

    async def exchange(self, held: bytes, post: Post) -> Token:
        found = read_held(held, REFRESH, "token_url", "client_id", "refresh_token")
        source = hashlib.sha256(held).hexdigest()
        form = {
            "grant_type": "refresh_token",
            "refresh_token": self._renewed.get(source, str(found["refresh_token"])),
        }
        answer = await _ask(found, form, post)
        renewed = answer.get("refresh_token")
        if isinstance(renewed, str) and renewed:
            self._renewed[source] = renewed
        return _token(answer)


class ClientCredentials:
    """`oauth-client`."""

    async def exchange(self, held: bytes, post: Post) -> Token:
        found = read_held(held, CLIENT, "token_url", "client_id", "client_secret")
        return _token(await _ask(found, {"grant_type": "client_credentials"}, post))


async def _ask(found: dict[str, Any], form: dict[str, str], post: Post) -> dict[str, Any]:
    headers = [("content-type", "application/x-www-form-urlencoded"), ("accept", "application/json")]
    form |= {name: str(found[name]) for name in ("scope", "audience", "resource") if found.get(name)}
    client, secret = str(found["client_id"]), str(found.get("client_secret", ""))
    if found.get("client_auth") == "basic":
        pair = f"{quote(client, safe='')}:{quote(secret, safe='')}".encode()
        headers.append(("authorization", "Basic " + base64.b64encode(pair).decode()))
    else:
        form |= {"client_id": client} | ({"client_secret": secret} if secret else {})
    url = secure_url(str(found["token_url"]))
    return read_answer(await post(TokenRequest(url, urlencode(form).encode(), tuple(headers))))


def _token(answer: dict[str, Any]) -> Token:
    seconds = answer.get("expires_in")
    if isinstance(seconds, str) and seconds.isdigit():
        seconds = int(seconds)
    is_number = isinstance(seconds, (int, float)) and not isinstance(seconds, bool)
    return Token(read_token(answer, "access_token"), float(seconds) if is_number and seconds is not None else None)
