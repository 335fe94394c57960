"""Reads what sources hold for signers, and what token endpoints answer: JSON of others, believed in nothing."""

import json
from typing import Any, Final
from urllib.parse import urlsplit

from ringfence.egress.secrets.minting import MintingFailed, TokenResponse

_SHOWN: Final = 60


def read_held(held: bytes, signer: str, *needed: str) -> dict[str, Any]:
    """The JSON object that a source holds for a signer, with these texts in it.

    Raises:
        MintingFailed: it is none, or lacks one.
    """
    try:
        found = json.loads(held)
    except ValueError:
        raise MintingFailed(f"for {signer} the source has to hold a JSON object") from None
    if not isinstance(found, dict):
        raise MintingFailed(f"for {signer} the source has to hold a JSON object")
    if lacking := [name for name in needed if not isinstance(found.get(name), (str, int)) or found[name] == ""]:
        raise MintingFailed(f"for {signer} the source has to hold {' and '.join(lacking)}")
    return found


def read_answer(answer: TokenResponse, *, expected: tuple[int, ...] = (200, 201)) -> dict[str, Any]:
    """The JSON object of a token endpoint's answer.

    Raises:
        MintingFailed: it gave an error; says which, by its code alone.
    """
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if answer.status not in expected:
        code = found.get("error") if isinstance(found, dict) else None
        named = f" ({code[:_SHOWN]})" if isinstance(code, str) and code.replace("_", "").isalnum() else ""
        raise MintingFailed(f"the token endpoint answered {answer.status}{named}")
    if not isinstance(found, dict):
        raise MintingFailed("the token endpoint answered with no JSON object")
    return found


def read_token(found: dict[str, Any], name: str) -> str:
    token = found.get(name)
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable():
        raise MintingFailed(f"the token endpoint's answer has no {name}")
    return token


def secure_url(url: str) -> str:
    """A URL that a secret may be sent to.

    Raises:
        MintingFailed: it is not HTTPS.
    """
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or parts.username or parts.password:
        raise MintingFailed("the token endpoint has to be a URL that begins with https://")
    return url
