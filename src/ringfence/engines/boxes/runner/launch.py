"""Outside the wall: the guardian, and the child that builds the wall and becomes bwrap or PID 1.

Step by step what native/launch.c does, which says why.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import stat
import struct
import time

from .kernel import (
    AT_FDCWD,
    ATTR_IDMAP,
    ATTR_NODEV,
    ATTR_NOSUID,
    ATTR_RDONLY,
    EMPTY_PATH,
    MOVE_TO_EMPTY_PATH,
    MS_BIND,
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_PRIVATE,
    MS_RDONLY,
    MS_REC,
    MS_SLAVE,
    NEWCGROUP,
    NEWIPC,
    NEWNET,
    NEWNS,
    NEWPID,
    NEWUSER,
    NEWUTS,
    O_PATH,
    PR_CAPBSET_DROP,
    PR_SET_CHILD_SUBREAPER,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    PR_SET_PDEATHSIG,
    RESOLVE_BENEATH,
    RESOLVE_NO_SYMLINKS,
    TREE_RECURSIVE,
    close_range,
    join_new_keyring,
    mount,
    mount_setattr,
    move_mount,
    open_how,
    open_tree,
    pivot_to_here,
    prctl,
    set_hostname,
    unmount,
    unshare,
)
from .words import Deadly, Harmless, Words, die_because, kill, kill_children, slurp, take_back_signals, write_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Callable, Iterator
    from typing import NoReturn
else:
    import _signal as signal
    import _socket as socket  # the public module brings 20 ms of others along

STAGES_MAX = 512
GRACE_MS = 2000
PINS = b"/run/pins"
PLACEHOLDER_TIME = 86400  # the same number is in native/launch.c and confinement/linux/masks.py
_AREA = b"/sys"
_NOBODY = 65534
_LOWER, _STORE = b"/run/lower", b"/run/store"
_CGROUP_TRIES, _CGROUP_PAUSE_SECONDS = 1000, 0.005
_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41  # SIOCSIFFLAGS; IFF_UP | IFF_RUNNING
_EMPTY_AND_CLOSED = b"mode=0000,size=4k"


def launch(plan: int, owner: int) -> NoReturn:
    """The guardian: starts the wall, waits for its end or its owner's, cleans up."""
    take_back_signals()
    with Harmless(PermissionError):
        os.setsid()  # the caller's Ctrl-C is the caller's to handle
    words = Words(slurp(plan))
    duties = list(_duties(words))
    os.set_inheritable(plan, False)
    lifeline = -1
    with Deadly("a descriptor of the plan"):
        for verb, value in duties:
            if verb in (b"lifeline", b"lock"):
                os.set_inheritable(int(value), False)
            if verb == b"lifeline":
                lifeline = int(value)
    if lifeline < 0:
        die_because("a plan has no lifeline")
    with Deadly("owner"):
        watched = os.pidfd_open(owner)
    if os.getppid() != owner:
        os._exit(125)  # it died before we could watch it
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, 0)

    with Deadly("fork"):
        child = os.fork()
    if not child:
        _walk_into(words)
    with Deadly("child"):
        ended = os.pidfd_open(child)
        _close_inherited()
        os.dup2(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC), 2)
    _wait(child, ended, lifeline, watched)
    _, status = os.waitpid(child, 0)
    # A killed bubblewrap leaves its PID 1 to us, the subreaper; where there is no pid namespace, all that PID 1 had.
    while True:
        kill_children()
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            break
    _do(duties)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


# --- the guardian -----------------------------------------------------------------------------------------------------

DUTIES: dict[bytes, bool] = {b"lifeline": True, b"lock": True, b"placeholder": False, b"cgroup": False}
"""What comes first in a plan, ended by `wall`; whether its word is a number."""


def _duties(words: Words) -> Iterator[tuple[bytes, bytes]]:
    while (verb := words.word()) != b"wall":
        if verb not in DUTIES:
            die_because("a plan holds an unknown duty")
        yield verb, b"%d" % words.number() if DUTIES[verb] else words.word()


def _wait(child: int, ended: int, lifeline: int, watched: int) -> None:
    """Until the wall has ended and its owner has let go; who has let go waits for no longer than the grace."""
    poll = select.poll()
    for descriptor in (ended, lifeline, watched):
        poll.register(descriptor, select.POLLIN)
    gone = released = False
    while not gone or not released:
        ready = {descriptor for descriptor, _ in poll.poll(GRACE_MS if released else None)}
        if ready & {lifeline, watched}:
            released = True
            if watched in ready:
                kill(child, signal.SIGKILL)
            poll.unregister(lifeline)
            poll.unregister(watched)
        if ended in ready:
            gone = True
            poll.unregister(ended)
        if not ready and released and not gone:
            kill(child, signal.SIGKILL)


def _close_inherited() -> None:
    """Keep nothing that belongs to the child: its control socket must close when it dies."""
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        with Harmless():  # that of the listing itself
            if descriptor > 2 and os.get_inheritable(descriptor):
                os.close(descriptor)


def _do(duties: list[tuple[bytes, bytes]]) -> None:
    shared, is_last = -1, False
    for verb, value in duties:
        if verb == b"lock":
            shared = int(value)
            try:
                fcntl.flock(shared, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_last = True
            except OSError:
                is_last = False
        elif verb == b"placeholder" and is_last:
            _remove_below(shared, value)
        elif verb == b"cgroup":
            _remove_cgroup(value)


def _remove_below(top: int, below: bytes) -> None:
    """Without following a link that the box may have put on the way."""
    parent, _, name = below.rpartition(b"/")
    try:
        directory = open_how(top, parent or b".", O_PATH | os.O_DIRECTORY, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)
    except OSError:
        return
    with Harmless():
        there = os.stat(name, dir_fd=directory, follow_symlinks=False)
        small = stat.S_ISREG(there.st_mode) and there.st_size <= 2
        if (stat.S_ISSOCK(there.st_mode) or small) and there.st_mtime_ns // 1_000_000_000 == PLACEHOLDER_TIME:
            os.unlink(name, dir_fd=directory)
    os.close(directory)


def _remove_cgroup(path: bytes) -> None:
    for _ in range(_CGROUP_TRIES):
        try:
            os.rmdir(path)
            return
        except OSError as fault:
            if fault.errno != errno.EBUSY:
                return
        with Harmless(), open(path + b"/cgroup.procs", "rb") as file:
            for pid in file.read().split():
                kill(int(pid), signal.SIGKILL)
        time.sleep(_CGROUP_PAUSE_SECONDS)


# --- the way into the wall --------------------------------------------------------------------------------------------


def _walk_into(words: Words) -> NoReturn:
    with Deadly("parent-death signal"):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(125)
    with Harmless():  # no keyring support: nothing to hide
        join_new_keyring()
    building = _Building(words)
    while words.more():
        step = STEPS.get(words.word())
        if step is None:
            die_because("a plan holds an unknown verb")
        step(building)
    die_because("a plan starts nothing")


class _Building:
    """The new root, as far as it has been built; one method for each verb of a plan."""

    def __init__(self, words: Words) -> None:
        self._words = words
        self._trees: list[int] = []
        self._userns = -1
        self._pinned: bytes | None = None
        self._pins = 0

    def join(self) -> None:
        write_text(self._words.word(), b"0")

    def private(self) -> None:
        """A mount namespace of our own; an ordinary user needs a user namespace, in which ids stay what they are."""
        uid, gid = os.getuid(), os.getgid()
        with Deadly("unshare"):
            unshare((NEWUSER if uid else 0) | NEWNS)
        if uid:
            _map_ids(uid, gid, uid, gid)
        with Deadly("mount"):
            mount(None, b"/", None, MS_REC | MS_SLAVE)

    def map(self) -> None:
        if self._userns >= 0:
            os.close(self._userns)
        self._userns = _mapping(*self._words.numbers(4))

    def layers(self) -> None:
        if self._userns >= 0:
            os.close(self._userns)
        self._userns = _mapping(*self._words.numbers(4), and_root=True)

    def take(self) -> bytes:
        path = self._words.word()
        if len(self._trees) == STAGES_MAX:
            die_because("too many directories to show")
        with Deadly(path):
            source = open_how(AT_FDCWD, path, O_PATH | os.O_NOFOLLOW, RESOLVE_NO_SYMLINKS)
            self._trees.append(open_tree(source, b"", TREE_RECURSIVE | EMPTY_PATH))
            os.close(source)
        return path

    def mapped(self) -> None:
        path = self.take()
        if self._userns < 0:
            die_because("a plan maps nobody")
        _set_attributes(self._trees[-1], 0, path, self._userns)

    def area(self) -> None:
        with Deadly(_AREA):
            mount(b"tmpfs", _AREA, b"tmpfs", MS_NOSUID | MS_NODEV, b"mode=0755,size=4m")

    def show(self) -> None:
        self._put_taken(ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV)

    def share(self) -> None:
        self._put_taken(ATTR_NOSUID | ATTR_NODEV)

    def device(self) -> None:
        self._put_taken(ATTR_NOSUID)

    def _put_taken(self, attributes: int) -> None:
        which, name = self._words.number(), self._words.word()
        if which >= len(self._trees):
            die_because("a plan puts what it did not take")
        _set_attributes(self._trees[which], attributes, name)
        _put(self._trees[which], name)

    def overlay(self) -> None:
        """A shadow: the first tree stays as it is, what is changed lies in the second."""
        lower, store, name = self._words.number(), self._words.number(), self._words.word()
        size, _ = self._words.word(), self._words.word()
        if size != b"0":
            die_because("only the helper in C keeps a shadow in memory")
        if max(lower, store) >= len(self._trees):
            die_because("a plan puts what it did not take")
        _put(self._trees[lower], _LOWER)
        _put(self._trees[store], _STORE)
        lower_path, store_path, path = _at(_LOWER), _at(_STORE), _at(name)
        _make_dir(path)
        options = b"userxattr,lowerdir=%b,upperdir=%b/upper,workdir=%b/work" % (lower_path, store_path, store_path)
        with Deadly("cannot mount the shadow"):
            mount(b"overlay", path, b"overlay", MS_NOSUID | MS_NODEV, options)
        for aside in (lower_path, store_path):
            with Deadly(aside):
                unmount(aside)
                os.rmdir(aside)

    def text(self) -> None:
        path, text = _at(self._words.word()), self._words.word()
        with Deadly(path):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o644))
        write_text(path, text)

    def link(self) -> None:
        name, target = self._words.word(), self._words.word()
        path = _at(name)
        with Deadly(name):
            os.symlink(target, path)

    def dir(self) -> None:
        _make_dir(_at(self._words.word()))

    def terminals(self) -> None:
        path = _at(self._words.word())
        _make_dir(path)
        with Deadly(path):
            mount(b"devpts", path, b"devpts", MS_NOSUID | MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=0620")

    def tmpfs(self) -> None:
        path, size, mode, uid, gid = _at(self._words.word()), *(self._words.word() for _ in range(4))
        _make_dir(path)
        with Deadly(path):
            options = b"size=%b,mode=%b,uid=%b,gid=%b" % (size, mode, uid, gid)
            mount(b"tmpfs", path, b"tmpfs", MS_NOSUID | MS_NODEV, options)

    def pin(self) -> None:
        """Keep a directory where it is, by a mount in a second copy of the tree, which `seal` covers."""
        name, below = self._words.word(), self._words.word()
        if self._pinned != name:
            path = _at(name)
            with Deadly(name):
                copy = open_tree(AT_FDCWD, path, TREE_RECURSIVE)
            _set_attributes(copy, ATTR_RDONLY | ATTR_NOSUID | ATTR_NODEV, name)
            _put(copy, b"%b/%d" % (PINS, self._pins))
            self._pins += 1
            self._pinned = name
        target = _beneath(b"%b/%d" % (PINS, self._pins - 1), below)
        with Deadly(below):
            tree = open_tree(target, b"", EMPTY_PATH)
            move_mount(tree, target, b"", MOVE_TO_EMPTY_PATH)
        os.close(tree)
        os.close(target)

    def hide(self) -> None:
        name, below = self._words.word(), self._words.word()
        target = _beneath(name, below)
        with Deadly(below):
            if _is_dir(target):  # a file cannot cover a directory: an empty read-only tmpfs can
                flags = MS_NOSUID | MS_NODEV | MS_RDONLY
                mount(b"tmpfs", b"/proc/self/fd/%d" % target, b"tmpfs", flags, _EMPTY_AND_CLOSED)
            else:
                self._cover(open_tree(AT_FDCWD, b"/dev/null", 0), target, ATTR_RDONLY, below)
        os.close(target)

    def freeze(self) -> None:
        self._cover_with_itself(ATTR_RDONLY)

    def anchor(self) -> None:
        self._cover_with_itself(0)

    def _cover_with_itself(self, attributes: int) -> None:
        name, below = self._words.word(), self._words.word()
        target = _beneath(name, below)
        with Deadly(below):
            self._cover(open_tree(target, b"", TREE_RECURSIVE | EMPTY_PATH), target, attributes, below)
        os.close(target)

    def _cover(self, tree: int, target: int, attributes: int, what: bytes) -> None:
        _set_attributes(tree, ATTR_NOSUID | ATTR_NODEV | attributes, what)
        move_mount(tree, target, b"", MOVE_TO_EMPTY_PATH)
        os.close(tree)

    def seal(self) -> None:
        if self._pins:
            path = _at(PINS)
            with Deadly(PINS):
                mount(b"tmpfs", path, b"tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY, _EMPTY_AND_CLOSED)
        with Deadly("seal"):
            mount_setattr(AT_FDCWD, _AREA, 0, ATTR_RDONLY)

    def become(self) -> None:
        _become(*self._words.numbers(2))

    def enter(self) -> None:
        _enter(*self._words.numbers(4))

    def exec(self) -> None:
        argv: list[bytes] = []
        while self._words.more():
            argv.append(self._words.word())
        if not argv:
            die_because("nothing to start")
        with Deadly(argv[0]):
            os.execve(argv[0], argv, {})


STEPS: dict[bytes, Callable[[_Building], object]] = {
    b"join": _Building.join,
    b"private": _Building.private,
    b"map": _Building.map,
    b"layers": _Building.layers,
    b"take": _Building.take,
    b"mapped": _Building.mapped,
    b"area": _Building.area,
    b"show": _Building.show,
    b"share": _Building.share,
    b"device": _Building.device,
    b"overlay": _Building.overlay,
    b"text": _Building.text,
    b"link": _Building.link,
    b"dir": _Building.dir,
    b"terminals": _Building.terminals,
    b"tmpfs": _Building.tmpfs,
    b"hide": _Building.hide,
    b"freeze": _Building.freeze,
    b"anchor": _Building.anchor,
    b"pin": _Building.pin,
    b"seal": _Building.seal,
    b"become": _Building.become,
    b"enter": _Building.enter,
    b"exec": _Building.exec,
}


# --- paths of the new root --------------------------------------------------------------------------------------------


def _at(name: bytes) -> bytes:
    """The path of a name in the new root, its parents made."""
    parts = name.split(b"/")
    if parts[0] or len(name) > 4000 or b".." in parts:
        die_because("a plan holds a path that cannot be")
    path = _AREA
    for part in filter(None, parts[1:-1]):
        path += b"/" + part
        with Deadly(path):
            _mkdir(path)
            if stat.S_ISLNK(os.lstat(path).st_mode):
                die_because("a plan goes through a link that it made itself, and would leave the new root")
    return path + b"/" + parts[-1] if parts[-1] else path


def _mkdir(path: bytes) -> None:
    with Harmless(FileExistsError):
        os.mkdir(path, 0o755)


def _make_dir(path: bytes) -> None:
    with Deadly(path):
        _mkdir(path)


def _is_dir(descriptor: int) -> bool:
    with Deadly("stat"):
        return stat.S_ISDIR(os.fstat(descriptor).st_mode)


def _put(tree: int, name: bytes) -> None:
    path = _at(name)
    with Deadly(path):
        if _is_dir(tree):
            _mkdir(path)
        else:
            with Harmless(FileExistsError):
                os.mknod(path, stat.S_IFREG | 0o644)
        move_mount(tree, AT_FDCWD, path)
        os.close(tree)


def _set_attributes(tree: int, set: int, what: bytes, userns: int = -1) -> None:
    # Private: what the host mounts later must not appear in the box, where nobody has made it harmless.
    mapping = (set | ATTR_IDMAP, userns) if userns >= 0 else (set, 0)
    with Deadly(b"cannot %b %b" % (b"map the owner of" if userns >= 0 else b"confine", what)):
        mount_setattr(tree, b"", EMPTY_PATH | TREE_RECURSIVE, mapping[0], MS_PRIVATE, mapping[1])


def _beneath(name: bytes, below: bytes) -> int:
    """A path below a staged directory. The workspace's content is hostile, so no link is followed on the way."""
    path = _at(name)
    with Deadly(name):
        root = open_how(AT_FDCWD, path, O_PATH | os.O_NOFOLLOW, RESOLVE_NO_SYMLINKS)
    with Deadly(below):
        target = open_how(root, below, O_PATH | os.O_NOFOLLOW, RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH)
    os.close(root)
    return target


# --- who we are -------------------------------------------------------------------------------------------------------


def _map_ids(inside_uid: int, inside_gid: int, uid: int, gid: int) -> None:
    write_text("/proc/self/setgroups", b"deny")
    write_text("/proc/self/uid_map", b"%d %d 1" % (inside_uid, uid))
    write_text("/proc/self/gid_map", b"%d %d 1" % (inside_gid, gid))


def _mapping(uid: int, gid: int, dedicated_uid: int, dedicated_gid: int, *, and_root: bool = False) -> int:
    """A user namespace in which `uid` of the file system is `dedicated_uid` of the mount.

    Args:
        and_root: for overlayfs, which also works with the ids of whoever mounts it.
    """
    with Deadly("pipe"):
        told, tell = os.pipe()
    with Deadly("fork"):
        holder = os.fork()
    if not holder:
        try:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # else a failure below would leave it for ever
            unshare(NEWUSER)
            os.write(tell, b"y")
            signal.pause()
        finally:
            os._exit(0)
    os.close(tell)
    if os.read(told, 1) != b"y":
        die_because("no user namespace for the workspace's owner")
    os.close(told)
    for name, id, dedicated in (("uid_map", uid, dedicated_uid), ("gid_map", gid, dedicated_gid)):
        root = b"\n%d 0 1" % (0 if id else _NOBODY) if and_root else b""
        write_text(f"/proc/{holder}/{name}", b"%d %d 1%b" % (id, dedicated, root))
    with Deadly(f"/proc/{holder}/ns/user"):
        userns = os.open(f"/proc/{holder}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    kill(holder, signal.SIGKILL)
    os.waitpid(holder, 0)
    return userns


def _become(uid: int, gid: int) -> None:
    with Deadly("cannot leave uid 0"):
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    with Deadly("dumpable"):
        prctl(PR_SET_DUMPABLE, 1)  # /proc/self/uid_map is ours to write again
    with Deadly("parent-death signal"):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a change of uid clears it


def _enter(uid: int, gid: int, inside_uid: int, inside_gid: int) -> None:
    """What bubblewrap does otherwise: the other namespaces, the new root, and a user namespace that owns nothing."""
    with Deadly("unshare"):
        unshare(NEWPID | NEWNET | NEWIPC | NEWUTS | NEWCGROUP)
    with Deadly("fork"):
        first = os.fork()
    if first:
        close_range(3)  # the control socket must close when PID 1 does
        code = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
        os._exit(code if code >= 0 else 128 - code)
    with Deadly("parent-death signal"):
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    with Deadly("loopback"):
        _loopback_up()
    with Deadly("hostname"):
        set_hostname(b"sandbox")
    proc, keys = _at(b"/proc"), _at(b"/proc/keys")
    with Deadly("proc"):
        mount(b"proc", proc, b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if os.path.exists(keys):
        with Deadly("/proc/keys"):
            mount(_AREA + b"/dev/null", keys, None, MS_BIND)
    with Deadly("new root"):
        os.chdir(_AREA)
        pivot_to_here()
        os.chdir("/")
    if os.getuid() != uid:
        _become(uid, gid)
    with Deadly("user namespace"):
        unshare(NEWUSER)
    _map_ids(inside_uid, inside_gid, uid, gid)
    _drop_bounding_set()
    with Deadly("no_new_privs"):
        prctl(PR_SET_NO_NEW_PRIVS, 1)


def _drop_bounding_set() -> None:
    for capability in range(64):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError as fault:
            if fault.errno != errno.EINVAL or capability == 0:
                die_because("capabilities cannot be dropped")
            return  # the kernel knows no more


def _loopback_up() -> None:
    plug = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(plug.fileno(), _SET_FLAGS, struct.pack("16sH22x", b"lo", _UP_AND_RUNNING))
    plug.close()
