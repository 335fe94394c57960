"""What somebody would use instead of Ringfence, as cases: llm-sandbox, sandlock, srt, Codex, Docker, nsjail, firejail.

`make alternatives` installs them. Before one is measured it has to show three things, in the very way that will be
measured: that commands end well, that an exit code comes through, and that a write outside of the workspace does not
reach the host (a write that works without a sandbox, and inside of this one to /dev/null; both are tried). One that
fails the first two is listed as missing; one that lets the write through says so in its name.

All get a workspace to write in, no network, and otherwise their own defaults. Libraries run in a process of their own
that takes orders over a pipe, which adds less than a tenth of a millisecond; programs are started as a user would.

python -m benchmarks.alternatives [rounds]
"""

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.rounds import Case, measure, report
from benchmarks.sections import COMMAND_LINE, CONTAINER, LIBRARY, SESSION

ROUNDS = 30
TRUE = ("/bin/true",)
PYTHON = "/usr/bin/python3"
"""The system's: every sandbox shows /usr, and a version manager's shim would cost more than most of them."""
PASS = (PYTHON, "-c", "pass")
HERE = Path(os.environ.get("RINGFENCE_ALTERNATIVES") or Path(__file__).parents[1] / ".alternatives")
_SECONDS = 60

Command = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    code: int
    words: str = ""

    @property
    def reason(self) -> str:
        lines = self.words.strip().splitlines()
        return f"it ended with {self.code}" + (f": {lines[-1][:160]}" if lines else "")


Runner = Callable[[Command], Ended]
"""Runs a command inside the sandbox and waits for it."""


@dataclass(frozen=True, slots=True)
class Missing:
    name: str
    why: str


class Unavailable(Exception):
    """This alternative cannot be measured here; the message says why."""


@dataclass(slots=True)
class Place:
    """A workspace, a home and a directory outside, below /var/tmp: some sandboxes leave /tmp writable on purpose."""

    root: Path
    env: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        scratch = self.root / "tmp"  # some leave files behind
        for directory in (self.workspace, self.home, self.outside, scratch):
            directory.mkdir()
        path = os.pathsep.join((str(HERE / "node/node_modules/.bin"), str(HERE / "bin"), os.environ["PATH"]))
        self.env = {"PATH": path, "HOME": str(self.home), "TMPDIR": str(scratch), "LANG": "C.UTF-8"}

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def home(self) -> Path:
        return self.root / "home"

    @property
    def outside(self) -> Path:
        return self.root / "outside"

    def tool(self, name: str) -> str:
        found = shutil.which(name, path=self.env["PATH"])
        if not found:
            raise Unavailable("not installed")
        return found

    def spawn(self, line: Command) -> Ended:
        try:
            done = subprocess.run(
                line,
                check=False,
                cwd=self.workspace,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                timeout=_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Ended(-1, f"still running after {_SECONDS} seconds")
        return Ended(done.returncode, done.stderr.decode(errors="replace"))

    def read(self, *line: str) -> str:
        """What a command says, for versions and names."""
        done = subprocess.run(
            line, check=False, cwd=self.workspace, env=self.env, capture_output=True, text=True, timeout=_SECONDS
        )
        if done.returncode:
            raise Unavailable(Ended(done.returncode, done.stderr).reason)
        return done.stdout.strip()


@dataclass(frozen=True, slots=True)
class Way:
    """One way to run commands in one alternative."""

    name: str
    run: Runner
    commands: tuple[Command, ...] = (TRUE, PASS)
    section: str = COMMAND_LINE


Offer = Callable[[Place, ExitStack], Iterator[Way]]
"""The ways of one alternative; what it leaves running is ended by the stack.

Raises:
    Unavailable: it is not installed, or does not answer.
"""


# --- libraries --------------------------------------------------------------------------------------------------------

_LISTEN = """
import json, sys
from importlib.metadata import version

def listen(package, run):
    print(json.dumps(version(package)), flush=True)
    for line in sys.stdin:
        way, command = json.loads(line)
        try:
            answer = run(way, command)
        except Exception as error:
            answer = [-1, f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), flush=True)
"""

_LLM_SANDBOX = """
import shlex
from llm_sandbox import SandboxBackend, SandboxSession

def session(**options):
    return SandboxSession(backend=SandboxBackend.BUBBLEWRAP, lang="python", bwrap_path=sys.argv[1], **options)

def run_in(box, command):
    is_code = command[1:2] == ["-c"] and "python" in command[0]
    output = box.run(command[2]) if is_code else box.execute_command(shlex.join(command))
    return [output.exit_code, output.stderr]

def run(way, command):
    if way == "open":
        return run_in(opened, command)
    with session(skip_environment_setup=way != "defaults") as box:
        return run_in(box, command)

with session(skip_environment_setup=True) as opened:
    listen("llm-sandbox", run)
"""

_SANDLOCK = """
from sandlock import Sandbox

READABLE = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"]
box = Sandbox(fs_readable=READABLE, fs_writable=[sys.argv[1], "/dev/null"], cwd=sys.argv[1])

def run(way, command):
    result = box.run(command, timeout=30)
    return [result.exit_code, result.error or ""]

listen("sandlock", run)
"""

_SRT = """
import { spawn } from "node:child_process"
import { createInterface } from "node:readline"
const [place, version, settings] = process.argv.slice(1)
const { SandboxManager } = await import(place)
const answer = (value) => process.stdout.write(JSON.stringify(value) + "\\n")

await SandboxManager.initialize(JSON.parse(settings))
answer(version)
for await (const line of createInterface({ input: process.stdin })) {
  const [, command] = JSON.parse(line)
  const quoted = command.map((word) => `'${word.replaceAll("'", `'\\\\''`)}'`).join(" ")
  const child = spawn(await SandboxManager.wrapWithSandbox(quoted), { shell: true, stdio: "ignore" })
  const code = await new Promise((done) => child.on("close", done))
  SandboxManager.cleanupAfterCommand?.()
  answer([code ?? -1, ""])
}
await SandboxManager.reset()
process.exit(0)
"""


class Library:
    """A library in its own interpreter: a line in is a way and a command, a line out is how that ended."""

    def __init__(self, place: Place, line: Command) -> None:
        self._words = (place.root / f"library-{id(self)}").open("w+")
        self._process = subprocess.Popen(
            line,
            cwd=place.workspace,
            env=place.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
        )
        try:
            self.version = str(self._answer())
        except Unavailable:
            self.close()
            raise

    def way(self, name: str) -> Runner:
        def run(command: Command) -> Ended:
            assert self._process.stdin
            with suppress(BrokenPipeError):  # the missing answer says it
                self._process.stdin.write(json.dumps((name, command)) + "\n")
                self._process.stdin.flush()
            code, words = self._answer()
            return Ended(code, words)

        return run

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._words.close()

    def _answer(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            self._words.seek(0)
            raise Unavailable(Ended(self._process.wait(10), self._words.read()).reason)
        return json.loads(line)


def python_library(place: Place, stack: ExitStack, program: str, argument: str) -> Library:
    python = HERE / "venv/bin/python"
    if not python.exists():
        raise Unavailable("not installed")
    library = Library(place, (str(python), "-c", _LISTEN + program, argument))
    stack.callback(library.close)
    return library


def llm_sandbox(place: Place, stack: ExitStack) -> Iterator[Way]:
    library = python_library(place, stack, _LLM_SANDBOX, place.tool("bwrap"))
    name = f"llm-sandbox {library.version} bwrap"
    yield Way(f"{name}, open session", library.way("open"), section=SESSION)
    yield Way(f"{name}, one shot", library.way("once"), section=LIBRARY)


def llm_sandbox_as_it_comes(place: Place, stack: ExitStack) -> Iterator[Way]:
    """Its default makes a virtual environment in every new session, which takes seconds."""
    library = python_library(place, stack, _LLM_SANDBOX, place.tool("bwrap"))
    yield Way(f"llm-sandbox {library.version} bwrap, one shot with its venv", library.way("defaults"), (PASS,), LIBRARY)


def sandlock(place: Place, stack: ExitStack) -> Iterator[Way]:
    library = python_library(place, stack, _SANDLOCK, str(place.workspace))
    yield Way(f"sandlock {library.version}", library.way(""), section=LIBRARY)


# --- programs ---------------------------------------------------------------------------------------------------------


def prefixed(place: Place, *prefix: str) -> Runner:
    return lambda command: place.spawn((*prefix, *command))


def srt(place: Place, stack: ExitStack) -> Iterator[Way]:
    """As a program, and as the library that other Node programs use, with its proxies started once."""
    program = place.tool("srt")
    for needed in ("bwrap", "socat", "rg"):
        if not shutil.which(needed, path=place.env["PATH"]):
            raise Unavailable(f"it needs {needed}, which is not installed")
    version = place.read(program, "--version")
    settings = json.dumps(
        {
            "network": {"allowedDomains": [], "deniedDomains": []},
            "filesystem": {"denyRead": [], "allowWrite": [str(place.workspace)], "denyWrite": []},
        }
    )
    module = Path(program).resolve().with_name("index.js")
    library = Library(place, (place.tool("node"), "--input-type=module", "-e", _SRT, str(module), version, settings))
    stack.callback(library.close)
    yield Way(f"srt {version}, as a library", library.way(""), section=LIBRARY)
    file = place.root / "srt.json"
    file.write_text(settings)
    line = (program, "--settings", str(file), "-c")
    yield Way(f"srt {version}", lambda command: place.spawn((*line, shlex.join(command))))


def codex(place: Place, stack: ExitStack) -> Iterator[Way]:
    """Its binary, and with what npm puts in front of it."""
    launcher = place.tool("codex")
    version = place.read(launcher, "--version").split()[-1]
    arguments = ("sandbox", "-c", 'sandbox_mode="workspace-write"', "--")
    binaries = sorted(HERE.glob("node/node_modules/@openai/codex-*/vendor/*/bin/codex"))
    if binaries:
        yield Way(f"codex {version} sandbox", prefixed(place, str(binaries[0]), *arguments))
    yield Way(f"codex {version} sandbox, npm's launcher", prefixed(place, launcher, *arguments), (TRUE,))


def nsjail(place: Place, stack: ExitStack) -> Iterator[Way]:
    """The host's tree, read-only. It tells no version."""
    workspace = str(place.workspace)
    line = (place.tool("nsjail"), "-Mo", "-Q", "--chroot", "/", "--bindmount", workspace, "--cwd", workspace, "--")
    yield Way("nsjail", prefixed(place, *line))


def firejail(place: Place, stack: ExitStack) -> Iterator[Way]:
    program = place.tool("firejail")
    version = place.read(program, "--version").split()[2]
    walls = ("--quiet", "--noprofile", "--net=none", "--read-only=/", f"--read-write={place.workspace}", "--")
    yield Way(f"firejail {version}", prefixed(place, program, *walls))


def docker(place: Place, stack: ExitStack) -> Iterator[Way]:
    """The image: RINGFENCE_DOCKER_IMAGE, or else the first local one that can run `true`."""
    program = place.tool("docker")
    own = HERE / "docker/docker.sock"
    if "DOCKER_HOST" in os.environ:
        place.env["DOCKER_HOST"] = os.environ["DOCKER_HOST"]
    elif own.exists():
        place.env["DOCKER_HOST"] = f"unix://{own}"
    version = place.read(program, "version", "--format", "{{.Server.Version}}").partition("+")[0]
    walls = ("--network", "none", "--volume", f"{place.workspace}:/workspace", "--workdir", "/workspace")
    once = (program, "run", "--rm", *walls)
    images = place.read(program, "image", "ls", "--quiet").split()
    wanted = [os.environ["RINGFENCE_DOCKER_IMAGE"]] if "RINGFENCE_DOCKER_IMAGE" in os.environ else images
    image = next((name for name in wanted if place.spawn((*once, name, "true")).code == 0), None)
    if not image:
        raise Unavailable("no local image can run `true`")
    container = place.read(program, "run", "--detach", "--rm", *walls, image, "sleep", "infinity")
    stack.callback(place.read, program, "rm", "--force", container)

    def by_name(*prefix: str) -> Runner:
        """The image has its own places for programs."""
        return lambda command: place.spawn((*prefix, os.path.basename(command[0]), *command[1:]))

    yield Way(f"docker {version} exec", by_name(program, "exec", container), section=CONTAINER)
    yield Way(f"docker {version} run", by_name(*once, image), section=CONTAINER)


def gvisor(place: Place, stack: ExitStack) -> Iterator[Way]:
    """Its own one-shot command: a kernel for one program, over the host's tree. For root it needs no user namespace."""
    program = place.tool("runsc")
    version = place.read(program, "--version").splitlines()[0].split()[-1].removeprefix("release-")
    rootless = () if os.geteuid() == 0 else ("--rootless",)
    line = (program, *rootless, "--network=none", "--ignore-cgroups", "do", f"--cwd={place.workspace}")
    yield Way(f"gVisor {version} runsc do", prefixed(place, *line), section=CONTAINER)


OFFERS: dict[str, Offer] = {
    "llm-sandbox": llm_sandbox,
    "sandlock": sandlock,
    "srt": srt,
    "codex": codex,
    "docker": docker,
    "gVisor": gvisor,
    "nsjail": nsjail,
    "firejail": firejail,
}


# --- cases ------------------------------------------------------------------------------------------------------------


@contextmanager
def alternatives(*, slow: bool = False) -> Iterator[tuple[list[Case], list[Missing]]]:
    """The cases of all that is installed and works, and what is missing; all ends with the context."""
    offers = OFFERS | ({"llm-sandbox, as it comes": llm_sandbox_as_it_comes} if slow else {})
    cases: list[Case] = []
    missing: list[Missing] = []
    beneath = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    # A sandbox may leave files that only another user can remove; that must not cost the results.
    with (
        tempfile.TemporaryDirectory(prefix="ringfence-alternatives-", dir=beneath, ignore_cleanup_errors=True) as root,
        ExitStack() as stack,
    ):
        place = Place(Path(root))
        for name, offer in offers.items():
            try:
                for way in offer(place, stack):
                    for command in way.commands:
                        try:
                            cases.append(checked_case(name.partition(",")[0], way, command, place))
                        except Unavailable as error:
                            missing.append(Missing(f"{way.name}: {title(command)}", str(error)))
            except Unavailable as error:
                missing.append(Missing(name, str(error)))
        yield cases, missing


def checked_case(group: str, way: Way, command: Command, place: Place) -> Case:
    """A case that has shown that it runs what it is given, and named for what it does not keep in.

    Raises:
        Unavailable: it does not run the command, or hides how it ended.
    """
    checks = ((command, 0), (_exit(7, command), 7), (_write(Path(os.devnull), command), 0))
    for check, expected in checks:
        ended = way.run(check)
        if ended.code != expected:
            raise Unavailable(f"{title(check)!r} should end with {expected}, but {ended.reason}")
    name = f"{way.name}: {title(command)}"
    if reaches_outside(way.run, command, place):
        name += " (runs bare: wrote outside)"

    async def run() -> None:
        ended = way.run(command)
        if ended.code != 0:
            raise RuntimeError(f"{name}: {ended.reason}")

    return Case(name, run, group=group, section=way.section)


def reaches_outside(run: Runner, command: Command, place: Place) -> bool:
    """Whether a write outside of the workspace is on the host afterwards; exit codes and words do not count."""
    file = place.outside / "written"
    attempt = _write(file, command)
    place.spawn(attempt)
    if not file.exists():
        raise RuntimeError(f"the write that sandboxes shall refuse does not even work without one: {file}")
    file.unlink()
    run(attempt)
    reached = file.exists()
    file.unlink(missing_ok=True)
    return reached


def _exit(code: int, like: Command) -> Command:
    return (PYTHON, "-c", f"raise SystemExit({code})") if like == PASS else ("/bin/sh", "-c", f"exit {code}")


def _write(file: Path, like: Command) -> Command:
    return (PYTHON, "-c", f"open({str(file)!r}, 'w')") if like == PASS else ("/bin/sh", "-c", f"echo > '{file}'")


def title(command: Command) -> str:
    return " ".join((os.path.basename(command[0]).rstrip("3"), *command[1:]))


def bare(command: Command) -> Case:
    async def run() -> None:
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env={"PATH": os.defpath}
        )

    return Case(f"subprocess.run: {title(command)}", run, group="bare")


async def main(rounds: int) -> None:
    console = Console()
    with alternatives(slow=True) as (cases, missing):
        cases = [bare(TRUE), bare(PASS), *cases]
        await measure(cases, rounds, console)
    report(cases, f"{rounds} interleaved rounds, as {'root' if os.geteuid() == 0 else 'an ordinary user'}", console)
    for each in missing:
        console.print(f"missing: {each.name}: {each.why}", markup=False)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS))
