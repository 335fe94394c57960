"""A stage with a keeper of its own: the native front as it is installed, a runtime directory, a project, a journal."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FRONT = Path(sys.executable).with_name("ringfence")
SECONDS = 100.0


@dataclass
class Stage:
    """What a person has: `home`, a `project` they stand in, and a runtime directory that is theirs alone."""

    top: Path
    front: Path = FRONT
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, mode in (("home", 0o755), ("project", 0o755), ("run", 0o700)):
            (self.top / name).mkdir()
            (self.top / name).chmod(mode)
        self.env = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": str(self.top / "home"),
            "XDG_RUNTIME_DIR": str(self.runtime),
            "RINGFENCE_KEEPER": "on",
            "LANG": "C.UTF-8",
        }

    @property
    def project(self) -> Path:
        return self.top / "project"

    @property
    def runtime(self) -> Path:
        return self.top / "run"

    @property
    def places(self) -> Path:
        return self.runtime / "ringfence"

    @property
    def socket(self) -> Path:
        (found,) = self.places.glob("*.sock")
        return found

    def popen(self, *words: str, keeper: bool = True, **more: Any) -> subprocess.Popen[bytes]:
        env = self.env | more.pop("env", {}) | ({} if keeper else {"RINGFENCE_KEEPER": "off"})
        return subprocess.Popen([str(self.front), *words], cwd=more.pop("cwd", self.project), env=env, **more)

    def call(self, *words: str, keeper: bool = True, **more: Any) -> subprocess.CompletedProcess[bytes]:
        more = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | more
        given = more.pop("input", None)
        if given is not None:
            more["stdin"] = subprocess.PIPE
        with self.popen(*words, keeper=keeper, **more) as process:
            try:
                out, err = process.communicate(given, timeout=SECONDS)
            except BaseException:
                process.kill()
                raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def status(self) -> list[dict[str, Any]]:
        done = self.call("keeper", "status", "--json")
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def start(self, **more: Any) -> int:
        """A keeper for callers like this one; its pid."""
        before = {each["pid"] for each in self.status()}

        def look() -> int | None:
            self.call("--version", **more)
            return next((int(each["pid"]) for each in self.status() if each["pid"] not in before), None)

        found: int = wait_for(look)
        return found

    def calls(self) -> int:
        return sum(int(each["calls"]) for each in self.status())

    def boxes(self) -> int:
        """How many wait for a call."""
        return sum(len(each["boxes"]) for each in self.status())

    def boxes_taken(self) -> int:
        return sum(int(each["boxes_taken"]) for each in self.status())

    def call_until_a_box_waits(self, *words: str, **more: Any) -> None:
        """Calls until the keeper has opened a box for the next one: on a busy machine a call may pass the keeper by."""

        def look() -> bool:
            self.call(*words, **more)
            until = time.monotonic() + 5
            while not self.boxes():
                if time.monotonic() > until:
                    return False
                time.sleep(0.02)
            return True

        wait_for(look)

    def call_in_box(self, *words: str, **more: Any) -> subprocess.CompletedProcess[bytes]:
        """A call that finds a box which an earlier one had opened."""
        for _ in range(5):
            self.call_until_a_box_waits(*words, **more)
            before = self.boxes_taken()
            done = self.call(*words, **more)
            if self.boxes_taken() == before + 1:
                return done
        raise AssertionError(f"{words} found no box")

    def stop(self) -> None:
        """Every keeper, also one that is just starting, and wait until they are gone."""

        def look() -> bool:
            found = json.loads(self.call("keeper", "stop", "--json").stdout)
            for each in found:
                wait_for(lambda pid=int(each["pid"]): not is_alive(pid))
            return not any(map(_is_locked, self.places.glob("*.lock")))

        wait_for(look)

    def records(self) -> list[dict[str, Any]]:
        journal = self.top / "home" / ".ringfence" / "state"
        lines = (line for file in sorted(journal.rglob("*.jsonl")) for line in file.read_text().splitlines())
        return [json.loads(line) for line in lines]


def _is_locked(file: Path) -> bool:
    with file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def wait_for(look: Any, seconds: float = 60.0) -> Any:
    """What it gives, once that is something."""
    until = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.02)
    return found


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def is_handed_over(process: subprocess.Popen[bytes], front: Path = FRONT) -> bool:
    """Whether a process is still the front, and not Python, which it becomes where there is no keeper."""
    return os.path.samefile(f"/proc/{process.pid}/exe", front)


def is_running(words: Sequence[str]) -> bool:
    """Whether a process with these words is there, in whichever box."""
    wanted = b"\0".join(map(str.encode, words)) + b"\0"
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                if Path(f"/proc/{entry}/cmdline").read_bytes().endswith(wanted) and is_alive(int(entry)):
                    return True
            except OSError:
                continue
    return False


def a_copy(top: Path) -> Path:
    """The front in an installation of its own, whose files a test may change."""
    package = Path(__file__).resolve().parents[2] / "src" / "ringfence"
    shutil.copytree(package, top / "lib" / "ringfence", ignore=shutil.ignore_patterns("__pycache__"))
    (top / "bin").mkdir()
    front = Path(shutil.copy(FRONT, top / "bin" / "ringfence"))
    script = top / "bin" / "ringfence-python"
    script.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(1, {str(top / 'lib')!r})\n"
        "from ringfence.cli.app import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    return front


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
