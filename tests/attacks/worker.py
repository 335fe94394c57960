"""Is the caller of one case: a process with secrets in its environment, descriptors and keyring that runs the command.

A process per case, forked by the guard (whose imports it shares) or run as `python worker.py JOB SAYS HEARS`: JOB is a
JSON file that holds a `Job`; on the descriptor SAYS the guard is told our process id and then each return of a command,
and on HEARS it lets us go on.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

_MIB = 1024 * 1024

# asm/unistd_64.h and linux/keyctl.h
_SYS_ADD_KEY, _SYS_KEYCTL = 248, 250
_KEYCTL_JOIN_SESSION_KEYRING = 1
_KEY_SPEC_SESSION_KEYRING = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    walled: bool
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


@dataclass(slots=True, kw_only=True)
class Facts:
    """What the caller saw."""

    exit_code: int = -1
    duration_ms: int = 0
    endings: list[str] = field(default_factory=list)
    wall: str = ""
    fault: str = ""
    """Why there is no result, in the words of the error."""


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
        execute = self._walled if self.job.walled else self._unconfined
        try:
            execute(self.job.command, self.job.out, self.job.err)
            if self.job.command2 is not None:
                execute(self.job.command2, self.job.out2, os.devnull)
        except Exception:  # the outermost edge: whatever went wrong belongs into the report
            self.facts.fault = traceback.format_exc()
        Path(self.job.facts).write_text(json.dumps(asdict(self.facts)))

    def _tell(self, what: str) -> None:
        os.write(self._says, what.encode())
        os.read(self._hears, 1)

    def _returned(self, started: float, exit_code: int, ending: str) -> None:
        if not self.facts.endings:
            self.facts.duration_ms = int((time.monotonic() - started) * 1000)
            self.facts.exit_code = exit_code
        self.facts.endings.append(ending)
        self._tell("returned")

    def _walled(self, command: str, out: str, err: str) -> None:
        import ringfence  # not at the top: the controls show what happens without it

        job = self.job
        limits = None if job.limits is None else ringfence.Limits(**_limits(job.limits), wall_seconds=job.timeout)
        started = time.monotonic()
        result = ringfence.run(
            command,
            workspace=job.workspace,
            env=job.env,
            stdin=None if job.stdin is None else job.stdin.encode(),
            timeout=job.timeout,
            limits=limits,
        )
        self._returned(started, result.exit_code, f"{type(result.ending).__name__}: {result.ending}")
        self.facts.wall = result.wall.name if result.wall is not None else ""
        Path(err).write_bytes(result.stderr_bytes)
        with open(out, "ab") as file:
            file.write(result.stdout_bytes)

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
        self._returned(started, shell.returncode, ending)


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
    Worker(Job(**json.loads(Path(job).read_text())), says, hears).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
