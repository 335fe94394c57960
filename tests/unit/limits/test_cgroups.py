"""Control groups: found from what /proc says, made and read as files; the trees here are plain directories."""

import os
from pathlib import Path

import pytest

from ringfence.limits import cgroup_v1, cgroup_v2, choose
from ringfence.limits.base import ResourceController, UsageReading
from ringfence.limits.cgroup_v1 import CgroupV1, FoundV1
from ringfence.limits.cgroup_v2 import CgroupV2, FoundV2
from ringfence.limits.cgroups import PREFIX, CgroupMount, hierarchies_of, parse_mounts, read_counter, read_number
from ringfence.limits.polling import Polling
from ringfence.values.limits import Limit, Limits

LIMITS = Limits(memory_bytes=64 << 20, processes=9)

HYBRID = """\
24 1 0:22 / /sys rw,nosuid shared:7 - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw,nsdelegate
31 24 0:27 / /sys/fs/cgroup/memory rw shared:10 - cgroup cgroup rw,memory
32 24 0:28 / /sys/fs/cgroup/cpu,cpuacct rw shared:11 - cgroup cgroup rw,cpu,cpuacct
33 24 0:29 / /sys/fs/cgroup/systemd rw shared:12 - cgroup cgroup rw,xattr,name=systemd
"""
HYBRID_MEMBERSHIP = "4:memory:/jobs/7\n3:cpu,cpuacct:/\n1:name=systemd:/user.slice\n0::/user.slice/a.scope\n"


def test_each_hierarchy_is_found_with_our_own_group_in_it() -> None:
    first, second = parse_mounts(HYBRID, HYBRID_MEMBERSHIP)

    found = {name: mounted.directory for mounted in first for name in mounted.controllers}
    assert found["memory"] == Path("/sys/fs/cgroup/memory/jobs/7")
    assert found["cpuacct"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    assert second == CgroupMount(
        frozenset(), Path("/sys/fs/cgroup/unified/user.slice/a.scope"), Path("/sys/fs/cgroup/unified")
    )


@pytest.mark.parametrize(
    ("root", "path", "below"),
    [
        ("/", "/jobs/7", "jobs/7"),
        ("/docker/abc", "/docker/abc", "."),
        ("/docker/abc", "/docker/abc/inner", "inner"),
        ("/docker/ab", "/docker/abc", "docker/abc"),  # another group whose name begins alike
    ],
)
def test_a_mount_whose_root_is_a_group_shows_paths_from_there(root: str, path: str, below: str) -> None:
    mountinfo = f"30 24 0:26 {root} /cg rw - cgroup2 cgroup2 rw\n"

    _, second = parse_mounts(mountinfo, f"0::{path}\n")

    assert second is not None
    assert second.directory == Path("/cg") / below


def test_a_mount_point_with_a_blank_is_unescaped() -> None:
    _, second = parse_mounts("30 24 0:26 / /my\\040groups rw - cgroup2 cgroup2 rw\n", "0::/\n")

    assert second is not None
    assert second.top == Path("/my groups")


def test_without_groups_nothing_is_found() -> None:
    assert parse_mounts("24 1 0:22 / /proc rw - proc proc rw\n", "") == ((), None)


# --- version 1 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def v1(tmp_path: Path) -> dict[str, Path]:
    parents = {name: tmp_path / name for name in ("memory", "pids", "cpuacct")}
    for parent in parents.values():
        parent.mkdir()
    return parents


def _only_child(parent: Path) -> Path:
    (child,) = parent.iterdir()
    return child


def _empty(*groups: Path) -> None:
    """In a real tree the kernel's files do not keep a directory from being removed."""
    for group in groups:
        for file in group.iterdir():
            file.unlink()


@pytest.mark.req("B6", "C9")
def test_v1_writes_the_limits_and_names_what_to_join_and_to_remove(v1: dict[str, Path]) -> None:
    holder = CgroupV1(v1, LIMITS)

    memory, pids, accounting = (_only_child(v1[name]) for name in ("memory", "pids", "cpuacct"))
    assert memory.name == pids.name == accounting.name
    assert memory.name.startswith(f"{PREFIX}{os.getpid()}-")
    assert (memory / "memory.limit_in_bytes").read_text() == str(64 << 20)
    assert (pids / "pids.max").read_text() == "10"
    assert not (memory / "memory.memsw.limit_in_bytes").exists()
    assert set(holder.joins) == {f"{group}/tasks" for group in (memory, pids, accounting)}
    assert set(holder.leftovers) == set(map(str, (memory, pids, accounting)))
    assert holder.enforces == {Limit.MEMORY, Limit.PROCESSES}


def test_v1_reads_usage_peak_and_kills(v1: dict[str, Path]) -> None:
    holder = CgroupV1(v1, LIMITS)
    memory, accounting = _only_child(v1["memory"]), _only_child(v1["cpuacct"])
    (memory / "memory.usage_in_bytes").write_text("4096\n")
    (memory / "memory.max_usage_in_bytes").write_text("8192\n")
    (memory / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (accounting / "cpuacct.usage").write_text("1500000000\n")

    assert holder.read(1) == UsageReading(cpu_seconds=1.5, memory_bytes=4096)
    assert (holder.peak_memory_bytes(), holder.memory_kills()) == (8192, 2)
    holder.start_command()
    assert holder.peak_memory_bytes() == 0


def test_v1_never_raises_when_its_files_are_gone(v1: dict[str, Path]) -> None:
    holder = CgroupV1(v1, LIMITS)
    _empty(*map(_only_child, v1.values()))
    holder.close()

    assert holder.read(1) == UsageReading()
    assert (holder.peak_memory_bytes(), holder.memory_kills()) == (0, 0)


def test_v1_leaves_nothing_behind_when_a_limit_cannot_be_set(
    v1: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, text: str) -> int:
        raise PermissionError(1, "no")

    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(PermissionError):
        CgroupV1(v1, LIMITS)

    assert [list(parent.iterdir()) for parent in v1.values()] == [[], [], []]


def test_controllers_mounted_together_share_one_group(tmp_path: Path) -> None:
    holder = CgroupV1({"memory": tmp_path, "pids": tmp_path}, LIMITS)

    assert len(holder.joins) == len(holder.leftovers) == 1


def test_v1_needs_memory_and_pids_and_a_group_that_we_may_write(v1: dict[str, Path]) -> None:
    def mounted(*names: str) -> tuple[CgroupMount, ...]:
        return tuple(CgroupMount(frozenset({name}), v1[name], v1[name]) for name in names)

    assert cgroup_v1.usable(mounted("memory", "pids", "cpuacct")) == v1
    assert cgroup_v1.usable(mounted("memory", "pids")) == {name: v1[name] for name in ("memory", "pids")}
    assert cgroup_v1.usable(mounted("memory", "cpuacct")) is None
    v1["pids"].rmdir()
    assert cgroup_v1.usable(mounted("memory", "pids")) is None


# --- version 2 --------------------------------------------------------------------------------------------------------


def _v2_group(path: Path, controllers: str = "cpu memory pids") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.subtree_control").write_text(controllers + "\n")
    (path / "cgroup.procs").write_text("")
    return path


def test_v2_takes_the_nearest_group_above_that_hands_memory_and_pids_down(tmp_path: Path) -> None:
    _v2_group(tmp_path)
    near = _v2_group(tmp_path / "user.slice")
    ours = _v2_group(tmp_path / "user.slice" / "a.scope", "")

    assert cgroup_v2.usable(CgroupMount(frozenset(), ours, tmp_path)) == near


@pytest.mark.parametrize("controllers", ["", "cpu", "memory", "pids cpu"])
def test_v2_is_not_usable_where_a_controller_is_missing(tmp_path: Path, controllers: str) -> None:
    ours = _v2_group(tmp_path / "a", controllers)
    _v2_group(tmp_path, controllers)

    assert cgroup_v2.usable(CgroupMount(frozenset(), ours, tmp_path)) is None
    assert cgroup_v2.usable(None) is None


def test_v2_looks_no_higher_than_its_mount(tmp_path: Path) -> None:
    _v2_group(tmp_path)
    top = _v2_group(tmp_path / "mount", "")
    ours = _v2_group(top / "a", "")

    assert cgroup_v2.usable(CgroupMount(frozenset(), ours, top)) is None


@pytest.mark.req("B6", "C9")
def test_v2_writes_the_limits_and_reads_the_counters(tmp_path: Path) -> None:
    holder = CgroupV2(tmp_path, LIMITS)
    group = _only_child(tmp_path)

    assert (group / "memory.max").read_text() == str(64 << 20)
    assert (group / "memory.swap.max").read_text() == "0"
    assert (group / "pids.max").read_text() == "10"
    assert holder.joins == (f"{group}/cgroup.procs",)
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (group / "memory.current").write_text("4096\n")
    (group / "memory.peak").write_text("8192\n")
    (group / "memory.events").write_text("low 0\noom 3\noom_kill 1\noom_group_kill 0\n")
    assert holder.read(1) == UsageReading(2.5, 4096)
    assert (holder.peak_memory_bytes(), holder.memory_kills()) == (8192, 1)
    _empty(group)
    holder.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "max\n", "garbage", "12 34\n"])
def test_a_number_that_cannot_be_read_is_zero(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)

    assert read_number(tmp_path / "file") == (12 if text.startswith("12") else 0)
    assert read_number(tmp_path / "missing") == 0


def test_a_counter_is_found_by_its_whole_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("oom_kill_disable 7\noom_kill 2\n")

    assert read_counter(tmp_path / "file", b"oom_kill") == 2
    assert read_counter(tmp_path / "file", b"oom") == 0


# --- the choice -------------------------------------------------------------------------------------------------------


@pytest.mark.req("B6")
def test_polling_holds_the_box_where_the_kernel_refuses_the_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choose, "_parents", lambda: (None, tmp_path / "not there"))

    holder: ResourceController = choose.choose(LIMITS)

    assert isinstance(holder, Polling)
    assert holder.name == "rlimits and polling"


def test_a_group_is_preferred_where_it_can_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "_parents", lambda: (None, tmp_path))

    assert isinstance(choose.choose(LIMITS), CgroupV2)
    assert choose.describe() == "cgroup v2"


# --- groups that somebody else has made -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "kind"),
    [
        ({"memory/memory.usage_in_bytes": "7", "cpuacct/cpuacct.usage": "2000000000"}, FoundV1),
        ({"unified/memory.current": "7", "unified/cpu.stat": "usage_usec 2000000"}, FoundV2),
    ],
)
def test_groups_of_a_container_are_read_and_left_to_whoever_made_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], kind: type[ResourceController]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    first = tuple(CgroupMount(frozenset({name}), tmp_path / name, tmp_path) for name in ("memory", "cpuacct"))
    second = CgroupMount(frozenset(), tmp_path / "unified", tmp_path)
    monkeypatch.setattr(choose, "hierarchies_of", lambda pid: (first, second))

    holder = choose.find(1, LIMITS)

    assert isinstance(holder, kind) and (holder.joins, holder.leftovers) == ((), ())
    assert holder.read(1) == UsageReading(cpu_seconds=2.0, memory_bytes=7)
    holder.start_command()
    holder.close()
    assert all((tmp_path / name).exists() for name in files)


def test_where_the_groups_of_a_container_cannot_be_seen_its_processes_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = CgroupMount(frozenset({"memory"}), tmp_path / "gone", tmp_path)
    monkeypatch.setattr(choose, "hierarchies_of", lambda pid: ((elsewhere,), None))

    assert isinstance(choose.find(1, LIMITS), Polling)


def test_a_process_that_is_gone_has_no_groups() -> None:
    assert hierarchies_of(999_999_999) == ((), None)
