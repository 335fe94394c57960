"""The way on: a connection by SSH to the real server, whose key is known, signed in with a key that is elsewhere.

The proxy never has the key. It asks whoever has it, or their agent, for one signature, for this sign-in.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import Final, cast

import asyncssh
from asyncssh.agent import SSHAgentClient, SSHAgentKeyPair

from ringfence.dataclass import dataclass
from ringfence.egress.base import DialRefused
from ringfence.egress.flow import BoxFlow
from ringfence.egress.sockets import close
from ringfence.egress.ssh.base import SshKey, SshLogin, SshSide
from ringfence.egress.ssh.command import GitCommand

_SIGN_IN_SECONDS: Final = 30.0  # also for a person who has to touch a key
_ALIVE_SECONDS: Final = 30.0
_PIECE: Final = 256 * 1024


class NotTaken(Exception):
    """The server is not the one that is known, does not take the keys, or too much was sent."""


@dataclass(slots=True)
class Carried:
    """What came of it, as far as it went."""

    sent: int = 0
    received: int = 0
    secret: str = ""
    status: int = 0
    """200 once the server has run it to a good end, 500 to a bad one, for records that have HTTP's."""


class _Signer:
    """Looks like an agent, and is one: it signs, somewhere else."""

    def __init__(self, side: SshSide, flow: BoxFlow, key: SshKey, carried: Carried) -> None:
        self._side, self._flow, self._key, self._carried = side, flow, key, carried

    async def sign(self, key_blob: bytes, data: bytes, flags: int = 0) -> bytes:
        self._carried.secret = self._key.secret
        try:
            return await self._side.sign(self._flow.box, self._flow.host.text, self._key.secret, key_blob, data, flags)
        except OSError as fault:
            raise NotTaken(str(fault)) from fault

    def pair(self) -> SSHAgentKeyPair:
        length = int.from_bytes(self._key.public[:4], "big")
        return SSHAgentKeyPair(
            cast(SSHAgentClient, self), self._key.public[4 : 4 + length], self._key.public, self._key.secret.encode()
        )


async def carry(
    client: "asyncssh.SSHServerProcess[bytes]",
    command: GitCommand,
    flow: BoxFlow,
    side: SshSide,
    carried: Carried,
    *,
    protocol: str,
) -> int:
    """Have the server do it; how that ended.

    Raises:
        NotTaken: it is refused, by us or by the server.
        DialRefused: the server cannot be reached.
        asyncssh.Error, OSError: the connection broke.
    """
    try:
        login = await side.knows(flow.box, flow.host.text, flow.port)
    except DialRefused:
        raise
    except OSError as fault:
        raise NotTaken(str(fault)) from fault
    async with await _signed_in(flow, side, login, carried) as connection:
        process = await connection.create_process(
            command.line, encoding=None, env={"GIT_PROTOCOL": protocol} if protocol else {}
        )
        # Both kinds of output to their ends; the input is dropped once the server has ended.
        upload = asyncio.ensure_future(_upload(client, process, flow, carried))
        outputs = asyncio.gather(
            _download(process.stdout, client.stdout, carried), _download(process.stderr, client.stderr, carried)
        )
        try:
            await asyncio.wait((upload, outputs), return_when=asyncio.FIRST_COMPLETED)
            if upload.done():
                upload.result()
            await outputs
            await process.wait_closed()
        finally:
            for task in (upload, outputs):
                task.cancel()
            await asyncio.wait((upload, outputs))
    status = process.exit_status
    carried.status = 200 if status == 0 else 500
    return 255 if status is None else status


async def _signed_in(flow: BoxFlow, side: SshSide, login: SshLogin, carried: Carried) -> asyncssh.SSHClientConnection:
    connected = await flow.connect()
    try:
        return await _greeted(connected, flow, side, login, carried)
    except BaseException:
        close(connected)
        raise


async def _greeted(
    connected: socket.socket, flow: BoxFlow, side: SshSide, login: SshLogin, carried: Carried
) -> asyncssh.SSHClientConnection:
    rule = flow.rule
    try:
        async with asyncio.timeout(_SIGN_IN_SECONDS):
            return await asyncssh.connect(
                flow.host.text,
                flow.port,
                sock=connected,
                config=None,
                username=rule.ssh_user if rule is not None else "",
                known_hosts=(
                    _public(login.host_keys),
                    _public(login.authorities),
                    _public(login.revoked),
                ),
                client_keys=[_Signer(side, flow, key, carried).pair() for key in login.keys],
                agent_path=None,
                agent_forwarding=False,
                preferred_auth="publickey",
                password_auth=False,
                kbdint_auth=False,
                host_based_auth=False,
                gss_kex=False,
                gss_auth=False,
                client_version="Ringfence",
                compression_algs=None,
                keepalive_interval=_ALIVE_SECONDS,
            )
    except asyncssh.HostKeyNotVerifiable as fault:
        raise NotTaken(
            f"the key of {flow.host} is not the one in your known_hosts: somebody may be in between, or it was changed"
        ) from fault
    except asyncssh.PermissionDenied as fault:
        names = ", ".join(dict.fromkeys(key.secret for key in login.keys))
        raise NotTaken(f"{flow.host} does not take the key of the secret {names}") from fault
    except TimeoutError as fault:
        raise DialRefused(flow.fail(f"{flow.host} did not finish the sign-in")) from fault
    except (asyncssh.Error, OSError) as fault:
        raise DialRefused(flow.fail(f"no SSH with {flow.host}: {fault}")) from fault


def _public(blobs: Sequence[bytes]) -> list[asyncssh.SSHKey]:
    return [asyncssh.public_key.decode_ssh_public_key(blob) for blob in blobs]


async def _upload(
    client: "asyncssh.SSHServerProcess[bytes]",
    process: "asyncssh.SSHClientProcess[bytes]",
    flow: BoxFlow,
    carried: Carried,
) -> None:
    while data := await client.stdin.read(_PIECE):
        if not flow.spend(len(data)):
            raise NotTaken("the bytes that may be sent are sent")
        carried.sent += len(data)
        process.stdin.write(data)
        await process.stdin.drain()
    process.stdin.write_eof()


async def _download(source: "asyncssh.SSHReader[bytes]", target: "asyncssh.SSHWriter[bytes]", carried: Carried) -> None:
    while data := await source.read(_PIECE):
        carried.received += len(data)
        target.write(data)
        await target.drain()
