"""What people do all day works inside: languages, git, processes, terminals, text. Else they would switch it off."""

import os
import shutil
from pathlib import Path

import pytest

from ringfence import Limits, Result
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A7", "D3")

PYTHON = "/usr/bin/python3"


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(
        shutil.which(program, path="/usr/bin:/bin:/usr/local/bin") is None,
        reason=f"there is no {program} on this machine",
    )


def good(done: Result) -> Result:
    assert done.ok, f"{done.ending}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done


def run_python(place: Place, program: str, **options: object) -> str:
    (place.workspace / "program.py").write_text(program)
    return good(place.run([PYTHON, "program.py"], **options)).stdout


@needs("python3")
def test_python_runs_and_finds_its_library(place: Place) -> None:
    out = run_python(
        place, "import ssl, json, ctypes, decimal, subprocess\nprint(subprocess.check_output(['echo', 'hi']).decode())"
    )

    assert out == "hi\n\n"


@needs("python3")
def test_python_multiprocessing_works_by_fork_and_by_spawn(place: Place) -> None:
    program = """
import multiprocessing as mp, sys
def square(n): return n * n
if __name__ == "__main__":
    for how in ("fork", "spawn"):
        with mp.get_context(how).Pool(4) as pool:
            print(sum(pool.map(square, range(100))))
    queue = mp.Queue(); lock = mp.Lock()
    with lock: queue.put("through a queue")
    print(queue.get(timeout=10))
    from multiprocessing import shared_memory
    block = shared_memory.SharedMemory(create=True, size=1 << 20); block.buf[0] = 7; print(block.buf[0])
    block.close(); block.unlink()
"""

    assert run_python(place, program).split("\n")[:4] == ["328350", "328350", "through a queue", "7"]


@needs("python3")
def test_python_threads_work(place: Place) -> None:
    program = """
import threading, time
seen = []
threads = [threading.Thread(target=lambda n=n: (time.sleep(0.01), seen.append(n))) for n in range(100)]
[t.start() for t in threads]; [t.join() for t in threads]
print(len(seen))
"""

    assert run_python(place, program) == "100\n"


@needs("python3")
def test_python_asyncio_runs_subprocesses(place: Place) -> None:
    program = """
import asyncio
async def one(n):
    p = await asyncio.create_subprocess_exec("echo", str(n), stdout=asyncio.subprocess.PIPE)
    return (await p.communicate())[0]
async def main(): print(b"".join(await asyncio.gather(*(one(n) for n in range(5)))).split())
asyncio.run(main())
"""

    assert run_python(place, program) == "[b'0', b'1', b'2', b'3', b'4']\n"


@needs("python3")
def test_sqlite_keeps_its_data_with_locks_and_a_journal(place: Place) -> None:
    program = """
import sqlite3
for mode in ("delete", "wal"):
    db = sqlite3.connect(f"{mode}.db"); db.execute(f"pragma journal_mode={mode}")
    with db: db.execute("create table t (n)"); db.executemany("insert into t values (?)", [(n,) for n in range(1000)])
    print(db.execute("select sum(n) from t").fetchone()[0]); db.close()
"""

    assert run_python(place, program) == "499500\n499500\n"
    assert (place.workspace / "delete.db").stat().st_size > 0


@needs("python3")
def test_pip_tells_its_version_and_a_virtual_environment_can_be_made_and_used(place: Place) -> None:
    if place.host("python3 -m pip --version").returncode == 0:
        assert good(place.run("python3 -m pip --version")).stdout.startswith("pip ")

    done = good(
        place.run(
            "python3 -m venv --without-pip .venv && . .venv/bin/activate && python -c 'import sys; print(sys.prefix)'"
        )
    )

    assert done.stdout == f"{place.workspace}/.venv\n"


@needs("node")
def test_node_runs_with_workers_and_children(place: Place) -> None:
    program = """
const { Worker, isMainThread, parentPort } = require('worker_threads');
const cp = require('child_process'), fs = require('fs');
if (isMainThread) { const w = new Worker(__filename); w.on('message', m => { fs.writeFileSync('made', m);
  console.log(m, cp.execSync('echo child').toString().trim(), fs.readFileSync('made', 'utf8')); }); }
else parentPort.postMessage('worker');
"""
    (place.workspace / "a.js").write_text(program)

    assert good(place.run("node a.js")).stdout == "worker child worker\n"


@needs("gcc")
def test_gcc_compiles_and_what_it_made_runs(place: Place) -> None:
    (place.workspace / "a.c").write_text(
        '#include <stdio.h>\n#include <math.h>\nint main(void) { printf("%.3f\\n", sqrt(2)); }\n'
    )

    assert good(place.run("gcc -O2 -pipe a.c -o a -lm && ./a")).stdout == "1.414\n"


@needs("make")
def test_make_runs_jobs_side_by_side(place: Place) -> None:
    (place.workspace / "Makefile").write_text("all: a b c d\na b c d:\n\t@echo $@ > $@\n")

    good(place.run("make -s -j4"))

    assert {"a", "b", "c", "d"} <= place.names()


# --- git --------------------------------------------------------------------------------------------------------------


@needs("git")
def test_git_commits_everything_that_was_made_and_nothing_of_the_placeholders(repository: Place) -> None:
    (repository.workspace / "src").mkdir()
    (repository.workspace / "src" / "a.txt").write_text("a\n")

    done = good(
        repository.run(
            "echo b > b.txt && git status --porcelain && git add -A && git commit -q -m two && git log --format=%s"
            " && git diff HEAD~1 --stat && git branch x && git checkout -q x && git stash list && git gc -q && git fsck"
        )
    )

    assert done.stdout.splitlines()[:2] == ["?? b.txt", "?? src/"]
    assert done.stderr == ""
    tracked = repository.host("git ls-files; git status --porcelain; git fsck")
    assert (tracked.stdout, tracked.returncode) == ("b.txt\nsrc/a.txt\n", 0)
    assert repository.host("git log --format='%s %an'").stdout.splitlines() == ["two A", "one A"]


@needs("git")
def test_git_status_inside_says_the_same_as_outside(repository: Place) -> None:
    for name in ("tracked", ".vscode/settings.json", ".gitmodules", "sub/.bashrc"):
        path = repository.workspace / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    assert repository.host("git add -A && git commit -q -m two && echo x >> tracked && touch new").returncode == 0

    inside = good(repository.run("git status --porcelain=v2 --branch"))

    assert inside.stdout == repository.host("git status --porcelain=v2 --branch").stdout


@needs("git")
def test_a_repository_can_be_made_and_cloned_inside(place: Place) -> None:
    line = (
        "git init -q one && cd one && git -c user.name=A -c user.email=a@b.c commit -q --allow-empty -m first && cd .."
        " && git clone -q one two && git -C two log --format=%s && git -C two worktree add -q "
        "../three && ls three -a | head -1"
    )

    assert good(place.run(line)).stdout == "first\n.\n"


@needs("git")
def test_a_commit_needs_no_configuration_of_the_host(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    (place.home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")

    done = good(
        place.run("git init -q . && git commit -q --allow-empty -m x && git log --format='%an <%ae> %cn <%ce>'")
    )

    assert done.stdout == "Ada <ada@example.org> Ada <ada@example.org>\n"


# --- the shell --------------------------------------------------------------------------------------------------------


def test_heredocs_pipes_and_process_substitution_work(place: Place) -> None:
    line = (
        "x=5\ncat <<E | tr a-z A-Z\none $x\nE\ncat <<'E'\ntwo $x\nE\ncat <<< three\ndiff <(echo "
        "a) <(echo a) && echo same\necho err >&2"
    )

    done = good(place.run(line))

    assert (done.stdout, done.stderr) == ("ONE 5\ntwo $x\nthree\nsame\n", "err\n")


def test_job_control_and_traps_work(place: Place) -> None:
    line = (
        "set -m; sleep 60 & jobs -r | grep -c sleep; kill %1; wait %1; echo $?; trap 'echo "
        "caught' USR1; kill -USR1 $$; "
        "(sleep 0.05; echo late) & wait; sleep 60 & kill -STOP $!; kill -CONT $!; kill $!; trap 'echo bye' EXIT"
    )

    assert place.run(line).stdout == "1\n143\ncaught\nlate\nbye\n"


def test_ten_megabytes_of_output_arrive_whole(place: Place) -> None:
    done = good(place.run("head -c 10485760 /dev/zero | tr '\\0' x; head -c 1000000 /dev/zero | tr '\\0' e >&2"))

    assert (len(done.stdout_bytes), set(done.stdout_bytes)) == (10485760, {ord("x")})
    assert done.stderr_bytes == b"e" * 1_000_000
    assert (done.stdout_dropped, done.stderr_dropped) == (0, 0)


def test_unicode_in_output_arguments_and_file_names_survives(place: Place) -> None:
    text = "naïve 日本語 🦊 \u202e"

    done = good(place.run(["/bin/bash", "-c", 'printf "%s" "$1" > "$1"; cat "$1"; ls', "x", text]))

    assert done.stdout == f"{text}{text}\n"
    assert (place.workspace / text).read_text() == text


def test_the_locale_is_utf_8(place: Place) -> None:
    out = run_python(
        place,
        (
            "import sys, locale\nprint(sys.getfilesystemencoding(), sys.stdout.encoding, "
            "locale.getpreferredencoding(False))"
        ),
    )

    assert out.lower() == "utf-8 utf-8 utf-8\n"


@pytest.mark.parametrize(("zone", "said"), [("Asia/Tokyo", "+0900"), ("America/New_York", "-0500"), ("UTC", "+0000")])
def test_the_time_zone_of_the_caller_comes_along(
    place: Place, monkeypatch: pytest.MonkeyPatch, zone: str, said: str
) -> None:
    if not Path("/usr/share/zoneinfo", zone).exists():
        pytest.skip("this machine has no time zone data")
    monkeypatch.setenv("TZ", zone)

    assert good(place.run("date -d 2024-01-15T12:00Z +%z")).stdout == f"{said}\n"


def test_etc_localtime_is_the_hosts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TZ", raising=False)

    assert good(place.run("date -d @0 +%H:%M%z")).stdout == place.host("date -d @0 +%H:%M%z").stdout


# --- terminals, sockets, devices --------------------------------------------------------------------------------------


@needs("python3")
def test_a_terminal_can_be_opened_inside(place: Place) -> None:
    program = """
import pty, os, sys
out = []
def read(fd):
    data = os.read(fd, 1024); out.append(data); return b""
status = pty.spawn(["/bin/sh", "-c", "test -t 0 && test -t 1 && tty && stty size"], read)
print(b"".join(out).decode().replace("\\r", ""), status)
"""

    assert run_python(place, program).startswith("/dev/pts/0\n")


@needs("script")
def test_script_records_a_session(place: Place) -> None:
    assert "recorded" in good(place.run("script -qec 'test -t 1 && echo recorded' log")).stdout


@needs("python3")
def test_a_server_on_the_boxes_own_loopback_is_reached_by_its_client(place: Place) -> None:
    program = """
import http.server, threading, urllib.request, socket
for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
    class Server(http.server.ThreadingHTTPServer): address_family = family
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b"served")
        def log_message(self, *a): pass
    with Server((host, 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"[{host}]" if ":" in host else host
        print(urllib.request.urlopen(f"http://{name}:{server.server_port}/", timeout=10).read().decode())
        server.shutdown()
a, b = socket.socketpair(); a.send(b"pair"); print(b.recv(9).decode())
s = socket.socket(socket.AF_UNIX); s.bind("/tmp/s"); s.listen()
c = socket.socket(socket.AF_UNIX); c.connect("/tmp/s"); print(socket.gethostbyname("localhost"))
"""

    assert run_python(place, program) == "served\nserved\npair\n127.0.0.1\n"


def test_devices_and_proc_that_programs_expect_are_there(place: Place) -> None:
    line = (
        "echo x > /dev/null; head -c3 /dev/zero | od -An -c; head -c8 /dev/urandom | wc -c; echo "
        "y > /dev/shm/y; cat /dev/shm/y;"
        " echo on-stderr > /dev/stderr; cat /proc/self/comm; test -r /proc/cpuinfo; nproc > "
        "/tmp/n; id -un; hostname; whoami"
    )

    done = good(place.run(line))

    assert done.stdout.split() == ["\\0", "\\0", "\\0", "8", "y", "cat", "agent", "sandbox", "agent"]
    assert done.stderr == "on-stderr\n"


def test_exit_codes_and_signals_are_the_commands_own(place: Place) -> None:
    for line, code in (
        ("exit 3", 3),
        ("no-such-program", 127),
        ("/etc/hostname", 126),
        ("kill -TERM $$", 143),
        ("true", 0),
    ):
        assert place.run(line).exit_code == code, line


def test_home_and_tmp_are_writable_and_shared_by_the_commands_of_one_box(place: Place) -> None:
    async def three(box):  # type: ignore[no-untyped-def]
        await box.shell("echo one > ~/a; echo two > /tmp/b; echo three > $TMPDIR/c; mkdir -p ~/.cache/x")
        return await box.shell("cat ~/a /tmp/b /var/tmp/c; ls -A ~")

    done = place.in_box(three)

    assert done.stdout == "one\ntwo\nthree\n.cache\na\nproject\n"
    assert not (place.home / "a").exists()
    assert not os.path.exists("/tmp/b")


def test_file_locks_hard_links_fifos_and_modes_work_in_the_workspace(place: Place) -> None:
    line = (
        "echo a > a; ln a b; ln -s a c; mkfifo f; (cat f &) ; echo through > f; chmod 741 a; stat "
        "-c '%a %h' a; flock a echo locked; mv a d; cp -a d e; touch -d @5 e; stat -c %Y e"
    )

    done = good(place.run(line + "; sleep 0.1"))

    assert sorted(done.stdout.split()) == sorted(["through", "741", "2", "locked", "5"])


def test_many_open_files_within_the_limit_work(place: Place) -> None:
    out = run_python(
        place, "files = [open('/dev/null') for _ in range(900)]\nprint(len(files))", limits=Limits(open_files=1024)
    )

    assert out == "900\n"
