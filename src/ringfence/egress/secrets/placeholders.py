"""Placeholders: what stands inside a box for a secret, of the same shape and worth nothing.

Clients look at a token before they send it: at its prefix, its length, its letters, whether a JWT can be parsed. A
placeholder passes these looks, so that the client works unchanged, and it is made of random letters, so that it can be
found in whatever the box sends. It has as many bytes as the value, so that the length of a body stays what it was.

No `_SHARED` letters in a row of what is random are those of the value.
"""

import base64
import hashlib
import json
import os
import re
import string
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.values.network import SecretGrant, SecretStyle

_LETTERS: Final = string.ascii_letters + string.digits
_CAPITALS: Final = string.ascii_uppercase + "234567"
_URL_SAFE: Final = _LETTERS + "-_"
_HEX: Final = "0123456789abcdef"
_SHARED: Final = 4
_TRIES: Final = 200
SHORTEST: Final = 8
"""Bytes of a value: a shorter one could not be told from other text."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What clients know a kind of token by."""

    prefix: str
    alphabet: str
    length: int
    """Of a token of this kind where no value is known yet."""


SHAPES: Final = (
    Shape("github_pat_", _LETTERS, 93),
    Shape("ghp_", _LETTERS, 40),
    Shape("gho_", _LETTERS, 40),
    Shape("ghu_", _LETTERS, 40),
    Shape("ghs_", _LETTERS, 40),
    Shape("ghr_", _LETTERS, 40),
    Shape("glpat-", _URL_SAFE, 26),
    Shape("sk-ant-oat01-", _URL_SAFE, 108),
    Shape("sk-ant-api03-", _URL_SAFE, 108),
    Shape("sk-ant-", _URL_SAFE, 108),
    Shape("sk-proj-", _URL_SAFE, 164),
    Shape("sk-or-v1-", _HEX, 73),
    Shape("sk_live_", _LETTERS, 32),
    Shape("sk_test_", _LETTERS, 32),
    Shape("sk-", _LETTERS, 51),
    Shape("xoxb-", _LETTERS + "-", 56),
    Shape("xoxp-", _LETTERS + "-", 76),
    Shape("xapp-", _LETTERS + "-", 98),
    Shape("AKIA", _CAPITALS, 20),
    Shape("ASIA", _CAPITALS, 20),
    Shape("AIza", _URL_SAFE, 39),
    Shape("ya29.", _URL_SAFE, 180),
    Shape("hf_", _LETTERS, 37),
    Shape("npm_", _LETTERS, 40),
    Shape("pypi-", _URL_SAFE, 180),
    Shape("gsk_", _LETTERS, 56),
    Shape("dop_v1_", _HEX, 71),
    Shape("SG.", _URL_SAFE, 69),
)
"""The first that fits counts, so that longer prefixes stand before those they begin with."""

_BY_SIGNER: Final = {
    "aws-sigv4": "AKIA",
    "github-app": "ghs_",
    "google-service-account": "ya29.",
}
_TOKEN_LENGTH: Final = 64
_JWT: Final = re.compile(r"eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FAR_AWAY: Final = 4102444800
"""2100-01-01: a client that reads when a token ends does not try to renew it."""


def make_placeholder(secret: SecretGrant, value: bytes) -> str:
    """What stands for a secret inside; empty if nothing does."""
    if secret.style is SecretStyle.INJECT and not secret.variable and secret.signer != "aws-sigv4":
        return ""
    return signer_placeholder(secret.signer) if secret.signer else shaped_like(value)


def shaped_like(value: bytes) -> str:
    """What can stand for a value: ASCII, as many bytes, same prefix and letters where its shape is known."""
    text = value.decode("ascii", "replace").replace("\ufffd", "?")
    if _JWT.fullmatch(text):
        return _jwt(text)
    if _UUID.fullmatch(text):
        digits = _random(32, _HEX, text.replace("-", ""))
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    shape = next((each for each in SHAPES if text.startswith(each.prefix)), None)
    if shape is not None and len(text) >= len(shape.prefix) + SHORTEST:
        rest = text[len(shape.prefix) :]
        return shape.prefix + _random(len(rest), _alphabet(rest, shape.alphabet), rest)
    return _random(len(value), _alphabet(text, _LETTERS), text)


def signer_placeholder(signer: str) -> str:
    """What stands inside for a token that a signer makes, of which no value is known beforehand."""
    prefix = _BY_SIGNER.get(signer, "")
    shape = next((each for each in SHAPES if each.prefix == prefix), Shape("", _LETTERS, _TOKEN_LENGTH))
    return shape.prefix + _random(shape.length - len(prefix), shape.alphabet, "")


def companion(placeholder: str) -> str:
    """The second placeholder of a pair, such as the secret key that belongs to an access key: made from the first, so
    that whoever knows one knows both."""
    digest = hashlib.sha512(b"ringfence companion\0" + placeholder.encode()).digest()
    return base64.b64encode(digest, b"xy")[:40].decode("ascii")


def variables_of(secret: SecretGrant) -> tuple[tuple[str, str], ...]:
    """The variables that a box has because of a secret: placeholders only."""
    if not secret.placeholder:
        return ()
    if secret.signer == "aws-sigv4":
        return (
            (secret.variable or "AWS_ACCESS_KEY_ID", secret.placeholder),
            ("AWS_SECRET_ACCESS_KEY", companion(secret.placeholder)),
        )
    return ((secret.variable, secret.placeholder),) if secret.variable else ()


def placeholders_of(secret: SecretGrant) -> tuple[str, ...]:
    """Everything that stands for a secret inside a box."""
    if not secret.placeholder:
        return ()
    if secret.signer == "aws-sigv4":
        return (secret.placeholder, companion(secret.placeholder))
    return (secret.placeholder,)


def _alphabet(text: str, usual: str) -> str:
    """A narrower alphabet if the text keeps to one, for clients that check it."""
    if text and all(letter in _HEX for letter in text):
        return _HEX
    return usual


def _random(length: int, alphabet: str, avoided: str) -> str:
    """Random letters; no `_SHARED` of them in a row are in `avoided`."""
    parts = {avoided[start : start + _SHARED] for start in range(len(avoided) - _SHARED + 1)}
    drawn: list[str] = []
    misses = 0
    while len(drawn) < length:
        letter = _letter(alphabet)
        if "".join((*drawn[1 - _SHARED :], letter)) in parts:
            misses += 1
            if misses > _TRIES:  # everything that could follow is in the value: go back and around
                del drawn[-_SHARED:]
                misses = 0
            continue
        drawn.append(letter)
    return "".join(drawn)


def _letter(alphabet: str) -> str:
    while True:
        number = os.urandom(1)[0]
        if number < 256 - 256 % len(alphabet):  # else the first letters would be likelier
            return alphabet[number % len(alphabet)]


def _jwt(text: str) -> str:
    head, claims, signature = text.split(".")
    return ".".join(
        (
            _segment({"alg": "HS256", "typ": "JWT"}, "kid", head),
            _segment({"exp": _FAR_AWAY}, "jti", claims),
            _random(len(signature), _URL_SAFE, signature),
        )
    )


def _segment(fixed: dict[str, object], name: str, like: str) -> str:
    """A JSON object in base64url, as long as another segment, filled up by a random string under `name`."""
    size = len(like) * 3 // 4
    if len(like) % 4 != 1:
        for start in (fixed, {}):
            room = size - len(json.dumps({**start, name: ""}, separators=(",", ":")))
            if room >= 0:
                filled = json.dumps({**start, name: _random(room, _LETTERS, like)}, separators=(",", ":"))
                return base64.urlsafe_b64encode(filled.encode()).rstrip(b"=").decode("ascii")
    return "eyJ" + _random(len(like) - 3, _URL_SAFE, like)
