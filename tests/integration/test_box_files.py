"""`Sandbox.files`: the rules come first, the wall stands behind them, and the journal has what was done."""

import asyncio
import errno
import json
from typing import Any

import pytest

from ringfence import (
    AlreadyExists,
    FileKind,
    IsADirectory,
    NotADirectory,
    NotFound,
    PathAccessDenied,
    PermissionDenied,
    Sandbox,
)
from ringfence.errors import FileError, InvalidArgument, SpawnFailed
from tests.integration.stage import SECRET, Place

POLICY = "policies: {default: {denied_paths: ['/tmp/private', '**/*.pem']}}"


def records(place: Place) -> list[dict[str, Any]]:
    lines = (place.state / "journal.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event_type"] == "file_operation"]


@pytest.mark.req("C2")
def test_files_are_read_and_changed_by_any_path_that_commands_see(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        files = box.files
        await files.write("a/b.txt", "text", parents=True)
        assert await files.read("/workspace/a/b.txt") == b"text"
        await files.write("a/b.txt", b" and more", append=True)
        assert await files.read_text(place.workspace / "a/b.txt") == "text and more"
        await files.write("/tmp/run.sh", "echo ran", mode=0o700)
        assert (await box.shell("/tmp/run.sh; echo $HOME > ~/where")).stdout == "ran\n"
        assert await files.read_text(place.home / "where") == f"{place.home}\n"
        made = await files.stat("a/b.txt")
        assert (made.path, made.kind, made.size_bytes, made.is_file) == ("a/b.txt", FileKind.FILE, 13, True)
        await files.mkdir("a/c")
        await box.shell("ln -s b.txt a/link")
        listed = await files.list("a")
        assert [(entry.name, entry.kind, entry.target) for entry in listed] == [
            ("b.txt", "file", None),
            ("c", "directory", None),
            ("link", "link", "b.txt"),
        ]
        assert listed[0].path == "a/b.txt"
        assert (await files.stat("a/link")).is_file and (await files.stat("a/link", follow=False)).is_link
        await files.rename("a/b.txt", "/workspace/a/d.txt")
        assert not await files.exists("a/link") and await files.exists("a/link", follow=False)
        assert await files.realpath("a/../a/d.txt") == f"{place.workspace}/a/d.txt"
        await files.remove("a", recursive=True)
        assert not await files.exists("a") and not await files.exists("a/b/c")

    place.in_box(work)


async def _pieces() -> Any:
    for _ in range(100):
        yield b"x" * 10_000


@pytest.mark.req("C2")
def test_content_may_come_in_pieces(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.files.write("large", _pieces())
        assert await box.files.read("large", limit="1MB") == b"x" * 1_000_000
        with pytest.raises(FileError) as caught:
            await box.files.read("large", limit=999_999)
        assert caught.value.errno == errno.EFBIG

    place.in_box(work)


@pytest.mark.req("C2", "C10")
def test_errors_are_those_that_python_knows_with_the_errno_of_the_box(place: Place) -> None:
    (place.workspace / "file").write_text("x")

    async def work(box: Sandbox) -> None:
        await box.shell("echo kept > fixed; chmod 444 fixed; echo x > closed; chmod 0 closed; mkdir full; touch full/a")
        files = box.files
        cases = [
            (files.read("none"), NotFound, FileNotFoundError, errno.ENOENT),
            (files.read("full"), IsADirectory, IsADirectoryError, errno.EISDIR),
            (files.read("file/x"), NotADirectory, NotADirectoryError, errno.ENOTDIR),
            (files.mkdir("full"), AlreadyExists, FileExistsError, errno.EEXIST),
            (files.write("fixed", "x"), PermissionDenied, PermissionError, errno.EACCES),
            (files.read("closed"), PermissionDenied, PermissionError, errno.EACCES),
            (files.remove("full"), FileError, OSError, errno.ENOTEMPTY),
            (files.rename("file", "/tmp/file"), FileError, OSError, errno.EXDEV),
            (files.read("/dev/zero"), FileError, OSError, errno.EOPNOTSUPP),
        ]
        for call, kind, builtin, number in cases:
            with pytest.raises(kind) as caught:
                await call
            assert isinstance(caught.value, builtin) and caught.value.errno == number
        with pytest.raises(InvalidArgument):
            await files.read("a\0b")
        with pytest.raises(InvalidArgument):
            await files.write("x", "", mode=0o4755)
        assert (await box.shell("cat fixed")).stdout == "kept\n"
        await box.shell("chmod 600 closed")

    place.in_box(work)


@pytest.mark.req("C10")
def test_a_program_that_cannot_be_started_has_the_shell_s_code_and_an_errno(place: Place) -> None:
    (place.workspace / "plain").write_text("no program")
    (place.workspace / "plain").chmod(0o644)

    async def work(box: Sandbox) -> list[tuple[int, int | None]]:
        found = []
        for program in ("no-such-program", "./plain", "/tmp"):
            with pytest.raises(SpawnFailed) as caught:
                await box.exec([program])
            found.append((caught.value.exit_code, caught.value.errno))
        return found

    assert place.in_box(work) == [(127, errno.ENOENT), (126, errno.EACCES), (126, errno.EACCES)]


@pytest.mark.req("A3")
def test_rules_hold_for_the_path_as_given_and_for_where_it_leads(place: Place) -> None:
    (place.workspace / ".env").write_text(SECRET)
    for name in (".git", ".git/hooks", "sub"):
        (place.workspace / name).mkdir()
    (place.workspace / "sub/x.pem").touch()
    for name, target in (("e", ".env"), ("g", ".git"), ("p", "sub/x.pem")):
        (place.workspace / name).symlink_to(target)
    policy = place.top / "policy.yaml"
    policy.write_text(POLICY)

    async def work(box: Sandbox) -> None:
        files = box.files
        await box.shell(
            "mkdir -p .git /tmp/private sub; touch sub/x.pem; ln -s .env e; ln -s .git g; ln -s sub/x.pem p"
        )
        for path in (".env", "e", "/workspace/.env", "/tmp/private/x", "sub/x.pem", "p"):
            with pytest.raises(PathAccessDenied, match="rule: "):
                await files.read(path)
        for path in (".env", "e", ".git/hooks/pre-commit", "g/hooks/pre-commit", ".git", "p", "/tmp/private/x"):
            with pytest.raises(PathAccessDenied, match="rule: "):
                await files.write(path, "evil", parents=True)
        with pytest.raises(PathAccessDenied):
            await files.rename("sub", ".vscode")
        with pytest.raises(PathAccessDenied):
            await files.remove("g/hooks", recursive=True)
        assert await files.exists("sub/x.txt") is False

    place.in_box(work, policy=policy)
    assert (place.workspace / ".env").read_text() == SECRET


@pytest.mark.req("B9")
def test_the_journal_has_what_was_read_written_and_refused(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.shell("ln -s real link")
        await box.files.write("link", "x")
        await box.files.read("link")
        await box.files.stat("real")
        for path in (".env", "none"):
            with pytest.raises(OSError):
                await box.files.read(path)
        (kept,) = box.violations.recent(10)
        assert (kept.violation.rule, kept.violation.operation) == ("filesystem.blacklist **/.env", "read")

    place.in_box(work)

    real = f"{place.workspace}/real"
    assert [(each["tool"], each["result"], each["files_read"], each["files_written"]) for each in records(place)] == [
        ("file_write", "success", [], [real]),
        ("file_read", "success", [real], []),
        ("file_read", "refused", [], []),
        ("file_read", "failure", [], []),
    ]


@pytest.mark.req("A3")
def test_a_hostile_process_that_swaps_links_never_leads_a_write_astray(place: Place) -> None:
    """`d` is now a directory, now a link to what the rules protect; the box is told to write below it all the while."""
    swap = (
        "mkdir -p .git/hooks good 2>/dev/null; "
        "while :; do ln -sfn good d; ln -sfn .git/hooks d; ln -sfn /etc d; rm -f d; done 2>/dev/null"
    )

    async def work(box: Sandbox) -> int:
        swapper = await box.start(swap)
        written = 0
        for number in range(300):
            try:
                await box.files.write(f"d/{number}", "x")
                written += 1
            except (PathAccessDenied, FileError):
                pass
            await asyncio.sleep(0)
        swapper.kill()
        await swapper.wait()
        return written

    assert place.in_box(work) > 0
    assert not list((place.workspace / ".git/hooks").iterdir()), "the rules protect them"


def test_where_opens_are_mediated_the_file_api_s_are_too(place: Place) -> None:
    (place.workspace / ".env").write_text(SECRET)

    async def work(box: Sandbox) -> None:
        await box.files.write("a", "x")
        assert await box.files.read("a") == b"x"
        await box.shell("mkdir d; ln .env d/other || true")
        with pytest.raises((PermissionDenied, PathAccessDenied, NotFound)):
            await box.files.read("d/other")

    place.in_box(work, mediate_opens=True)
