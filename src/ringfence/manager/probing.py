"""Opens a box, looks at it from inside and from outside, and makes it hit its limits: the evidence of the checklists.

The probe's runs are in the journal like any others, under a session id of their own (`PROBE_SESSION`), so that figures
about real work can leave them out.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ringfence.audit.events import Event, ExecutionEnded
from ringfence.dataclass import dataclass, replace
from ringfence.errors import SpawnFailed
from ringfence.manager.assemble import assemble
from ringfence.manager.configuring import home_directory, load_config
from ringfence.manager.options import SandboxOptions
from ringfence.manager.parts import SandboxParts
from ringfence.manager.policing import ORGANISATION, PolicyEngine
from ringfence.manager.reporting import Reporting
from ringfence.manager.sandbox import Sandbox
from ringfence.values.limits import Limits
from ringfence.values.principal import Principal
from ringfence.values.sizes import show_size

if TYPE_CHECKING:
    from ringfence.values.outcome import Result

PROBE_SESSION: Final = "ringfence-checklist-canary"
"""The session of the probe's runs; also the command that its policy refuses."""
_POLICY: Final = f"policies: {{default: {{denied_commands: [{PROBE_SESSION}]}}}}\n"
_LIMITS: Final = Limits(memory_bytes=64 * 1024 * 1024, wall_seconds=20.0, cpu_seconds=20.0, processes=64)
"""Of the probe: small, so that hitting them takes little of the machine."""
_COMMAND_SECONDS: Final = 20.0
"""A shell that does nothing takes milliseconds; a machine under load takes longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeSeen:
    """What the probe found: a box as it is inside, as it is outside, and what happened in it."""

    inside: dict[str, str]
    """Of /proc/self/status."""
    outside: dict[str, str]
    """Of the same kind of process, as the host sees it; empty if it was not found."""
    own_network: bool | None
    """Whether its network namespace is another than ours; None if that may not be looked at."""
    interfaces: tuple[str, ...]
    reached: tuple[str, ...]
    """Addresses that a connection from inside got to."""
    tried: tuple[str, ...]
    listening: tuple[str, ...]
    """Addresses at which processes of ours accept connections."""
    hog: Result
    """Of a command that takes memory without end."""
    sleeper: Result
    """Of a command that takes longer than it may."""
    refused: Result
    told: tuple[ExecutionEnded, ...]
    stored: int
    """Violations in the sandbox's store."""
    usage: str
    within: bool
    run_id: str
    wall: str
    limits_by: str
    configured: Limits
    """For commands that are not the probe."""


async def probe(environ: Mapping[str, str]) -> ProbeSeen:
    """Open a box and look at it.

    Raises:
        RingfenceError: there is none, so that nothing of it can be said.
    """
    unjudged = {name: value for name, value in environ.items() if name != ORGANISATION}
    workspace = tempfile.mkdtemp(prefix="ringfence-checklist-")
    try:
        options = SandboxOptions(workspace=workspace, limits=_LIMITS)
        async with _box(options, unjudged, []) as box:
            return await _look(box, options, unjudged)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


async def try_command(environ: Mapping[str, str], *network: str) -> Result:
    """Run one command as a plain one is run, but under no policy, and with a journal that is thrown away.

    Args:
        network: hosts that its box may reach; it asks for none of them.

    Raises:
        RingfenceError: it cannot be.
    """
    with tempfile.TemporaryDirectory(prefix="ringfence-doctor-", ignore_cleanup_errors=True) as place:
        workspace = os.path.join(place, "workspace")
        os.mkdir(workspace)
        given = {name: value for name, value in environ.items() if name != ORGANISATION}
        given["RINGFENCE_STATE_DIR"] = os.path.join(place, "state")
        options = SandboxOptions(workspace=workspace, network=network or None)
        async with _box(options, given, []) as box:
            return await box.exec(["/bin/sh", "-c", ":"], timeout=_COMMAND_SECONDS)


@asynccontextmanager
async def _box(
    options: SandboxOptions, environ: Mapping[str, str], told: list[ExecutionEnded]
) -> AsyncIterator[Sandbox]:
    """A sandbox that is judged by no policy but the one that is given; its journal is closed with it."""

    def observe(event: Event, /) -> None:
        if isinstance(event, ExecutionEnded):
            told.append(event)

    assembly = assemble(options, environ=environ)
    reporting = Reporting(who=Principal(session_id=PROBE_SESSION, sandbox_id=os.urandom(8).hex()), observers=(observe,))
    sandbox = Sandbox(SandboxParts(assembly=assembly, reporting=reporting, is_pooled=True))
    try:
        yield sandbox
    finally:
        try:
            await sandbox.close()
        finally:
            assembly.journal.close()


async def _look(box: Sandbox, options: SandboxOptions, environ: Mapping[str, str]) -> ProbeSeen:
    inside = await box.shell("cat /proc/self/status")
    interfaces = await box.shell("cat /proc/net/dev")
    mark = f"60.{int.from_bytes(os.urandom(6)):015d}"
    sleeping = await box.start(["sleep", mark])
    try:
        pid = await _find(mark)
        outside = _status(f"/proc/{pid}/status") if pid is not None else {}
        own_network = _own_network(pid)
        listening = _listening()
    finally:
        sleeping.kill()
        await sleeping.wait(5)
    tried, reached = await _connect(box)
    used, limits = box.current_usage(), box.resource_limits
    usage = (
        f"{show_size(used.peak_memory_bytes)} of {show_size(limits.memory_bytes)}, "
        f"CPU {used.cpu_seconds:.2f} of {limits.cpu_seconds:g} s"
    )
    within = used.peak_memory_bytes <= limits.memory_bytes and used.cpu_seconds <= limits.cpu_seconds
    sleeper = await box.shell("sleep 20", timeout=0.2)
    hog = await box.shell("tail /dev/zero")
    told: list[ExecutionEnded] = []
    under_policy = replace(options, policy=PolicyEngine.from_text(_POLICY))
    async with _box(under_policy, environ, told) as judged:
        refused = await judged.shell(PROBE_SESSION)
        stored = judged.violations.total
    wall = box.wall
    return ProbeSeen(
        inside=_fields(inside.stdout),
        outside=outside,
        own_network=own_network,
        interfaces=tuple(line.partition(":")[0].strip() for line in interfaces.stdout.splitlines() if ":" in line),
        reached=reached,
        tried=tried,
        listening=listening,
        hog=hog,
        sleeper=sleeper,
        refused=refused,
        told=tuple(told),
        stored=stored,
        usage=usage,
        within=within,
        run_id=inside.run_id,
        wall=wall.name if wall is not None else "none",
        limits_by=", ".join(wall.limits_by) if wall is not None else "nothing",
        configured=load_config(environ, home_directory(environ)).limits,
    )


async def _find(mark: str) -> int | None:
    """The process with this argument, as the host sees it; it may take a moment to appear."""
    for _ in range(50):
        for name in os.listdir("/proc"):
            if name.isdigit():
                with suppress(OSError):
                    words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
                    if words[1:2] == [mark.encode()] and words[0].endswith(b"sleep"):
                        return int(name)
        await asyncio.sleep(0.02)
    return None


def _status(path: str) -> dict[str, str]:
    with suppress(OSError):
        return _fields(Path(path).read_text())
    return {}


def _fields(text: str) -> dict[str, str]:
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def _own_network(pid: int | None) -> bool | None:
    if pid is None:
        return None
    try:
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return None


async def _connect(box: Sandbox) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Try to leave: to a listener of ours on the host's loopback, and to an address of the Internet."""
    tried, reached = [], []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        port = listener.getsockname()[1]
        for host, number in (("127.0.0.1", port), ("1.1.1.1", 443)):
            shown = "a port of the host's loopback" if number == port else f"{host}:{number}"
            with suppress(SpawnFailed):  # without bash inside, its own loopback interface has to be evidence enough
                done = await box.exec(["bash", "-c", f"exec 3<>/dev/tcp/{host}/{number}"], timeout=3.0)
                tried.append(shown)
                if done.ok:
                    reached.append(shown)
        with suppress(BlockingIOError):
            connection, _ = listener.accept()
            connection.close()
            reached.append("a port of the host's loopback (seen outside)")
    return tuple(tried), tuple(dict.fromkeys(reached))


def _listening() -> tuple[str, ...]:
    """Where processes of ours, boxes included, accept connections over the network."""
    sockets: dict[str, str] = {}
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
                words = line.split()
                if words[3] == "0A":  # LISTEN, include/net/tcp_states.h
                    sockets[f"socket:[{words[9]}]"] = f"port {int(words[1].rpartition(':')[2], 16)}"
    found = []
    for pid in _descendants(os.getpid()):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    place = sockets.get(os.readlink(f"/proc/{pid}/fd/{name}"))
                    if place is not None:
                        found.append(f"{place} by process {pid}")
    return tuple(dict.fromkeys(found))


def _descendants(pid: int) -> list[int]:
    found = [pid]
    for each in found:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{each}/task"):
                with suppress(OSError):
                    found += map(int, Path(f"/proc/{each}/task/{thread}/children").read_text().split())
    return found
