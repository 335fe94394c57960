"""What the proxy needs from outside to end SSH: its own host key, and whoever knows servers and signs."""

from collections.abc import Awaitable, Callable

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ringfence.dataclass import dataclass, field

SshSign = Callable[[str, str, str, bytes, bytes, int], Awaitable[bytes]]
"""box, host, name of the secret, public key, what is signed, flags of the agent's protocol: the signature.

Raises:
    OSError: it is not given; says why.
"""


@dataclass(frozen=True, slots=True)
class SshKey:
    """A key that signs somewhere else."""

    secret: str
    public: bytes
    """As SSH has it."""


@dataclass(frozen=True, slots=True)
class SshLogin:
    """What is known of a server, and who may sign in to it."""

    host_keys: tuple[bytes, ...]
    """Those that the person trusts, as SSH has them."""
    authorities: tuple[bytes, ...]
    """Keys that the person trusts to sign a server's (`@cert-authority`)."""
    revoked: tuple[bytes, ...]
    keys: tuple[SshKey, ...]


SshKnows = Callable[[str, str, int], Awaitable[SshLogin]]
"""box, host, port.

Raises:
    OSError: the server is not known, or nobody may sign in; says what would help.
"""


@dataclass(frozen=True, slots=True)
class SshSide:
    knows: SshKnows
    sign: SshSign
    host_key: Ed25519PrivateKey = field(repr=False)
    """Made for this run, and never written down."""

    @property
    def host_key_pem(self) -> bytes:
        return self.host_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )

    @property
    def known_hosts(self) -> str:
        """The line by which clients in a box know us, whatever the host: it is the only one they ever meet."""
        public = self.host_key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        return f"* {public.decode('ascii')}\n"
