"""Disk space taken where a walk over the workspace does not see it."""

from __future__ import annotations

import pytest

from ringfence import LimitHit, Limits
from ringfence.values.limits import Limit
from tests.integration.stage import Place

pytestmark = pytest.mark.req("B2")

WRITE = "head -c 200M /dev/zero >&5; sleep 5"


@pytest.mark.parametrize(
    "prepare",
    ["exec 5>f; ", "exec 5>f; rm f; ", "mkdir d; exec 5>d/f; chmod 0 d; "],
    ids=["plain", "without a name", "in a closed directory"],
)
def test_space_is_found_wherever_the_command_takes_it(place: Place, prepare: str) -> None:
    done = place.run(prepare + WRITE, limits=Limits(disk_bytes=20 << 20))

    place.host("chmod -R u+rwx .")
    assert isinstance(done.ending, LimitHit)
    assert done.ending.limit is Limit.DISK
