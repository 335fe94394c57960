"""A live race: a directory and a link to the outside trade places while the API is called.

The swapper is a process of its own that exchanges the two names in one system call, over and over: at every moment
`sub` is either. A resolver that looks first and opens later meets the one and then the other.

The twin shows that this race can be won: the same calls through realpath, a check, and open. A machine on which even
that cannot be beaten within the time proves nothing, and the test says so by its outcome: skipped, with the count of
tries.
"""

import io
import os
import tarfile
import time
from collections import Counter
from pathlib import Path

import pytest

from ringfence import AgentWorkspace
from ringfence.errors import AlreadyExists, Busy, NotADirectory, NotFound, PathAccessDenied
from ringfence.workspace.beneath import Resolver, by_kernel, by_walk, choose_resolver
from tests.support.swapping import swapping

SECRET = b"outside!"
INSIDE = b"inside"  # of another length, so that a status tells them apart
TRIES = 50_000
"""For each resolver, hence 100,000 in all."""
WINDOW_SECONDS = 90.0
"""A bound for slow machines; ten seconds are usual."""
TWIN_SECONDS = 20.0


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    for name, content in (("ws/sub", INSIDE), ("out", SECRET)):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "file.txt").write_bytes(content)
    (tmp_path / "ws/link").symlink_to("../out")
    return tmp_path / "ws"


def outside(ws: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (ws.parent / "out").iterdir()}


def an_archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        info = tarfile.TarInfo("unpacked.txt")
        info.size = len(INSIDE)
        archive.addfile(info, io.BytesIO(INSIDE))
    return packed.getvalue()


UPLOAD = an_archive()


def once(files: AgentWorkspace, number: int) -> str:
    """One call of the API, with a name that is either; says how it went. Cheap calls come more often."""
    try:
        match number % 64:
            case 0:
                files.write("sub/new.txt", INSIDE)
            case 1:
                files.append("sub/log.txt", b".")
            case 2:
                files.write("sub/made/deeper/f", INSIDE)
            case 3:
                files.delete("sub/new.txt")
            case 4:
                files.upload(UPLOAD, "sub")
            case 5:
                packed = io.BytesIO()
                files.download(packed, "sub", form="tar")
                assert SECRET not in packed.getvalue() and b"secret" not in packed.getvalue()
            case 6:
                assert not [path for path in files.glob("*/*") if "secret" in path]
            case 7:
                files.move("sub/unpacked.txt", "sub/moved.txt")
            case 8:
                files.delete("sub/moved.txt")
            case 9:
                files.make_dir("sub/made/anew")
            case 10 | 11 | 12:
                assert "secret" not in repr(files.list("sub"))
            case 13 | 14 | 15:
                assert files.read("sub/../sub/file.txt") == INSIDE
            case rest if rest % 2:
                assert files.stat("sub/file.txt").size_bytes == len(INSIDE)
            case _:
                assert files.read("sub/file.txt") == INSIDE
    except (PathAccessDenied, Busy, AlreadyExists):
        return "refused"
    except (NotFound, NotADirectory):
        return "missing"
    return "worked"


@pytest.mark.req("C2", "E3")
@pytest.mark.parametrize("resolver", [by_kernel, by_walk], ids=["openat2", "walk"])
def test_swapped_links_never_lead_the_api_out(ws: Path, resolver: Resolver) -> None:
    descriptor = os.open(ws, os.O_PATH)
    try:
        if resolver is by_kernel and choose_resolver(descriptor) is not by_kernel:
            pytest.skip("this kernel has no openat2")
    finally:
        os.close(descriptor)
    (ws.parent / "out/secret-name").touch()
    before = outside(ws)
    seen: Counter[str] = Counter()
    deadline = time.monotonic() + WINDOW_SECONDS
    # Without protected names: each write would ask about all of them, and the race is about something else.
    with AgentWorkspace("race", root=ws, protected=(), resolver=resolver) as files, swapping(ws):
        for number in range(TRIES):
            seen[once(files, number)] += 1
            assert time.monotonic() < deadline, f"only {number} tries in {WINDOW_SECONDS} s"

    assert outside(ws) == before
    assert min(seen["worked"], seen["refused"]) > TRIES // 100, f"the race was not live: {seen}"


def naive_read(ws: Path, path: str) -> bytes:
    """What not to do."""
    real = os.path.realpath(ws / path)
    if not real.startswith(f"{ws}/"):
        raise PathAccessDenied(path, "outside")
    return (ws / path).read_bytes()


@pytest.mark.req("E3")
def test_the_same_race_beats_a_check_before_the_open(ws: Path) -> None:
    tries = 0
    with swapping(ws):
        deadline = time.monotonic() + TWIN_SECONDS
        while time.monotonic() < deadline:
            tries += 1
            try:
                if naive_read(ws, "sub/file.txt") == SECRET:
                    return
            except (PathAccessDenied, OSError):
                continue
    pytest.skip(f"inconclusive: the naive reader was not beaten in {tries} tries within {TWIN_SECONDS:g} s")
