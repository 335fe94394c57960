"""Fifty sessions in containers of a daemon that is mistreated. The long run: `python -m tests.soak --containers`."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from tests.soak.containers import SESSIONS, SHORT, ContainerSoak
from tests.support import docker
from tests.support.own_docker import own_daemon


@pytest.mark.root
@pytest.mark.req("B7", "E4", "E7")
def test_fifty_sessions_outlive_all_faults_of_containers_and_daemon_and_leave_nothing(tmp_path: Path) -> None:
    docker.settings()  # where there is no Docker at all, there is none to mistreat
    with own_daemon() as daemon:
        report = asyncio.run(ContainerSoak(daemon, tmp_path, seed=int.from_bytes(os.urandom(4))).run())

    assert report.faults == [], "\n".join(report.lines())
    assert report.done.keys() == set(SHORT) and report.right > 2 * SESSIONS, "\n".join(report.lines())
