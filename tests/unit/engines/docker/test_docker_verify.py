"""The kernel's word against the daemon's: whatever is not as it was ordered is noticed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.engines.docker import verify
from ringfence.engines.docker.mounts import PINS
from ringfence.engines.docker.verify import (
    MountSeen,
    belongs_to,
    check_mounts,
    check_namespaces,
    check_process,
    check_routes,
    check_unwritable,
    check_users,
    is_first_process,
    locate,
    parse_mountinfo,
)
from ringfence.errors import InitializationFailed

TABLE = r"""
30 1 0:45 / / ro,relatime master:3 - overlay overlay rw,lowerdir=/x
31 30 0:49 / /proc rw,nosuid - proc proc rw
32 30 0:52 / /sys ro,nosuid - sysfs sysfs ro
38 32 0:60 / /sys ro,relatime - tmpfs tmpfs ro
33 30 0:55 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1k
34 33 254:0 /home/me/my\040work /tmp/my\040work rw,nosuid,idmapped - ext4 /dev/vda rw
35 34 254:0 /stage/hidden /tmp/my\040work/.env ro,relatime - ext4 /dev/vda rw
36 30 254:0 /docker/hosts /etc/hosts ro,relatime - ext4 /dev/vda rw
""".strip()
WANTED = {
    "/tmp/my work": ("254:0", "/home/me/my work", True),
    "/tmp/my work/.env": ("254:0", "/stage/hidden", False),
}
STATUS = """\
Name:	box
Uid:	7	7	7	7
Gid:	8	8	8	8
Groups:	8
NSpid:	4711	1
CapInh:	0000000000000000
CapPrm:	0000000000000000
CapEff:	0000000000000000
CapBnd:	0000000000000000
CapAmb:	0000000000000000
NoNewPrivs:	1
Seccomp:	2
"""


def test_a_container_that_is_as_it_was_ordered_passes() -> None:
    check_mounts(parse_mountinfo(TABLE), WANTED, ("/tmp",))
    check_process(STATUS, 7, 8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda table: table.replace("38 32 0:60 / /sys", "38 32 0:60 / /dev/x"), "/sys shows"),
        (lambda table: table.replace("/stage/hidden", "/root/secret"), "/root/secret"),
        (lambda table: table.replace("254:0 /home/me", "254:1 /home/me"), "254:1"),
        (lambda table: table.replace(".env ro,", ".env rw,"), ".env is writable"),
        (lambda table: table.replace("/ / ro,", "/ / rw,"), "root is writable"),
        (lambda table: table.replace("/tmp rw,nosuid - tmpfs", "/tmp rw,nosuid - ext4"), "not in memory"),
        (lambda table: "\n".join(line for line in table.splitlines() if ".env" not in line), "shows nothing"),
        (lambda table: f"{table}\n37 30 254:0 /etc /host ro - ext4 /dev/vda rw", "/host is mounted"),
        (lambda table: f"{table}\n37 34 254:0 /x /tmp/my\\040work/.env rw - ext4 /dev/vda rw", "shows /x"),
    ],
)
def test_a_mount_that_is_not_as_it_was_ordered_is_refused(change: Callable[[str], str], said: str) -> None:
    with pytest.raises(InitializationFailed, match=said.replace(".", r"\.")):
        check_mounts(parse_mountinfo(change(TABLE)), WANTED, ("/tmp",))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Uid:	7	7	7	7", "Uid:	7	0	7	7"),
        ("Gid:	8	8	8	8", "Gid:	0	0	0	0"),
        ("Groups:	8", "Groups:	8 999"),
        ("CapBnd:	0000000000000000", "CapBnd:	00000000a80425fb"),
        ("CapEff:	0000000000000000", "CapEff:	0000000000000001"),
        ("NoNewPrivs:	1", "NoNewPrivs:	0"),
        ("Seccomp:	2", "Seccomp:	0"),
        ("NSpid:	4711	1", "NSpid:	4711"),
        ("NSpid:	4711	1", "NSpid:	4711	7"),
        (STATUS, ""),
    ],
)
def test_a_process_that_may_do_more_is_refused(old: str, new: str) -> None:
    assert old in STATUS

    with pytest.raises(InitializationFailed, match="not as it was ordered"):
        check_process(STATUS.replace(old, new), 7, 8)


@pytest.mark.req("B8")
@pytest.mark.parametrize(
    ("numbers", "said", "is_it"),
    [
        ("4711\t1", 4711, True),
        ("4711\t87\t1", 87, True),  # the daemon is in a pid namespace of its own
        ("4711\t87\t1", 4711, False),
        ("4711\t2", 4711, False),
        ("4711", 4711, False),
        ("1", 1, False),
    ],
)
def test_a_first_process_is_known_by_its_number_in_the_daemon_s_namespace(numbers: str, said: int, is_it: bool) -> None:
    assert is_first_process(f"Name:\tbox\nNSpid:\t{numbers}\n", said) is is_it
    assert not is_first_process("", said)


@pytest.mark.req("B8")
def test_where_the_image_is_the_box_s_own_nothing_else_may_be_writable() -> None:
    check_unwritable(parse_mountinfo(TABLE), WANTED, ("/tmp",))

    for change, said in (
        (TABLE.replace("/etc/hosts ro", "/etc/hosts rw"), "/etc/hosts is writable"),
        (TABLE.replace(".env ro,", ".env rw,"), ".env is writable"),
        (TABLE.replace("/ / ro", "/ / rw"), "/ is writable"),
        (f"{TABLE}\n39 30 0:70 / {PINS} rw - tmpfs tmpfs rw", f"{PINS} is writable"),
    ):
        with pytest.raises(InitializationFailed, match=said):
            check_unwritable(parse_mountinfo(change), WANTED, ("/tmp", PINS))


@pytest.mark.req("B8")
def test_a_namespace_that_must_be_seen_and_is_not_counts_as_ours() -> None:
    gone = 2**22 + 1

    check_namespaces(gone, ("net",))
    with pytest.raises(InitializationFailed, match="net namespace is not to be seen"):
        check_namespaces(gone, ("net",), must_see=True)
    with pytest.raises(InitializationFailed, match="net namespace is the host's"):
        check_namespaces(os.getpid(), ("net",), must_see=True)


@pytest.mark.req("B8")
def test_a_process_that_shares_its_users_with_others_is_not_alone() -> None:
    with pytest.raises(InitializationFailed, match="not alone in its user namespace"):
        check_users(os.getpid(), (os.getuid(), os.getgid()), (os.getuid(), os.getgid()))
    with pytest.raises(InitializationFailed, match="cannot be read"):
        check_users(2**22 + 1, (1, 1), (1, 1))


def test_a_path_is_found_below_the_nearest_and_last_mount() -> None:
    table = parse_mountinfo(TABLE)

    assert locate("/tmp/my work/a", table) == ("254:0", "/home/me/my work/a")
    assert locate("/tmp/my workshop", table) == ("0:55", "/my workshop")
    assert locate("/tmp/my work/.env", table) == ("254:0", "/stage/hidden")
    assert locate("/", (MountSeen("1:1", "/", "/", True, "ext4"),)) == ("1:1", "/")


@pytest.mark.parametrize(
    ("cgroup", "is_ours"),
    [
        ("4:memory:/docker/abc123", True),
        ("0::/system.slice/docker-abc123.scope", True),
        ("4:memory:/docker/other\n3:pids:/user.slice", False),
        ("", False),
    ],
)
def test_a_process_is_of_the_container_that_its_groups_name(cgroup: str, is_ours: bool) -> None:
    assert belongs_to(cgroup, "abc123") is is_ours


@pytest.mark.req("B8", "D6")
def test_a_process_from_which_packets_can_leave_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "net").mkdir()
    route, more = tmp_path / "net" / "route", tmp_path / "net" / "ipv6_route"
    monkeypatch.setattr(verify, "Path", lambda text: tmp_path / text.removeprefix("/proc/7/"))

    route.write_text("Iface\tDestination\n")
    check_routes(7)
    more.write_text("00000000000000000000000000000001 80 0 00 0 00000000 00000003 0 80200001       lo\n")
    check_routes(7)
    more.write_text("fe800000000000000000000000000000 40 0 00 0 00000100 00000001 0 00000001     tap0\n")
    with pytest.raises(InitializationFailed, match=r"a packet could leave it .*tap0"):
        check_routes(7)
    more.unlink()
    route.write_text("Iface\tDestination\ntap0\t00000000\n")
    with pytest.raises(InitializationFailed, match="tap0"):
        check_routes(7)
    route.unlink()
    with pytest.raises(InitializationFailed, match="cannot be looked at"):
        check_routes(7)
