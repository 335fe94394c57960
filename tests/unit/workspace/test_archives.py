"""Archives in and out: each member is checked, limits are counted, and what is refused leaves nothing."""

import gzip
import io
import os
import stat
import struct
import subprocess
import tarfile
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence import AgentWorkspace, Archive, ArchiveLimits
from ringfence.errors import (
    FileError,
    InvalidArgument,
    NotADirectory,
    PathAccessDenied,
    PathTraversalError,
    RingfenceError,
)
from ringfence.workspace.beneath import Resolver, by_kernel, by_walk

pytestmark = pytest.mark.req("E3")

LIMITS = ArchiveLimits(total_bytes=4_000_000, members=50, ratio=100, ratio_from_bytes=500_000)


@pytest.fixture(params=[by_kernel, by_walk], ids=["openat2", "walk"])
def resolver(request: pytest.FixtureRequest) -> Resolver:
    chosen: Resolver = request.param
    return chosen


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret.txt").write_bytes(b"outside")
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


@pytest.fixture
def files(ws: Path, resolver: Resolver) -> Iterator[AgentWorkspace]:
    with AgentWorkspace("s1", root=ws, archive_limits=LIMITS, resolver=resolver) as opened:
        yield opened


def member(name: str, data: bytes = b"", **fields: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def tar(*members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=mode) as archive:  # type: ignore[call-overload]  # the mode is ours
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return target.getvalue()


def link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.SYMTYPE, linkname=to)


def a_zip(*members: tuple[str, bytes], mode: int = 0o100644) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.create_system, info.external_attr = 3, mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, data)
    return target.getvalue()


def everything(ws: Path) -> dict[str, object]:
    return {
        str(file.relative_to(ws)): os.readlink(file) if file.is_symlink() else file.read_bytes()
        for file in sorted(ws.rglob("*"))
        if file.is_symlink() or not file.is_dir()
    }


# --- what goes in -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_a_tar_is_unpacked_with_modes_links_and_empty_directories(files: AgentWorkspace, ws: Path, mode: str) -> None:
    data = tar(
        member("./", type=tarfile.DIRTYPE),
        member("./a.txt", b"a", mode=0o644),
        member("bin/run", b"#!/bin/sh", mode=0o6755),
        member("empty", type=tarfile.DIRTYPE, mode=0o755),
        link("bin/up", "../a.txt"),
        member("bin/again", type=tarfile.LNKTYPE, linkname="./a.txt"),
        member("long/" * 30 + "f" * 200, b"deep"),
        mode=mode,
    )
    done = files.upload(data, "in/here")

    assert done.paths[:4] == ("a.txt", "bin/run", "bin/up", "bin/again") and len(done.paths) == 5
    top = ws / "in/here"
    assert (top / "bin/up").read_bytes() == (top / "bin/again").read_bytes() == b"a"
    assert stat.S_IMODE((top / "bin/run").stat().st_mode) == 0o755
    assert (top / "bin/again").stat().st_nlink == 1
    assert (top / "empty").is_dir()
    assert os.listdir(ws) == ["in"]


def test_a_zip_is_unpacked_also_from_a_stream_that_cannot_seek(files: AgentWorkspace, ws: Path) -> None:
    data = io.BytesIO(a_zip(("sub/", b""), ("sub/a.txt", b"a" * 1000), ("żółć", b"z")))

    class Stream:
        def read(self, size: int = -1, /) -> bytes:
            return data.read(min(size, 7) if size > 0 else size)

    assert files.upload(Stream()).paths == ("sub/a.txt", "żółć")
    assert everything(ws) == {"sub/a.txt": b"a" * 1000, "żółć": b"z"}


def test_an_upload_replaces_files_and_links_and_never_writes_through_them(files: AgentWorkspace, ws: Path) -> None:
    (ws / "a").write_bytes(b"old")
    (ws / "l").symlink_to("../out/secret.txt")
    files.upload(tar(member("a", b"new"), member("l", b"mine")))

    assert everything(ws) == {"a": b"new", "l": b"mine"}
    assert (ws.parent / "out/secret.txt").read_bytes() == b"outside"


def test_names_that_differ_by_case_or_unicode_form_are_different(files: AgentWorkspace, ws: Path) -> None:
    files.upload(tar(member("Readme", b"1"), member("README", b"2"), member("\u00e9", b"3"), member("e\u0301", b"4")))
    assert sorted(everything(ws).values(), key=str) == [b"1", b"2", b"3", b"4"]


# --- what is refused --------------------------------------------------------------------------------------------------

HOSTILE: dict[str, tuple[bytes, type[RingfenceError]]] = {
    "absolute": (tar(member("/etc/evil", b"x")), PathTraversalError),
    "climbing": (tar(member("../out/evil", b"x")), PathTraversalError),
    "climbing later": (tar(member("a/../../out/evil", b"x")), PathTraversalError),
    "climbing inside": (tar(member("a/../b", b"x")), PathTraversalError),
    "zip absolute": (a_zip(("/etc/evil", b"x")), PathTraversalError),
    "zip climbing": (a_zip(("../out/evil", b"x")), PathTraversalError),
    "zip NUL": (a_zip(("good@../../evil", b"x")).replace(b"good@", b"good\0"), InvalidArgument),
    "absolute link": (tar(link("l", "/etc/passwd")), PathTraversalError),
    "link out": (tar(link("sub/l", "../../out/secret.txt")), PathTraversalError),
    "link to above": (tar(link("l", "..")), PathTraversalError),
    "link that climbs after a link": (tar(link("d/e/l1", "../.."), link("d/e/l2", "l1/../out")), PathTraversalError),
    "zip link out": (a_zip(("l", b"../out/secret.txt"), mode=0o120777), PathTraversalError),
    "through a link": (tar(link("d", "sub"), member("d/evil", b"x")), PathAccessDenied),
    "link over its directory": (tar(member("d/x", b"x"), link("d", "..")), PathAccessDenied),
    "link in place of a directory": (tar(member("d/x", b"x"), link("d", "sub")), PathAccessDenied),
    "hard link out": (tar(member("h", type=tarfile.LNKTYPE, linkname="../out/secret.txt")), PathTraversalError),
    "hard link to the root": (tar(member("h", type=tarfile.LNKTYPE, linkname="/etc/passwd")), PathTraversalError),
    "hard link to nothing": (tar(member("h", type=tarfile.LNKTYPE, linkname="a.txt")), PathTraversalError),
    "fifo": (tar(member("f", type=tarfile.FIFOTYPE)), PathAccessDenied),
    "device": (tar(member("d", type=tarfile.CHRTYPE, devmajor=1, devminor=3)), PathAccessDenied),
    "zip fifo": (a_zip(("f", b""), mode=0o010644), PathAccessDenied),
    "twice": (tar(member("a", b"1"), member("a", b"2")), PathAccessDenied),
    "twice by spelling": (tar(member("a/b", b"1"), member("./a//b", b"2")), PathAccessDenied),
    "file and directory": (tar(member("a", b"1"), member("a/b", b"2")), PathAccessDenied),
    "directory and file": (tar(member("a/b", b"1"), member("a", b"2")), PathAccessDenied),
    "denied": (tar(member("sub/.env", b"x")), PathAccessDenied),
    "protected": (tar(member("sub/.git/hooks/post-checkout", b"x")), PathAccessDenied),
    "protected directory": (tar(member(".git/hooks", type=tarfile.DIRTYPE)), PathAccessDenied),
    "in place of a directory": (tar(member("kept", b"x")), PathAccessDenied),
    "directory in place of a file": (tar(member("file", type=tarfile.DIRTYPE)), PathAccessDenied),
    "beneath a file": (tar(member("file/x", b"x")), NotADirectory),
    "too many": (tar(*(member(f"f{n}", b"") for n in range(51))), PathAccessDenied),
    "too large": (tar(member("f", os.urandom(4_000_001))), PathAccessDenied),
    "bomb": (tar(member("f", bytes(600_000)), mode="w:gz"), PathAccessDenied),
    "zip bomb": (a_zip(("f", bytes(600_000))), PathAccessDenied),
    "empty name": (tar(member("", b"x")), InvalidArgument),
    "name too long": (tar(member("x" * 300, b"x")), FileError),
    "nothing": (b"", InvalidArgument),
    "rubbish": (b"rubbish" * 1000, InvalidArgument),
    "rubbish gzip": (b"\x1f\x8b" + b"rubbish" * 100, InvalidArgument),
    "rubbish zip": (b"PK\x03\x04" + b"rubbish" * 100, InvalidArgument),
    "cut off": (tar(member("f", b"x" * 5000))[:3000], InvalidArgument),
    "cut off between members": (tar(member("f", b"x"), member("g", b"y"))[:1024], InvalidArgument),
    "cut off gzip": (tar(member("f", os.urandom(5000)), mode="w:gz")[:-9], InvalidArgument),
    "damaged header": (tar(member("f", b"x"), member("g", b"y")).replace(b"g\0\0", b"h\0\0", 1), InvalidArgument),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_archive_is_refused_whole(files: AgentWorkspace, ws: Path, case: str) -> None:
    (ws / "kept/x").mkdir(parents=True)
    (ws / "file").write_bytes(b"old")
    data, expected = HOSTILE[case]
    good = tar(member("first", b"1"))
    assert files.upload(good, "probe").paths == ("first",)

    with pytest.raises(expected):
        files.upload(data)
    assert everything(ws) == {"file": b"old", "probe/first": b"1"}
    assert sorted(os.listdir(ws)) == ["file", "kept", "probe"]
    assert os.listdir(ws.parent / "out") == ["secret.txt"]


def test_the_hostile_archives_do_harm_where_nobody_checks(tmp_path: Path) -> None:
    """The twin: the same archives, unpacked by their word, lead out."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "out").mkdir()
    for case in ("climbing", "link to above"):
        with tarfile.open(fileobj=io.BytesIO(HOSTILE[case][0])) as archive:
            for info in archive:
                place = tmp_path / "ws" / info.name
                if info.issym():
                    place.symlink_to(info.linkname)
                else:
                    place.write_bytes(b"x")
    assert (tmp_path / "out/evil").exists() and (tmp_path / "ws/l").resolve() == tmp_path


def test_a_header_that_is_a_bomb_is_stopped_before_it_fills_the_memory(files: AgentWorkspace) -> None:
    """Extended headers are read into memory whole, whatever size they claim."""
    info = tarfile.TarInfo("@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 30
    data = gzip.compress(info.tobuf() + bytes(64 * 1024 * 1024))
    tracemalloc.start()
    try:
        with pytest.raises(PathAccessDenied, match="headers of more than"):
            files.upload(data)
        assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
    finally:
        tracemalloc.stop()


def test_a_zip_whose_directory_claims_to_be_huge_is_refused(files: AgentWorkspace) -> None:
    data = bytearray(a_zip(("f", b"x")))
    at = data.rindex(b"PK\x05\x06")
    data[at + 12 : at + 16] = struct.pack("<I", 100 * 1024 * 1024)
    with pytest.raises((PathAccessDenied, InvalidArgument)):
        files.upload(bytes(data))


def test_zip_members_that_are_encrypted_or_packed_otherwise_are_refused(files: AgentWorkspace) -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("f", b"x" * 100)
    with pytest.raises(PathAccessDenied, match="method 14"):
        files.upload(target.getvalue())
    data = bytearray(a_zip(("f", b"x")))
    for at in (6, data.rindex(b"PK\x01\x02") + 8):
        data[at] |= 1
    with pytest.raises(PathAccessDenied, match="encrypted"):
        files.upload(bytes(data))


def test_a_sparse_member_counts_with_what_it_unpacks_to(files: AgentWorkspace, tmp_path: Path) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(1 << 40)
    packed = subprocess.run(["tar", "-cSf", "-", "-C", tmp_path, "big"], capture_output=True, check=True).stdout
    assert len(packed) < 100_000
    with pytest.raises(PathAccessDenied, match=r"ratio|total_bytes"):
        files.upload(packed)


def test_what_fails_while_it_is_put_in_place_says_what_was_written(files: AgentWorkspace, ws: Path) -> None:
    def get_in_the_way(path: str) -> None:
        if path.endswith("/b") and (ws / "a").exists():
            (ws / "b/full").mkdir(parents=True, exist_ok=True)

    with (
        AgentWorkspace("s", root=ws, denied=get_in_the_way) as disturbed,
        pytest.raises(PathAccessDenied, match="1 members were written before it: 'a'") as caught,
    ):
        disturbed.upload(tar(member("a", b"1"), member("b", b"2"), member("c", b"3")))
    assert caught.value.__notes__ == ["written: 'a'"]
    assert everything(ws) == {"a": b"1"}
    assert sorted(os.listdir(ws)) == ["a", "b"]


def test_large_archives_are_not_held_in_memory(ws: Path) -> None:
    block = os.urandom(1024 * 1024)

    class Endless:
        """A tar of one member of 100 MiB, made while it is read."""

        def __init__(self) -> None:
            self._parts: Iterator[bytes] = iter([member("f", mode=0o644, size=100 * len(block))[0].tobuf()])
            self._left = 100
            self._rest = b""

        def read(self, size: int = -1, /) -> bytes:
            while not self._rest:
                head = next(self._parts, None)
                if head is None and self._left == 0:
                    self._rest, self._left = bytes(1024), -1
                elif head is None and self._left < 0:
                    return b""
                elif head is None:
                    self._rest, self._left = block, self._left - 1
                else:
                    self._rest = head
            data, self._rest = self._rest[:size], self._rest[size:]
            return data

    with AgentWorkspace("s", root=ws) as files:
        tracemalloc.start()
        try:
            files.upload(Endless(), form="tar")
            assert tracemalloc.get_traced_memory()[1] < 16 * 1024 * 1024
        finally:
            tracemalloc.stop()
    assert (ws / "f").stat().st_size == 100 * len(block)


def test_an_unknown_form_names_the_known_ones(files: AgentWorkspace) -> None:
    with pytest.raises(InvalidArgument, match=r"tar, tar\.gz, zip"):
        files.upload(b"", form="rar")
    with pytest.raises(InvalidArgument):
        ArchiveLimits(members=0)


# --- what goes out ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", Archive)
def test_what_is_downloaded_can_be_uploaded_again(files: AgentWorkspace, ws: Path, form: Archive) -> None:
    files.write("d/a.txt", b"a" * 100_000)
    files.write("d/run", b"#!", mode=0o755)
    files.make_dir("d/empty")
    (ws / "d/l").symlink_to("a.txt")
    (ws / "d/a.txt").chmod(0o4644)
    target = io.BytesIO()
    done = files.download(target, "d", form=form)
    files.upload(target.getvalue(), "e")

    assert (done.members, done.total_bytes, done.left_out) == (4, 100_002, ())
    kept = {name: (ws / "e" / name) for name in ("a.txt", "run", "l", "empty")}
    assert kept["a.txt"].read_bytes() == b"a" * 100_000 and kept["empty"].is_dir()
    assert os.readlink(kept["l"]) == "a.txt"
    modes = [stat.S_IMODE(kept[name].stat().st_mode) for name in ("a.txt", "run")]
    assert modes == [0o644, 0o755]


@pytest.mark.parametrize("form", Archive)
def test_what_must_not_leave_is_left_out_and_named(files: AgentWorkspace, ws: Path, form: Archive) -> None:
    (ws / ".env").write_bytes(b"TOKEN")
    (ws / "ok").write_bytes(b"ok")
    (ws / "sub").mkdir()
    (ws / "sub/credentials.json").write_bytes(b"TOKEN")
    os.mkfifo(ws / "fifo")
    (ws / "out").symlink_to("../out/secret.txt")
    (ws / "abs").symlink_to("/etc/passwd")
    os.link(ws.parent / "out/secret.txt", ws / "hard")
    target = io.BytesIO()
    done = files.download(target, form=form)

    assert {item.path: item.why for item in done.left_out} == {
        "fifo": "is a fifo",
        "out": "is a link that leads out",
        "abs": "is a link that leads out",
        "hard": "has a second name (hard link), which may lie outside",
    }
    data = target.getvalue() if form is not Archive.TAR_GZ else gzip.decompress(target.getvalue())
    assert b"TOKEN" not in data and b"outside" not in data
    assert files.upload(target.getvalue(), "again").paths == ("ok",)


def test_a_download_has_limits_too(files: AgentWorkspace) -> None:
    files.write("big", b"x" * 3_000_000)
    files.write("more", b"x" * 3_000_000)
    with pytest.raises(PathAccessDenied, match="total_bytes"):
        files.download(io.BytesIO())
    files.delete("more")
    for number in range(50):
        files.write(f"m/{number}", b"")
    with pytest.raises(PathAccessDenied, match="members"):
        files.download(io.BytesIO())


@pytest.mark.parametrize("path", ["..", "../out", "/etc", "l"])
def test_no_download_from_outside(files: AgentWorkspace, ws: Path, path: str) -> None:
    (ws / "l").symlink_to("../out")
    with pytest.raises(PathTraversalError):
        files.download(io.BytesIO(), path)


def test_odd_names_survive_tar_and_are_named_by_zip(files: AgentWorkspace, ws: Path) -> None:
    for name in (b"\xff\xfe", b"new\nline", b"\x1b[2J"):
        files.write(name, b"x")
    for form, kept in ((Archive.TAR, 3), (Archive.ZIP, 2)):
        target = io.BytesIO()
        done = files.download(target, form=form)
        assert (done.members, len(done.left_out)) == (kept, 3 - kept)
        files.upload(target.getvalue(), f"in-{form}")
        assert len(os.listdir(ws / f"in-{form}")) == kept
        files.delete(f"in-{form}", recursive=True)


# --- anything ---------------------------------------------------------------------------------------------------------

PARTS = st.sampled_from(["a", "b", "c", "..", ".", "", "/", "\0", "l"])
NAMES = st.lists(PARTS, min_size=1, max_size=4).map("/".join)
KINDS = st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
MEMBERS = st.lists(st.tuples(NAMES, KINDS, NAMES, st.binary(max_size=20)), max_size=6)


def _build(members: list[tuple[str, bytes, str, bytes]]) -> bytes:
    return tar(
        *(
            member(name, data if kind == tarfile.REGTYPE else b"", type=kind, linkname=to)
            for name, kind, to, data in members
        )
    )


@settings(max_examples=300)
@given(members=MEMBERS)
def test_no_archive_ever_writes_or_points_outside(members: list[tuple[str, bytes, str, bytes]]) -> None:
    _check_harmless(_build(members), whole_or_nothing=True)


@settings(max_examples=100)
@given(members=MEMBERS, noise=st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), min_size=1, max_size=5))
def test_a_damaged_archive_is_an_error_of_ours(
    members: list[tuple[str, bytes, str, bytes]], noise: list[tuple[int, int]]
) -> None:
    data = bytearray(_build(members))
    for at, value in noise:
        if at < len(data):
            data[at] = value
    _check_harmless(bytes(data), whole_or_nothing=True)


def _check_harmless(data: bytes, *, whole_or_nothing: bool) -> None:
    with tempfile.TemporaryDirectory() as top:
        ws = Path(top, "x/ws")
        ws.mkdir(parents=True)
        with AgentWorkspace("s", root=ws) as files:
            try:
                files.upload(data, form="tar")
            except RingfenceError:
                if whole_or_nothing:
                    assert os.listdir(ws) == []
        assert os.listdir(Path(top)) == ["x"] and os.listdir(ws.parent) == ["ws"]
        for file in ws.rglob("*"):
            assert file.is_symlink() or file.is_dir() or file.is_file()
            if file.is_symlink() and "l" not in os.readlink(file).split("/"):
                assert Path(os.path.normpath(file.parent.resolve() / os.readlink(file))).is_relative_to(ws.resolve())


CALLS: list[Callable[[AgentWorkspace, bytes], object]] = [
    lambda files, data: files.upload(data, "../out"),
    lambda files, data: files.upload(data, "/etc"),
    lambda files, data: files.upload(data, "l"),
]


@pytest.mark.parametrize("call", CALLS)
def test_no_upload_to_the_outside(
    files: AgentWorkspace, ws: Path, call: Callable[[AgentWorkspace, bytes], object]
) -> None:
    (ws / "l").symlink_to("../out")
    with pytest.raises(PathTraversalError):
        call(files, tar(member("evil", b"x")))
    assert os.listdir(ws.parent / "out") == ["secret.txt"] and os.listdir(ws) == ["l"]
