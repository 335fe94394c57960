"""Signs a JSON Web Token by RS256, which is what GitHub and Google take from applications."""

import base64
import json
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ringfence.egress.secrets.minting import MintingFailed


def rs256(claims: dict[str, Any], private_key_pem: str, key_id: str = "") -> str:
    """The token.

    Raises:
        MintingFailed: the key is no RSA key in PEM without a password.
    """
    try:
        key = load_pem_private_key(private_key_pem.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise MintingFailed("private_key is no RSA key in PEM without a password") from None
    if not isinstance(key, RSAPrivateKey):
        raise MintingFailed("private_key is no RSA key")
    head = {"alg": "RS256", "typ": "JWT"} | ({"kid": key_id} if key_id else {})
    signed = f"{_segment(head)}.{_segment(claims)}"
    return f"{signed}.{_base64url(key.sign(signed.encode(), PKCS1v15(), hashes.SHA256()))}"


def _segment(value: dict[str, Any]) -> str:
    return _base64url(json.dumps(value, separators=(",", ":")).encode())


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")
