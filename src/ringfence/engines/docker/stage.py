"""What the host has to have ready for a container, and the guardian that takes it away again whatever happens to us.

A directory that only we may enter, with the control socket, the things that hide others, and small files for /etc.
Run by root, also the workspace once more, with its owner mapped to the uid that the box runs as; the container mounts
it from there, and then it goes. Docker cannot map owners itself, and to give files away, even for a while, is not ours
to do.

The guardian is the same small program as for a native box (native/launch.c): it holds the locks of the workspace, waits
until the box's first process has ended, then removes placeholders, mounts and files, also when we were killed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.engines.boxes import helper
from ringfence.engines.boxes.protocol import MessageKind, pack_header
from ringfence.engines.boxes.waiting import wait_child, wait_readable, wait_through_cancel
from ringfence.engines.docker.mounts import Sources, closed_parents
from ringfence.errors import InitializationFailed
from ringfence.values.paths import is_inside

if TYPE_CHECKING:
    from ringfence.confinement.base import Prepared, StandIn, View

_BUILD_SECONDS = 10.0
_HINTS = {
    "cannot map the owner": "its file system cannot map owners; run as an ordinary user, or use ext4, xfs or btrfs"
}


class Stage:
    """Made by `build`; gone after `release` and `wait_closed`, or `take_down`, which is both."""

    def __init__(
        self,
        listener: socket.socket | None,
        guardian: subprocess.Popen[bytes],
        lifeline: socket.socket,
        sources: Sources,
    ) -> None:
        self.listener = listener
        """Where the box's first process will connect; only it can, and only once. None if it cannot."""
        self.sources = sources
        self._guardian = guardian
        self._lifeline = lifeline

    def entrust(self, first_process: int) -> None:
        """Let the guardian wait for this process (a pidfd) before it uncovers anything. The mounts that were made for
        the container can go now.

        Raises:
            InitializationFailed: there is no guardian any more.
        """
        try:
            socket.send_fds(self._lifeline, [pack_header(MessageKind.ENTRUST)], [first_process])
        except OSError as fault:
            raise InitializationFailed("the guardian of the box was killed", hint="by whom? Try again") from fault

    def close_door(self) -> None:
        """Nobody else may connect."""
        if self.listener is not None and self.sources.control is not None and self.listener.fileno() >= 0:
            self.listener.close()
            with suppress(OSError):
                os.unlink(self.sources.control)

    def release(self) -> None:
        self.close_door()
        self._lifeline.close()

    async def wait_closed(self) -> None:
        """Wait until the guardian has taken everything away."""
        await wait_child(self._guardian)

    async def take_down(self) -> None:
        """Also if we are cancelled meanwhile: nobody else would wait for the guardian."""
        self.release()
        if await wait_through_cancel(asyncio.ensure_future(self.wait_closed())):
            raise asyncio.CancelledError


async def build(
    prepared: Prepared, stand_in: StandIn | None, profile: str, *, is_carried: bool, is_rootless: bool = False
) -> Stage:
    """Make everything ready.

    Args:
        profile: the system-call filter, for engines that take it as a file.
        is_rootless: whether the daemon is. It may run us in a container as well, and then sees our stage, which is
            shared with it, but not our program: the stage gets a copy.
        is_carried: whether everything goes over the container's stdio. Its first process cannot connect to a socket of
            the host then, and its files are reached by a process of root's.

    Raises:
        InitializationFailed: this file system cannot be shown to another owner, or our helper does not start.
    """
    with ExitStack() as undo, ExitStack() as passed:
        made = _Made(tempfile.mkdtemp(prefix="ringfence-docker-"))
        undo.callback(made.remove)
        sources = _sources(made, prepared, stand_in, profile, control=None if is_carried else made.later("control"))
        if is_rootless:
            sources = replace(sources, helper=made.copy("box", helper.path()))
        listener = None
        if sources.control is not None:
            listener = _listen(sources.control, stand_in)
            undo.callback(listener.close)
        lifeline, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        undo.callback(lifeline.close)
        passed.callback(theirs.close)
        lifeline.setblocking(False)
        complaints, complaints_end = os.pipe()
        passed.callback(os.close, complaints)
        try:
            guardian = _start_guardian(prepared, stand_in, sources, made, theirs.fileno(), complaints_end)
        finally:
            os.close(complaints_end)
        undo.pop_all()  # from here on it is the guardian's to take away
        stage = Stage(listener, guardian, lifeline, sources)
        await _wait_built(stage, complaints)
        return stage


async def _wait_built(stage: Stage, complaints: int) -> None:
    """Wait until the guardian's child has mounted what there is to mount; take all of it down if it could not."""
    try:
        async with asyncio.timeout(_BUILD_SECONDS):
            said = await _read_to_end(complaints)
    except TimeoutError:
        said = f"it took more than {_BUILD_SECONDS:g} s"
    except BaseException:
        await stage.take_down()
        raise
    if said:
        await stage.take_down()
        hint = next((hint for sign, hint in _HINTS.items() if sign in said), "run `ringfence doctor`")
        raise InitializationFailed(f"the workspace cannot be staged: {said}", hint=hint)


class _Made:
    """What we have put into the directory, so that whoever takes it away knows each by name."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._paths = [directory]

    def file(self, name: str, text: str, mode: int = 0o444) -> str:
        path = f"{self.directory}/{name}"
        if path in self._paths:
            return path
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(path, mode)
        self._paths.append(path)
        return path

    def copy(self, name: str, program: str) -> str:
        path = self.later(name)
        shutil.copyfile(program, path)
        os.chmod(path, 0o555)
        return path

    def dead_socket(self, name: str) -> str:
        """Nobody can open it, nobody listens on it, and git and most other programs skip it."""
        path = f"{self.directory}/{name}"
        os.mknod(path, stat.S_IFSOCK)
        self._paths.append(path)
        return path

    def dir(self, name: str, mode: int = 0o700) -> str:
        path = f"{self.directory}/{name}"
        if path in self._paths:
            return path
        os.mkdir(path)
        os.chmod(path, mode)
        self._paths.append(path)
        return path

    def later(self, name: str) -> str:
        """The path of what somebody else will put there."""
        self._paths.append(f"{self.directory}/{name}")
        return self._paths[-1]

    def from_last(self) -> Iterator[str]:
        return reversed(self._paths)

    def remove(self) -> None:
        for path in self.from_last():
            with suppress(OSError):
                os.unlink(path) if not os.path.isdir(path) or os.path.islink(path) else os.rmdir(path)


def _sources(
    made: _Made, prepared: Prepared, stand_in: StandIn | None, profile: str, *, control: str | None
) -> Sources:
    view = prepared.view
    roots: dict[str, str] = {}
    if stand_in is not None:
        for index, root in enumerate(view.writable):
            name = f"root-{index}"
            roots[root] = made.dir(name) if os.path.isdir(root) else made.file(name, "")
    homes = {home: _open_home(made, f"home-{index}", home, view) for index, home in enumerate(closed_parents(view))}
    return Sources(
        helper=helper.path(),
        control=control,
        hidden_file=made.dead_socket("hidden"),
        hidden_directory=made.dir("hidden.d", 0),
        texts=tuple((name, made.file(name.replace("/", "-"), text)) for name, text in view.texts),
        homes=homes,
        roots=roots,
        profile=made.file("seccomp.json", profile),
    )


def _open_home(made: _Made, name: str, home: str, view: View) -> str:
    """A directory to put over a home, with places in it for what is granted there: in a read-only one the engine could
    not make them."""
    top = made.dir(name, 0o755)
    for path in (*view.readable, *view.writable):
        if is_inside(path, home):
            *above, last = path.removeprefix(f"{home}/").split("/")
            for index in range(len(above)):
                made.dir(f"{name}/{'/'.join(above[: index + 1])}", 0o755)
            place = "/".join((name, *above, last))
            made.dir(place, 0o755) if os.path.isdir(path) else made.file(place, "")
    return top


def _listen(path: str, stand_in: StandIn | None) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # By way of the descriptor, because a socket's name may have no more than a hundred bytes.
        listener.bind(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
        os.chmod(path, 0o600)
        if stand_in is not None:
            os.chown(path, stand_in.uid, stand_in.gid)
        listener.listen(1)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(directory)
    return listener


def _start_guardian(
    prepared: Prepared, stand_in: StandIn | None, sources: Sources, made: _Made, lifeline: int, complaints: int
) -> subprocess.Popen[bytes]:
    plan = os.memfd_create("ringfence-plan", os.MFD_CLOEXEC)
    try:
        with open(plan, "wb", closefd=False) as file:
            file.write(os.fsencode("\0".join((*_plan(prepared, stand_in, sources, made, lifeline), ""))))
        return subprocess.Popen(
            [helper.path(), "launch", str(plan), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            env={},
            cwd="/",
            pass_fds=[plan, lifeline, *(shared.lock for shared in prepared.shared)],
        )
    except OSError as fault:
        raise InitializationFailed(f"cannot start our helper: {fault.strerror}") from fault
    finally:
        os.close(plan)


def _plan(prepared: Prepared, stand_in: StandIn | None, sources: Sources, made: _Made, lifeline: int) -> Iterable[str]:
    yield from ("lifeline", str(lifeline))
    for shared in prepared.shared:
        yield from ("lock", str(shared.lock))
        for below in shared.placeholders:
            yield from ("placeholder", below)
    mapping = "map" if sources.control is not None else "layers"  # which also lets root make files there
    for place in sources.roots.values():
        yield from ("detach", place)
    for path in made.from_last():
        yield from ("remove", path)
    yield "wall"
    if stand_in is not None:
        owners = {path: (uid, gid) for path, uid, gid in stand_in.owners}
        for index, (root, place) in enumerate(sources.roots.items()):
            yield from (mapping, *map(str, (*owners[root], stand_in.uid, stand_in.gid)))
            yield from ("mapped", prepared.view.origin(root), "attach", str(index), place)
    yield "built"


async def _read_to_end(descriptor: int) -> str:
    """What the staging child says; it ends when that child does."""
    os.set_blocking(descriptor, False)
    said = b""
    while True:
        await wait_readable(descriptor)
        piece = os.read(descriptor, 4096)
        if not piece:
            return said.decode(errors="replace").strip()
        said = (said + piece)[-4096:]
