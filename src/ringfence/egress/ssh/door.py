"""One connection by SSH, ended here: whom it asks for, whether that is git, and what comes of it.

The client needs no key: the listener says whose box it is. It may ask for one of git's services at a time; each is
judged by its method and repository, one record each. A shell, a subsystem such as sftp, forwarding of ports, sockets,
agents and displays are refused, with a reason where the client prints one.

Loaded only where a rule ends SSH (the extra `ssh`).
"""

import asyncio
import contextlib
import time
from typing import Any, Final

import asyncssh

from ringfence.egress.base import DialRefused, Refusal, RequestHead
from ringfence.egress.flow import Box, BoxFlow
from ringfence.egress.sockets import Client
from ringfence.egress.ssh.base import SshSide
from ringfence.egress.ssh.command import BadCommand, GitCommand, is_protocol, read_command
from ringfence.egress.ssh.upstream import Carried, NotTaken, carry
from ringfence.egress.wording import reason_line, visible
from ringfence.policy.reach import Judged
from ringfence.values.network_event import NetworkEvent
from ringfence.values.verdict import Verdict

_LOGIN_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 15.0
_END_SECONDS: Final = 3.0
_SESSIONS: Final = 8  # on one connection: one is carried, others wait for no longer than it takes to refuse them
_REFUSED: Final = 128  # how git's own programs end when something is wrong


async def end_ssh(box: Box, client: Client, flow: BoxFlow) -> None:
    """Serve one connection to its end."""
    side = box.outside.ssh
    if side is None:
        raise OSError("SSH is not ended by this proxy")
    connection = SshConnection(box, flow, side)
    try:
        await connection.serve(client)
    finally:
        await connection.close()


class SshConnection:
    def __init__(self, box: Box, flow: BoxFlow, side: SshSide) -> None:
        self._box = box
        self._flow = flow
        self._side = side
        self._tasks: set[asyncio.Task[Any]] = set()
        self._connection: asyncssh.SSHServerConnection | None = None
        self.sessions = 0
        self._busy = False
        self._idle_since = asyncio.get_running_loop().time()

    async def serve(self, client: Client) -> None:
        try:
            self._connection = await asyncssh.run_server(
                client.socket.dup(),  # the library closes what it is given, and so does whoever has the client
                None,
                server_factory=lambda: _Server(self),
                server_host_keys=[asyncssh.import_private_key(self._side.host_key_pem)],
                server_version="Ringfence",
                encoding=None,
                allow_pty=False,
                line_editor=False,
                agent_forwarding=False,
                x11_forwarding=False,
                compression_algs=None,
                login_timeout=_LOGIN_SECONDS,
            )
        except (asyncssh.Error, OSError) as fault:
            self._box.malformed(self._flow.door, self._flow.host.text, self._flow.port, f"no SSH: {_said(fault)}")
            return
        closed = asyncio.ensure_future(self._connection.wait_closed())
        try:
            while not closed.done():
                left = _IDLE_SECONDS - (asyncio.get_running_loop().time() - self._idle_since)
                if left <= 0 and not self._busy:
                    return
                await asyncio.wait((closed,), timeout=_IDLE_SECONDS if self._busy else left)
        finally:
            closed.cancel()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_SECONDS)  # each writes its record
        for task in self._tasks:
            task.cancel()

    def refuse(self, reason: str, allow_by: str = "") -> Refusal:
        """Record what is refused whatever the rules say."""
        judged = self._flow.judged
        told = Judged(verdict=Verdict.DENY, reason=reason, rule=judged.rule, place=judged.place, allow_by=allow_by)
        return self._box.refuse(self._flow.door, self._flow.host.text, self._flow.port, told)

    async def requested(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        assert isinstance(process, _Process)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            status = await self._answered(process)
        except (asyncssh.Error, OSError):
            status = _REFUSED  # the client has gone; what mattered is recorded
        with contextlib.suppress(asyncssh.Error, OSError):
            process.exit(status)

    async def _answered(self, process: "_Process") -> int:
        refused: Refusal | None
        try:
            command = self._command(process)
        except BadCommand as bad:
            return _told(process, self.refuse(f"{bad}, not {_asked(process)}"))
        if self._busy:
            return _told(process, self.refuse("one request at a time on a connection by SSH"))
        self._busy = True
        try:
            refused = self._wrong_user(process) or await self._refused(command)
            return _told(process, refused) if refused is not None else await self._carried(process, command)
        finally:
            self._busy = False
            self._idle_since = asyncio.get_running_loop().time()

    def _command(self, process: "_Process") -> GitCommand:
        if process.command is None:
            raise BadCommand("only git's own services pass by SSH")
        return read_command(process.command)

    def _wrong_user(self, process: "_Process") -> Refusal | None:
        user = str(process.get_extra_info("username", ""))
        rule = self._flow.rule
        if rule is not None and user == rule.ssh_user:
            return None
        meant = rule.ssh_user if rule is not None else ""
        return self.refuse(f"the rule is for the user {meant} of {self._flow.host}, not {visible(user)[:64]}")

    async def _refused(self, command: GitCommand) -> Refusal | None:
        decided = await self._flow.decide(RequestHead(command.method, command.path, ()), is_ssh=True)
        return decided if isinstance(decided, Refusal) else None

    async def _carried(self, process: "_Process", command: GitCommand) -> int:
        flow, carried = self._flow, Carried()
        started_at, started = time.time(), time.monotonic()
        reason, verdict, failed = flow.judged.reason, Verdict.ALLOW, 0
        try:
            return await carry(process, command, flow, self._side, carried, protocol=process.protocol)
        except NotTaken as fault:
            reason, verdict, failed = str(fault), Verdict.DENY, 403
            return _told(process, Refusal(failed, reason_line(reason)))
        except DialRefused as fault:
            reason, failed = fault.refusal.reason, fault.refusal.status
            verdict = Verdict.DENY if failed == 403 else verdict
            return _told(process, fault.refusal)
        except (asyncssh.Error, OSError) as fault:
            reason, failed = f"the connection ended early: {_said(fault)}", 502
            return _told(process, Refusal(failed, reason_line(reason)))
        finally:
            flow.record(
                NetworkEvent(
                    box=flow.box,
                    door=flow.door,
                    host=flow.host.text,
                    port=flow.port,
                    verdict=verdict,
                    reason=reason,
                    rule=flow.judged.rule,
                    place=flow.judged.place,
                    address=flow.address,
                    method=command.method,
                    path=command.path,
                    secrets=(carried.secret,) if carried.secret else (),
                    status=failed or carried.status,
                    bytes_out=carried.sent,
                    bytes_in=carried.received,
                    started_at=started_at,
                    seconds=time.monotonic() - started,
                    approval=flow.approval,
                    inspected=True,
                )
            )


class _Process(asyncssh.SSHServerProcess[bytes]):
    """What is asked for on one channel."""

    def __init__(self, connection: SshConnection) -> None:
        super().__init__(connection.requested, None, asyncssh.sftp.MIN_SFTP_VERSION, allow_scp=False)
        self._ended = connection
        self.protocol = ""
        """What the client says of git's protocol (`GIT_PROTOCOL`)."""

    def connection_made(self, chan: Any) -> None:
        super().connection_made(chan)
        self._ended.sessions += 1
        # The library keeps every variable that it is told of; here one is of use, and the rest would fill our memory.
        chan._process_env_request = self._told_of_variable

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.sessions -= 1
        super().connection_lost(exc)

    def _told_of_variable(self, packet: Any) -> bool:
        name, value = bytes(packet.get_string()), bytes(packet.get_string())
        packet.check_end()
        if name != b"GIT_PROTOCOL" or not is_protocol(said := value.decode("ascii", "replace")):
            return False
        self.protocol = said
        return True

    def subsystem_requested(self, subsystem: str) -> bool:
        self._ended.refuse(f"only git's own services pass by SSH, not the subsystem {visible(subsystem)[:40]}")
        return False


class _Server(asyncssh.SSHServer):
    """Who may come in (the box, whoever it says it is), and what else may be asked for: nothing."""

    def __init__(self, connection: SshConnection) -> None:
        self._ended = connection

    def session_requested(self) -> "_Process":
        if self._ended.sessions >= _SESSIONS:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "Ringfence: too many sessions at once")
        return _Process(self._ended)

    def begin_auth(self, username: str) -> bool:
        return False  # the listener is the box's identity

    def connection_requested(self, dest_host: str, dest_port: int, orig_host: str, orig_port: int) -> bool:
        return self._no(f"a port ({visible(dest_host)[:80]}:{dest_port})")

    def server_requested(self, listen_host: str, listen_port: int) -> bool:
        return self._no("a listening port")

    def unix_connection_requested(self, dest_path: str) -> bool:
        return self._no("a socket")

    def unix_server_requested(self, listen_path: str) -> bool:
        return self._no("a listening socket")

    def tun_requested(self, unit: int | None) -> bool:
        return self._no("a tunnel")

    def tap_requested(self, unit: int | None) -> bool:
        return self._no("a tunnel")

    def _no(self, what: str) -> bool:
        self._ended.refuse(f"only git's own services pass by SSH: {what} is not forwarded")
        return False


def _asked(process: "_Process") -> str:
    return "a shell" if process.command is None else f"`{visible(process.command)[:120]}`"


def _told(process: "_Process", refusal: Refusal) -> int:
    """Say it where git prints it."""
    with contextlib.suppress(asyncssh.Error, OSError):
        process.stderr.write(refusal.reason.encode("ascii", "replace") + b"\n")
    return _REFUSED


def _said(fault: Exception) -> str:
    return visible(str(fault) or type(fault).__name__)[:200]
