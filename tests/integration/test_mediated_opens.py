"""Strict deny: a blacklisted file stays closed whatever it is called, whenever it came, and whoever races."""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ringfence import Result, Sandbox
from ringfence.values.guarantee import Guarantee
from tests.integration.stage import SECRET, Place

pytestmark = pytest.mark.req("A3")

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
ENV_ROW = "filesystem.blacklist **/.env"


def rules(result: Result) -> set[str]:
    return {violation.rule for violation in result.violations}


def while_running(place: Place, change: Callable[[], object], command: str, **options: object) -> Result:
    """Run a command that waits until the host has changed something."""

    async def work(box: Sandbox) -> Result:
        call = asyncio.create_task(box.shell(f"until [ -e go ]; do sleep 0.01; done; {command}"))
        await asyncio.sleep(0.1)
        change()
        (place.workspace / "go").touch()
        return await call

    waiting: Callable[[Sandbox], Awaitable[Result]] = work
    return place.in_box(waiting, **options)


def save(place: Place, name: str, text: str = SECRET) -> None:
    """As an editor saves: beside, then over."""
    beside = place.workspace / "beside"
    beside.write_text(text)
    beside.rename(place.workspace / name)


# --- what covers at the start leave open -----------------------------------------------------------------------------


def test_a_hard_link_made_beforehand_is_closed(place: Place) -> None:
    (place.workspace / ".env").write_text(SECRET)
    os.link(place.workspace / ".env", place.workspace / "notes.txt")

    mediated = place.run("cat notes.txt", mediate_opens=True)
    usual = place.run("cat notes.txt")

    assert SECRET not in mediated.stdout and rules(mediated) == {ENV_ROW}
    assert f"{place.workspace}/.env by another name" in str(mediated.violations[0])
    assert SECRET in usual.stdout  # what the covers alone leave open


def test_a_hard_link_to_a_secret_of_the_home_is_closed(place: Place) -> None:
    os.link(place.home / ".ssh" / "key", place.workspace / "notes.txt")

    assert SECRET not in place.run("cat notes.txt", mediate_opens=True).stdout
    assert SECRET in place.run("cat notes.txt").stdout


@pytest.mark.parametrize("there_before", [True, False])
def test_a_file_that_the_host_saves_during_the_run_is_closed(place: Place, there_before: bool) -> None:
    if there_before:
        (place.workspace / ".env").write_text("old")

    mediated = while_running(place, lambda: save(place, ".env"), "cat .env", mediate_opens=True)
    (place.workspace / "go").unlink()
    (place.workspace / ".env").unlink()
    if there_before:
        (place.workspace / ".env").write_text("old")
    usual = while_running(place, lambda: save(place, ".env"), "cat .env", trace="off")

    assert SECRET not in mediated.stdout and ENV_ROW in rules(mediated)
    assert SECRET in usual.stdout


@pytest.mark.parametrize(
    "way",
    [
        "mv .env x; cat x",
        "ln .env x; cat x",
        "ln -s .env x; cat x",
        "cp .env x; cat x",
        "dd if=.env status=none",
        "cat /proc/self/root$PWD/.env",
        "cat /proc/self/cwd/.env",
        "cat ./../project/.env",
        "cat /workspace/.env",
        "exec 3<.env; cat <&3",
        "mkdir d; mv .env d/x; cat d/x",
        ". ./.env",
        "chmod +x .env; ./.env",
        f"{PYTHON} -c 'import mmap,os;f=os.open(\".env\",0);print(mmap.mmap(f,0,prot=1)[:])'",
        f"{PYTHON} -c 'import ctypes;l=ctypes.CDLL(None);print(l.syscall(2,b\".env\",0))' | grep -v -- -1",
    ],
)
def test_no_way_leads_to_a_file_that_came_later(place: Place, way: str) -> None:
    (place.home / "project" / "go").unlink(missing_ok=True)

    result = while_running(place, lambda: save(place, ".env", f"echo {SECRET}\n"), way, mediate_opens=True)

    assert SECRET not in result.stdout + result.stderr
    assert (place.workspace / ".env").read_text() == f"echo {SECRET}\n"


@pytest.mark.parametrize(
    "way",
    ["echo x > .env", "echo x >> .env", "truncate -s 0 .env", "rm -f .env", "mv a .env", ": > .env", "ln -f a .env"],
)
def test_a_file_that_came_later_cannot_be_changed(place: Place, way: str) -> None:
    (place.workspace / "a").write_text("a")

    result = while_running(place, lambda: save(place, ".env"), way, mediate_opens=True)

    assert ENV_ROW in rules(result)
    assert (place.workspace / ".env").read_text() == SECRET


def test_a_directory_cannot_be_moved_away_from_the_rule_about_what_is_in_it(place: Place) -> None:
    def change() -> None:
        (place.workspace / "conf" / "keys").mkdir(parents=True)
        (place.workspace / "conf" / "keys" / "one").write_text(SECRET)

    command = "mv conf open; cat open/keys/one; mv conf/keys open; cat open/one; cat conf/keys/one"
    result = while_running(place, change, command, mediate_opens=True, deny=["**/conf/keys/one"])

    assert SECRET not in result.stdout
    assert (place.workspace / "conf" / "keys" / "one").read_text() == SECRET


@pytest.mark.parametrize("closed", ["conf", "conf/keys"])
def test_a_directory_that_cannot_be_searched_cannot_be_moved(place: Place, closed: str) -> None:
    def change() -> None:
        (place.workspace / "conf" / "keys").mkdir(parents=True)
        (place.workspace / "conf" / "keys" / "one").write_text(SECRET)

    command = f"chmod 400 {closed}; mv conf open; chmod 700 open open/keys; cat open/keys/one"
    result = while_running(place, change, command, mediate_opens=True, deny=["**/conf/keys/one"])

    assert SECRET not in result.stdout
    (place.workspace / closed).chmod(0o700)  # for who cleans up


_HELD = textwrap.dedent(
    """
    import os, time
    # Neither way says in advance what it leads to; opening a place only is no reading, and may be refused already.
    os.symlink("/proc/self/cwd/.env", "link")
    fds = []
    for way in ("link", f"/dev/fd/{os.open('.', 0)}/.env"):
        try:
            fds.append(os.open(way, os.O_PATH))
        except OSError as fault:
            print(fault)
    open("held", "w").close()
    while not os.path.exists("saved"):
        time.sleep(0.01)
    for fd in fds:
        try:
            print(open(f"/proc/self/fd/{fd}").read())
        except OSError as fault:
            print(fault)
    """
)


def test_a_file_that_was_held_stays_closed_when_the_host_saves_it_anew(place: Place) -> None:
    (place.workspace / "hold.py").write_text(_HELD)

    async def work(box: Sandbox) -> Result:
        (place.workspace / ".env").write_text(SECRET)
        call = asyncio.create_task(box.shell(f"{PYTHON} hold.py"))
        while not (place.workspace / "held").exists():
            await asyncio.sleep(0.01)
        save(place, ".env", "new")
        (place.workspace / "saved").touch()
        return await call

    result = place.in_box(work, mediate_opens=True)

    assert result.stdout.count("Permission denied") == 2 and ENV_ROW in rules(result)


def test_files_without_a_name_can_be_opened_again(place: Place) -> None:
    work = "import os; fd = os.memfd_create('x'); f = open('a', 'w'); os.unlink('a'); "
    again = "[open(f'/proc/self/fd/{number}', 'r+').write('x') for number in (fd, f.fileno())]; print('both')"

    assert place.run([PYTHON, "-c", work + again], mediate_opens=True).stdout == "both\n"


_EXCHANGE = 'import ctypes, sys; ctypes.CDLL(None).syscall(316, -100, b"plain", -100, sys.argv[1].encode(), 2)'
EXCHANGE = f"{PYTHON} -c '{_EXCHANGE}'"


@pytest.mark.req("A4")
@pytest.mark.parametrize(("name", "kind"), [(".bashrc", ""), ("host.sock", "character special file\n")])
def test_a_cover_cannot_be_taken_off_by_its_name(place: Place, name: str, kind: str) -> None:
    """The guardian is in another mount namespace, where nothing is mounted on these names."""
    (place.workspace / "plain").touch()
    os.mknod(place.workspace / "host.sock", stat.S_IFSOCK | 0o600)
    ways = f"rm -f {name}; mv {name} x; mv -fT plain {name}; {EXCHANGE} {name}"

    result = place.run(f"{ways}; echo evil > {name}; stat -c %F {name}", mediate_opens=True)

    assert result.stdout == kind  # what is covered still is; what is not there still is not
    assert not (place.workspace / name).is_file()


@pytest.mark.req("A4")
def test_what_is_on_the_way_to_a_cover_stays_where_it_is(place: Place) -> None:
    place.host("git init -q sub/deep; touch plain")
    names = ("sub", "sub/deep", "sub/deep/.git")

    result = place.run(
        "; ".join(f"mv {name} moved; {EXCHANGE} {name}; ls -d {name}" for name in names), mediate_opens=True
    )

    assert tuple(result.stdout.split()) == names
    assert all((place.workspace / name).is_dir() for name in names) and (place.workspace / "plain").is_file()


@pytest.mark.parametrize("move", ["project", "above"])
def test_the_workspace_cannot_be_moved_away_from_the_rules_about_it(place: Place, move: str) -> None:
    workspace = place.home / "above" / "project" if move == "above" else place.workspace
    workspace.mkdir(parents=True, exist_ok=True)

    async def work(box: Sandbox) -> Result:
        await box.shell(f"cd; mv {move} away")
        (workspace / "later").write_text(SECRET)
        return await box.shell("cat ~/away/later ~/away/project/later")

    result = place.in_box(work, mediate_opens=True, workspace=workspace, deny=[f"{workspace}/later"])

    assert SECRET not in result.stdout


_RACE = textwrap.dedent(
    """
    import ctypes, os, threading, time
    libc = ctypes.CDLL(None, use_errno=True)
    ways = [b"plain", b".env\\0"]
    text = ctypes.create_string_buffer(16)
    over = time.monotonic() + SECONDS
    def swap():
        while time.monotonic() < over:
            for way in ways:
                ctypes.memmove(text, way, len(way))
    threading.Thread(target=swap).start()
    opened = leaked = 0
    while time.monotonic() < over:
        fd = libc.open(text, 0)
        if fd >= 0:
            opened += 1
            leaked += os.read(fd, 100).startswith(b"TOKEN")
            os.close(fd)
    print(opened, leaked)
    """
)


def test_a_thread_that_swaps_the_path_meanwhile_opens_nothing(place: Place) -> None:
    (place.workspace / "plain").write_text("nothing of value")
    (place.workspace / "race.py").write_text(_RACE.replace("SECONDS", "3"))

    result = while_running(
        place, lambda: save(place, ".env", f"TOKEN={SECRET}"), f"{PYTHON} race.py", mediate_opens=True
    )

    opened, leaked = map(int, result.stdout.split())
    assert opened > 100  # the race was run
    assert leaked == 0


# --- and what has to go on working -----------------------------------------------------------------------------------


def test_ordinary_work_goes_on(repository: Place) -> None:
    work = (
        "mkdir -p a/b && echo x > a/b/c && mv a/b/c a/c && cp a/c a/d && rm a/d && ln -s c a/l && ln a/c a/h && "
        "chmod +x a/c && git add -A && git commit -qm two && git status --short && ls -la && "
        "grep -r x . > /dev/null && python3 -c 'import json, tempfile, sqlite3; tempfile.TemporaryFile()' && "
        "echo $HOME > ~/x && cat ~/x > /tmp/y && mkfifo p && (echo through > p & cat p) && "
        "cat /proc/self/status /proc/mounts /proc/uptime > /dev/null && "
        "cat /dev/stdin < a/c && echo '#!/bin/sh\necho script' > s && chmod +x s && ./s && mv a e && cat e/c && "
        "cat <(echo substituted) && : > /dev/null && truncate -s 1 e/c && rm -r e && echo all"
    )

    result = repository.run(work, mediate_opens=True)

    assert result.ok, result.stderr
    assert result.stdout.endswith("through\nx\nscript\nx\nsubstituted\nall\n")
    assert result.violations == ()


_ODD = textwrap.dedent(
    """
    import os
    def say(what, *arguments):
        try:
            what(*arguments)
            print(what.__name__, arguments, "done")
        except OSError as fault:
            print(what.__name__, arguments, fault.errno)
    os.mkdir("d")
    os.symlink("d", "link")
    open("f", "w").close()
    for name in (".", "..", "d/.", "new/", "link", "f/", "n" * 256, "/proc/self/cwd/p", "./" * 2050):
        say(os.mkdir, name)
    for name in (".", "link/", "f/", "f/x", "/proc/self/cwd/p"):
        say(os.unlink, name)
    for name in ("link/", "link", "f", "new/", "/proc/self/cwd/p"):
        say(os.rmdir, name)
    for name in ("made/", "d", "d/", "f/x", "link/f"):
        say(os.open, name, os.O_CREAT | os.O_WRONLY)
    for one, two in (("f", "x/"), ("f/", "x"), ("d/", "e/"), (".", "x"), ("link/", "x"), ("f", "e"), ("e", "f")):
        say(os.rename, one, two)
    say(os.symlink, "d", "y/")
    say(os.link, "f", "z/")
    say(os.truncate, "e", 0)
    say(os.truncate, "f", -1)
    say(os.open, "/proc/self/fd/0", os.O_NOFOLLOW)
    os.umask(0)
    print(oct(os.fstat(os.open(".", os.O_TMPFILE | os.O_RDWR, 0o666)).st_mode), sorted(os.listdir("e")))
    """
)


def test_odd_names_are_answered_as_the_kernel_answers_them(place: Place) -> None:
    (place.workspace / "odd.py").write_text(_ODD)

    mediated, usual = (
        place.run(f"rm -rf w; mkdir w; cd w; {PYTHON} ../odd.py", mediate_opens=on) for on in (True, False)
    )

    assert mediated.ok and mediated.stdout == usual.stdout


def test_a_directory_with_many_names_that_a_rule_may_be_about_can_be_moved(place: Place) -> None:
    command = "mkdir a; touch a/{1..40}.txt; mv a b && ls b | wc -l"

    assert place.run(command, mediate_opens=True, deny=["**/secret/*.txt"]).stdout == "40\n"


def test_too_many_of_them_are_refused_and_not_left_waiting(place: Place) -> None:
    command = "mkdir a; touch a/{1..600}.txt; mv a b; ls"

    assert place.run(command, mediate_opens=True, deny=["**/secret/*.txt"]).stdout == "a\n"


def test_files_have_the_mode_that_the_command_asked_for(place: Place) -> None:
    result = place.run("umask 027; echo > a; mkdir b; umask 0; echo > c; stat -c %a a b c", mediate_opens=True)

    assert result.stdout.split() == ["640", "750", "666"]


def test_what_the_command_makes_belongs_to_the_workspace_s_owner(place: Place) -> None:
    place.run("echo > a; mkdir b; ln -s a c; mkfifo d", mediate_opens=True)

    owner = place.workspace.stat()
    for name in "abcd":
        made = (place.workspace / name).lstat()
        assert (made.st_uid, made.st_gid) == (owner.st_uid, owner.st_gid)


def test_a_file_that_the_owner_may_not_read_stays_closed(place: Place) -> None:
    """Run by root, the guardian could: it must not."""
    locked = place.workspace / "locked"
    locked.write_text(SECRET)
    locked.chmod(0)

    assert SECRET not in place.run("cat locked", mediate_opens=True).stdout


_RUN = """
import sys
import ringfence
result = ringfence.run(sys.argv[2], workspace=sys.argv[1], mediate_opens=True)
print(result.exit_code, result.stdout)
"""
only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give somebody a capability or a group")


def run_as_somebody(command: str, *who: str) -> str:
    """The exit code and output of a command in an ordinary user's box with mediate_opens, beside a locked file."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as home:
        locked = Path(home, "project", "locked")
        locked.parent.mkdir()
        locked.write_text(SECRET)
        locked.chmod(0)
        for path in (home, locked.parent, locked):
            os.chown(path, 61299, 61299)
        result = subprocess.run(
            ["setpriv", "--reuid=61299", "--regid=61299", *who, sys.executable, "-c", _RUN, locked.parent, command],
            env={"PATH": "/usr/bin:/bin", "HOME": home, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    return result.stdout.strip() or result.stderr


@only_root
def test_a_capability_of_the_caller_s_opens_nothing_for_the_box() -> None:
    """As services have them: an ordinary user who may read everything."""
    allowed = "+dac_override,+dac_read_search"
    who = ("--clear-groups", f"--inh-caps={allowed}", f"--ambient-caps={allowed}")

    assert run_as_somebody("cat locked", *who) == "1"


@only_root
def test_a_caller_of_many_groups_can_make_files() -> None:
    groups = ",".join(map(str, range(70_000, 70_900)))

    assert run_as_somebody("echo made > a; cat a", f"--groups={groups}") == "0 made"


def test_a_limit_on_the_size_of_files_holds_for_truncate(place: Place) -> None:
    from ringfence import Limits

    def truncated(size: int) -> Result:
        command = [PYTHON, "-c", f"import os; open('a', 'w').close(); os.truncate('a', {size})"]
        return place.run(command, mediate_opens=True, limits=Limits(file_bytes=1 << 20))

    assert "File too large" in truncated(1 << 30).stderr and (place.workspace / "a").stat().st_size == 0
    assert truncated(1 << 20).ok and (place.workspace / "a").stat().st_size == 1 << 20


def test_a_file_too_large_for_the_guardian_does_not_end_it(place: Place) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    truncate = f"""{PYTHON} -c "import os; open('a', 'w'); os.truncate('a', 30_000_000)" """
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000_000, limits[1]))
        result = place.run(f"{truncate}; echo on", mediate_opens=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert result.stdout == "on\n" and "File too large" in result.stderr


def test_a_fifo_that_nobody_writes_keeps_only_its_reader_waiting(place: Place) -> None:
    result = place.run(
        "mkfifo p; (timeout 1 cat p &); sleep 0.2; echo other > a; cat a", mediate_opens=True, timeout=10
    )

    assert result.stdout == "other\n"


def test_readers_that_were_killed_leave_nobody_waiting(place: Place) -> None:
    killed = "for i in {1..70}; do (cat p & sleep 0.02; kill -9 $!; wait) 2>/dev/null; done"

    result = place.run(f"mkfifo p q; {killed}; (echo through > q & cat q)", mediate_opens=True)

    assert result.stdout == "through\n"


@pytest.mark.parametrize("file", ["/proc/1/environ", "/proc/1/maps", "/proc/1/mem", "/proc/sys/kernel/core_pattern"])
def test_what_the_kernel_shows_is_no_more_than_without(place: Place, file: str) -> None:
    mediated = place.run(f"head -c 1 {file} | wc -c; : > {file}", mediate_opens=True)
    usual = place.run(f"head -c 1 {file} | wc -c; : > {file}")

    assert mediated.stdout == usual.stdout
    assert not mediated.ok and not usual.ok


_RECEIVE = textwrap.dedent(
    """
    import os, socket
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("meet")
    listening.listen()
    [fd] = socket.recv_fds(listening.accept()[0], 1, 1)[1]
    while (child := os.fork()) != int(os.readlink(f"/proc/self/fd/{fd}").split("/")[2]) and child:
        os.waitpid(child, 0)
    if not child and os.getpid() == int(os.readlink(f"/proc/self/fd/{fd}").split("/")[2]):
        try:
            print(open(f"/proc/self/fd/{fd}", "rb").read())
        except OSError as fault:
            print(fault)
    if child:
        os.waitpid(child, 0)
    """
)
_GIVE = textwrap.dedent(
    """
    import os, socket, time
    while not os.path.exists("meet"):
        time.sleep(0.01)
    for _ in range(40):  # a number that the other box has still to come to
        if child := os.fork():
            os.waitpid(child, 0)
        else:
            os._exit(0)
    if not (child := os.fork()):
        time.sleep(5)
        os._exit(0)
    with socket.socket(socket.AF_UNIX) as meeting:
        meeting.connect("meet")
        socket.send_fds(meeting, [b"x"], [os.open(f"/proc/{child}/environ", os.O_PATH)])
    os.waitpid(child, 0)
    """
)


def test_a_process_of_another_box_is_not_taken_for_one_s_own(place: Place) -> None:
    (place.workspace / "receive.py").write_text(_RECEIVE)
    (place.workspace / "give.py").write_text(_GIVE)

    async def work(box: Sandbox) -> Result:
        async with place.box(env={"MARK": SECRET}) as other:
            giving = asyncio.create_task(other.shell(f"{PYTHON} give.py", timeout=20))
            result = await box.shell(f"{PYTHON} receive.py", timeout=20)
            await giving
            return result

    result = place.in_box(work, mediate_opens=True)

    assert "Permission denied" in result.stdout and SECRET not in result.stdout


_HOLD_AND_GIVE = textwrap.dedent(
    """
    import os, socket, time
    while not os.path.exists("meet"):
        time.sleep(0.01)
    with socket.socket(socket.AF_UNIX) as meeting:
        meeting.connect("meet")
        socket.send_fds(meeting, [b"x"], [os.open("later", os.O_PATH)])
    """
)
_RECEIVE_AND_OPEN = textwrap.dedent(
    """
    import os, socket, time
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("meet")
    listening.listen()
    [fd] = socket.recv_fds(listening.accept()[0], 1, 1)[1]
    while not os.path.exists("alone"):
        time.sleep(0.01)
    try:
        print(open(f"/proc/self/fd/{fd}").read())
    except OSError as fault:
        print(fault)
    """
)


def test_a_file_that_another_box_held_stays_closed_when_that_box_is_gone(place: Place) -> None:
    (place.workspace / "receive.py").write_text(_RECEIVE_AND_OPEN)
    (place.workspace / "give.py").write_text(_HOLD_AND_GIVE)
    deny = [f"{place.workspace}/later"]

    async def work(box: Sandbox) -> Result:
        async with place.box(mediate_opens=True) as other:
            (place.workspace / "later").write_text(SECRET)
            receiving = asyncio.create_task(box.shell(f"{PYTHON} receive.py", timeout=20))
            await other.shell(f"{PYTHON} give.py", timeout=20)
        (place.workspace / "alone").touch()
        return await receiving

    result = place.in_box(work, mediate_opens=True, deny=deny)

    assert "Permission denied" in result.stdout


def test_the_host_s_shared_memory_is_not_listed(place: Place) -> None:
    made = place.host("ipcmk -M 4096").stdout.split()[-1]
    try:
        listed = place.run("cat /proc/sysvipc/shm; ipcs -m", mediate_opens=True).stdout
    finally:
        place.host(f"ipcrm -m {made}")

    assert not re.search(rf"\b{made}\b", listed)


_START = textwrap.dedent(
    """
    import ctypes, os
    program = os.open(f"/dev/fd/{os.open('.', 0)}/NAME", os.O_PATH)
    words = (ctypes.c_char_p * 3)(b"echo", b"ran")
    ctypes.CDLL(None).syscall(322, program, b"", words, None, 0x1000)  # execveat with AT_EMPTY_PATH
    """
)


@pytest.mark.parametrize("name", ["secrets.json", "plain"])
def test_a_program_is_known_by_its_descriptor_alone(place: Place, name: str) -> None:
    (place.workspace / "start.py").write_text(_START.replace("NAME", name))

    result = while_running(
        place, lambda: shutil.copy("/bin/echo", place.workspace / name), f"{PYTHON} start.py", mediate_opens=True
    )

    assert (result.stdout, len(result.violations)) == (("ran\n", 0) if name == "plain" else ("", 1))


def test_the_wall_says_that_it_is_strict(place: Place) -> None:
    mediated, usual = place.run("true", mediate_opens=True), place.run("true")

    assert mediated.wall is not None and Guarantee.DENIED_AT_OPEN in mediated.wall.guarantees
    assert usual.wall is not None and Guarantee.DENIED_AT_OPEN not in usual.wall.guarantees


@pytest.mark.req("A1", "B4")
@pytest.mark.parametrize("by", ["configuration", "policy"])
def test_files_of_settings_make_it_strict(place: Place, by: str) -> None:
    (place.workspace / ".env").write_text(SECRET)
    os.link(place.workspace / ".env", place.workspace / "notes.txt")
    file = place.home / "settings"
    if by == "policy":
        file.write_text("policies:\n  default:\n    filesystem:\n      mediate_opens: true\n")
        options = {"policy": file}
    else:
        file.write_text('{"filesystem": {"mediateOpens": true}}')
        options = {"config": file}

    assert SECRET not in place.run("cat notes.txt", **options).stdout
