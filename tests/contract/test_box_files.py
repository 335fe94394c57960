"""One suite for the files of every box, read and changed inside it: behind each native wall, and in Docker."""

import asyncio
import errno
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from ringfence.engines.base import Box
from ringfence.errors import Internal, Timeout
from ringfence.values.files import FileFlag, FileKind, FileOperation, Performed
from ringfence.values.limits import Limits
from ringfence.values.request import Request
from tests.contract.test_boxes import WALLED, Bench, _bench

FOLLOW, PARENTS = FileFlag.FOLLOW, FileFlag.PARENTS


@pytest.fixture(params=WALLED)
def real(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    return _bench(request.param, tmp_path)


@pytest.fixture
def native(tmp_path: Path) -> Bench:
    """One wall, for what is the same behind all of them."""
    return _bench("bwrap", tmp_path)


def anywhere(place: str) -> None:
    """No rule objects."""


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def do(
    box: Box,
    name: str,
    path: str,
    second: str = "",
    *,
    flags: FileFlag = FOLLOW,
    mode: int = 0,
    limit: int = 1 << 24,
    data: bytes | None = None,
    agree: Callable[[str], None] = anywhere,
) -> Performed:
    operation = FileOperation(name=name, path=path, second=second, flags=flags, mode=mode, limit=limit)
    return await box.perform(operation, agree, None if data is None else pieces(data))


async def fails(box: Box, name: str, path: str, second: str = "", **more: object) -> int:
    """The errno that it ends with."""
    with pytest.raises(OSError) as caught:
        await do(box, name, path, second, **more)  # type: ignore[arg-type]  # as `do` takes them
    return caught.value.errno or 0


async def said(box: Box, command: str) -> str:
    result = await box.run(Request(command=command))
    assert result.exit_code == 0, result.stderr
    return result.stdout


# --- what is there ----------------------------------------------------------------------------------------------------


@pytest.mark.req("C2")
def test_a_file_is_the_same_to_commands_and_to_whoever_owns_the_box(real: Bench) -> None:
    """In the workspace, in /tmp, in the home directory and in /etc."""
    work = real.workspace

    async def work_in(box: Box) -> None:
        await do(box, "write", f"{work}/a/b", flags=FOLLOW | PARENTS, data=b"one\n")
        # The wall without mounts has neither of its own.
        tmp, home = "/tmp", (await said(box, "echo $HOME")).strip()
        if real.kind == "landlock":
            tmp = home = f"{work}/tmp"
        await do(box, "write", f"{tmp}/x/y", flags=FOLLOW | PARENTS, data=b"two\n")
        assert await said(box, f"cat a/b {tmp}/x/y; mkdir -p {home}; echo three > {home}/made") == "one\ntwo\n"
        assert (await do(box, "read", f"{home}/made")).content == b"three\n"
        if real.kind != "landlock":
            assert b"root" in (await do(box, "read", "/etc/passwd")).content
        (made,) = (await do(box, "stat", f"{work}/a/b")).entries
        assert (made.kind, made.size_bytes) == (FileKind.FILE, 4)
        assert f"{made.uid} {made.mode:o}\n" == await said(box, "stat -c '%u %a' a/b")

    real.use(work_in)
    assert (work / "a/b").read_text() == "one\n"
    assert (work / "a/b").stat().st_uid == work.stat().st_uid


@pytest.mark.req("C2")
def test_the_kernel_says_no_as_it_does_to_a_command(real: Bench) -> None:
    """Modes hold, whoever started the box: 444 is not replaced, 000 is not read, the system stays."""
    work = real.workspace

    async def work_in(box: Box) -> None:
        await said(box, "echo old > fixed; chmod 444 fixed; echo x > closed; chmod 000 closed; mkdir -m 500 shut")
        assert await fails(box, "write", f"{work}/fixed", data=b"new") == errno.EACCES
        assert await fails(box, "read", f"{work}/closed") == errno.EACCES
        assert await fails(box, "write", f"{work}/shut/a", data=b"") == errno.EACCES
        assert await fails(box, "write", "/usr/bin/made", data=b"") in (errno.EACCES, errno.EROFS)
        assert (await do(box, "read", f"{work}/fixed")).content == b"old\n"
        await said(box, "chmod 600 fixed closed; chmod 700 shut")

    real.use(work_in)


@pytest.mark.req("C2")
def test_each_fault_has_its_errno(real: Bench) -> None:
    work = real.workspace

    async def work_in(box: Box) -> None:
        await do(box, "write", f"{work}/file", data=b"x")
        assert await fails(box, "read", f"{work}/none") == errno.ENOENT
        assert await fails(box, "read", f"{work}/sub") == errno.EISDIR
        assert await fails(box, "read", f"{work}/file/below") == errno.ENOTDIR
        assert await fails(box, "list", f"{work}/file") == errno.ENOTDIR
        assert await fails(box, "write", f"{work}/sub", data=b"") == errno.EISDIR
        assert await fails(box, "write", f"{work}/none/a", data=b"") == errno.ENOENT
        assert await fails(box, "mkdir", f"{work}/sub", flags=FileFlag.NONE) == errno.EEXIST
        assert await fails(box, "mkdir", f"{work}/file", flags=FileFlag.EXIST_OK) == errno.EEXIST
        await do(box, "mkdir", f"{work}/sub/deep/er", flags=PARENTS)
        assert await fails(box, "remove", f"{work}/sub", flags=FileFlag.NONE) == errno.ENOTEMPTY
        await do(box, "remove", f"{work}/sub", flags=FileFlag.RECURSIVE)
        assert await fails(box, "stat", f"{work}/sub") == errno.ENOENT
        await do(box, "rename", f"{work}/file", f"{work}/other")
        assert await fails(box, "rename", f"{work}/file", f"{work}/again") == errno.ENOENT
        assert await fails(box, "read", f"{work}/{'a/' * 2100}b") == errno.ENAMETOOLONG
        assert (await do(box, "read", f"{work}/other")).content == b"x"

    real.use(work_in)


def test_links_lead_where_they_lead_inside(real: Bench) -> None:
    """Absolute ones too, by the workspace's own name and by its second one; a write goes through them."""
    work = real.workspace
    names = ["$PWD/target", *(["/workspace/target"] if real.kind != "landlock" else [])]

    async def work_in(box: Box) -> None:
        for number, target in enumerate(names):
            await said(box, f"echo {number} > target; ln -s {target} link{number}")
            link = f"{work}/link{number}"
            assert (await do(box, "read", link)).content == b"%d\n" % number
            assert (await do(box, "realpath", link)).places[0] in (f"{work}/target", "/workspace/target")
            await do(box, "write", link, data=b"new\n")
            assert await said(box, f"cat target; readlink link{number}; echo {target}") == "new\n" + 2 * await said(
                box, f"echo {target}"
            )
            (entry,) = (await do(box, "stat", link, flags=FileFlag.NONE)).entries
            assert entry.kind is FileKind.LINK and (entry.target or "").endswith("/target")
        await said(box, "ln -s $PWD/not-yet dangling; ln -s loop loop; ln -s / out")
        await do(box, "write", f"{work}/dangling", data=b"made")
        assert await said(box, "cat not-yet") == "made"
        assert await fails(box, "write", f"{work}/loop", data=b"") == errno.ELOOP
        assert (await do(box, "realpath", f"{work}/out/usr")).places == ("/usr",)
        await do(box, "remove", f"{work}/out", flags=FileFlag.RECURSIVE)
        assert await fails(box, "stat", f"{work}/out", flags=FileFlag.NONE) == errno.ENOENT

    real.use(work_in)


def test_a_path_of_which_a_part_is_missing_leads_where_python_says(real: Bench) -> None:
    """As `os.path.realpath` has it, which looks at the same tree from outside."""
    work = real.workspace
    paths = [
        "none/at/all", "link/none", "link/../none", "gone", "gone/..", "gone/../sub/./none", "file/none", "none/../sub",
        "link//file/", "../..", "away/none", "a/../b",
    ]  # fmt: skip

    async def work_in(box: Box) -> None:
        await said(box, "echo > file; mkdir -p sub/deep; ln -s $PWD/sub/deep link; ln -s ../out/x gone; ln -s / away")
        await said(box, "ln -s loop2 loop1; ln -s loop1 loop2")
        for path in (f"{work}/{each}" for each in paths):
            expected = os.path.realpath(path)
            assert (await do(box, "realpath", path, flags=FileFlag.MISSING_OK)).places == (expected,), path
        assert (await do(box, "realpath", "/..//", flags=FileFlag.MISSING_OK)).places == ("/",)
        assert await fails(box, "realpath", f"{work}/none") == errno.ENOENT
        assert await fails(box, "realpath", f"{work}/loop1/x", flags=FileFlag.MISSING_OK) == errno.ELOOP
        long = f"{work}/{'n' * 250}{'/..' * 300}{'/m' * 1200}"
        assert len(long) < os.pathconf("/", "PC_PATH_MAX")
        assert (await do(box, "realpath", long, flags=FileFlag.MISSING_OK)).places == (os.path.realpath(long),)
        await said(box, f"ln -s {'m/' * 1000} many")
        assert (
            await fails(box, "realpath", f"{work}/many{'/m' * 1500}", flags=FileFlag.MISSING_OK) == errno.ENAMETOOLONG
        )

    real.use(work_in)


def test_what_is_no_plain_file_is_refused_at_once(real: Bench) -> None:
    work = real.workspace

    async def work_in(box: Box) -> None:
        await said(box, f"mkfifo fifo; ln -s {work}/fifo to-fifo")
        begin = time.monotonic()
        for path in (f"{work}/fifo", f"{work}/to-fifo", "/dev/zero", "/dev/null"):
            assert await fails(box, "read", path) == errno.EOPNOTSUPP
            assert await fails(box, "write", path, data=b"x") == errno.EOPNOTSUPP
        assert time.monotonic() - begin < 5
        (fifo,) = (await do(box, "stat", f"{work}/fifo")).entries
        assert fifo.kind is FileKind.FIFO

    real.use(work_in)


def test_any_bytes_are_a_name(native: Bench) -> None:
    work = native.workspace
    odd = ["a\nb", "\udcff\udcfe", " ", "-rf", "ü", "x" * 255, "\x1b[31m"]

    async def work_in(box: Box) -> None:
        for name in odd:
            await do(box, "write", f"{work}/sub/{name}", data=name.encode("utf-8", "surrogateescape"))
        listed = (await do(box, "list", f"{work}/sub")).entries
        assert sorted(entry.name for entry in listed) == sorted(odd)
        for entry in listed:
            assert (await do(box, "read", entry.path)).content == os.fsencode(entry.name)

    native.use(work_in)
    assert sorted(os.listdir(work / "sub")) == sorted(odd)


def test_large_files_pass_whole_and_limits_hold(real: Bench) -> None:
    work = real.workspace
    data = os.urandom(3_000_001)

    async def work_in(box: Box) -> None:
        await do(box, "write", f"{work}/large", data=data)
        assert (await do(box, "read", f"{work}/large")).content == data
        assert await fails(box, "read", f"{work}/large", limit=3_000_000) == errno.EFBIG
        assert await fails(box, "read", "/proc/self/status", limit=10) == errno.EFBIG  # says that it is empty
        await do(box, "write", f"{work}/large", flags=FOLLOW | FileFlag.APPEND, data=b"end")
        assert (await do(box, "read", f"{work}/large")).content == data + b"end"
        await said(box, "cd sub; seq 2000 | xargs touch")
        assert len((await do(box, "list", f"{work}/sub", limit=2000)).entries) == 2000
        assert await fails(box, "list", f"{work}/sub", limit=1999) == errno.EOVERFLOW

    real.use(work_in)


def test_a_file_that_grows_past_the_limit_is_an_error_and_the_server_lives_on(real: Bench) -> None:
    work = real.workspace

    async def work_in(box: Box) -> None:
        assert await fails(box, "write", f"{work}/large", data=bytes(3_000_000)) == errno.EFBIG
        await do(box, "write", f"{work}/small", data=b"x")

    real.use(work_in, limits=Limits(file_bytes=1_000_000))


# --- who is asked -----------------------------------------------------------------------------------------------------


@pytest.mark.req("A3")
def test_what_is_not_agreed_to_is_not_done(real: Bench) -> None:
    """It is asked about where a path really leads, and before anything is changed."""
    work = real.workspace
    asked: list[str] = []

    def refuse(place: str) -> None:
        asked.append(place)
        raise PermissionError(errno.EPERM, "no")

    async def work_in(box: Box) -> None:
        await said(box, f"echo old > kept; ln -s {work}/kept link; mkdir d; ln -s {work}/d to-d")
        for name, path, more in (
            ("write", f"{work}/link", {"data": b"new"}),
            ("write", f"{work}/to-d/deep/er", {"data": b"new", "flags": FOLLOW | PARENTS}),
            ("remove", f"{work}/to-d/../kept", {}),
            ("mkdir", f"{work}/to-d/a", {}),
            ("read", f"{work}/link", {}),
        ):
            assert await fails(box, name, path, agree=refuse, **more) == errno.EPERM
        assert await fails(box, "rename", f"{work}/kept", f"{work}/to-d/b", agree=refuse) == errno.EPERM
        assert await said(box, "cat kept; ls d") == "old\n"

    real.use(work_in)
    assert asked == [f"{work}/kept", f"{work}/d/deep/er", f"{work}/kept", f"{work}/d/a", f"{work}/kept", f"{work}/kept"]


def test_a_link_that_is_swapped_after_the_question_changes_nothing(native: Bench) -> None:
    """What was agreed to is what is written, whatever the names say by then."""
    work = native.workspace
    (work / "good").mkdir()
    (work / "bad").mkdir()
    (work / "bad/file").write_text("kept")
    (work / "link").symlink_to("good")

    def swap(place: str) -> None:
        assert place.startswith(f"{work}/good/")
        (work / "link").unlink()
        (work / "link").symlink_to("bad")
        if place.endswith("/swapped"):
            (work / "good/swapped").symlink_to("../bad/file")

    async def work_in(box: Box) -> None:
        await do(box, "write", f"{work}/link/file", data=b"new", agree=swap)
        (work / "link").unlink()
        (work / "link").symlink_to("good")
        assert await fails(box, "write", f"{work}/link/swapped", data=b"new", agree=swap) in (
            errno.ELOOP,
            errno.EOPNOTSUPP,
        )

    native.use(work_in)
    assert (work / "good/file").read_text() == "new" and (work / "bad/file").read_text() == "kept"


# --- hostile ----------------------------------------------------------------------------------------------------------

_TO_SERVER = "kill -%s $(grep -l ringfence-files /proc/[0-9]*/comm | tr -dc '0-9\\n')"


def test_a_server_that_was_killed_is_started_again(real: Bench) -> None:
    work = real.workspace

    async def work_in(box: Box) -> None:
        await do(box, "write", f"{work}/a", data=b"x")
        for _ in range(2):
            await box.run(Request(command=_TO_SERVER % "KILL"))
            for _ in range(20):  # the news of its end may come a moment later
                try:
                    assert (await do(box, "read", f"{work}/a")).content == b"x"
                    break
                except Internal:
                    await asyncio.sleep(0.05)
            else:
                pytest.fail("it did not come back")

    real.use(work_in)


def test_a_server_that_is_stopped_is_given_up(native: Bench) -> None:
    work = native.workspace

    async def work_in(box: Box) -> None:
        await do(box, "write", f"{work}/a", data=b"x")
        await box.run(Request(command=_TO_SERVER % "STOP"))
        begin = time.monotonic()
        try:
            await do(box, "read", f"{work}/a")
        except Timeout:  # where signals reach it
            assert 0.9 < time.monotonic() - begin < 5
        assert (await do(box, "read", f"{work}/a")).content == b"x"

    native.use(work_in, limits=Limits(wall_seconds=1))


def test_nobody_in_the_box_gets_at_the_server(real: Bench) -> None:
    """Neither its descriptors nor its memory; so nobody answers in its place."""
    work = real.workspace
    look = (
        "for p in /proc/[0-9]*; do grep -q ringfence-files $p/comm 2>/dev/null && "
        "{ echo FOUND; cat $p/mem && echo READ; : > $p/fd/3 && echo OPENED; }; done; true"
    )

    async def work_in(box: Box) -> str:
        await do(box, "write", f"{work}/a", data=b"x")
        return await said(box, look)

    assert set(real.use(work_in).split()) == {"FOUND"}


def test_a_caller_who_gives_up_leaves_the_next_one_undisturbed(native: Bench) -> None:
    work = native.workspace

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield bytes(1000)
            await asyncio.sleep(0.001)

    async def work_in(box: Box) -> None:
        operation = FileOperation(name="write", path=f"{work}/large", flags=FOLLOW)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await box.perform(operation, anywhere, endless())
        await do(box, "write", f"{work}/a", data=b"x")
        assert (await do(box, "read", f"{work}/a")).content == b"x"

    native.use(work_in)


def test_a_deep_tree_is_removed_or_said_to_be_too_deep(native: Bench) -> None:
    work = native.workspace

    async def work_in(box: Box) -> None:
        deep = "import os\nfor _ in range({}):\n os.mkdir('d'); os.chdir('d')"
        await said(box, f'cd sub; python3 -c "{deep.format(150)}"')
        await do(box, "remove", f"{work}/sub", flags=FileFlag.RECURSIVE)
        await said(box, f'mkdir sub; cd sub; python3 -c "{deep.format(300)}"')
        assert await fails(box, "remove", f"{work}/sub", flags=FileFlag.RECURSIVE) == errno.EMLINK
        await said(box, "rm -rf sub")

    native.use(work_in)


def test_operations_side_by_side_do_not_mix(native: Bench) -> None:
    work = native.workspace

    async def work_in(box: Box) -> None:
        await asyncio.gather(*(do(box, "write", f"{work}/{n}", data=b"%d" % n * 1000) for n in range(50)))
        read = await asyncio.gather(*(do(box, "read", f"{work}/{n}") for n in range(50)))
        assert [each.content for each in read] == [b"%d" % n * 1000 for n in range(50)]

    native.use(work_in)


class Tap:
    """Content that comes when it is let."""

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.begun = asyncio.Event()

    async def pieces(self, *data: bytes) -> AsyncIterator[bytes]:
        for piece in data:
            yield piece
            self.begun.set()
            await self.is_open.wait()


def writing(path: str) -> FileOperation:
    return FileOperation(name="write", path=path, flags=FOLLOW)


def test_a_write_whose_content_is_slow_holds_up_nothing_but_its_own_path(real: Bench) -> None:
    work = real.workspace

    async def work_in(box: Box) -> None:
        taps = [Tap() for _ in range(5)]
        slow = [
            asyncio.create_task(box.perform(writing(f"{work}/slow{n}"), anywhere, tap.pieces(b"one ", b"two")))
            for n, tap in enumerate(taps)
        ]
        await asyncio.gather(*(tap.begun.wait() for tap in taps))
        await do(box, "write", f"{work}/a", data=b"x")
        assert (await do(box, "read", f"{work}/a")).content == b"x"
        assert (await do(box, "stat", f"{work}/slow0")).entries[0].size_bytes == len(b"one ")
        same = asyncio.create_task(do(box, "read", f"{work}/sub/../slow0"))
        over = asyncio.create_task(do(box, "rename", f"{work}/a", f"{work}/slow1"))
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in (*slow, same, over))
        for tap in taps:
            tap.is_open.set()
        await asyncio.gather(*slow)
        assert (await same).content == b"one two"
        await over
        assert (await do(box, "read", f"{work}/slow1")).content == b"x"

    real.use(work_in)


def test_a_box_that_is_closed_ends_what_is_done_to_its_files(real: Bench) -> None:
    work = real.workspace

    async def work_in(box: Box) -> None:
        tap, other = Tap(), Tap()
        slow = asyncio.create_task(box.perform(writing(f"{work}/slow"), anywhere, tap.pieces(b"one", b"two")))
        waits = asyncio.create_task(box.perform(writing(f"{work}/slow"), anywhere, other.pieces(b"other")))
        await tap.begun.wait()
        await box.close()
        tap.is_open.set()
        begin = time.monotonic()
        for task in (slow, waits):
            with pytest.raises(Internal):
                await task
        assert time.monotonic() - begin < 5

    real.use(work_in)
