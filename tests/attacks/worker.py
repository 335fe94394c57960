"""Is the caller of one case: a process with secrets in its environment, descriptors and keyring that runs the command.

The command goes to `ringfence.run`, or to a shell that waits in a box which was made ahead of time (`Way`). A process
per case, forked by the guard (whose imports it shares) or run as `python worker.py JOB SAYS HEARS`: JOB is a JSON file
that holds a `Job`; on the descriptor SAYS the guard is told our process id and then each return of a command, and on
HEARS it lets us go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import ringfence

_MIB = 1024 * 1024

# asm/unistd_64.h and linux/keyctl.h
_SYS_ADD_KEY, _SYS_KEYCTL = 248, 250
_KEYCTL_JOIN_SESSION_KEYRING = 1
_KEY_SPEC_SESSION_KEYRING = -3


_WAIT_SECONDS = 10.0
"""How long a shell may take until it waits for its command, and what a command left may take to vanish from its box."""
_LOOK_SECONDS = 0.01


class Way(StrEnum):
    """How a command comes into its box."""

    COLD = "cold"
    """`ringfence.run`: a box for each command."""
    WARM = "warm"
    """To the shell that waits in a box, beside an interpreter that waits; a second command in a box of its own."""
    FORKED = "forked"
    """From an interpreter that was forked from a zygote; a second command in another box of the same zygote."""
    SESSION = "session"
    """The same, but a second command in the box of the first."""
    KEEPER = "keeper"
    """By the command line, into a box that a keeper has made ahead; `python -m tests.attacks --way keeper` alone."""
    UNCONFINED = "unconfined"
    """In no box at all, for the controls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    way: Way
    workspace: str
    command: str
    command2: str | None
    env: dict[str, str]
    stdin: str | None
    timeout: float
    limits: dict[str, int] | None
    """As the case names them."""
    secret_file: str | None
    """If set, descriptor 8 is this file, 9 its directory and 10 a socket, all inheritable."""
    key: str | None
    """If set, our session keyring holds it as `secfx`."""
    out: str
    err: str
    out2: str
    facts: str
    own_stdio: bool
    """Whether an unconfined command gets our own standard descriptors: a terminal, or a file."""
    network: bool = False
    """Whether its boxes have a network, behind which everything is refused."""


@dataclass(slots=True, kw_only=True)
class Facts:
    """What the caller saw."""

    exit_code: int = -1
    duration_ms: int = 0
    endings: list[str] = field(default_factory=list)
    wall: str = ""
    fault: str = ""
    """Why there is no result, in the words of the error."""
    cold: bool = False
    """Whether a command that was meant for a waiting shell did not go to it."""
    strays: int = 0
    """Processes that the command left in a box that lives on, beside those that wait in it."""


class Worker:
    def __init__(self, job: Job, says: int, hears: int) -> None:
        self.job = job
        self.facts = Facts()
        self._says, self._hears = says, hears
        for descriptor in (says, hears):
            os.set_inheritable(descriptor, False)

    def run(self) -> None:
        self._tell(str(os.getpid()))
        if self.job.secret_file is not None:
            _leave_open(self.job.secret_file)
        if self.job.key is not None:
            _put_into_keyring(self.job.key)
        if self.job.network:
            _give_network()
        try:
            match self.job.way:
                case Way.COLD:
                    self._both(self._walled)
                case Way.KEEPER:
                    self._both(self._kept)
                case Way.UNCONFINED:
                    self._both(self._unconfined)
                case Way.WARM | Way.SESSION:
                    asyncio.run(self._warm())
                case Way.FORKED:
                    asyncio.run(self._forked())
        except Exception:  # the outermost edge: whatever went wrong belongs into the report
            self.facts.fault = traceback.format_exc()
        Path(self.job.facts).write_text(json.dumps(asdict(self.facts)))

    def _both(self, execute: Callable[[str, str, str], None]) -> None:
        execute(self.job.command, self.job.out, self.job.err)
        if self.job.command2 is not None:
            execute(self.job.command2, self.job.out2, os.devnull)

    def _tell(self, what: str) -> None:
        os.write(self._says, what.encode())
        os.read(self._hears, 1)

    def _ended(self, started: float, exit_code: int, ending: str) -> None:
        if not self.facts.endings:
            self.facts.duration_ms = int((time.monotonic() - started) * 1000)
            self.facts.exit_code = exit_code
        self.facts.endings.append(ending)

    def _walled(self, command: str, out: str, err: str) -> None:
        import ringfence  # not at the top: the controls show what happens without it

        job = self.job
        started = time.monotonic()
        result = ringfence.run(
            command,
            workspace=job.workspace,
            env=job.env,
            stdin=None if job.stdin is None else job.stdin.encode(),
            timeout=job.timeout,
            limits=self._limits(),
        )
        self._note(result, started, out, err)
        self._tell("returned")

    def _kept(self, command: str, out: str, err: str) -> None:
        """With a keeper of its own, which is gone afterwards, so that whatever is left then was left by the command."""
        job = self.job
        with tempfile.TemporaryDirectory(prefix="rk-") as runtime:
            settings = Path(runtime, "sandbox.json")
            settings.write_text(json.dumps({"limits": _configured(job)}))
            keeper = LineByKeeper(runtime, job)
            line = ["run", "--config", str(settings), *(["-i"] if job.stdin is not None else [])]
            line += [word for name in job.env for word in ("-e", name)]
            try:
                keeper.start()
                said = re.search(rb"wall: (\w+);", keeper.run(["run", "-v", "true"], b"").stderr)
                self.facts.wall = said[1].decode() if said else ""
                keeper.run([*line, "--", "true"], b"")
                before = keeper.wait_for_box()
                started = time.monotonic()
                done = keeper.run([*line, "--", command], (job.stdin or "").encode())
                kind = {122: "Refused", 123: "LimitHit", 124: "TimedOut"}.get(done.returncode, "Exited")
                self._ended(started, done.returncode, f"{kind}: {done.returncode}")
                self.facts.cold |= keeper.state()["boxes_taken"] != before + 1
            finally:
                keeper.stop()
        Path(err).write_bytes(done.stderr)
        with open(out, "ab") as file:
            file.write(done.stdout)
        self._tell("returned")

    async def _warm(self) -> None:
        """Both commands, each with the shell that waits; the guard counts what is left when the boxes are closed."""
        job = self.job
        async with self._sandbox() as box:
            await self._hand_over(box, job.command, job.out, job.err)
            if job.command2 is not None and job.way is Way.SESSION:
                await self._hand_over(box, job.command2, job.out2, os.devnull)
        self._tell("returned")
        if job.command2 is not None and job.way is Way.WARM:
            async with self._sandbox() as box:
                await self._hand_over(box, job.command2, job.out2, os.devnull)

    async def _forked(self) -> None:
        """Both commands, each as a child of an interpreter that PID 1 did not have to start."""
        from ringfence.manager import assemble

        job, make = self.job, assemble.make_blueprint
        zygotes = assemble.make_zygotes()
        assemble.make_blueprint = partial(make, zygotes=zygotes)
        try:
            async with self._sandbox() as box:
                await self._have_run(box, job.command, job.out, job.err)
            if job.command2 is not None:
                async with self._sandbox() as box:
                    await self._have_run(box, job.command2, job.out2, os.devnull)
        finally:
            zygotes.close()
            assemble.make_blueprint = make
        self._tell("returned")

    async def _have_run(self, box: ringfence.Sandbox, command: str, out: str, err: str) -> None:
        await box.warm()
        native: Any = (await box.lend()).box
        self.facts.cold |= not native._inside.setting.resumes
        run = f"subprocess.run(['/bin/bash', '-c', {command!r}], start_new_session=True).returncode"
        line = f"import subprocess, sys\ncode = {run}\n"
        started = time.monotonic()
        result = await box.python(f"{line}sys.exit(code if code >= 0 else 128 - code)", timeout=self.job.timeout)
        self._note(result, started, out, err)

    def _sandbox(self) -> ringfence.Sandbox:
        import ringfence

        # Variables go to the box and not to the command: a shell that waits has none but those.
        return ringfence.Sandbox(self.job.workspace, env=self.job.env, limits=self._limits())

    async def _hand_over(self, box: ringfence.Sandbox, command: str, out: str, err: str) -> None:
        await box.warm()
        native: Any = (await box.lend()).box
        waiting = native._commands._shell  # there is no public way to tell whether a command went to it
        before = await _wait_asleep(native)
        started = time.monotonic()
        # A line that is one plain program would be started as that, without a shell; a blank makes it a line.
        line = command if "\n" in command else f"{command} "
        result = await box.shell(line, timeout=self.job.timeout)
        self._note(result, started, out, err)
        self.facts.cold |= waiting is None or not waiting.job.ended.done()
        self.facts.strays += await _strays(before, native)

    def _note(self, result: ringfence.Result, started: float, out: str, err: str) -> None:
        self._ended(started, result.exit_code, f"{type(result.ending).__name__}: {result.ending}")
        self.facts.wall = result.wall.name if result.wall is not None else ""
        Path(err).write_bytes(result.stderr_bytes)
        with open(out, "ab") as file:
            file.write(result.stdout_bytes)

    def _limits(self) -> ringfence.Limits | None:
        import ringfence

        if self.job.limits is None:
            return None
        return ringfence.Limits(**_limits(self.job.limits), wall_seconds=self.job.timeout)

    def _unconfined(self, command: str, out: str, err: str) -> None:
        job = self.job
        started = time.monotonic()
        with open(out, "ab") as stdout, open(err, "ab") as stderr:
            shell = subprocess.Popen(
                ["bash", "-c", command],
                cwd=job.workspace,
                env={**os.environ, **job.env},
                stdin=None if job.own_stdio else subprocess.DEVNULL,
                stdout=None if job.own_stdio else stdout,
                stderr=None if job.own_stdio else stderr,
                close_fds=False,
            )
            try:
                shell.wait(job.timeout)
                ending = f"exited with {shell.returncode}"
            except subprocess.TimeoutExpired:
                shell.kill()  # as a careless caller does: only the process that it started
                shell.wait()
                ending = "timed out"
        self._ended(started, shell.returncode, ending)
        self._tell("returned")


class LineByKeeper:
    """The command line as it is installed, with a keeper whose place is a directory of its own."""

    def __init__(self, runtime: str, job: Job) -> None:
        self._front = str(Path(sys.executable).with_name("ringfence"))
        self._env = {**os.environ, **job.env, "XDG_RUNTIME_DIR": runtime, "RINGFENCE_KEEPER": "on"}
        self._workspace = job.workspace
        self._open = () if job.secret_file is None else (8, 9, 10)

    def run(self, words: list[str], given: bytes) -> subprocess.CompletedProcess[bytes]:
        """Descriptors that we have left open for commands are the command line's, too."""
        return subprocess.run(
            [self._front, *words],
            cwd=self._workspace,
            env=self._env,
            input=given,
            capture_output=True,
            pass_fds=self._open,
            check=False,
        )

    def state(self) -> Any:
        found = json.loads(self.run(["keeper", "status", "--json"], b"").stdout)
        return found[0] if found else {}

    def start(self) -> None:
        self._wait_for(lambda: self.run(["--version"], b"").returncode == 0 and self.state())

    def wait_for_box(self) -> int:
        """Both of those for lines that were run; how many were taken before."""
        return int(self._wait_for(lambda: len((state := self.state()).get("boxes", ())) > 1 and state)["boxes_taken"])

    def stop(self) -> None:
        for each in json.loads(self.run(["keeper", "stop", "--json"], b"").stdout):
            self._wait_for(lambda place=Path(f"/proc/{each['pid']}/stat"): _is_gone(place))

    def _wait_for(self, look: Callable[[], Any]) -> Any:
        until = time.monotonic() + 3 * _WAIT_SECONDS
        while not (found := look()):
            if time.monotonic() > until:
                raise TimeoutError("the keeper did not come, or not to an end")
            time.sleep(_LOOK_SECONDS)
        return found


def _is_gone(stat: Path) -> bool:
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _configured(job: Job) -> dict[str, Any]:
    """The limits of a case as the configuration names them."""
    names = {
        "memory_bytes": "memory",
        "processes": "processes",
        "open_files": "openFiles",
        "file_bytes": "fileSize",
        "disk_bytes": "disk",
        "files": "files",
        "output_bytes": "output",
        "cpu_seconds": "cpu",
        "tmp_bytes": "tmp",
    }
    limits = {} if job.limits is None else {names[name]: value for name, value in _limits(job.limits).items()}
    return {"wall": job.timeout, **limits}


def _below_us(box: Any) -> dict[int, str]:
    """The states of all processes below this one, and below the first process of a box, which in a container is not
    below us, by the kernel's parent links."""
    states: dict[int, str] = {}
    waiting = [os.getpid(), box._inside.control.first_pid]
    while waiting:
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{waiting.pop()}/task").glob("*/children"):  # each thread has its own
                for pid in map(int, children.read_text().split()):
                    waiting.append(pid)
                    states[pid] = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return states


async def _wait_asleep(box: Any) -> set[int]:
    """Wait until all that was started ahead of time sleeps, as what waits does; returns its processes."""
    deadline, quiet = time.monotonic() + _WAIT_SECONDS, 0
    while quiet < 3:
        states = _below_us(box)
        quiet = quiet + 1 if set(states.values()) <= {"S"} else 0
        if time.monotonic() > deadline:
            raise TimeoutError(f"what is to wait does not: {states}")
        await asyncio.sleep(_LOOK_SECONDS)
    return set(states)


async def _strays(before: set[int], box: Any) -> int:
    """How many processes the command left in the box; the next shell that waits does not count."""
    if not box.alive:
        return 0
    while box._commands._preparing is not None:
        await asyncio.sleep(_LOOK_SECONDS)
    expected = 1 if box._commands._shell is not None and box._commands._shell.alive else 0
    return max(0, len(_below_us(box).keys() - before) - expected)


def _limits(of_case: dict[str, int]) -> dict[str, Any]:
    """The library's names and units for what a case demands."""
    names = {
        "mem_mb": ("memory_bytes", _MIB),
        "pids": ("processes", 1),
        "nofile": ("open_files", 1),
        "file_mb": ("file_bytes", _MIB),
        "disk_mb": ("disk_bytes", _MIB),
        "files": ("files", 1),
        "output_mb": ("output_bytes", _MIB),
        "cpu_s": ("cpu_seconds", 1),
    }
    limits = {names[key][0]: value * names[key][1] for key, value in of_case.items() if key != "timeout_s"}
    # A tmpfs is memory: two of them full must still leave the command room to notice.
    limits["tmp_bytes"] = min(of_case["disk_mb"], of_case["mem_mb"]) * _MIB // 2
    return limits


def _give_network() -> None:
    """From now on every box has one, and whoever serves it hangs up on everybody."""
    from dataclasses import replace

    from ringfence.engines.native.engine import NativeEngine

    sys.path.append(str(Path(__file__).parents[2]))  # on a terminal we are a program of our own
    from tests.support.networks import Accepting, a_network

    async def hang_up(connection: socket.socket) -> None: ...

    opened = NativeEngine.open

    async def open_with_network(engine: Any, grant: Any) -> Any:
        engine._network = Accepting(hang_up)
        return await opened(engine, replace(grant, network=a_network(443)))

    NativeEngine.open = open_with_network  # type: ignore[method-assign]  # this process runs one case and ends


def _leave_open(secret_file: str) -> None:
    """Descriptors that a careless caller forgot to close, at the numbers that the cases look at."""
    directory = os.path.dirname(secret_file)
    ours, theirs = socket.socketpair()
    sources = [os.open(secret_file, os.O_RDONLY), os.open(directory, os.O_RDONLY), theirs.detach(), ours.detach()]
    # By way of high numbers, because a source may sit on one of the numbers that we want.
    high = [os.dup2(source, 100 + index, inheritable=False) for index, source in enumerate(sources)]
    for source in sources:
        os.close(source)
    for number, source in zip((8, 9, 10), high, strict=False):  # our end of the socket stays where it is
        os.dup2(source, number, inheritable=True)
        os.close(source)


def _put_into_keyring(key: str) -> None:
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    if syscall(_SYS_KEYCTL, ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None) < 0:
        raise OSError(ctypes.get_errno(), "keyctl(KEYCTL_JOIN_SESSION_KEYRING)")
    data = key.encode()
    ring = ctypes.c_long(_KEY_SPEC_SESSION_KEYRING)
    if syscall(_SYS_ADD_KEY, b"user", b"secfx", data, ctypes.c_size_t(len(data)), ring) < 0:
        raise OSError(ctypes.get_errno(), "add_key")


def main(job: str, says: int, hears: int) -> None:
    words = json.loads(Path(job).read_text())
    Worker(Job(**{**words, "way": Way(words["way"])}), says, hears).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
