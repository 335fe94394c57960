"""Signs checkpoints of the journal with an Ed25519 key, and checks them. Needs the extra `ringfence[sign]`.

A checkpoint is a record whose signature covers its own number, the hash of the record before it and the time, and so
everything up to there. Whoever has the public key knows that the holder of the private one wrote exactly that.

What this does not protect against: somebody who can read the private key, which is anybody who can act as the user that
writes the journal. Keep it where agents and backups do not come, and the public key where it cannot be exchanged.
"""

import base64
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ringfence.audit.chain import CHECKPOINT, encode
from ringfence.audit.clock import rfc3339
from ringfence.errors import AlreadyExists, FileError, InvalidConfig, NotInstalled

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_CONTEXT: Final = "ringfence journal checkpoint 1"
"""So that a signature made for something else never counts."""
_SIZE_MAX: Final = 65536
_ID_LENGTH: Final = 16
_MADE_BY: Final = "ringfence audit keygen"


class Signer:
    """A private key, read when it is first needed."""

    def __init__(self, path: str) -> None:
        self._key = read_private(path)
        self._id = key_id(self._key.public_key())[:_ID_LENGTH]

    def checkpoint(self, seq: int, prev: str) -> str:
        """The fields of the checkpoint that will have this number."""
        at = rfc3339()
        signature = base64.b64encode(self._key.sign(_message(seq, prev, at))).decode()
        return encode({"event_type": CHECKPOINT, "timestamp": at, "key_id": self._id, "signature": signature})


class Verifier:
    """Public keys.

    Raises:
        InvalidConfig: a file is not a public key.
    """

    def __init__(self, paths: tuple[str | os.PathLike[str], ...]) -> None:
        keys = [read_public(path) for path in paths]
        self._keys = {key_id(key)[:_ID_LENGTH]: key for key in keys}

    def fault(self, record: dict[str, Any]) -> str | None:
        """What is wrong with a checkpoint, if anything is."""
        from cryptography.exceptions import InvalidSignature

        key = self._keys.get(str(record.get("key_id")))
        if key is None:
            return "was signed with a key that is none of the given ones"
        try:
            signature = base64.b64decode(str(record.get("signature")), validate=True)
            key.verify(signature, _message(record["seq"], record["prev"], record["timestamp"]))
        except (InvalidSignature, ValueError, KeyError):
            return "has a signature that does not match"
        return None


def make_keys(path: Path) -> Path:
    """Make a private key at a path, for its owner only, and the public one beside it; returns the latter's path.

    Raises:
        AlreadyExists: there is a file already.
        FileError: it cannot be written.
    """
    _check_installed()
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    public = key.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    public_path = path.with_name(path.name + ".pub")
    for target, data, mode in ((path, private, 0o600), (public_path, public, 0o644)):
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with open(os.open(target, flags, mode), "wb") as file:
                file.write(data)
        except FileExistsError:
            raise AlreadyExists(
                "exists already", path=str(target), hint="give another name; keys are not replaced"
            ) from None
        except OSError as fault:
            raise FileError.of(
                fault.errno or 0, str(target), f"cannot be written: {fault.strerror}", hint="give another place"
            ) from None
    return public_path


def _message(seq: int, prev: str, at: str) -> bytes:
    return f"{_CONTEXT}\n{seq}\n{prev}\n{at}\n".encode()


def _check_installed() -> None:
    try:
        import cryptography  # noqa: F401  an extra: whether it is there is the question
    except ImportError:
        raise NotInstalled("signing needs the package `cryptography`", hint="pip install 'ringfence[sign]'") from None


def read_private(path: str | os.PathLike[str], made_by: str = _MADE_BY) -> "Ed25519PrivateKey":
    """A private key that only its owner can read.

    Args:
        made_by: the command that makes one, for whoever has none.

    Raises:
        InvalidConfig: there is none at this path, or others can read it.
    """
    _check_installed()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        found = load_pem_private_key(_read(path), None)
    except (ValueError, TypeError):
        found = None
    if not isinstance(found, Ed25519PrivateKey):
        raise InvalidConfig(f"{path} is not an Ed25519 private key", hint=f"make one: {made_by}")
    if os.stat(path).st_mode & 0o077:
        raise InvalidConfig(f"{path} can be read by others", hint=f"chmod 600 {path}, or make a new one")
    return found


def read_public(path: str | os.PathLike[str]) -> "Ed25519PublicKey":
    """A public key.

    Raises:
        InvalidConfig: there is none at this path.
    """
    _check_installed()
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        found = load_pem_public_key(_read(path))
    except (ValueError, TypeError):
        found = None
    if not isinstance(found, Ed25519PublicKey):
        raise InvalidConfig(f"{path} is not an Ed25519 public key", hint="give the .pub file that keygen made")
    return found


def _read(path: str | os.PathLike[str]) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(_SIZE_MAX)
    except OSError as fault:
        raise InvalidConfig(f"{path} cannot be read: {fault.strerror}", hint="name a key that exists") from None


def raw_public(key: "Ed25519PublicKey") -> bytes:
    """Its 32 bytes."""
    from cryptography.hazmat.primitives import serialization

    return key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def key_id(key: "Ed25519PublicKey") -> str:
    """By what a signature names the key; checkpoints have the first digits of it."""
    return hashlib.sha256(raw_public(key)).hexdigest()
