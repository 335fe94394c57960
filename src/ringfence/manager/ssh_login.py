"""Signing in to git servers by SSH for a box, on the manager's side: where the key is, or the agent that has it.

The proxy speaks to the server; it is told which keys the server may have (the person's known_hosts) and which of ours
may sign in, and it asks for one signature. What is signed is looked at: a sign-in for `ssh-connection` with that very
key, and nothing else, so that whoever takes the proxy over cannot have commits or files signed.

Loads `asyncssh` (the extra `ssh`) on first use.
"""

import importlib.util
import os
from typing import TYPE_CHECKING, Final

from ringfence.egress.ssh.base import SshKey, SshLogin
from ringfence.errors import NotInstalled
from ringfence.manager.secret_sources import AgentSource, SourceFailed
from ringfence.manager.secrets import DeclaredSecret, SecretSources
from ringfence.values.hosts import Host
from ringfence.values.network import SSH_PORT

if TYPE_CHECKING:
    import asyncssh

_SYSTEM: Final = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
_OWN: Final = (".ssh/known_hosts", ".ssh/known_hosts2")
_LONGEST_BYTES: Final = 8 * 1024 * 1024
_MOST_KEYS: Final = 5  # servers end a sign-in after a few that they do not take
_USERAUTH_REQUEST: Final = 50
_RSA_FLAGS: Final = {2: b"rsa-sha2-256", 4: b"rsa-sha2-512"}


def require_ssh() -> None:
    """
    Raises:
        NotInstalled: the library is missing.
    """
    if importlib.util.find_spec("asyncssh") is None:
        raise NotInstalled("git by SSH needs the package `asyncssh`", hint="pip install 'ringfence[ssh]'")


async def ssh_login(sources: SecretSources, host: Host, port: int, home: str) -> SshLogin:
    """
    Raises:
        SourceFailed: the server is not known, or no secret signs in to it; says what would help.
    """
    import asyncssh

    trusted, authorities, revoked = _known(host, port, home)
    declared = sources.for_ssh(host)
    if not declared:
        raise SourceFailed(
            f"no key signs in to {host}: give --secret NAME=agent:@{host}, or file:KEY@{host};places=ssh"
        )
    try:
        keys = [SshKey(each.grant.name, public) for each in declared for public in await _public_keys(sources, each)]
    except (ValueError, asyncssh.KeyImportError) as fault:
        raise SourceFailed(f"the SSH key for {host} cannot be used: {_why(fault)}") from None
    if not keys:
        raise SourceFailed(f"the SSH agent has no key for {host}: add it with ssh-add")
    return SshLogin(trusted, authorities, revoked, tuple(keys[:_MOST_KEYS]))


async def ssh_sign(sources: SecretSources, host: Host, secret: str, public: bytes, data: bytes, flags: int) -> bytes:
    """
    Raises:
        SourceFailed: it is not a sign-in, or the key is not for this host.
    """
    import asyncssh

    if not is_sign_in(data, public):
        raise SourceFailed("what is to be signed is not a sign-in by SSH")
    each = next((one for one in sources.for_ssh(host) if one.grant.name == secret), None)
    if each is None:
        raise SourceFailed(f"the secret {secret} does not sign in to {host}")
    try:
        if isinstance(each.source, AgentSource):
            async with asyncssh.SSHAgentClient(each.source.socket) as agent:
                if public not in [key.public_data for key in await _of_agent(agent, each.source)]:
                    raise SourceFailed(f"the SSH agent has no such key for {host}")
                return await agent.sign(public, data, flags)
        key = asyncssh.import_private_key((await sources.private_key(each)).decode("ascii"))
        if key.public_data != public:
            raise SourceFailed(f"the secret {secret} is another key")
        algorithm = _RSA_FLAGS.get(flags, key.algorithm) if key.algorithm == b"ssh-rsa" else key.algorithm
        return key.sign(data, algorithm)
    except (ValueError, asyncssh.KeyImportError) as fault:
        raise SourceFailed(f"nothing signed for {host}: {_why(fault)}") from None


def is_sign_in(data: bytes, public: bytes) -> bool:
    """Whether these bytes are what a client signs to sign in with this key (RFC 4252, section 7)."""
    fields = _Fields(data)
    try:
        fields.text()  # the session
        if fields.byte() != _USERAUTH_REQUEST:
            return False
        fields.text()  # the user
        service, method, is_signed = fields.text(), fields.text(), fields.byte()
        fields.text()  # the algorithm
        key = fields.text()
    except ValueError:
        return False
    return (service, method, is_signed, key) == (b"ssh-connection", b"publickey", 1, public) and fields.at_end


class _Fields:
    def __init__(self, data: bytes) -> None:
        self._left = data

    @property
    def at_end(self) -> bool:
        return not self._left

    def byte(self) -> int:
        return self._take(1)[0]

    def text(self) -> bytes:
        return self._take(int.from_bytes(self._take(4), "big"))

    def _take(self, count: int) -> bytes:
        if len(self._left) < count:
            raise ValueError("too short")
        taken, self._left = self._left[:count], self._left[count:]
        return taken


async def _public_keys(sources: SecretSources, each: DeclaredSecret) -> list[bytes]:
    import asyncssh

    if isinstance(each.source, AgentSource):
        async with asyncssh.SSHAgentClient(each.source.socket) as agent:
            return [key.public_data for key in await _of_agent(agent, each.source)]
    return [asyncssh.import_private_key((await sources.private_key(each)).decode("ascii")).public_data]


async def _of_agent(agent: "asyncssh.SSHAgentClient", source: AgentSource) -> "list[asyncssh.SSHKeyPair]":
    from asyncssh.public_key import decode_ssh_public_key

    found = list(await agent.get_keys())
    if not source.fingerprint:
        return list(found)
    return [
        key
        for key in found
        if not key.has_cert and decode_ssh_public_key(key.public_data).get_fingerprint() == source.fingerprint
    ]


def _known(host: Host, port: int, home: str) -> tuple[tuple[bytes, ...], tuple[bytes, ...], tuple[bytes, ...]]:
    """The keys that the person trusts for a server, those that may sign them, and those that are revoked."""
    import asyncssh

    text = "".join(_text(path) for path in (*(os.path.join(home, name) for name in _OWN), *_SYSTEM))
    known = asyncssh.import_known_hosts(text)
    found = asyncssh.match_known_hosts(known, host.text, "", port)
    trusted, authorities, revoked = (tuple(key.public_data for key in keys) for keys in found[:3])
    if not trusted and not authorities:
        at = f"-p {port} " if port != SSH_PORT else ""
        raise SourceFailed(
            f"{host} is not in your known_hosts: connect to it once yourself (ssh {at}git@{host}) and compare its key"
        )
    return trusted, authorities, revoked


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_LONGEST_BYTES) + "\n"
    except OSError:
        return ""


def _why(fault: Exception) -> str:
    text = str(fault)
    return "it is encrypted; use the agent (agent:)" if "assphrase" in text else text or type(fault).__name__
