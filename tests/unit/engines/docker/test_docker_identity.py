"""Who we are to a rootless daemon: the kernel's maps, and nothing else, decide."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ringfence.confinement.base import StandIn
from ringfence.engines.docker.identity import Ids, identity_of, rootless_identity, translate
from ringfence.errors import InitializationFailed

pytestmark = pytest.mark.req("B8")

MACHINE = "         0          0 4294967295\n"
ROOTLESS = "         0       1000          1\n         1     100000      65536\n"


@pytest.mark.parametrize(
    ("own", "theirs", "ours", "found"),
    [
        (1000, ROOTLESS, MACHINE, 0),  # the user is uid 0 of its daemon
        (100_000, ROOTLESS, MACHINE, 1),
        (165_535, ROOTLESS, MACHINE, 65_536),
        (165_536, ROOTLESS, MACHINE, None),
        (1001, ROOTLESS, MACHINE, None),  # somebody else's
        (0, ROOTLESS, MACHINE, None),  # root of the machine is nobody there
        (0, ROOTLESS, ROOTLESS, 0),  # in a container of that daemon
        (1000, ROOTLESS, ROOTLESS, 1000),
        (1000, "", MACHINE, None),
    ],
)
def test_an_id_is_what_the_map_of_the_daemon_s_namespace_makes_of_it(
    own: int, theirs: str, ours: str, found: int | None
) -> None:
    assert translate(own, theirs, ours) == found


def test_to_a_daemon_that_maps_nobody_a_box_is_the_same_everywhere() -> None:
    own, other = identity_of(None), identity_of(StandIn(7, 8, ()))

    assert own.outside == own.named == own.inside == Ids(os.getuid(), os.getgid())
    assert other.outside == other.named == other.inside == Ids(7, 8)
    assert not own.has_own_users and not other.has_own_users


def test_a_rootless_daemon_is_spoken_to_over_its_own_socket() -> None:
    with pytest.raises(InitializationFailed, match="only its own socket tells whose it is"):
        rootless_identity("tcp://127.0.0.1:2375")


def test_one_that_does_not_answer_is_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(InitializationFailed, match="no Docker daemon answers"):
        rootless_identity(f"unix://{tmp_path}/nowhere")


@pytest.mark.skipif(Path("/proc/self/uid_map").read_text() != MACHINE, reason="we are in a user namespace ourselves")
def test_a_proxy_before_it_hides_whose_it_is_and_is_refused(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as proxy:
        proxy.bind(f"{tmp_path}/s")
        proxy.listen(1)

        with pytest.raises(InitializationFailed, match="whoever holds its socket is in no user namespace"):
            rootless_identity(f"unix://{tmp_path}/s")
