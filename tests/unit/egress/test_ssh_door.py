"""What a client by SSH may hold of the proxy's memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

asyncssh = pytest.importorskip("asyncssh", reason="the extra `ssh` is not installed")
door = pytest.importorskip("ringfence.egress.ssh.door", reason="the extra `ssh` is not installed")


class Channel:
    """As much of a channel as a process asks of it."""

    def __init__(self) -> None:
        self._process_env_request: Any = None

    def get_connection(self) -> object:
        return object()

    def get_encoding(self) -> tuple[None, str]:
        return None, "strict"

    def get_loop(self) -> object:
        return object()

    def get_recv_window(self) -> int:
        return 2**21

    def get_read_datatypes(self) -> tuple[int, ...]:
        return ()

    def get_write_datatypes(self) -> tuple[int, ...]:
        return ()


class Packet:
    def __init__(self, *texts: bytes) -> None:
        self._texts = list(texts)

    def get_string(self) -> bytes:
        return self._texts.pop(0)

    def check_end(self) -> None:
        assert not self._texts


def a_connection(sessions: int = 0) -> Any:
    return SimpleNamespace(sessions=sessions, requested=None)


def test_the_sessions_of_one_connection_are_bounded() -> None:
    assert door._Server(a_connection(sessions=7)).session_requested() is not None
    with pytest.raises(asyncssh.ChannelOpenError):
        door._Server(a_connection(sessions=8)).session_requested()


def test_sessions_are_counted_and_of_their_variables_one_is_kept() -> None:
    connection, channel = a_connection(), Channel()
    process = door._Process(connection)

    process.connection_made(channel)

    assert connection.sessions == 1
    assert not channel._process_env_request(Packet(b"A", b"x" * 10**6))
    assert not channel._process_env_request(Packet(b"GIT_PROTOCOL", b"$(id)"))
    assert process.protocol == ""
    assert channel._process_env_request(Packet(b"GIT_PROTOCOL", b"version=2"))
    assert process.protocol == "version=2"
    process.connection_lost(None)
    assert connection.sessions == 0
