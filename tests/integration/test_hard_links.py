"""A file that other projects have, too, by a hard link, is not written through: it becomes a file of its own first."""

from __future__ import annotations

import errno
import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence import Result
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A4", "C1")

PYTHON = shutil.which("python3", path="/usr/bin:/bin") or sys.executable
LEVELS = [{"trace": "off"}, {"trace": "changes"}, {"trace": "reads"}, {"trace": "full"}, {"mediate_opens": True}]
TEXT = "of the store\n"
CALLER = dict(os.environ)  # tests have an environment of their own


@pytest.fixture(params=LEVELS, ids=lambda level: "-".join(map(str, level.values())))
def level(request: pytest.FixtureRequest) -> dict[str, object]:
    return dict(request.param)


def give(place: Place, *paths: Path) -> None:
    """To whoever owns the workspace, as what they put there themselves would be."""
    owner = place.workspace.stat()
    for path in paths:
        os.chown(path, owner.st_uid, owner.st_gid)


@pytest.fixture
def store(place: Place) -> Path:
    """A file of a store, which the workspace has as `file`, too, and `alias` of the workspace's own two links."""
    path = place.home / "store"
    path.write_text(TEXT)
    path.chmod(0o644)
    (place.workspace / "alone").write_text("alone\n")
    give(place, path, place.workspace / "alone")
    os.link(path, place.workspace / "file")
    os.link(place.workspace / "alone", place.workspace / "alias")
    return path


_WAYS = {
    "append": "echo x >> file",
    "empty": "echo x > file",
    "read and write": "exec 3<> file; echo x >&3",
    "truncate": "truncate -s 1 file",
    "in place": f"{PYTHON} -c \"open('file', 'r+').write('x')\"",
    "a map": f"{PYTHON} -c \"import mmap; f = open('file', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0] = 120\"",
    "mode": "chmod 600 file",
    "time": "touch -d 2001-01-01 file",
    "by a link": "ln -s file link; echo x > link",
    "by a further name": "ln file more; echo x > more",
    "after a rename": "mv file moved; echo x > moved",
    "from below": "mkdir d; cd d; echo x > ../file",
    "by the working directory": "echo x > /proc/self/cwd/file",
    "by truncate(2)": f"{PYTHON} -c \"import os; os.truncate('file', 1)\"",
    "with openat": f"{PYTHON} -c \"import os; os.open('file', os.O_WRONLY | os.O_TRUNC, dir_fd=os.open('.', 0))\"",
}


@pytest.mark.parametrize("way", _WAYS)
def test_a_file_that_others_have_becomes_one_of_its_own(
    place: Place, store: Path, way: str, level: dict[str, object]
) -> None:
    before = store.stat()

    result = place.run(_WAYS[way], **level)

    assert result.ok, result.stderr
    after = store.stat()
    assert (store.read_text(), after.st_mode, after.st_mtime_ns) == (TEXT, before.st_mode, before.st_mtime_ns)
    assert not [name for name in place.names() if ".ringfence-" in name]


@pytest.mark.parametrize("protected", [".git/config", "sub/.git/config", ".git/hooks/pre-commit"])
def test_a_link_that_an_earlier_run_made_is_no_way_to_what_is_protected_now(
    place: Place, protected: str, level: dict[str, object]
) -> None:
    place.host(f"mkdir -p sub; git init -q .; git init -q sub; touch {protected}; ln {protected} alias")
    text = (place.workspace / protected).read_bytes()
    assert (place.workspace / "alias").stat().st_nlink == 2

    result = place.run("echo x >> alias; cat alias", **level)

    assert result.stdout.endswith("x\n"), result.stderr
    assert (place.workspace / protected).read_bytes() == text


def test_without_a_wall_the_same_changes_the_store(place: Place, store: Path) -> None:
    place.host("echo x >> file")

    assert store.read_text() == TEXT + "x\n"


def test_the_copy_is_what_the_file_was(place: Place, store: Path, level: dict[str, object]) -> None:
    store.chmod(0o755)

    result = place.run("stat -c '%a %Y' file; echo x >> file; stat -c %a file; cat file", **level)

    assert result.stdout.splitlines() == [f"755 {int(store.stat().st_mtime)}", "755", TEXT.strip(), "x"]


def test_links_that_all_lie_inside_stay_links(place: Place, store: Path, level: dict[str, object]) -> None:
    result = place.run("echo x >> alias; cat alone; ln alone third; echo y >> third; cat alias", **level)

    assert result.stdout == "alone\nx\nalone\nx\ny\n"


@pytest.mark.parametrize(
    "way",
    [
        "fd = os.open('file', os.O_RDONLY); os.fchmod(fd, 0o600)",
        "fd = os.open('file', os.O_RDONLY); open(f'/proc/self/fd/{fd}', 'w')",
        "fd = os.open('file', os.O_RDONLY); os.setxattr(fd, 'user.more', b'x')",
        "fd = os.open('file', os.O_RDONLY); os.removexattr(fd, 'user.keep')",
    ],
)
def test_what_is_held_by_a_descriptor_is_refused_with_a_reason(
    place: Place, kept: Path, way: str, level: dict[str, object]
) -> None:
    before = _inode(kept)

    result = place.run([PYTHON, "-c", f"import os; {way}"], **level)

    assert not result.ok
    assert _inode(kept) == before
    assert any("hard link" in violation.what for violation in result.violations)


_BY_NUMBER = """
import ctypes, fcntl, os, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    if libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments)) < 0:
        raise OSError(ctypes.get_errno(), 'refused')
def set_at(name, value):
    text = ctypes.create_string_buffer(value, len(value))
    call(463, -100, b'file', 0, name, struct.pack('QII', ctypes.addressof(text), len(value), 0), 16)
acl = struct.pack('<I', 2) + b''.join(struct.pack('<HHI', tag, 7, 0xFFFFFFFF) for tag in (1, 4, 0x20))
def change(get, put, size, bit):
    fd = os.open('file', os.O_RDONLY)
    flags = bytearray(fcntl.ioctl(fd, get, bytes(size)))
    flags[0] |= bit
    fcntl.ioctl(fd, put, bytes(flags))
"""
_ATTRIBUTES = {
    "removexattr": "os.removexattr('file', 'user.keep')",
    "lremovexattr": "os.removexattr('file', 'user.keep', follow_symlinks=False)",
    "setxattr": "os.setxattr('file', 'user.more', b'x')",
    "lsetxattr": "os.setxattr('file', 'user.more', b'x', follow_symlinks=False)",
    "an access list": "os.setxattr('file', 'system.posix_acl_access', acl)",
}
_REFUSED_ATTRIBUTES = {
    "setxattrat": ("set_at(b'user.more', b'x')", errno.ENOSYS),
    "setxattrat of an access list": ("set_at(b'system.posix_acl_access', acl)", errno.ENOSYS),
    "removexattrat": ("call(466, -100, b'file', 0, b'user.keep')", errno.ENOSYS),
    "FS_IOC_SETFLAGS": ("change(0x80086601, 0x40086602, 8, 0x40)", errno.EOPNOTSUPP),  # do not dump
    "FS_IOC_FSSETXATTR": ("change(0x801C581F, 0x401C5820, 28, 0x80)", errno.EOPNOTSUPP),
}


def _flags(path: Path) -> bytes:
    """Empty where the file system has none."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return fcntl.ioctl(descriptor, 0x80086601, bytes(8))  # FS_IOC_GETFLAGS
    except OSError:
        return b""
    finally:
        os.close(descriptor)


def _inode(path: Path) -> tuple[object, ...]:
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return attributes, path.stat().st_mode, path.stat().st_mtime_ns, path.read_text(), _flags(path)


@pytest.fixture
def kept(store: Path) -> Path:
    """The store's file, with an attribute."""
    try:
        os.setxattr(store, "user.keep", b"yes")
    except OSError as error:
        pytest.skip(f"the file system has no extended attributes: {error}")
    return store


@pytest.mark.parametrize("way", _ATTRIBUTES)
def test_attributes_are_not_changed_through_a_link(
    place: Place, kept: Path, way: str, level: dict[str, object]
) -> None:
    before = _inode(kept)

    place.run([PYTHON, "-c", _BY_NUMBER + _ATTRIBUTES[way]], **level)

    assert _inode(kept) == before
    assert (place.workspace / "file").stat().st_ino != kept.stat().st_ino
    assert (place.workspace / "file").read_text() == TEXT


@pytest.mark.parametrize("way", _REFUSED_ATTRIBUTES)
def test_newer_and_other_ways_to_attributes_and_flags_are_refused(
    place: Place, kept: Path, way: str, level: dict[str, object]
) -> None:
    before = _inode(kept)
    attempt, answer = _REFUSED_ATTRIBUTES[way]
    tried = f"{_BY_NUMBER}\ntry: {attempt}\nexcept OSError as error: print(error.errno)"

    result = place.run([PYTHON, "-c", tried], **level)

    assert result.stdout == f"{answer}\n", result.stderr
    assert _inode(kept) == before


@pytest.mark.parametrize("way", [*_ATTRIBUTES, *_REFUSED_ATTRIBUTES])
def test_without_a_wall_the_same_changes_the_store_s_attributes(place: Place, kept: Path, way: str) -> None:
    before = _inode(kept)
    attempt = _ATTRIBUTES.get(way) or _REFUSED_ATTRIBUTES[way][0]

    done = place.host(f"{PYTHON} -c {shlex.quote(_BY_NUMBER + attempt)}")

    if done.returncode:
        pytest.skip(f"this kernel or file system does not do it: {done.stderr.strip().splitlines()[-1]}")
    assert _inode(kept) != before


def test_a_file_s_own_attributes_can_be_set_and_removed(place: Place, kept: Path, level: dict[str, object]) -> None:
    program = (
        "import os; f = open('own', 'w'); os.setxattr('own', 'user.a', b'1'); os.setxattr(f.fileno(), 'user.b', b'2');"
        "os.removexattr('own', 'user.a'); print(os.listxattr('own')); os.removexattr(f.fileno(), 'user.b');"
        "print(os.listxattr('own'))"
    )

    result = place.run([PYTHON, "-c", program], **level)

    assert result.stdout == "['user.b']\n[]\n", result.stderr
    assert result.violations == ()


def test_where_no_copy_can_be_made_it_is_refused_with_a_reason(
    place: Place, store: Path, level: dict[str, object]
) -> None:
    shut = place.workspace / "shut"
    shut.mkdir()
    os.link(store, shut / "file")
    give(place, shut)
    shut.chmod(0o555)

    result = place.run("echo x >> shut/file", **level)

    shut.chmod(0o755)
    assert not result.ok
    assert store.read_text() == TEXT
    assert any("hard link" in violation.what for violation in result.violations)


_HELD = """
import os, sys

def held(name):
    fd = os.open(name, os.O_RDONLY)
    os.unlink(name)
    return fd

ways = {
    'written': lambda fd: os.write(os.open(f'/proc/self/fd/{fd}', os.O_WRONLY | os.O_TRUNC), b'x'),
    'cut': lambda fd: os.truncate(f'/dev/fd/{fd}', 1),
    'changed': lambda fd: os.fchmod(fd, 0o777),
}
open('own', 'w').close()
for name in ('own', 'file'):
    try:
        ways[sys.argv[1]](held(name))
        print('done')
    except OSError as fault:
        print(fault.strerror)
"""


@pytest.mark.parametrize("way", ["written", "cut", "changed"])
def test_a_file_whose_name_here_is_gone_is_not_written_through_a_descriptor(
    place: Place, store: Path, way: str, level: dict[str, object]
) -> None:
    """Its only link is the store's then. One of the command's own, of which no link is left, is the twin."""
    done = place.run([PYTHON, "-c", _HELD, way], **level)

    assert done.stdout == "done\nPermission denied\n"
    assert (store.read_text(), store.stat().st_mode & 0o777) == (TEXT, 0o644)
    assert any("hard link" in violation.what for violation in done.violations)


_DEEP = """
import os, sys
top, name = os.getcwd(), 'd' * 200
for start in ('.', 'm'):
    os.makedirs(start, exist_ok=True)
    os.chdir(start)
    for _ in range(12):
        os.mkdir(name)
        os.chdir(name)
    if start == '.':
        bottom = os.open('.', os.O_RDONLY)
        os.chdir(top)
os.rename(f'{top}/file', 'file')
os.rename(f'{top}/alone', 'alone')
os.rename(f'{top}/m', 'm', dst_dir_fd=bottom)
ways = {
    'written': lambda path: open(path, 'r+').write('x'),
    'emptied': lambda path: open(path, 'w').write('x'),
    'changed': lambda path: os.chmod(path, 0o777),
}
for path in ('alone', 'file'):
    try:
        ways[sys.argv[1]](path)
        print('done')
    except OSError as fault:
        print(fault.strerror)
"""


@pytest.mark.parametrize("way", ["written", "emptied", "changed"])
def test_a_file_that_is_too_deep_to_be_named_is_not_written_through(
    place: Place, store: Path, way: str, level: dict[str, object]
) -> None:
    """Where nobody can say a path, the file says how many links it has. One whose links are all inside is the twin."""
    done = place.run([PYTHON, "-c", _DEEP, way], **level)
    opens = "mediate_opens" in level and way != "changed"  # refuses such paths whole

    refused = os.strerror(errno.EBADF if opens else errno.EACCES)
    assert done.stdout.splitlines() == [refused if opens else "done", refused], done.stderr
    assert (store.read_text(), store.stat().st_mode & 0o777) == (TEXT, 0o644)
    subprocess.run(["rm", "-rf", *map(str, place.workspace.iterdir())], check=True)  # knows no depth


_IN_VAIN = """
import os
for flags in (os.O_CREAT | os.O_EXCL, os.O_PATH, os.O_DIRECTORY):
    try:
        os.open('file', os.O_WRONLY | os.O_TRUNC | flags)
    except OSError:
        pass
print(open('file').read(), end='')
os.open('file', os.O_WRONLY | os.O_TRUNC)
print(os.stat('file').st_size)
"""


def test_an_open_that_empties_nothing_takes_nothing_away(place: Place, store: Path, level: dict[str, object]) -> None:
    """A copy that is empty from the start is for those only that would have emptied the file: the last one is such."""
    assert place.run([PYTHON, "-c", _IN_VAIN], **level).stdout == f"{TEXT}0\n"
    assert store.read_text() == TEXT


def test_reading_and_removing_need_no_copy(place: Place, store: Path) -> None:
    result = place.run("cat file; stat -c %h file; rm file")

    assert result.stdout == f"{TEXT}2\n"
    assert store.stat().st_nlink == 1


def _tool(name: str) -> str:
    found = shutil.which(name, path=CALLER.get("PATH"))
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def _host(argv: list[str], cwd: Path, home: Path) -> None:
    env = CALLER | {"HOME": str(home), "CI": "1"}
    done = subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        pytest.skip(f"{argv[0]} could not install: {done.stderr.strip()[-200:] or done.stdout.strip()[-200:]}")


def _spoil(place: Place, file: Path) -> Result:
    return place.run(f"echo spoilt >> '{file.relative_to(place.workspace)}'")


def _shared(place: Place, pattern: str) -> Path:
    found = [path for path in place.workspace.glob(pattern) if path.is_file() and path.stat().st_nlink > 1]
    if not found:
        pytest.skip("nothing was linked: the store lies on another file system")
    return found[0]


def test_pnpm_s_store_is_not_written_through(place: Place, tmp_path: Path) -> None:
    pnpm = _tool("pnpm")
    (place.workspace / "package.json").write_text('{"name": "x", "dependencies": {"is-odd": "3.0.1"}}')
    argv = [pnpm, "install", "--package-import-method", "hardlink", "--store-dir", str(place.home / "pnpm-store")]
    _host(argv, place.workspace, place.home)
    file = _shared(place, "node_modules/.pnpm/is-odd*/node_modules/is-odd/index.js")
    before, number = file.read_text(), file.stat().st_ino
    for path in place.workspace.rglob("*"):
        if not path.is_symlink():
            give(place, path)

    result = _spoil(place, file)

    assert result.ok, result.stderr
    assert file.read_text() == before + "spoilt\n"
    same = [path for path in (place.home / "pnpm-store").rglob("*") if path.is_file() and path.stat().st_ino == number]
    assert same and same[0].read_text() == before


def test_uv_s_cache_is_not_written_through(place: Place) -> None:
    uv = _tool("uv")
    _host([uv, "venv", "--python", sys.executable, ".venv"], place.workspace, place.home)
    argv = [uv, "pip", "install", "--link-mode", "hardlink", "--cache-dir", str(place.home / "uv"), "iniconfig"]
    _host([*argv, "--python", ".venv"], place.workspace, place.home)
    file = _shared(place, ".venv/lib/python*/site-packages/iniconfig/__init__.py")
    before, number = file.read_text(), file.stat().st_ino
    for path in place.workspace.rglob("*"):
        if not path.is_symlink():
            give(place, path)

    result = _spoil(place, file)

    assert result.ok, result.stderr
    assert file.read_text() == before + "spoilt\n"
    same = [path for path in (place.home / "uv").rglob("*") if path.is_file() and path.stat().st_ino == number]
    assert same and same[0].read_text() == before
