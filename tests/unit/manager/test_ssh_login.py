"""Who signs in by SSH, to which servers, and that nothing but a sign-in is signed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from ringfence.errors import InvalidArgument
from ringfence.manager.secret_sources import AgentSource, SourceFailed
from ringfence.manager.secrets import SecretSources, parse_secret
from ringfence.manager.ssh_login import is_sign_in, ssh_login, ssh_sign
from ringfence.values.hosts import canonical_host
from ringfence.values.network import SecretGrant, SecretPlace, SecretStyle

asyncssh = pytest.importorskip("asyncssh", reason="the extra `ssh` is not installed")
HOST = canonical_host("git.example.com")


def text(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def sign_in(public: bytes, *, service: bytes = b"ssh-connection", method: bytes = b"publickey") -> bytes:
    return text(b"session") + b"\x32" + text(b"git", service, method) + b"\x01" + text(b"ssh-ed25519", public)


@pytest.fixture
def sources(tmp_path: Path) -> SecretSources:
    key = asyncssh.generate_private_key("ssh-ed25519")
    key.write_private_key(str(tmp_path / "key"))
    (tmp_path / "key").chmod(0o600)
    known = tmp_path / ".ssh"
    known.mkdir()
    server = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    (known / "known_hosts").write_text(f"git.example.com {server}[git.example.com]:2222 {server}")
    declared = parse_secret(f"KEY=file:{tmp_path}/key@git.example.com;places=ssh", dict(os.environ))
    return SecretSources((declared,))


def test_a_sign_in_is_signed_and_nothing_else_is(sources: SecretSources, tmp_path: Path) -> None:
    login = asyncio.run(ssh_login(sources, HOST, 22, str(tmp_path)))
    (key,) = login.keys

    def sign(data: bytes, host: str = "git.example.com", secret: str = "KEY") -> bytes:
        return asyncio.run(ssh_sign(sources, canonical_host(host), secret, key.public, data, 0))

    assert asyncssh.public_key.decode_ssh_public_key(key.public).verify(sign_in(key.public), sign(sign_in(key.public)))
    commit = b"SSHSIG" + text(b"git", b"", b"sha512", b"x" * 64)
    for data in (
        commit,
        b"",
        sign_in(key.public)[:-1],
        sign_in(key.public) + b"x",
        sign_in(b"another"),
        sign_in(key.public, service=b"other"),
        sign_in(key.public, method=b"hostbased"),
    ):
        assert not is_sign_in(data, key.public)
        with pytest.raises(SourceFailed, match="not a sign-in"):
            sign(data)
    with pytest.raises(SourceFailed, match="does not sign in"):
        sign(sign_in(key.public), host="other.example.com")
    with pytest.raises(SourceFailed, match="does not sign in"):
        sign(sign_in(key.public), secret="OTHER")


def test_a_server_that_is_not_known_is_refused_with_what_would_help(sources: SecretSources, tmp_path: Path) -> None:
    (tmp_path / ".ssh/known_hosts").write_text("")

    with pytest.raises(SourceFailed, match=r"not in your known_hosts.*ssh -p 2222 git@git.example.com"):
        asyncio.run(ssh_login(sources, HOST, 2222, str(tmp_path)))


def test_the_key_itself_is_given_to_nobody(sources: SecretSources) -> None:
    grant = SecretGrant(name="KEY", hosts=("git.example.com",))

    with pytest.raises(SourceFailed, match="not given out"):
        asyncio.run(sources.value(grant))
    assert "PRIVATE" not in repr(sources)


def test_nothing_of_a_key_for_ssh_is_inside(sources: SecretSources) -> None:
    (grant,) = asyncio.run(sources.grants())

    assert (grant.places, grant.style) == ((SecretPlace.SSH,), SecretStyle.INJECT)
    assert grant.placeholder == grant.variable == ""


def test_an_agent_signs_in_and_does_nothing_else(tmp_path: Path) -> None:
    environment = {"SSH_AUTH_SOCK": str(tmp_path / "none")}

    declared = parse_secret("KEY=agent:SHA256:abc@git.example.com", environment)

    assert declared.source == AgentSource(str(tmp_path / "none"), "SHA256:abc")
    assert declared.grant.places == (SecretPlace.SSH,)
    with pytest.raises(SourceFailed, match="no SSH agent"):
        asyncio.run(declared.source.read())
    for wrong in ("agent:@h.example;places=header", "agent:id_rsa@h.example", "env:A@h.example;places=ssh,header"):
        with pytest.raises(InvalidArgument):
            parse_secret(f"KEY={wrong}", environment)
