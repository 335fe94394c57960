"""Tokens are exchanged once, renewed in time, and what the source holds is shown nowhere."""

import asyncio
import base64
import json
from typing import Any
from urllib.parse import parse_qs

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15

from ringfence.egress.secrets.github_app import GitHubApp
from ringfence.egress.secrets.google_service_account import GoogleServiceAccount
from ringfence.egress.secrets.minting import Mint, MintingFailed, TokenRequest, TokenResponse
from ringfence.egress.secrets.oauth import ClientCredentials, RefreshToken
from ringfence.egress.secrets.signers import TOKEN_SIGNERS, make_mint

KEY = rsa.generate_private_key(65537, 2048)


def pem(key: Any) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()


class Endpoint:
    """A token endpoint of the test's own."""

    def __init__(self, *answers: tuple[int, object], wait: float = 0.0) -> None:
        self.answers = list(answers)
        self.asked: list[TokenRequest] = []
        self.wait = wait

    async def __call__(self, request: TokenRequest) -> TokenResponse:
        self.asked.append(request)
        await asyncio.sleep(self.wait)
        status, body = self.answers[min(len(self.asked), len(self.answers)) - 1]
        return TokenResponse(status, body if isinstance(body, bytes) else json.dumps(body).encode())

    def form(self, index: int = -1) -> dict[str, str]:
        return {name: value for name, (value,) in parse_qs(self.asked[index].body.decode()).items()}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


REFRESH = {"token_url": "https://auth.example/token", "client_id": "me", "refresh_token": "long-lived-secret"}
CLIENT = {
    "token_url": "https://auth.example/token",
    "client_id": "me",
    "client_secret": "client secret/+",
    "scope": "a b",
}


def held(value: object) -> bytes:
    return json.dumps(value).encode()


def test_many_callers_share_one_exchange() -> None:
    endpoint = Endpoint((200, {"access_token": "short", "expires_in": 3600}), wait=0.02)

    async def run() -> set[bytes]:
        mint = make_mint(endpoint)
        return {
            each.value
            for each in await asyncio.gather(*(mint.token("oauth-refresh", held(REFRESH)) for _ in range(50)))
        }

    assert asyncio.run(run()) == {b"short"}
    assert len(endpoint.asked) == 1
    assert endpoint.form() == {"grant_type": "refresh_token", "refresh_token": "long-lived-secret", "client_id": "me"}


def test_a_token_is_renewed_before_it_ends_and_a_new_refresh_token_is_used() -> None:
    endpoint = Endpoint(
        (200, {"access_token": "one", "expires_in": 1000, "refresh_token": "second-refresh"}),
        (200, {"access_token": "two", "expires_in": 1000}),
    )
    clock = Clock()

    async def run() -> list[bytes]:
        mint = Mint({"oauth-refresh": RefreshToken()}, endpoint, clock=clock)
        seen = []
        for now in (1000, 1899, 1901):
            clock.now = now
            seen.append((await mint.token("oauth-refresh", held(REFRESH))).value)
        return seen

    assert asyncio.run(run()) == [b"one", b"one", b"two"]
    assert endpoint.form()["refresh_token"] == "second-refresh"


def test_client_credentials_go_into_the_form_or_a_header() -> None:
    endpoint = Endpoint((200, {"access_token": "short", "expires_in": "60"}))

    async def run() -> None:
        mint = Mint({"oauth-client": ClientCredentials()}, endpoint)
        await mint.token("oauth-client", held(CLIENT))
        await mint.token("oauth-client", held({**CLIENT, "client_auth": "basic"}))

    asyncio.run(run())

    assert endpoint.form(0)["client_secret"] == "client secret/+"
    assert endpoint.form(0)["scope"] == "a b"
    assert "client_secret" not in endpoint.form(1)
    assert base64.b64decode(dict(endpoint.asked[1].headers)["authorization"][6:]) == b"me:client%20secret%2F%2B"


def checked(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Head and claims of a token whose signature is right."""
    head, claims, signature = token.split(".")
    KEY.public_key().verify(
        base64.urlsafe_b64decode(signature + "=="), f"{head}.{claims}".encode(), PKCS1v15(), hashes.SHA256()
    )
    return tuple(json.loads(base64.urlsafe_b64decode(part + "==")) for part in (head, claims))  # type: ignore[return-value]


def test_a_github_app_gets_a_token_of_its_installation() -> None:
    endpoint = Endpoint((201, {"token": "ghs_x", "expires_at": "2026-01-01T01:00:00Z"}))
    source = {"app_id": 12, "installation_id": 34, "private_key": pem(KEY), "repositories": ["one"]}
    now = 1767225600.0  # 2026-01-01T00:00:00Z

    token = asyncio.run(GitHubApp(lambda: now).exchange(held(source), endpoint))

    (asked,) = endpoint.asked
    head, claims = checked(dict(asked.headers)["authorization"].removeprefix("Bearer "))
    assert asked.url == "https://api.github.com/app/installations/34/access_tokens"
    assert json.loads(asked.body) == {"repositories": ["one"]}
    assert head == {"alg": "RS256", "typ": "JWT"}
    assert claims == {"iat": now - 60, "exp": now + 540, "iss": "12"}
    assert (token.value, token.seconds) == ("ghs_x", 3600.0)


def test_a_google_service_account_exchanges_an_assertion() -> None:
    endpoint = Endpoint((200, {"access_token": "ya29.x", "expires_in": 3599}))
    source = {
        "type": "service_account",
        "client_email": "me@project.iam.gserviceaccount.com",
        "private_key": pem(KEY),
        "private_key_id": "k1",
        "token_uri": "https://oauth2.googleapis.com/token",
    }

    token = asyncio.run(GoogleServiceAccount(lambda: 5000.0).exchange(held(source), endpoint))

    head, claims = checked(endpoint.form()["assertion"])
    assert head["kid"] == "k1"
    assert claims["aud"] == "https://oauth2.googleapis.com/token"
    assert (claims["iat"], claims["exp"]) == (5000, 8600)
    assert endpoint.form()["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert (token.value, token.seconds) == ("ya29.x", 3599.0)


BAD: dict[str, tuple[str, object, tuple[int, object]]] = {
    "no json": ("oauth-refresh", b"not json with long-lived-secret", (200, {})),
    "no object": ("oauth-refresh", ["long-lived-secret"], (200, {})),
    "a field is missing": ("oauth-refresh", {"refresh_token": "long-lived-secret"}, (200, {})),
    "cleartext": ("oauth-refresh", {**REFRESH, "token_url": "http://auth.example/token"}, (200, {"access_token": "x"})),
    "refused": ("oauth-refresh", REFRESH, (400, {"error": "invalid_grant", "error_description": "long-lived-secret"})),
    "an error with the secret": ("oauth-refresh", REFRESH, (400, {"error": "long-lived-secret is bad"})),
    "an answer that is a page": ("oauth-refresh", REFRESH, (200, b"<html>long-lived-secret")),
    "no token": ("oauth-refresh", REFRESH, (200, {"token": "long-lived-secret"})),
    "a token with a line end": ("oauth-refresh", REFRESH, (200, {"access_token": "a\r\nlong-lived-secret: b"})),
    "no key": ("github-app", {"app_id": 1, "installation_id": 2, "private_key": "long-lived-secret"}, (201, {})),
    "a path": ("github-app", {"app_id": 1, "installation_id": "2/../3", "private_key": pem(KEY)}, (201, {})),
    "another kind of key": (
        "google-service-account",
        {"client_email": "a", "private_key": pem(ec.generate_private_key(ec.SECP256R1()))},
        (200, {}),
    ),
    "another signer": ("oauth-wish", REFRESH, (200, {})),
}


@pytest.mark.parametrize("case", BAD)
def test_what_fails_says_why_and_shows_no_secret(case: str) -> None:
    signer, source, answer = BAD[case]
    raw = source if isinstance(source, bytes) else held(source)

    with pytest.raises(MintingFailed) as failed:
        asyncio.run(make_mint(Endpoint(answer)).token(signer, raw))

    assert "long-lived-secret" not in str(failed.value)
    assert "PRIVATE" not in str(failed.value)


def test_an_endpoint_that_cannot_be_reached_fails_and_is_tried_again() -> None:
    tries: list[int] = []

    async def refuse(request: TokenRequest) -> TokenResponse:
        tries.append(1)
        raise ConnectionRefusedError(111, "Connection refused")

    async def run() -> None:
        mint = make_mint(refuse)
        for _ in range(2):
            with pytest.raises(MintingFailed, match="refused"):
                await mint.token("oauth-refresh", held(REFRESH))

    asyncio.run(run())
    assert len(tries) == 2


def test_requests_and_answers_show_no_secret() -> None:
    assert "long" not in repr(TokenRequest("https://a.example", b"long", (("authorization", "long"),)))
    assert "long" not in repr(TokenResponse(200, b"long"))


def test_every_token_signer_has_an_exchange() -> None:
    for signer in TOKEN_SIGNERS:
        with pytest.raises(MintingFailed, match="has to hold"):
            asyncio.run(make_mint(Endpoint((200, {}))).token(signer, b"{}"))
