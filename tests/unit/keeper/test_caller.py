"""Whom a child of a keeper takes for its caller: the process that connected, and none that has its pid later."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from ringfence.keeper import becoming
from ringfence.keeper.becoming import Image
from ringfence.keeper.child import _serve, is_same_process
from ringfence.keeper.wire import GO, NOT_ME, READY, SERVE

CONNECT = """
import socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.connect(sys.argv[1])
sys.stdin.read()
"""
FREE = ("no wall around it",)


@pytest.mark.parametrize("how", ["dies", "stays"])
def test_a_caller_that_dies_while_it_is_looked_at_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Its pid may be another's by then, and what is read is about that one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(becoming, "_take_over", lambda *_: None)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind("s")
        listener.listen()
        with subprocess.Popen([sys.executable, "-I", "-c", CONNECT, "s"], stdin=subprocess.PIPE) as caller:
            connection, _ = listener.accept()

            def look(_: str) -> tuple[str]:
                if how == "dies":
                    caller.kill()
                    caller.wait()
                return FREE

            monkeypatch.setattr(becoming, "surroundings", look)
            ours, line = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            words = os.memfd_create("words")
            os.write(words, b"22 0 0 1\nringfence\0")
            here = os.open(".", os.O_PATH)
            passed = (connection.detach(), line.detach(), words, here)
            with ours:
                if how == "stays":
                    ours.send(GO)
                served = _serve(SERVE, passed, Image(FREE, {}, {}, {}, ()), None)
                said = ours.recv(100)
            if served is None:
                os.close(here)  # else the end of the process does it
            else:
                served.line.close()
            caller.kill()

    assert said[:1] == (NOT_ME if how == "dies" else READY) and (served is None) == (how == "dies")


class _Connection:
    def __init__(self, fault: int) -> None:
        self._fault = fault

    def getsockopt(self, *_: int) -> int:
        raise OSError(self._fault, os.strerror(self._fault))


@pytest.mark.parametrize(("fault", "is_same"), [(errno.ESRCH, False), (errno.EINVAL, False), (errno.ENOPROTOOPT, True)])
def test_a_process_that_the_kernel_says_is_gone_is_not_looked_for_by_its_pid(fault: int, is_same: bool) -> None:
    """Only a kernel that cannot say leaves the pid, which another process may have by then: here it is ours."""
    assert is_same_process(cast(socket.socket, _Connection(fault)), os.getpid()) == is_same
