"""What the daemon is told: everything that hardens a container is there, and nothing that softens it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ringfence.confinement.base import View
from ringfence.confinement.choose import container_filter
from ringfence.engines.docker.container import HOME, ContainerPlan, container_config
from ringfence.engines.docker.daemon import Image
from ringfence.engines.docker.mounts import PINS, Mount
from ringfence.errors import InvalidArgument
from ringfence.values.limits import Limits

MIB = 1024 * 1024
IMAGE = Image("sha256:1", "/usr/bin:/bin", ("/data",))
SOFT = ("Privileged", "PidMode", "Devices", "DeviceRequests", "CapAdd", "GroupAdd", "Binds", "VolumesFrom", "Links")


def a_plan(
    *mounts: Mount, limits: Limits | None = None, cores: float | None = None, for_podman: bool = False
) -> ContainerPlan:
    return ContainerPlan(
        image=IMAGE,
        uid=1234,
        gid=5678,
        mounts=mounts,
        seccomp='{"defaultAction": "SCMP_ACT_ALLOW"}',
        limits=limits or Limits(),
        labels=(("ringfence.box", "x"),),
        cores=cores,
        for_podman=for_podman,
    )


def a_config(*mounts: Mount, **parts: Any) -> dict[str, Any]:
    return container_config(a_plan(*mounts, **parts))


@pytest.mark.req("B6", "E7")
def test_a_container_is_hardened_whatever_it_is_for() -> None:
    config = a_config()
    host = config["HostConfig"]

    assert config["User"] == "1234:5678"
    assert config["NetworkDisabled"] and host["NetworkMode"] == "none"
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"][0] == "no-new-privileges:true" and host["SecurityOpt"][1].startswith("seccomp={")
    assert host["IpcMode"] == host["CgroupnsMode"] == "private"
    assert "/sys" in host["MaskedPaths"] and "/proc/kcore" in host["MaskedPaths"]
    assert "/proc/sys" in host["ReadonlyPaths"]
    assert host["LogConfig"] == {"Type": "none"} and host["RestartPolicy"] == {"Name": "no"} and host["AutoRemove"]
    assert not any(host.get(name) for name in SOFT)


@pytest.mark.req("B6", "C9")
def test_limits_are_the_kernel_s_to_hold() -> None:
    host = a_config(limits=Limits(memory_bytes=64 * MIB, processes=10, tmp_bytes=MIB))["HostConfig"]

    assert host["Memory"] == host["MemorySwap"] == 64 * MIB
    assert host["PidsLimit"] == 11
    assert host["ShmSize"] == MIB
    assert {"Name": "core", "Soft": 0, "Hard": 0} in host["Ulimits"]
    for place in ("/tmp", "/var/tmp", HOME, "/data"):
        assert f"size={MIB}," in host["Tmpfs"][place] and "nosuid" in host["Tmpfs"][place]


def test_less_memory_than_docker_takes_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="6MB"):
        a_config(limits=Limits(memory_bytes=5 * MIB))


def test_pins_are_closed_to_everybody_and_there_only_if_needed() -> None:
    assert PINS not in a_config()["HostConfig"]["Tmpfs"]
    assert "mode=0000" in a_config(Mount("/w", f"{PINS}/0"))["HostConfig"]["Tmpfs"][PINS]


@pytest.mark.req("B8")
def test_a_box_with_users_of_its_own_is_told_who_to_become_and_its_pins_cannot_be_opened() -> None:
    own = replace(a_plan(Mount("/w", f"{PINS}/0")), uid=0, gid=0, becomes=(1234, 5678))
    config, elsewhere = container_config(own), container_config(replace(own, uid=7))

    assert config["Entrypoint"][-2:] == ["1234", "5678"] and config["User"] == "0:0"
    assert config["HostConfig"]["Tmpfs"][PINS].startswith("ro,")
    assert config["HostConfig"]["CapDrop"] == ["ALL"] and config["HostConfig"]["CapAdd"] == ["SETFCAP"]
    assert "CapAdd" not in elsewhere["HostConfig"]  # only uid 0 of a namespace needs it to map itself


def test_what_is_mounted_is_not_covered_by_memory() -> None:
    host = a_config(Mount("/w", HOME, writable=True))["HostConfig"]

    assert HOME not in host["Tmpfs"] and "/tmp" in host["Tmpfs"]
    assert [mount["Target"] for mount in host["Mounts"]] == [HOME]


def test_paths_go_into_fields_of_their_own_so_that_a_colon_means_nothing() -> None:
    (mount,) = a_config(Mount("/a:b", "/a:b:rw", writable=True))["HostConfig"]["Mounts"]

    assert (mount["Source"], mount["Target"], mount["ReadOnly"]) == ("/a:b", "/a:b:rw", False)


def test_the_engine_s_profile_and_the_filter_of_the_first_process_refuse_the_same_calls() -> None:
    view = View(uid=1, gid=1, home=HOME, system=(), writable=("/w",), tmp_bytes=1)
    made, for_root = (container_filter(view, (), for_root=value) for value in (False, True))

    refused = {name for rule in json.loads(made.profile)["syscalls"] for name in rule["names"]}
    also = {name for rule in json.loads(for_root.profile)["syscalls"] for name in rule["names"]} - refused
    assert {"mount", "unshare", "bpf", "keyctl"} <= refused and also == {"openat2"}
    assert made.seccomp and for_root.seccomp != made.seccomp


@pytest.mark.req("B6", "E7")
def test_podman_is_told_what_it_would_otherwise_add_by_itself() -> None:
    host = a_config(limits=Limits(open_files=100, tmp_bytes=MIB), for_podman=True)["HostConfig"]

    # It refuses owners of what is in memory, fills it from the image, and puts a /run there that anybody may write.
    assert not any("uid=" in options for options in host["Tmpfs"].values())
    assert all("notmpcopyup" in options and "size=" in options for options in host["Tmpfs"].values())
    assert "mode=0755" in host["Tmpfs"]["/run"] and f"size={MIB}" in host["Tmpfs"][HOME]
    assert any(option.startswith("mask=") and option.endswith(":/sys") for option in host["SecurityOpt"])
    assert {"Name": "nofile", "Soft": 100, "Hard": 100} in host["Ulimits"]
    assert "/run" not in a_config()["HostConfig"]["Tmpfs"]


@pytest.mark.req("B6")
@pytest.mark.parametrize(("cores", "quota"), [(1.0, 100_000), (0.5, 50_000), (64, 6_400_000), (0.0001, 1000)])
def test_cores_are_a_share_of_each_period(cores: float, quota: int) -> None:
    host = a_config(cores=cores)["HostConfig"]

    assert (host["CpuPeriod"], host["CpuQuota"]) == (100_000, quota)
    assert "CpuQuota" not in a_config()["HostConfig"]
