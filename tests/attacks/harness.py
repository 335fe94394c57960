"""Builds the fixture, runs one case against the wall (or, for the controls, against nothing), and judges.

    Arena.up -> [ reset -> guard( worker( box ) ) -> check on the host -> Verdict ] per case and way -> Arena.down

The fixture is a directory with secrets, a workspace beside them, services on loopback and a process to attack; all of
it belongs to the caller whose part the case plays. A verdict is safe if the case's own check holds on the
host afterwards and the command really ran behind a wall; what the command printed about itself is read by
checks only where the case is about what it can see.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Self

from tests.attacks.cases import DATA, Case, missing
from tests.attacks.guard import Report, Spec
from tests.attacks.worker import Facts, Job, Way
from tests.support import docker, users, wasi

HERE = Path(__file__).parent
TOOLS = DATA / "tools"

PATH = ":".join(
    ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", f"{sys.base_prefix}/bin")
)
"""What the caller has as PATH: the system's programs, and the interpreter's for a machine that has no other."""

WASI = "wasi"
"""As a wall: its boxes have no shell, so that what needs one is refused and counts as not applicable."""
CHECK_SECONDS = 30
MARGIN_SECONDS = 15
"""Beyond what the case's own time limit allows, before the worker itself is ended."""


class Caller(StrEnum):
    """Whose part the worker plays."""

    ROOT = "root"
    USER = "user"


class Outcome(StrEnum):
    SAFE = "safe"
    UNSAFE = "unsafe"
    VOID = "void"
    """The command did not run to where it would have shown anything. Behind a wall that counts as not safe."""


@dataclass(frozen=True, slots=True)
class Verdict:
    case: Case
    outcome: Outcome
    why: str
    """What to tell a person about a case that is not safe."""
    seconds: float = 0.0
    wall: str = ""
    ending: str = ""
    at_return: int = 0
    """Processes that were still there when the call returned, though they may have vanished soon after."""
    left: tuple[str, ...] = ()

    @property
    def safe(self) -> bool:
        return self.outcome is Outcome.SAFE


def callers() -> tuple[Caller, ...]:
    return (Caller.ROOT, Caller.USER) if os.geteuid() == 0 else (Caller.USER,)


class Arena:
    """The fixture of one caller, standing."""

    def __init__(self, caller: Caller, wall: str | None = None, number: int = 0, *, network: bool = False) -> None:
        """
        Args:
            wall: which one, as RINGFENCE_PROCESS_SANDBOX names it, or `docker`, `docker-gvisor`, `wasi`; the
                machine's best if not given.
            number: of those that stand at once. Run by root, each has uids of its own: a command that gets out of one
                can neither signal nor read what belongs to another, and nobody's processes are counted twice.
            network: whether boxes have one.
        """
        self.caller = caller
        self.wall = wall
        self.network = network
        self.user = users.me() if caller is Caller.ROOT or os.geteuid() != 0 else users.unused(2 * number)
        # What an agent writes belongs to the workspace's owner afterwards. For root's own workspace that is root, and
        # a check that nothing was written as root could not tell; so root works on somebody else's.
        self.owner = users.unused(2 * number + 1) if caller is Caller.ROOT else self.user
        self._undo = ExitStack()
        self._ports: dict[str, int] = {}

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self.base = Path(tempfile.mkdtemp(prefix="attacks-"))
            undo.callback(subprocess.run, ["rm", "-rf", str(self.base)], check=True)  # knows no depth limit
            self.base.chmod(0o755)
            self.fx, self.hx, self.ws = self.base / "box", self.base / "host", self.base / "box" / "ws"
            self.tmp = self.base / "tmp"
            self._fixture("up")
            self.tmp.mkdir()
            self.tmp.chmod(0o1777)
            os.chown(self.base, self.user.uid, self.user.gid)
            self.state, self.run_dir = self.hx / "state", self.hx / "run"
            self.canary = (self.state / "canary").read_text().strip()
            self.tag = self.canary.rpartition("-")[2]
            # The services clean up on SIGTERM; the victim only logs it.
            self.services = self._process(undo, signal.SIGTERM, "services.py", str(self.fx))
            self.victim = self._process(undo, signal.SIGKILL, "victim.py", str(self.fx), "secfx-victim")
            _wait_until((self.state / "ports.json").exists, self.services)
            _wait_until((self.state / "victim.ready").exists, self.victim)
            self._ports = json.loads((self.state / "ports.json").read_text())
            self.guard = self._start_guard(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exc: object) -> None:
        self._undo.close()

    def run(self, case: Case, way: Way = Way.COLD) -> Verdict:
        if way is Way.UNCONFINED and case.control == "skip":
            raise ValueError(f"{case.id} must never run without a wall")
        if way is Way.UNCONFINED and os.geteuid() != 0:
            raise PermissionError("commands run without a wall only inside the safety cgroup, which needs root")
        self.reset()
        started = time.monotonic()
        report, facts = self._execute(case, way)
        outcome, why = self._judge(case, way, report, facts)
        return Verdict(
            case,
            outcome,
            why,
            seconds=time.monotonic() - started,
            wall=facts.wall,
            ending="; ".join(facts.endings),
            at_return=report.at_return,
            left=tuple(report.left),
        )

    def reset(self) -> None:
        self._fixture("reset")
        for directory in (self.run_dir, self.tmp):
            _empty(directory)
        self.run_dir.mkdir(exist_ok=True)
        os.chown(self.run_dir, self.user.uid, self.user.gid)
        for process in (self.services, self.victim, self.guard):
            if process.poll() is not None:
                raise RuntimeError(f"a process of the fixture has ended: {process.args!r}")

    def _fixture(self, step: str) -> None:
        subprocess.run(
            ["bash", str(TOOLS / "fixture.sh"), step],
            env={
                "PATH": PATH,
                "FX": str(self.fx),
                "FX_UID": str(self.user.uid),
                "OWNER": str(self.owner.uid),
                # Modes must not do the wall's work: whoever gets at the secrets can read them.
                "SECRETS_OPEN": "1",
            },
            check=True,
            umask=0o022,
            timeout=60,
        )

    def _process(self, undo: ExitStack, ends_by: signal.Signals, tool: str, *arguments: str) -> subprocess.Popen[bytes]:
        """A process of the fixture, which the caller owns."""
        with open(self.state / f"{tool}.log", "wb") as log:
            process = subprocess.Popen(
                users.argv_as(self.user, [sys.executable, "-I", str(TOOLS / tool), *arguments]),
                env={"PATH": PATH, "SECFX_VICTIM": f"{self.canary}-env"},
                cwd=self.base,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        undo.callback(_end, process, ends_by)
        return process

    def _start_guard(self, undo: ExitStack) -> subprocess.Popen[bytes]:
        with open(self.state / "guard.py.log", "wb") as log:
            guard = subprocess.Popen(
                [sys.executable, "-P", str(HERE / "guard.py")],
                env=self._environment(),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        undo.callback(_end, guard, signal.SIGTERM)
        for stream in (guard.stdin, guard.stdout):
            assert stream is not None
            undo.callback(stream.close)
        return guard

    def _execute(self, case: Case, way: Way) -> tuple[Report, Facts]:
        out = self.run_dir / "out"
        job = Job(
            way=way,
            workspace=str(self.ws),
            command=self._fill(case.command),
            command2=None if case.command2 is None else self._fill(case.command2),
            env={name: self._fill(value) for name, value in (case.set_env or {}).items()},
            stdin=case.stdin,
            timeout=case.timeout_s,
            limits=None if case.limits is None else dict(case.limits),
            secret_file=str(self.fx / "secrets" / "id_rsa") if case.inherit_fds else None,
            key=self.canary if case.keyring else None,
            out=str(out),
            err=str(self.run_dir / "err"),
            out2=str(self.run_dir / "out2"),
            facts=str(self.run_dir / "facts"),
            own_stdio=case.tty or case.stdout_file,
            network=self.network,
        )
        worker = [sys.executable, "-P", str(HERE / "worker.py"), str(self.run_dir / "job")]
        hard_seconds = case.timeout_s * (2 if case.command2 else 1) + MARGIN_SECONDS
        if case.tty:
            shell = [sys.executable, "-I", str(TOOLS / "ttywrap.py"), str(self.run_dir / "tty"), str(hard_seconds)]
            worker = [*shell, *worker]
        terminal = out if way is Way.UNCONFINED else self.run_dir / "terminal"
        spec = Spec(
            argv=worker,
            uid=self.user.uid,
            gid=self.user.gid,
            places=[str(place) for place in (*users.reach(), self.base)],
            base=f"{self.base}/",
            hard_seconds=hard_seconds,
            stderr=str(self.run_dir / "worker.err"),
            stdout=str(out) if case.stdout_file else None,
            terminal=str(terminal) if case.tty else None,
            processes_seen=str(self.state / "ps.during") if case.snapshot_ps else None,
            connections_seen=str(self.state / "tcp.during") if case.snapshot_tcp else None,
            cgroup=f"ringfence-attacks-{self.tag}" if os.geteuid() == 0 else None,
            watched=[str(self.tmp)],
        )
        for name in ("err", "out2", "tty", "out.start"):
            self._own(self.run_dir / name, "")
        self._own(out, "AUDIT-LINE-1\n" if case.stdout_file else "")
        self._own(self.run_dir / "job", json.dumps(asdict(job)))
        self._own(self.run_dir / "spec", json.dumps(asdict(spec)))
        report = self._ask_guard(str(self.run_dir / "spec"), hard_seconds + 30)
        facts = self.run_dir / "facts"
        said = Facts(**json.loads(facts.read_text())) if facts.exists() else Facts(fault=self._last_words())
        return report, said

    def _ask_guard(self, spec: str, seconds: float) -> Report:
        assert self.guard.stdin is not None and self.guard.stdout is not None
        self.guard.stdin.write(f"{spec}\n".encode())
        self.guard.stdin.flush()
        if not select.select([self.guard.stdout], [], [], seconds)[0]:
            raise RuntimeError("the guard does not answer")
        answer = json.loads(self.guard.stdout.readline() or "{}")
        if not answer:
            raise RuntimeError(f"the guard failed: {(self.state / 'guard.py.log').read_text()[-2000:]}")
        return Report(**answer)

    def _own(self, file: Path, content: str) -> None:
        file.write_text(content)
        os.chown(file, self.user.uid, self.user.gid)

    def _last_words(self) -> str:
        log = self.run_dir / "worker.err"
        return "the worker died: " + (log.read_text(errors="replace")[-2000:] if log.exists() else "")

    def _environment(self) -> dict[str, str]:
        """The caller's, with secrets in it that must not come along."""
        secrets = {
            "SECFX_TOKEN": self.canary,
            "AWS_SECRET_ACCESS_KEY": self.canary,
            "BASH_FUNC_secfx_fn%%": f"() {{ echo {self.canary}; }}",
        }
        ours = {name: value for name, value in os.environ.items() if name in ("PYTHONPATH", "PYTHONSAFEPATH")}
        return {
            **ours,
            **secrets,
            "PATH": PATH,
            "HOME": str(self.fx / "home"),
            "TMPDIR": str(self.tmp),
            # Not below HOME, which is set back for every case: a caller's journal stays.
            "XDG_STATE_HOME": str(self.hx / "xdg-state"),
            "XDG_CACHE_HOME": str(self.hx / "xdg-cache"),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            **self._choice(),
        }

    def _choice(self) -> dict[str, str]:
        """What the caller says about the wall."""
        if self.in_docker:
            return docker.environment("runsc" if self.wall == "docker-gvisor" else "")
        if self.wall == WASI:
            return {"RINGFENCE_TOOL_ENGINE": WASI, **wasi.environ(self.hx / "wasi")}
        runsc = {name: os.environ[name] for name in ("RINGFENCE_RUNSC_PATH",) if name in os.environ}
        return {} if self.wall is None else {"RINGFENCE_PROCESS_SANDBOX": self.wall, **runsc}

    @property
    def in_docker(self) -> bool:
        return self.wall is not None and self.wall.startswith("docker")

    def lacks(self, case: Case) -> str:
        """Which program the case needs that there is none of where it would run; empty if none."""
        return missing(case, PATH, docker.has if self.in_docker else None)

    def _fill(self, text: str) -> str:
        values: Mapping[str, object] = {
            "FX": self.fx,
            "WS": self.ws,
            "HX": self.hx,
            "CANARY": self.canary,
            "TAG": self.tag,
            "VICTIM": self.victim.pid,
            **self._ports,
        }
        for name, value in values.items():
            text = text.replace(f"@{name}@", str(value))
        return text

    def _judge(self, case: Case, way: Way, report: Report, facts: Facts) -> tuple[Outcome, str]:
        if why := _void(facts, way):
            return Outcome.VOID, why
        if way is not Way.UNCONFINED and self.wall not in (None, facts.wall, facts.wall.partition(" in ")[0]):
            return Outcome.VOID, f"it ran behind {facts.wall}, not behind {self.wall}"
        if way is not Way.UNCONFINED and (why := _harm(report, facts)):
            return Outcome.UNSAFE, f"{why}; {facts.endings}"
        if self.in_docker and (left := docker.orphans()):
            return Outcome.UNSAFE, f"containers outlived the call: {', '.join(left)}"
        why = self._failed_check(case, report, facts)
        out = (self.run_dir / "out").read_bytes() if why else b""
        if absent := [mark for mark in ("DONE", "PROBED") if why and mark in case.check and mark.encode() not in out]:
            return Outcome.VOID, f"it never came to say {absent[0]}\n{why}"
        return (Outcome.UNSAFE, why) if why else (Outcome.SAFE, "")

    def _failed_check(self, case: Case, report: Report, facts: Facts) -> str:
        """Why the host does not look as it should; empty if it does."""
        check = subprocess.run(
            ["bash", "-c", case.check],
            cwd=self.hx,
            env={
                "PATH": PATH,
                "LANG": "C.UTF-8",
                "FX": str(self.fx),
                "WS": str(self.ws),
                "HX": str(self.hx),
                "FX_UID": str(self.user.uid),
                "CANARY": self.canary,
                "OUT": str(self.run_dir / "out"),
                "ERR": str(self.run_dir / "err"),
                "OUT2": str(self.run_dir / "out2"),
                "TTYIN": str(self.run_dir / "tty"),
                "RC": str(facts.exit_code),
                "DUR_MS": str(facts.duration_ms),
                "SURVIVORS": str(report.survivors),
                "SAFETY_HIT": str(int(report.safety_hit)),
                "VICTIM": str(self.victim.pid),
                "SVC": str(self.services.pid),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=CHECK_SECONDS,
        )
        if check.returncode == 0:
            return ""
        return "\n".join(
            (
                f"the check failed ({check.returncode}): {case.check}",
                f"ending: {facts.endings}, {facts.duration_ms} ms, survivors {report.survivors}",
                f"stdout: {_tail(self.run_dir / 'out')}",
                f"stderr: {_tail(self.run_dir / 'err')}",
                *([f"second stdout: {_tail(self.run_dir / 'out2')}"] if case.command2 else []),
            )
        )


def _void(facts: Facts, way: Way) -> str:
    """Why the run shows nothing at all; empty if it may show something."""
    if facts.fault:
        return f"no result: {facts.fault.strip().splitlines()[-1]}\n{facts.fault}"
    if refused := [ending for ending in facts.endings if ending.startswith("Refused")]:
        return f"it did not run, so the wall was not tried: {refused[0]}"
    if way is not Way.UNCONFINED and not facts.wall:
        return "the result names no wall"
    if facts.cold:
        return "the command did not go to the shell that waited"
    return ""


def _harm(report: Report, facts: Facts) -> str:
    """What no call may do, whatever the case's own check looks at; empty if it did not."""
    if report.overdue:
        return "the call did not return"
    if report.safety_hit:
        return "the safety bounds around the box were hit"
    if report.survivors:
        return f"{report.survivors} processes outlived the call"
    if facts.strays:
        return f"{facts.strays} processes outlived their command in its box"
    if report.left:
        return f"left behind: {', '.join(report.left)}"
    return ""


def _wait_until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"a process of the fixture did not come up: {process.args!r}")
        time.sleep(0.01)


def _end(process: subprocess.Popen[bytes], how: signal.Signals) -> None:
    process.send_signal(how)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _empty(directory: Path) -> None:
    if directory.exists():
        for entry in directory.iterdir():
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def _tail(file: Path, length: int = 600) -> str:
    if not file.exists():
        return "(none)"
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - length))
        return repr(stream.read().decode(errors="replace"))
