"""Every case of the path corpus, through the file API, by both resolvers.

The corpus assumes this layout, made anew for each case (`@R@` is its top, `setup` runs in `ws`):

    R/ws        the workspace        R/out               outside, with secrets
    R/ws2       prefix siblings      R/wslink -> ws      the workspace by another name
    R/ws-evil

What `expect` means here: `inside` it works and its effect is in ws; `deny` and `special` PathAccessDenied; `invalid`
InvalidArgument or a FileError; `noescape` either way, but with an error of ours. In all of them nothing of the outside
is in the answer, and the outside is afterwards what it was.

`paths.jsonl` came with the requirements; `paths_own.jsonl` is ours, for what it does not ask: globs, moves, archives.
An archive's member is packed into a real tar or zip and uploaded.
"""

import io
import json
import os
import signal
import stat
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringfence import AgentWorkspace
from ringfence.errors import (
    AlreadyExists,
    FileError,
    InvalidArgument,
    IsADirectory,
    NotADirectory,
    NotFound,
    PathAccessDenied,
    RingfenceError,
)
from ringfence.policy.defaults import BLACKLIST
from ringfence.policy.globs import PathRules
from ringfence.workspace.beneath import Resolver, by_kernel, by_walk, choose_resolver

CORPUS = Path(__file__).parents[1] / "corpus"
CASES = [
    json.loads(line) for name in ("paths.jsonl", "paths_own.jsonl") for line in (CORPUS / name).read_text().splitlines()
]
RESOLVERS = {"openat2": by_kernel, "walk": by_walk}
LATER: dict[str, str] = {}
"""Cases that need something that is not built yet: id and reason."""

SECRET = b"outside-secret-7f3a"
NEW = b"written by the case"
DENIED = PathRules(row for row in BLACKLIST if not row.startswith("~"))
RACE_SECONDS = 0.7

INSIDE_FILES = (
    "a.txt",
    "sub/b.txt",
    "żółć.txt",
    "sp ace.txt",
    "...",
    " ",
    ".env",
    ".git/HEAD",
    ".git/config",
    ".git/hooks/pre-commit.sample",
)
OUTSIDE_FILES = ("out/secret.txt", "out/dd/file.txt", "ws2/file.txt", "ws-evil/file.txt")


@dataclass
class Tally:
    right: int = 0
    run: int = 0
    unstaged: tuple[str, ...] = ()


@pytest.fixture(scope="module")
def tally(pytestconfig: pytest.Config) -> Iterator[Tally]:
    """Counts, and says the sum at the end."""
    counted = Tally()
    yield counted
    line = f"paths: {counted.right} right of {counted.run}"
    for name, reason in (
        *LATER.items(),
        *((name, "needs root to be staged") for name in sorted(set(counted.unstaged))),
    ):
        line += f"; {name} not run: {reason}"
    if pytestconfig.pluginmanager.has_plugin("terminalreporter"):  # a worker of xdist has none
        pytestconfig.pluginmanager.register(Summary(line))


@dataclass
class Summary:
    line: str

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.write_line(self.line)


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for name in INSIDE_FILES:
        file = tmp_path / "ws" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"inside " + os.fsencode(name))
    for name in OUTSIDE_FILES:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(SECRET)
    (tmp_path / "wslink").symlink_to("ws")
    return tmp_path


@pytest.fixture(params=RESOLVERS)
def resolver(request: pytest.FixtureRequest, tmp_path: Path) -> Resolver:
    chosen = RESOLVERS[request.param]
    if chosen is by_kernel:
        descriptor = os.open(tmp_path, os.O_PATH)
        try:
            if choose_resolver(descriptor) is not by_kernel:
                pytest.skip("this kernel has no openat2")
        finally:
            os.close(descriptor)
    return chosen


def perform(root: AgentWorkspace, op: str, path: str) -> bytes:
    """Do what a case asks, and return all that the caller gets to see."""
    match op.split(":"):
        case ["read"]:
            return root.read(path)
        case ["list"]:
            return repr(root.list(path)).encode()
        case ["stat"]:
            return repr(root.stat(path)).encode()
        case ["create" | "write"]:
            root.write(path, NEW)
        case ["delete"]:
            root.delete(path, recursive=True)
        case ["rename", target]:
            root.move(path, target)
        case ["cwd"]:
            return os.fsencode(root.resolve_dir(path))
        case ["glob"]:
            return repr(root.glob(path)).encode()
        case ["append"]:
            root.append(path, NEW)
        case ["mkdir"]:
            root.make_dir(path)
        case ["exists"]:
            return repr(root.exists(path)).encode()
        case ["extract"] if "\0" not in path:
            root.upload(a_tar(path))
        case ["extract" | "unzip"]:  # a tar cannot hold a NUL in a name
            root.upload(a_zip(path))
        case ["extract-link", target]:
            root.upload(a_tar(path, link_to=target))
        case _:
            raise AssertionError(f"unknown operation {op}")
    return b""


def a_tar(name: str, link_to: str = "") -> bytes:
    """One member; a mode may follow its name after a blank, as in `tool 4755`."""
    stem, _, mode = name.rpartition(" ")
    info = tarfile.TarInfo(stem if mode.isdigit() else name)
    info.mode = int(mode, 8) if mode.isdigit() else 0o644
    info.size = 0 if link_to else len(NEW)
    info.type = tarfile.SYMTYPE if link_to else tarfile.REGTYPE
    info.linkname = link_to
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(info, io.BytesIO(NEW))
    return packed.getvalue()


def a_zip(name: str) -> bytes:
    written = name.replace("\0", "@")  # zipfile would cut the name there
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(zipfile.ZipInfo(written), NEW)
    return packed.getvalue().replace(written.encode(), name.encode())


def has_effect(ws: Path, op: str, path: str, seen: bytes) -> bool:
    """Whether an operation that went through did its work, and did it in the workspace."""
    place = ws.resolve() / path  # an absolute path replaces the left side
    match op.split(":"):
        case ["read"]:
            return seen.startswith(b"inside ")
        case ["list"]:
            shown = [file.name for file in place.iterdir() if DENIED.matches(str(file)) is None]
            return len(shown) > 0 and all(repr(name).encode() in seen for name in shown)
        case ["create" | "write" | "extract" | "unzip"]:
            return place.read_bytes() == NEW and not place.is_symlink()
        case ["append"]:
            return place.read_bytes().endswith(NEW)
        case ["mkdir"]:
            return place.is_dir()
        case ["rename", target]:
            return (ws / target).read_bytes().startswith(b"inside ") and not place.exists()
        case ["glob"]:
            return b".txt" in seen
        case ["delete"]:
            return not place.exists()
        case ["cwd"]:
            return seen == os.fsencode(place.resolve())
        case _:
            return False


def outside(top: Path) -> dict[str, tuple[int, int, bytes]]:
    """Everything in the layout that is not in the workspace: kind and mode, size, content."""
    seen = {}
    for file in sorted(top.rglob("*")):
        relative = str(file.relative_to(top))
        if relative != "ws" and not relative.startswith("ws/"):
            status = file.lstat()
            content = file.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            seen[relative] = (status.st_mode, status.st_nlink if file.is_dir() else 0, content)
    return seen


@pytest.mark.req("C2", "E3")
@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_path_comes_out_as_the_corpus_says(case: dict[str, str], top: Path, resolver: Resolver, tally: Tally) -> None:
    if case["id"] in LATER:
        pytest.skip(LATER[case["id"]])
    ws, path = top / "ws", case["path"].replace("@R@", str(top))
    before = outside(top)
    if case.get("race"):
        tally.run += 1
        check_race(case, top, path, resolver)
        assert outside(top) == before
        tally.right += 1
        return
    setup = case["setup"].replace("@R@", str(top))
    staged = subprocess.run(["bash", "-ec", setup], cwd=ws, capture_output=True, text=True, check=False)
    if staged.returncode != 0:
        tally.unstaged += (case["id"],)
        assert os.geteuid() != 0, f"root can stage every case: {staged.stderr}"
        pytest.skip(f"{case['id']} cannot be staged as an ordinary user: {staged.stderr.strip()}")

    tally.run += 1
    root_path = case.get("root", "@R@/ws").replace("@R@", str(top))
    with AgentWorkspace("corpus", root=root_path, resolver=resolver) as root:
        try:
            seen = perform(root, case["op"], path)
            error = None
        except RingfenceError as raised:
            seen, error = b"", raised

    match case["expect"]:
        case "inside":
            assert error is None
            assert has_effect(ws, case["op"], path, seen)
        case "deny" | "special":
            assert isinstance(error, PathAccessDenied | IsADirectory | NotADirectory | AlreadyExists), (error, seen)
            assert error.path in (path, *case["op"].split(":")[1:])
        case "invalid":
            assert isinstance(error, InvalidArgument | FileError), (error, seen)
        case "noescape":
            assert error is None or not {"\n", "\x1b"} & set(str(error))
        case other:
            raise AssertionError(f"unknown expectation {other}")
    assert SECRET not in seen and b"root:" not in seen
    assert outside(top) == before
    assert not [file for file in ws.rglob("*") if file.lstat().st_mode & 0o7000]
    assert not list(ws.rglob(".ringfence-*"))
    if (ws / "sub").exists():
        (ws / "sub").chmod(0o755)  # one case locks it, and then nobody could clean up
    tally.right += 1


def check_race(case: dict[str, str], top: Path, path: str, resolver: Resolver) -> None:
    """Call again and again while the case's endless setup swaps names; both sides of the swap have to be seen."""
    refused = worked = 0
    swapper = subprocess.Popen(
        ["bash", "-c", case["setup"]], cwd=top / "ws", start_new_session=True, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + RACE_SECONDS
        with AgentWorkspace("corpus", root=top / "ws", resolver=resolver) as root:
            while time.monotonic() < deadline or (not (refused and worked) and time.monotonic() < deadline + 10):
                try:
                    if case["op"] == "read":
                        assert root.read(path) in (b"ok\n", b"")
                    else:
                        root.write(path, NEW, make_parents=False)
                    worked += 1
                except PathAccessDenied:
                    refused += 1
                except NotFound:  # between two names: nothing is there
                    continue
    finally:
        os.killpg(swapper.pid, signal.SIGKILL)
        swapper.wait()
    assert refused and worked, "the swap was not under way"


@pytest.mark.req("E3")
def test_the_corpus_check_can_fail(top: Path) -> None:
    """The twin: a plain join and open gives the secret away, and the checks above notice."""
    own = [
        case for case in CASES if case["op"] == "read" and case["path"].endswith("/secret.txt") and not case["setup"]
    ]
    leaked = {
        case["id"]
        for case in own
        if (file := top / "ws" / case["path"].replace("@R@", str(top))).is_file() and SECRET in file.read_bytes()
    }

    assert leaked >= {"P-024", "P-026", "P-039", "P-045", "P-092"}
