"""Which sandbox this process is in already."""

from pathlib import Path

import pytest

from ringfence.manager.nesting import is_inside_own_wall, outer_sandbox


@pytest.mark.parametrize(
    ("cmdline", "inside"),
    [
        (b"/proc/self/fd/18\0init\x0013\0", True),
        (b"/opt/x/ringfence-box\0init\x003\0", True),
        (b"/sbin/init\0", False),
        (b"/usr/lib/systemd/systemd\0--system\0", False),
        (b"ringfence-box\0launch\0", False),
        (b"", False),
    ],
)
def test_our_own_first_process_is_known(cmdline: bytes, inside: bool, tmp_path: Path) -> None:
    (tmp_path / "cmdline").write_bytes(cmdline)

    assert is_inside_own_wall(str(tmp_path / "cmdline")) is inside


@pytest.mark.parametrize(
    ("environ", "status", "found"),
    [
        ({}, "Seccomp:\t0\nNoNewPrivs:\t0\n", ""),
        ({}, "Seccomp:\t2\nNoNewPrivs:\t0\n", ""),  # as in an ordinary container
        ({}, "Seccomp:\t2\nNoNewPrivs:\t1\n", "filters system calls"),
        ({"CODEX_SANDBOX": "seatbelt"}, "", "Codex"),
        ({"SANDBOX_RUNTIME": "1"}, "", "sandbox-runtime"),
    ],
)
def test_others_are_known_by_what_they_leave(environ: dict[str, str], status: str, found: str, tmp_path: Path) -> None:
    (tmp_path / "status").write_text(status)

    said = outer_sandbox(environ, str(tmp_path / "status"))

    assert (found in said) if found else said == ""
