"""The guardian makes the names of a live workspace: calls do what they do without it; no race makes a protected one.

In the race two threads of one process share a path: one changes it between a place where the box makes names itself and
a protected name, the other has it made. What the guardian looks at is then not what the kernel would read. That the
race is run is shown by its twin, with a name that nobody protects: sometimes the kernel refuses it, which it never does
when nobody changes the path.
"""

import json
import os
import shutil
from collections.abc import Iterator

import pytest

from tests.integration.stage import Place

pytestmark = pytest.mark.req("A4", "B6")

CALLS = r"""
import ctypes, errno, json, os, stat, subprocess, sys, threading

said = []
libc = ctypes.CDLL(None, use_errno=True)


def tried(what, call, *arguments, **options):
    try:
        got = call(*arguments, **options)
        said.append([what, 'done'])
        return got
    except OSError as fault:
        said.append([what, errno.errorcode[fault.errno]])


def opened(what, path, flags, mode=0o666, **options):
    fd = tried(what, os.open, path, flags, mode, **options)
    if fd is not None:
        said[-1].append(oct(os.fstat(fd).st_mode))
        os.set_inheritable(fd, False)
        os.close(fd)


W, C, X = os.O_WRONLY, os.O_CREAT, os.O_EXCL
os.mkdir('d')
os.symlink('d', 'l')
os.symlink('nowhere', 'dangling')
os.symlink('d/inside', 'into')
open('file', 'w').close()
for mask in (0o022, 0o077, 0):
    os.umask(mask)
    opened(f'new {mask:o}', f'new{mask}', W | C)
    opened(f'odd mode {mask:o}', f'odd{mask}', W | C, 0o444)
    tried(f'directory {mask:o}', os.mkdir, f'dir{mask}', 0o777)
    said.append(oct(os.stat(f'dir{mask}').st_mode))
    tried(f'pipe {mask:o}', os.mkfifo, f'pipe{mask}')
    said.append(oct(os.stat(f'pipe{mask}').st_mode))
os.umask(0o022)
line = 'umask 027; : > one; stat -c %a one; (umask 0; : > two); stat -c %a two; : > three; stat -c %a three'
said.append(subprocess.run(line, shell=True, capture_output=True, text=True).stdout)
opened('exclusive', 'x', W | C | X)
opened('exclusive again', 'x', W | C | X)
opened('read-only', 'r', C)
opened('there', 'file', W | C)
opened('emptied', 'file', W | C | os.O_TRUNC)
opened('appended', 'file', W | C | os.O_APPEND)
opened('a directory', 'd', W | C)
opened('with a slash', 'slash/', W | C)
opened('link', 'dangling', W | C | os.O_NOFOLLOW)
opened('through a link', 'into', W | C)
opened('dangling', 'dangling', W | C)
opened('nowhere', 'no/where', W | C)
opened('below a file', 'file/x', W | C)
opened('too long', 'n' * 256, W | C)
opened('empty', '', W | C)
opened('through a directory link', 'l/y', W | C)
opened('device', '/dev/null', W | C)
opened('unnamed', '.', W | os.O_TMPFILE)
opened('as a directory', 'asdir', C | os.O_DIRECTORY)
for path in (
    'd',
    'd/',
    '.',
    '..',
    'd/.',
    'l',
    'dangling',
    'file',
    'a/b',
    'sub/',
    'file/x',
    'n' * 256,
    '',
    '/',
    'dangling2/../q',
):
    tried(f'mkdir {path[:9]}', os.mkdir, path)
for target, path in (('t', 's1'), ('t', 'file'), ('', 's2'), ('t', 's3/'), ('t', 'd/s4'), ('t' * 5000, 's5')):
    tried(f'symlink {path}', os.symlink, target, path)
for old, new in (
    ('file', 'h1'),
    ('file', 'd/h2'),
    ('d', 'h3'),
    ('none', 'h4'),
    ('file', 'x'),
    ('dangling', 'h5'),
    ('file', 'h6/'),
    ('/dev/null', 'h7'),
):
    tried(f'link {old} {new}', os.link, old, new, follow_symlinks=False)
tried('link followed', os.link, 'into', 'h8', follow_symlinks=True)
fd = os.open('.', os.O_TMPFILE | os.O_RDWR)
os.write(fd, b'content')
said.append(['name for the nameless', libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'named', 0x400)])
said.append(['once more', libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, b'named', 0x400)])
said.append(open('named').read())
os.mkdir('full')
open('full/f', 'w').close()
os.mkdir('void')
for old, new in (
    ('h1', 'm1'),
    ('m1', 'd/m2'),
    ('none', 'm3'),
    ('d', 'd/sub'),
    ('file', 'd'),
    ('d', 'file'),
    ('void', 'full'),
    ('full', 'void'),
    ('x', 'x'),
    ('d/.', 'm4'),
    ('.', 'm5'),
    ('x', 'm6/'),
    ('void/', 'm7'),
    ('l/', 'm8'),
    ('m7', 'm9/'),
    ('x', '/dev/m'),
    ('d', 'l'),
):
    tried(f'rename {old} {new}', os.rename, old, new)
for flags in (1, 2, 8):
    got = libc.renameat2(-100, b'x', -100, b'r', flags)
    said.append([f'rename by {flags}', errno.errorcode[ctypes.get_errno()] if got else 'done'])
here = os.open('d', os.O_PATH)
opened('in a directory', 'in', W | C, dir_fd=here)
tried('mkdir in it', os.mkdir, 'deeper', dir_fd=here)
tried('mkdir above it', os.mkdir, '../beside', dir_fd=here)


class How(ctypes.Structure):
    _fields_ = [('flags', ctypes.c_uint64), ('mode', ctypes.c_uint64), ('resolve', ctypes.c_uint64)]


for name, resolve in (
    ((b'o1', 0), (b'o2', 8), (b'../o3', 8), (b'd/o4', 8), (b'l/o5', 4), (b'd/o6', 4)) if sys.argv[1:] else ()
):
    how = How(W | C, 0o640, resolve)
    got = libc.syscall(437, -100, name, ctypes.byref(how), ctypes.sizeof(how))
    how = errno.errorcode[ctypes.get_errno()] if got < 0 else oct(os.fstat(got).st_mode)
    said.append([f'openat2 {name} {resolve}', how])
tried('node', os.mknod, 'node', 0o600 | stat.S_IFREG)
tried('device', os.mknod, 'dev', 0o600 | stat.S_IFCHR, os.makedev(1, 3))


def many(k):
    for i in range(40):
        name = f'race/{i % 5}'
        try:
            os.close(os.open(name, os.O_RDWR | C))
        except OSError as fault:
            wrong.append(fault.errno)
        try:
            os.unlink(name)
        except FileNotFoundError:
            pass


wrong = []
os.mkdir('race')
threads = [threading.Thread(target=many, args=(k,)) for k in range(4)]
[t.start() for t in threads]
[t.join() for t in threads]
said.append(['made and removed by four at once', wrong])


libc.prctl(4, 0, 0, 0, 0)  # nobody may look into this process any more
os.umask(0o027)
opened('undumpable', 'hidden', W | C)
opened('undumpable, in a directory', 'hidden', W | C, dir_fd=here)
thread = threading.Thread(target=lambda: tried('by its thread', os.mkdir, 'by_thread', 0o777, dir_fd=here))
thread.start()
thread.join()


def tree(top):
    paths = (os.path.join(at, name) for at, names, files in os.walk(top) for name in names + files)
    return sorted(f'{oct(os.lstat(path).st_mode)} {path}' for path in paths)


said.append(tree('.'))
print(json.dumps(said))
"""


def test_calls_that_make_names_do_what_they_do_without_a_wall(place: Place) -> None:
    program = place.home / "calls.py"
    program.write_text(CALLS)
    plain = place.home / "plain"
    plain.mkdir()
    user = "" if os.getuid() else "setpriv --reuid=65534 --regid=65534 --clear-groups"  # nobody, who may not do all
    plain.chmod(0o777)

    also = "openat2" if os.getuid() else ""  # a box of root's has none: its filter cannot see the mode
    outside = place.host(f"{user} /usr/bin/python3 - {also} < {program}", cwd=plain)
    inside = place.run(f"/usr/bin/python3 - {also} < {program}", read=[program])

    assert outside.returncode == 0, outside.stderr
    assert inside.ok, inside.stderr
    assert json.loads(inside.stdout) == json.loads(outside.stdout)


RACE = r"""
import ctypes, errno, os, sys, threading, time

name, seconds = sys.argv[1].encode(), float(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
free, path = b'/dev/shm/free', ctypes.create_string_buffer(512)
there = os.fsencode(os.getcwd()) + b'/' + name
stop = False


def change():
    while not stop:
        ctypes.memmove(path, free + b'\0', len(free) + 1)
        ctypes.memmove(path, there + b'\0', len(there) + 1)


open('/dev/shm/mine', 'w').close()
open('mine', 'w').close()
ways = [
    lambda: libc.mkdir(path, 0o777),
    lambda: libc.open(path, os.O_CREAT | os.O_WRONLY, 0o666),
    lambda: libc.symlink(b'evil', path),
    lambda: libc.mknod(path, 0o10666, 0),
    lambda: libc.rename(b'/dev/shm/mine', path),
    lambda: libc.link(b'mine', path),
    lambda: libc.rename(b'mine', path),
]
threading.Thread(target=change, daemon=True).start()
sys.setswitchinterval(1e-6)
until, tries, refused = time.monotonic() + seconds, 0, 0
while time.monotonic() < until and not (refused and name == b'plain'):
    for way in ways:
        got = way()
        tries += 1
        refused += got < 0 and ctypes.get_errno() == errno.EACCES
        if got > 2:
            os.close(got)
        for each in (free, *((there,) if name == b'plain' else ())):
            for remove in (os.unlink, os.rmdir):
                try:
                    remove(each)
                except OSError:
                    pass
        for each in ('/dev/shm/mine', 'mine'):
            if not os.path.exists(each):
                open(each, 'w').close()
stop = True
print(tries, refused)
"""


@pytest.mark.parametrize("wall", ["bwrap", "unshare"])
def test_no_race_of_two_threads_makes_a_protected_name(
    place: Place, monkeypatch: pytest.MonkeyPatch, wall: str
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", wall)
    (place.workspace / "race.py").write_text(RACE)

    twin = place.run("python3 race.py plain 15")
    done = place.run("python3 race.py .claude 2; ls -d .claude")

    tries, refused = map(int, done.stdout.split())
    assert tries > 100 and refused > 0, done.stderr
    assert place.names() <= {"race.py", "mine"}
    if twin.stdout.split()[1] == "0":
        pytest.skip(f"nobody was quick enough in {twin.stdout.split()[0]} tries: the race was not run")


DEEP = """
import os, sys
name = 'd' * 200
top = os.getcwd()
for _ in range(22):
    os.mkdir(name)
    os.chdir(name)
try:
    open(sys.argv[1], 'w').close()
    print('made')
except OSError as fault:
    print(fault.strerror)
os.chdir(top)
for _ in range(12):
    os.chdir(name)
os.rename(name, f'{top}/near')
"""


def test_a_blacklisted_name_is_not_made_where_it_is_too_deep_to_be_named(place: Place) -> None:
    """And then moved up together with its directory, to where a program of the host would find it."""
    assert place.run(["python3", "-c", DEEP, ".envrc"]).stdout == "Permission denied\n"
    assert not any(name.endswith(".envrc") for name in place.names())

    shutil.rmtree(place.workspace / "near")
    shutil.rmtree(place.workspace / ("d" * 200))
    assert place.run(["python3", "-c", DEEP, "plain"]).stdout == "made\n"  # the twin
    assert any(name.endswith("/plain") for name in place.names())


LINKED = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
begin, *names = sys.argv[1:]
top = os.open('.', os.O_RDONLY)
os.chdir(begin)
for _ in range(22):
    os.mkdir('d' * 200)
    os.chdir('d' * 200)
fd = os.open('x', os.O_CREAT | os.O_RDWR)
for name in names:
    print(name, libc.linkat(-100, b'/proc/self/fd/%d' % fd, top, os.fsencode(name), 0x400))
"""


@pytest.mark.parametrize("wall", ["bwrap", "unshare"])
def test_a_file_that_is_too_deep_to_be_named_gets_no_protected_name(
    place: Place, monkeypatch: pytest.MonkeyPatch, wall: str
) -> None:
    """What is not known of the one path keeps nobody from judging the other."""
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", wall)
    assert place.host("git init -q").returncode == 0
    for begin, names in ((".", (".bashrc", ".mcp.json", "plain")), (".git", (".git/commondir", ".git/plain"))):
        *refused, plain = names
        done = place.run(["python3", "-c", LINKED, begin, *names])

        assert done.stdout.splitlines() == [*(f"{name} -1" for name in refused), f"{plain} 0"], done.stderr
        assert [violation.rule for violation in done.violations] == [f"protected {name}" for name in refused]
        assert place.names() & set(names) == {plain}


SET_ID = """
import ctypes, errno, os, struct
libc = ctypes.CDLL(None, use_errno=True)
for name, mode in (b'set-id', 0o6755), (b'plain', 0o755):
    how = struct.pack('QQQ', os.O_TMPFILE | os.O_RDWR, mode, 0)
    fd = libc.syscall(437, -100, b'.', how, len(how))
    if fd >= 0 and not libc.linkat(-100, b'/proc/self/fd/%d' % fd, -100, name, 0x400):
        print('made', name.decode())
    else:
        print(errno.errorcode[ctypes.get_errno()])
"""


def test_a_set_id_file_that_was_made_without_a_name_gets_none(place: Place) -> None:
    """openat2 has its mode in memory, where the filter does not see it; where root asks, the call is not there."""
    done = place.run(["python3", "-c", SET_ID])

    assert done.stdout.split("\n") == (["ENOSYS", "ENOSYS", ""] if os.geteuid() == 0 else ["EPERM", "made plain", ""])
    assert done.violations == ()


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Inside it is 022; what is compared is made with the same outside."""
    before = os.umask(0o022)
    yield
    os.umask(before)
