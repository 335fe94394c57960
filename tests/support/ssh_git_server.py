"""A server of SSH that gives whoever has the key everything: git, a shell, sftp, forwarding. What is refused to a box
is not refused here."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import asyncssh

KNOWN: Final = "ssh-git.example"
CHANGED: Final = "ssh-changed.example"
"""One whose key is not the one that the person knows."""
UNKNOWN: Final = "ssh-unknown.example"
"""One that the person has never connected to."""
USER: Final = "git"
_SECONDS: Final = 60


def write_keys(root: Path) -> None:
    """A key of the person's, keys of the servers, and what the person knows of these."""
    person = asyncssh.generate_private_key("ssh-ed25519", comment="the person's")
    person.write_private_key(str(root / "ssh_key"))
    (root / "ssh_key").chmod(0o600)
    person.write_public_key(str(root / "ssh_key.pub"))
    lines = []
    for name in (KNOWN, CHANGED, UNKNOWN):
        key = asyncssh.generate_private_key("ssh-ed25519")
        key.write_private_key(str(root / f"{name}.ssh"))
        (root / f"{name}.ssh").chmod(0o600)
        known = asyncssh.generate_private_key("ssh-ed25519") if name == CHANGED else key
        if name != UNKNOWN:
            lines.append(f"{name} {known.export_public_key().decode().strip()}\n")
    (root / "home/.ssh").mkdir(exist_ok=True)
    (root / "home/.ssh/known_hosts").write_text("".join(lines))


class _Everything(asyncssh.SSHServer):
    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return True

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return True


async def serve_ssh(root: Path, addresses: dict[str, str], port: int = 22) -> list[asyncssh.SSHAcceptor]:
    """Serve until they are closed. Each request is a line of `ssh-seen.jsonl`."""
    repositories = root / "repositories/ssh"

    async def run(process: asyncssh.SSHServerProcess[bytes]) -> None:
        asked = {"command": process.command, "env": dict(process.env), "user": process.get_extra_info("username")}
        with (root / "ssh-seen.jsonl").open("a") as seen:
            seen.write(json.dumps(asked) + "\n")
        child = await asyncio.create_subprocess_shell(
            process.command or "cat",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=repositories,
            env={"PATH": "/usr/bin:/bin", "HOME": str(repositories), "GIT_CONFIG_COUNT": "1", **_SAFE, **process.env},
        )
        await process.redirect(child.stdin, child.stdout, child.stderr)
        process.exit(await child.wait())
        await process.wait_closed()

    return [
        await asyncssh.listen(
            address,
            port,
            server_factory=_Everything,
            server_host_keys=[str(root / f"{name}.ssh")],
            authorized_client_keys=str(root / "ssh_key.pub"),
            process_factory=run,
            encoding=None,
            sftp_factory=True,
        )
        for name, address in addresses.items()
    ]


_SAFE: Final = {"GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
