"""The three checklists of the requirement (B11): before deployment, at run time, periodic.

What can be checked is checked by doing it: a box is opened, looked at from inside and from outside, and made to hit its
limits; something is refused, and looked for where it has to turn up. What can not be checked here says so and why, and
is never taken for a yes. Claims about what people do (reviews, tests of intrusion) stay theirs; they get the figures.
"""

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from ringfence.audit.events import Event, ExecutionEnded
from ringfence.errors import RingfenceError, SpawnFailed
from ringfence.manager.assemble import Judged, assemble, policy_in_force
from ringfence.manager.blocking import wait_for
from ringfence.manager.configuring import home_directory, load_config, state_directory
from ringfence.manager.granting import Wish
from ringfence.manager.policing import ORGANISATION, PolicyEngine
from ringfence.manager.policy_pages import remarks
from ringfence.manager.pool_notice import read_notices
from ringfence.manager.pooling import SandboxPool
from ringfence.manager.records import records, violations_of
from ringfence.manager.reporting import Reporting
from ringfence.manager.sandbox import Sandbox
from ringfence.pool.plan import PoolConfig
from ringfence.values.limits import Limit, Limits, show_limit
from ringfence.values.outcome import LimitHit, Refused, Result, TimedOut
from ringfence.values.sizes import show_size
from ringfence.values.who import Who

_LIMITS: Final = Limits(memory_bytes=64 * 1024 * 1024, wall_seconds=20.0, cpu_seconds=20.0, processes=64)
"""Of the probe: small, so that hitting them takes little of the machine."""
_PERIOD_SECONDS: Final = 30 * 24 * 3600.0
_AUDIT_SECONDS: Final = 120.0
_CANARY: Final = "ringfence-checklist-canary"
_CANARY_POLICY: Final = f"policies: {{default: {{denied_commands: [{_CANARY}]}}}}\n"
_NO_IMAGE: Final = "boxes of the native engine need no image; for containers, `ringfence image check` looks at one"


class Found(StrEnum):
    """Whether something is as it should be."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "cannot be checked here"


@dataclass(frozen=True, slots=True)
class Item:
    """One point of a checklist."""

    claim: str
    found: Found
    evidence: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Checklist:
    name: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
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


def check_all(policy: str | os.PathLike[str] | None = None) -> tuple[Checklist, ...]:
    """Check everything; never raises for what it finds.

    Args:
        policy: the policy that will be used, besides the one that RINGFENCE_POLICY names.
    """
    environ = dict(os.environ)
    seen: _Seen | str
    try:
        state = state_directory(environ, home_directory(environ))
        seen = wait_for(_probe(environ))
    except RingfenceError as fault:
        state, seen = Path(environ.get("RINGFENCE_STATE_DIR", "")), str(fault)
    engine = _policy(policy, environ)
    return (
        Checklist(
            "before deployment",
            (
                Item("the image is built and scanned", Found.UNKNOWN, _NO_IMAGE),
                _on_seen("seccomp is applied", seen, _seccomp),
                _on_seen("nothing runs as root", seen, _never_root),
                _on_seen("the network is closed", seen, _network),
                _on_seen("limits are set", seen, _limits),
                _on_seen("the audit log is on", seen, partial(_audit_on, state)),
                _policy_loaded(engine),
            ),
        ),
        Checklist(
            "at run time",
            (
                wait_for(_pool(state)),
                _on_seen("use stays within the limits", seen, _within),
                _on_seen("there is no unexpected connection", seen, _connections),
                _audit_written(state),
                _on_seen("violations are reported", seen, partial(_reported, state)),
            ),
        ),
        Checklist(
            "periodic",
            (
                _analysis(state),
                Item("the image is up to date", Found.UNKNOWN, _NO_IMAGE),
                _review(engine),
                Item(
                    "intrusion was tested",
                    Found.UNKNOWN,
                    "that is done by people, or by the attack suite in the source tree",
                    "in a checkout: pytest tests/attacks",
                ),
                _dependencies(),
            ),
        ),
    )


def passes(lists: tuple[Checklist, ...]) -> bool:
    """Whether nothing that could be checked is amiss."""
    return all(item.found is not Found.NO for each in lists for item in each.items)


# --- the probe --------------------------------------------------------------------------------------------------------


async def _probe(environ: Mapping[str, str]) -> _Seen:
    """Open a box and look at it.

    Raises:
        RingfenceError: there is none, so that nothing of it can be said.
    """
    unjudged = {name: value for name, value in environ.items() if name != ORGANISATION}
    workspace = tempfile.mkdtemp(prefix="ringfence-checklist-")
    try:
        wish = Wish(workspace=workspace, limits=_LIMITS)
        async with _box(wish, Judged(), unjudged, []) as box:
            return await _look(box, wish, unjudged)
    finally:
        shutil.rmtree(workspace, ignore_errors=True)


@asynccontextmanager
async def _box(
    wish: Wish, judged: Judged, environ: Mapping[str, str], told: list[ExecutionEnded]
) -> AsyncIterator[Sandbox]:
    """A sandbox that is judged by no policy but the one that is given; its journal is closed with it."""

    def observe(event: Event, /) -> None:
        if isinstance(event, ExecutionEnded):
            told.append(event)

    assembly = assemble(wish, judged=judged, environ=environ)
    open_box = partial(assembly.engine.open, assembly.grant)
    reporting = Reporting(who=Who(session_id=_CANARY, sandbox_id=os.urandom(8).hex()), observers=(observe,))
    sandbox = Sandbox.over(assembly, None, open=open_box, reporting=reporting)
    try:
        yield sandbox
    finally:
        try:
            await sandbox.close()
        finally:
            assembly.journal.close()


async def _look(box: Sandbox, wish: Wish, environ: Mapping[str, str]) -> _Seen:
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
    async with _box(wish, Judged(policy=PolicyEngine.from_text(_CANARY_POLICY)), environ, told) as judged:
        refused = await judged.shell(_CANARY)
        stored = judged.violations.total
    wall = box.wall
    return _Seen(
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


# --- before deployment ------------------------------------------------------------------------------------------------


def _on_seen(claim: str, seen: _Seen | str, judge: Callable[[_Seen], tuple[Found, str, str]]) -> Item:
    if isinstance(seen, str):
        return Item(claim, Found.NO, f"no box could be opened: {seen}", "run `ringfence doctor`")
    found, evidence, hint = judge(seen)
    return Item(claim, found, evidence, hint if found is not Found.YES else "")


def _seccomp(seen: _Seen) -> tuple[Found, str, str]:
    inside, outside = seen.inside.get("Seccomp"), seen.outside.get("Seccomp")
    evidence = (
        f"wall {seen.wall}; seccomp mode inside {inside or '?'}, seen outside {outside or '?'} (2 is a filter); "
        f"no new privileges: {seen.inside.get('NoNewPrivs', '?')}"
    )
    held = inside == "2" and outside in ("2", None) and seen.inside.get("NoNewPrivs") == "1"
    return Found.YES if held else Found.NO, evidence, "run `ringfence doctor`"


def _never_root(seen: _Seen) -> tuple[Found, str, str]:
    inside, outside = seen.inside.get("Uid", "").split(), seen.outside.get("Uid", "").split()
    capabilities = seen.inside.get("CapEff", "")
    evidence = f"uids inside {' '.join(inside)}, as the kernel sees them {' '.join(outside) or '?'}; capabilities "
    evidence += "none" if capabilities.strip("0") == "" else capabilities
    held = bool(inside) and "0" not in (*inside, *outside) and capabilities.strip("0") == ""
    return Found.YES if held else Found.NO, evidence, "run `ringfence doctor`"


def _network(seen: _Seen) -> tuple[Found, str, str]:
    own = {True: "a network namespace of its own", False: "the host's network namespace", None: "namespace not visible"}
    evidence = f"{own[seen.own_network]}; interfaces: {', '.join(seen.interfaces) or 'none'}; "
    evidence += f"reached: {', '.join(seen.reached)}" if seen.reached else f"not reached: {', '.join(seen.tried)}"
    closed = not seen.reached and (bool(seen.tried) or set(seen.interfaces) <= {"lo"})
    return (Found.YES if closed else Found.NO), evidence, "run `ringfence doctor`"


def _limits(seen: _Seen) -> tuple[Found, str, str]:
    memory = isinstance(seen.hog.ending, LimitHit) and seen.hog.ending.limit is Limit.MEMORY
    time_up = isinstance(seen.sleeper.ending, TimedOut)
    limits = seen.configured
    figures = {
        Limit.MEMORY: limits.memory_bytes,
        Limit.WALL: limits.wall_seconds,
        Limit.CPU: limits.cpu_seconds,
        Limit.PROCESSES: limits.processes,
    }
    configured = ", ".join(f"{limit} {show_limit(limit, value)}" for limit, value in figures.items())
    evidence = (
        f"held by {seen.limits_by}; taking memory without end: {seen.hog.ending}; sleeping too long: "
        f"{seen.sleeper.ending}; configured: {configured}"
    )
    return Found.YES if memory and time_up else Found.NO, evidence, "run `ringfence doctor`"


def _audit_on(state: Path, seen: _Seen) -> tuple[Found, str, str]:
    mine = next((record for record in records(state, having=seen.run_id.encode()) if "ending" in record), None)
    if mine is None:
        return Found.NO, f"the probe's run {seen.run_id} is not in {state}", "set RINGFENCE_STATE_DIR"
    return Found.YES, f"the probe's run {seen.run_id} is in {state}, with its decision and its end", ""


def _policy(path: str | os.PathLike[str] | None, environ: Mapping[str, str]) -> PolicyEngine | str | None:
    """What is in force; why it is not, as text; None if none is named."""
    try:
        return policy_in_force(Judged(policy=path), environ)
    except RingfenceError as fault:
        return str(fault)


def _policy_loaded(engine: PolicyEngine | str | None) -> Item:
    claim = "a policy is configured"
    if engine is None:
        return Item(
            claim, Found.NO, "none is named; only the grant holds", f"set {ORGANISATION}, or give --policy FILE"
        )
    if isinstance(engine, str):
        return Item(claim, Found.NO, engine, "correct it; `ringfence policy check FILE`")
    return Item(claim, Found.YES, f"{', '.join(engine.sources)}: loaded, and all its examples hold")


# --- at run time ------------------------------------------------------------------------------------------------------


async def _pool(state: Path) -> Item:
    claim = "the pool is healthy"
    ailing = [
        f"pid {notice['pid']}: {counts.get('last_fault', '')}"
        for notice in read_notices(state)
        for counts in notice["pools"].values()
        if counts.get("failures_in_a_row") or counts.get("unclosed")
    ]
    if ailing:
        return Item(claim, Found.NO, "; ".join(ailing), "see `ringfence pool`")
    try:
        began = time.monotonic()
        async with SandboxPool(PoolConfig(min_instances=1, max_instances=2)) as pool:
            ready_seconds = time.monotonic() - began
            sandbox = await pool.take()
            stands = sandbox.is_active
            pool.discard(sandbox)
            states = pool.state().values()
        faults = [counts.last_fault for counts in states if counts.failures or counts.unclosed]
    except RingfenceError as fault:
        return Item(claim, Found.NO, str(fault), fault.hint)
    evidence = f"one was made in {ready_seconds:.2f} s, a box taken and ended; pools of other processes: none ailing"
    good = stands and not faults
    return Item(claim, Found.YES if good else Found.NO, evidence if good else "; ".join(faults) or "the box was lost")


def _within(seen: _Seen) -> tuple[Found, str, str]:
    return (Found.YES if seen.within else Found.NO), f"the probe used {seen.usage}", "see why limits do not hold"


def _connections(seen: _Seen) -> tuple[Found, str, str]:
    if seen.reached or seen.listening:
        evidence = "; ".join((*(f"reached {each}" for each in seen.reached), *(f"open {e}" for e in seen.listening)))
        return Found.NO, evidence, "find out who opened it"
    evidence = f"from inside nothing is reached ({', '.join(seen.tried)}); outside, no process of ours listens"
    return Found.YES, evidence, ""


def _audit_written(state: Path) -> Item:
    claim = "the audit log is written as it should be"
    count, last = 0, 0.0
    for record in records(state):
        count += 1
        last = max(last, float(record.get("at") or 0.0))
    if not count:
        return Item(claim, Found.NO, f"there is no record in {state}", "run something; see RINGFENCE_STATE_DIR")
    evidence = f"{count} records, the last one {max(0.0, time.time() - last):.0f} s old"
    verdict = _verified(state)
    if verdict is None:
        return Item(claim, Found.YES, f"{evidence}; not verified: there is nothing to verify it by yet")
    good, said = verdict
    return Item(claim, Found.YES if good else Found.NO, f"{evidence}; {said}", "" if good else "ringfence audit verify")


def _verified(state: Path) -> tuple[bool, str] | None:
    """What verifying the journal says; None if there is no way to."""
    try:
        verify: Callable[[Path], Any] = import_module("ringfence.audit.verify").verify
    except (ImportError, AttributeError):
        return None
    try:
        report = verify(state)
    except (RingfenceError, OSError, ValueError) as fault:
        return False, str(fault)
    return bool(getattr(report, "ok", report)), str(report)


def _reported(state: Path, seen: _Seen) -> tuple[Found, str, str]:
    refused = isinstance(seen.refused.ending, Refused) and bool(seen.refused.violations)
    told = any(event.result is not None and event.result.violations for event in seen.told)
    written = any(
        entry.run_id == seen.refused.run_id
        for entry in violations_of(records(state, having=seen.refused.run_id.encode() or b"\0"))
    )
    where = {"the result": refused, "the store": bool(seen.stored), "observers": told, "the journal": written}
    missing = [name for name, there in where.items() if not there]
    if missing:
        return Found.NO, f"something that was refused is missing in {', '.join(missing)}", "please report this"
    return Found.YES, f"something that was refused is in {', '.join(where)}", ""


# --- periodic ---------------------------------------------------------------------------------------------------------


def _analysis(state: Path) -> Item:
    since = time.time() - _PERIOD_SECONDS
    recent = [record for record in records(state) if float(record.get("at") or 0.0) >= since]
    refused = sum(str(record.get("ending", "")).startswith("refused") for record in recent)
    faults = sum(record.get("ending") in ("fault", "interrupted") for record in recent)
    violations = sum(1 for _ in violations_of(recent))
    figures = f"30 days: {len(recent)} runs, {refused} refused, {faults} faults, {violations} violations"
    return Item("the audit log is analysed", Found.UNKNOWN, f"{figures}; a person has to look", "ringfence violations")


def _review(engine: PolicyEngine | str | None) -> Item:
    claim = "the policy's rules are reviewed"
    if engine is None or isinstance(engine, str):
        return Item(claim, Found.UNKNOWN, "there is no policy to review", f"set {ORGANISATION}, or give --policy FILE")
    layers = engine.policies
    found = [remark for number, layer in enumerate(layers) for remark in remarks(layer, layers[:number])]
    if found:
        return Item(
            claim, Found.NO, f"{len(found)} remarks; the first: {found[0]}", "ringfence policy check FILE says all"
        )
    return Item(claim, Found.YES, "no rule is without effect or overruled; whether they are wise is for people to say")


def _dependencies() -> Item:
    claim = "dependencies are free of known faults"
    tool = shutil.which("pip-audit") or shutil.which("pip-audit", path=os.path.dirname(sys.executable))
    if tool is None:
        return Item(claim, Found.UNKNOWN, "pip-audit is not installed", "pip install pip-audit")
    try:
        done = subprocess.run(
            [tool, "--format", "json", "--progress-spinner", "off"],
            capture_output=True,
            timeout=_AUDIT_SECONDS,
            check=False,
        )
        packages = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as fault:
        return Item(claim, Found.UNKNOWN, f"pip-audit gave no answer ({type(fault).__name__})", "run it where it can")
    bad = [str(each.get("name")) for each in packages if each.get("vulns")]
    if bad:
        return Item(claim, Found.NO, f"pip-audit names {', '.join(bad)}", "pip-audit --fix")
    return Item(claim, Found.YES, f"pip-audit knows nothing against {len(packages)} packages")
