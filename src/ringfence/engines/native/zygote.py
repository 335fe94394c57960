"""A process with an interpreter that stands ready, from which boxes are forked instead of each starting one.

It runs what the manager runs itself, and no more: the same interpreter, which belongs to the system, its standard
library and our driver; nothing of a workspace, a virtual environment or a request. What the code in a box needs besides
is loaded in the box. `native/zygote.c` says how a fork of it comes to be an interpreter behind a wall.

Boxes of one zygote share the addresses of their interpreters and the seed of their hashes, which no wall depends on.
After some boxes there is a new one, so that what is learnt in one box is soon worth nothing in another.

What this does not protect against: an interpreter of the system that cannot be trusted; the manager runs on it, too.
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import Final

from ringfence.engines.boxes import helper
from ringfence.engines.boxes.standby import driver_file
from ringfence.engines.boxes.waiting import wait_readable

BOXES_EACH: Final = 100
"""Boxes of one zygote. A new one costs as much as ten of them."""
_READY_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 5.0
_NUMBER: Final = struct.Struct("=i")
_READ_AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GLIBC_")
"""Variables that an interpreter reads when it starts, by how they begin."""
_LANGUAGE: Final = "C.UTF-8"
_NO_HOME: Final = "/nonexistent"
"""Whatever lies in a home is no part of a zygote."""
_BOOT: Final = """\
import ctypes, marshal, os, sys
serve, library, driver = map(int, sys.argv[1:])
native = ctypes.PyDLL("/proc/self/fd/%d" % library)
native.ringfence_word.restype = ctypes.c_char_p
text = os.pread(driver, 1 << 22, 0)
code = marshal.loads(text[8 : 8 + int.from_bytes(text[4:8], "little")])
os.close(library)
os.close(driver)
def become():
    native.ringfence_zygote(serve)
    ctypes.pythonapi.PyOS_AfterFork_Child()
    words = list(iter(native.ringfence_word, None))
    arguments = 2 + int(words[0])
    return words[2:arguments], words[arguments:]
del sys.argv[1:], text
exec(code, {"__name__": "__main__", "become": become})"""


class Forked:
    """A launcher that the zygote makes for us: our child, as if we had started it. Which one it is, the zygote says a
    moment later; nobody needs to know before it is waited for."""

    def __init__(self, zygote: Zygote) -> None:
        self._zygote = zygote
        self._pid = 0
        self.returncode: int | None = None

    @property
    def pid(self) -> int:
        """0 if there is none: the zygote could not fork, or was gone."""
        if not self._pid and self.returncode is None:
            self._zygote.hear(self)
        return self._pid

    def answered(self, pid: int) -> None:
        self._pid = max(pid, 0)
        if pid <= 0:
            self.returncode = -1

    def poll(self) -> int | None:
        return self._wait(os.WNOHANG)

    def wait(self) -> int:
        code = self._wait(0)
        assert code is not None
        return code

    def _wait(self, options: int) -> int | None:
        if self.pid and self.returncode is None:
            try:
                pid, status = os.waitpid(self._pid, options)
            except ChildProcessError:  # somebody else has waited for it
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


class Zygote:
    def __init__(self, python: str) -> None:
        """Start one; `wait_ready` says whether it works.

        Raises:
            OSError: it cannot be started.
        """
        self.python = python
        self.image = _image(python)
        self.made = 0
        self._unheard: deque[Forked] = deque()
        self._is_out_of_step = False
        """Whether an answer is missing."""
        self._owner = os.getpid()
        with ExitStack() as undo:
            self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            failed = undo.enter_context(ExitStack())
            failed.callback(self._socket.close)
            undo.callback(theirs.close)
            self._socket.settimeout(_ANSWER_SECONDS)
            library = _library(undo)
            driver = driver_file(undo)
            passed = (theirs.fileno(), library, driver)
            self._process = subprocess.Popen(
                [python, "-c", _BOOT, *map(str, passed)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"LANG": _LANGUAGE, "HOME": _NO_HOME, "PATH": os.defpath},
                cwd="/",
                pass_fds=passed,
            )
            failed.pop_all()

    @property
    def is_ours(self) -> bool:
        """Whether boxes would be children of this process, and not of one that it was forked from."""
        return self._owner == os.getpid()

    async def wait_ready(self) -> bool:
        """Whether it serves: it says so itself when it does."""
        if not await wait_readable(self._socket.fileno(), _READY_SECONDS):
            return False
        with suppress(OSError):
            return self._socket.recv(_NUMBER.size) == _NUMBER.pack(0)
        return False

    def launch(self, complaints: int, plan: int, passed: Sequence[int]) -> Forked:
        """Have a launcher made that carries out a plan; what the plan names comes in this order.

        Raises:
            OSError: it is gone.
        """
        socket.send_fds(self._socket, [_NUMBER.pack(self._owner)], [complaints, plan, *passed])
        self.made += 1
        forked = Forked(self)
        self._unheard.append(forked)
        return forked

    def hear(self, wanted: Forked) -> None:
        """Take its answers, which come in the order of what was asked, up to that about one launcher."""
        while wanted in self._unheard:
            answer = b""
            if not self._is_out_of_step:
                with suppress(OSError):
                    answer = self._socket.recv(_NUMBER.size)
            # One that comes later would be taken for the next one's, and a process be waited for that is another's.
            self._is_out_of_step = len(answer) != _NUMBER.size
            self._unheard.popleft().answered(0 if self._is_out_of_step else _NUMBER.unpack(answer)[0])

    def close(self) -> None:
        if self._unheard:
            self.hear(self._unheard[-1])
        self._socket.close()
        if self.is_ours:
            self._process.kill()  # it has nothing to finish, and one that is stopped would not see its socket close
            self._process.wait()


class Zygotes:
    """Those of one pool: one that serves, and now and then one that takes its place."""

    def __init__(self) -> None:
        self._serving: Zygote | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        self._is_closed = False
        self._failures = 0

    async def get(self, python: str | None, env: Iterable[str]) -> Zygote | None:
        """One for boxes with this interpreter and these variables; None where each box has to start its own."""
        if python is None or self._failures > 1 or self._is_closed or not can_stand_ready(python, env):
            return None
        async with self._turn:
            serving = self._serving
            if serving is not None and (serving.python != python or serving.image != _image(python)):
                self._drop()
            if self._serving is None:
                self._serving = await self._start(python)
            elif self._serving.made >= BOXES_EACH and self._renewing is None:
                self._renewing = asyncio.get_running_loop().create_task(self._renew(python))
            return self._serving if self._serving is not None and self._serving.is_ours else None

    def failed(self, zygote: Zygote) -> None:
        """It did not answer."""
        self._failures += 1
        if zygote is self._serving:
            self._drop()

    async def _renew(self, python: str) -> None:
        """Put a new one in the place of the one that serves, which goes on until then, and if there is none."""
        try:
            made = await self._start(python)
            if made is not None:
                self._drop()
                self._serving = made
        finally:
            self._renewing = None

    async def _start(self, python: str) -> Zygote | None:
        try:
            made = Zygote(python)
        except OSError:
            self._failures += 1
            return None
        try:
            if await made.wait_ready():
                return made
        except BaseException:
            made.close()
            raise
        made.close()
        self._failures += 1
        return None

    def _drop(self) -> None:
        if self._serving is not None:
            self._serving.close()
        self._serving = None

    def close(self) -> None:
        self._is_closed = True
        if self._renewing is not None:
            self._renewing.cancel()
        self._drop()


def can_stand_ready(python: str, env: Iterable[str]) -> bool:
    """Whether a fork of a zygote is what this interpreter would be if it were started with these variables."""
    changes = (each for each in env if each.startswith(_READ_AT_START) and each != f"LANG={_LANGUAGE}")
    return next(changes, None) is None and _is_ours(python)


@cache
def _is_ours(python: str) -> bool:
    """Whether it is the interpreter that we run on ourselves, the system's, and in no virtual environment."""
    if os.path.realpath(python) != os.path.realpath(getattr(sys, "_base_executable", sys.executable)):
        return False
    above = os.path.dirname(os.path.dirname(python))
    if any(os.path.exists(os.path.join(place, "pyvenv.cfg")) for place in (above, os.path.dirname(python))):
        return False
    trusted = (os.path.realpath(python), os.path.dirname(os.path.realpath(os.__file__)))
    return all(map(_is_roots_alone, trusted)) and os.access(helper.zygote_path(), os.R_OK)


def _is_roots_alone(path: str) -> bool:
    """Also because a fork's /proc/self/exe leads to the file where the host has it, and not to that in the view."""
    found = os.stat(path)
    return found.st_uid == 0 and not found.st_mode & 0o022


def _library(undo: ExitStack) -> int:
    """A copy without a name: the kernel tells each box where the files lie that are mapped in it."""
    copy = os.memfd_create("ringfence-zygote", os.MFD_CLOEXEC)
    undo.callback(os.close, copy)
    with open(helper.zygote_path(), "rb") as library, open(copy, "wb", closefd=False) as file:
        file.write(library.read())
    return copy


def _image(python: str) -> tuple[int, int, int]:
    """Which file it is: an interpreter that was replaced is started anew."""
    found = os.stat(python)
    return found.st_dev, found.st_ino, found.st_mtime_ns
