"""Run by root, the box still never has root: who its processes are, whose the files are, and what cannot be made."""

import asyncio
import os
import stat
from pathlib import Path

import pytest

from ringfence import InitializationFailed, Limits, Sandbox
from tests.integration.stage import SECRET, Place, processes_with

pytestmark = [pytest.mark.root, pytest.mark.req("B6", "D3")]

SOMEBODY = 61500
ANOTHER = 61501


def owner(path: Path) -> tuple[int, int]:
    info = path.lstat()
    return info.st_uid, info.st_gid


def test_no_process_of_a_box_has_uid_or_gid_0_for_the_kernel(place: Place) -> None:
    mark = f"mark-of-the-payload-{os.getpid()}"

    async def work(box: Sandbox) -> list[dict[str, str]]:
        heard = asyncio.Event()
        task = asyncio.create_task(box.shell(f"echo up; sleep 60; : {mark}", on_output=lambda s, d: heard.set()))
        await asyncio.wait_for(heard.wait(), 20)
        shell = min(processes_with(mark))  # a child that has not yet become `sleep` carries it too
        first = int(
            next(
                line for line in Path(f"/proc/{shell}/status").read_text().splitlines() if line.startswith("PPid")
            ).split()[1]
        )
        seen = [
            dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
            for pid in (shell, first)
        ]
        task.cancel()
        await asyncio.wait([task])
        return seen

    for status in place.in_box(work):
        assert "0" not in status["Uid"].split() + status["Gid"].split()
        assert status["Groups"].split() == [] or "0" not in status["Groups"].split()
        assert (status["CapEff"], status["CapBnd"], status["NoNewPrivs"], status["Seccomp"]) == (
            "0" * 16,
            "0" * 16,
            "1",
            "2",
        )


def test_two_boxes_run_as_two_different_users(place: Place) -> None:
    mark = f"mark-of-uid-{os.getpid()}"

    async def uid(box: Sandbox) -> str:
        heard = asyncio.Event()
        task = asyncio.create_task(box.shell(f"echo up; sleep 60; : {mark}", on_output=lambda s, d: heard.set()))
        await asyncio.wait_for(heard.wait(), 20)
        pid = min(processes_with(mark))
        out = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("Uid"))
        task.cancel()
        await asyncio.wait([task])
        return out

    assert place.in_box(uid) != place.in_box(uid)


def test_a_workspace_of_roots_is_written_and_stays_roots(place: Place) -> None:
    (place.workspace / "old").write_text("old\n")
    (place.workspace / "old").chmod(0o600)

    done = place.run(
        "cat old && echo more >> old && mkdir d && echo new > d/f && ln -s f d/l && chmod 640 d/f "
        "&& stat -c '%U %a' old d/f && id -u"
    )

    assert done.stdout.split() == ["old", "agent", "600", "agent", "640", "1000"]
    assert {owner(path) for path in place.workspace.rglob("*")} == {(0, 0)}
    assert (place.workspace / "old").read_text() == "old\nmore\n"


def test_what_is_written_in_somebodys_workspace_is_theirs(place: Place) -> None:
    os.chown(place.workspace, SOMEBODY, SOMEBODY)

    assert place.run("mkdir d && echo x > d/f && touch .new && mkfifo p").ok

    assert {owner(path) for path in place.workspace.rglob("*")} == {(SOMEBODY, SOMEBODY)}


def test_files_of_another_owner_in_the_workspace_cannot_be_written_even_by_roots_box(place: Place) -> None:
    os.chown(place.workspace, SOMEBODY, SOMEBODY)
    for name, uid in (("mine", SOMEBODY), ("roots", 0), ("others", ANOTHER)):
        (place.workspace / name).write_text(name)
        os.chown(place.workspace / name, uid, uid)
        (place.workspace / name).chmod(0o644)

    attempt = "for f in mine roots others; do echo x >> $f; chmod 777 $f; chown 1000 $f; done"
    done = place.run(attempt)

    assert (place.workspace / "mine").read_text() == "minex\n"
    assert {(place.workspace / name).read_text() for name in ("roots", "others")} == {"roots", "others"}
    assert stat.S_IMODE((place.workspace / "roots").stat().st_mode) == 0o644
    assert owner(place.workspace / "roots") == (0, 0)
    assert "Permission denied" in done.stderr or "Operation not permitted" in done.stderr

    place.host(attempt)
    assert (place.workspace / "roots").read_text() == "rootsx\n"


def test_several_writable_directories_keep_their_several_owners(place: Place) -> None:
    places = {0: place.workspace, SOMEBODY: place.top / "a", ANOTHER: place.top / "b"}
    for uid, path in places.items():
        path.mkdir(exist_ok=True)
        os.chown(path, uid, uid)

    done = place.run(" && ".join(f"echo x > {path}/made" for path in places.values()), write=list(places.values())[1:])

    assert done.ok, done.stderr
    assert {uid: owner(path / "made") for uid, path in places.items()} == {uid: (uid, uid) for uid in places}


SETUID = {
    "chmod": "cp /bin/true f; chmod 4755 f; chmod u+s f; chmod g+s f",
    "python-chmod": "cp /bin/true f; python3 -c \"import os; os.chmod('f', 0o6755)\"",
    "fchmod": "python3 -c \"import os; d = os.open('f', os.O_CREAT | os.O_RDWR, 0o755); os.fchmod(d, 0o4755)\"",
    "open": "python3 -c \"import os; os.umask(0); os.open('f', os.O_CREAT | os.O_RDWR, 0o6777)\"",
    "mknod": "python3 -c \"import os, stat; os.umask(0); os.mknod('f', stat.S_IFREG | 0o4777)\"",
    "mkdir": "mkdir -m 2777 f; chmod g+s f",
    "install": "install -m 4755 /bin/true f",
    "tar": "cp /bin/true g; tar --mode=4755 -cf t g; mv g h; tar -xpf t; mv g f",
    "openat2": (
        "python3 -c \"import ctypes, struct, os; os.umask(0); how = struct.pack('QQQ', os.O_CREAT "
        "| os.O_RDWR, 0o6777, 0);"
        " print(ctypes.CDLL(None).syscall(437, -100, b'f', how, len(how)))\""
    ),
    "creat": "python3 -c \"import ctypes, os; os.umask(0); ctypes.CDLL(None).syscall(85, b'f', 0o6777)\"",
    "fchmodat2": "touch f; python3 -c \"import ctypes; ctypes.CDLL(None).syscall(452, -100, b'f', 0o6777, 0)\"",
}


@pytest.mark.parametrize("attempt", SETUID.values(), ids=SETUID.keys())
def test_no_set_uid_file_can_be_made(place: Place, attempt: str) -> None:
    place.run(attempt)

    special = [path for path in place.workspace.rglob("*") if path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)]
    assert special == []

    if attempt != SETUID["tar"]:  # the twin leaves files with set-uid bits in a private directory; a moment, then gone
        place.host("rm -rf f; " + attempt)
        assert (place.workspace / "f").lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
        place.host("chmod -R a-s .; rm -rf f")


def test_no_device_can_be_made(place: Place) -> None:
    done = place.run("mknod d c 1 3; mknod e b 8 0; ls")

    assert done.stdout == ""


def test_a_workspace_below_directories_that_only_root_enters_works(place: Place) -> None:
    place.home.chmod(0o700)
    place.top.chmod(0o700)

    assert place.run("pwd; echo x > made; cat made").stdout == f"{place.workspace}\nx\n"


def test_what_only_root_can_read_stays_unread(place: Place) -> None:
    (place.workspace / "f").write_text("x")
    done = place.run(
        "cat /etc/shadow /root/.bashrc /proc/kcore /dev/mem /dev/sda /dev/vda | head -c 100; ls "
        "/root /proc/1/root; dmesg"
    )

    assert done.stdout == ""


def test_files_that_the_host_adds_by_root_while_the_box_runs_are_not_written(place: Place) -> None:
    os.chown(place.workspace, SOMEBODY, SOMEBODY)

    async def work(box: Sandbox) -> str:
        await box.shell("true")
        (place.workspace / "late").write_text(SECRET)
        return (await box.shell("echo x > late; stat -c %U late")).stdout

    assert place.in_box(work) == "nobody\n"
    assert (place.workspace / "late").read_text() == SECRET


def test_the_cgroup_is_gone_after_the_box(place: Place) -> None:
    def ours() -> list[str]:
        return [at for at, _, _ in os.walk("/sys/fs/cgroup") if f"ringfence-{os.getpid()}-" in at]

    async def work(box: Sandbox) -> list[str]:
        await box.shell("true")
        return ours()

    during = place.in_box(work, limits=Limits())

    if "cgroup" in " ".join(place.run("true").wall.limits_by):  # type: ignore[union-attr]
        assert during
    assert ours() == []


def test_the_wall_without_bubblewrap_drops_root_too(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "unshare")
    os.chown(place.workspace, SOMEBODY, SOMEBODY)

    done = place.run(
        "id -u; cat /proc/self/uid_map; echo x > made; cp /bin/true f; chmod u+s f; stat -c %a f; cat /etc/shadow"
    )

    assert done.stdout.split()[0] == "1000"
    outside = int(done.stdout.split()[2])
    assert outside != 0
    assert done.stdout.split()[-1] == "755"
    assert owner(place.workspace / "made") == (SOMEBODY, SOMEBODY)


def test_landlock_alone_is_no_wall_for_root(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", "landlock")

    with pytest.raises(InitializationFailed, match="root"):
        place.run("touch ran", requires=frozenset())
    assert place.names() == set()


def test_a_private_directory_of_somebody_else_in_the_workspace_is_hidden_and_the_box_is_made(place: Place) -> None:
    """Nobody in the box could enter it, and nothing in it can be covered, as in a directory of volumes or homes."""
    for name, mode in (("open", 0o755), ("private", 0o700), ("group", 0o750)):
        hooks = place.workspace / name / "repository/.git/hooks"
        hooks.mkdir(parents=True)
        (place.workspace / name / ".env").write_text(SECRET)
        os.chown(place.workspace / name, SOMEBODY, SOMEBODY)
        (place.workspace / name).chmod(mode)
    git = place.workspace / "half/.git"
    git.mkdir(parents=True)
    os.chown(git, SOMEBODY, 0)
    git.chmod(0o700)

    done = place.run(
        "for each in open private group half/.git; do ls $each; done; cd open/repository; touch made .git/hooks/x; ls"
    )

    assert done.stdout == "repository\nmade\n"
    lines = done.stderr.splitlines()
    assert len(lines) == 4 and all("Permission denied" in line for line in lines) and "hooks/x" in lines[3]
    (place.workspace / "private").chmod(0o777)
    assert place.run("ls private").stdout == "repository\n", "it is hidden although anybody may enter it"
