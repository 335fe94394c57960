"""A Docker daemon that a test may mistreat: its own, in a directory of its own, with an image that holds a shell."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from ringfence.engines.docker.settings import DockerSettings
from tests.support import docker
from tests.support.users import PROJECT

_IMAGE = "ringfence/small"


@dataclass(frozen=True)
class OwnDaemon:
    home: Path
    settings: DockerSettings

    def do(self, what: str) -> None:
        """`up` or `down`."""
        line = [str(PROJECT / "scripts" / "docker-engine.sh"), what, str(self.home), self.settings.image]
        subprocess.run(line, check=True, timeout=60, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        os.kill(int((self.home / "dockerd.pid").read_text()), signal.SIGKILL)

    def command(self, *words: str) -> str:
        """What a person at the machine does with it, behind our back; what it refuses is no fault of ours."""
        line = ["docker", "--host", self.settings.url, *words]
        return subprocess.run(line, capture_output=True, timeout=60, check=False).stdout.decode().strip()

    def end_shims(self) -> None:
        """End what a daemon leaves that is killed while it starts a container: the process that was to hold it, and
        perhaps a `runc init` that never became our first process. Anything else that still runs is a fault."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(FileNotFoundError, ProcessLookupError):
                if f"{self.home}/".encode() in (process / "cmdline").read_bytes():
                    held = [int(pid) for task in process.glob("task/*/children") for pid in task.read_text().split()]
                    names = {Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ") for pid in held}
                    assert names <= {b"runc init "}, f"still running in a container: {names}"
                    for pid in (int(process.name), *held):
                        os.kill(pid, signal.SIGKILL)


@contextmanager
def own_daemon() -> Iterator[OwnDaemon]:
    """Needs root, and Docker's programs."""
    home = Path(tempfile.mkdtemp(prefix="e-"))  # a daemon's sockets have long names of their own
    links = {"/bin/sh": "/usr/bin/bash", "/bin/bash": "/usr/bin/bash"}
    (home / "rootfs.tar").write_bytes(docker.small_image("bash", "true", links=links))
    (home / "data").mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(home / "data")], check=True)
    daemon = OwnDaemon(home, DockerSettings(f"unix://{home}/docker.sock", _IMAGE))
    try:
        daemon.do("up")
        yield daemon
    finally:
        daemon.do("down")
        daemon.end_shims()
        shutil.rmtree(home)
