"""Small parts of the Docker engine: whose a container is, what an image has, which daemon is meant."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ringfence.engines.docker.daemon import About
from ringfence.engines.docker.engine import guarantees_of
from ringfence.engines.docker.facts import docker_facts
from ringfence.engines.docker.janitor import is_orphan, own_name
from ringfence.engines.docker.programs import ImagePrograms
from ringfence.engines.docker.runtimes import Kernel, Runtime
from ringfence.engines.docker.settings import read_docker_settings
from ringfence.errors import InvalidConfig
from ringfence.values.guarantee import Guarantee


def test_a_living_manager_has_no_orphans_and_a_dead_one_has() -> None:
    *world, pid, started = own_name().split(" ")

    assert not is_orphan(own_name())
    assert is_orphan(" ".join((*world, pid, f"{int(started) + 1}")))  # the number went to another process
    assert is_orphan(" ".join((*world, "999999999", started)))


@pytest.mark.parametrize("name", ["", "x", "another boot pid:[1] 1 1", "1 1", " 1 1"])
def test_whose_name_we_cannot_judge_is_nobody_s_orphan(name: str) -> None:
    assert not is_orphan(name)


def test_programs_are_found_where_a_shell_would_find_them() -> None:
    programs = ImagePrograms.parse(b"/usr/local/bin/python3\0/usr/bin/python3\0/usr/bin/bash\0/bin/sh\0\xff\0junk\0")

    assert programs.python == "/usr/local/bin/python3" and programs.shell == "/usr/bin/bash"
    assert programs.find(("node", "sh")) == "/bin/sh" and programs.find(("node",)) is None
    assert programs.has("bash") and programs.has("/usr/bin/bash")
    assert not programs.has("/opt/bash") and not programs.has("junk")
    assert programs.reaches("/usr/bin/python3") and not programs.reaches("/usr/bin/python")


def test_an_image_with_nothing_still_has_a_name_for_its_shell() -> None:
    assert ImagePrograms(()).shell == "/bin/sh" and ImagePrograms(()).python is None


def test_what_is_given_counts_before_the_environment_and_that_before_the_default() -> None:
    environ = {"DOCKER_HOST": "tcp://here:1", "RINGFENCE_DOCKER_IMAGE": "mine"}

    assert read_docker_settings({}).url == "unix:///var/run/docker.sock"
    assert read_docker_settings({}).image.startswith("ringfence/sandbox:")
    assert (read_docker_settings(environ).url, read_docker_settings(environ).image) == ("tcp://here:1", "mine")
    given = read_docker_settings(environ, "unix:///x", "other")
    assert (given.url, given.image) == ("unix:///x", "other")
    with pytest.raises(InvalidConfig):
        read_docker_settings({"DOCKER_HOST": "here"})


def test_a_bound_that_the_kernel_does_not_hold_is_not_promised() -> None:
    runtime = Runtime("", Kernel.HOST)
    whole = guarantees_of(About("1", bounds_memory=True, bounds_swap=True, bounds_processes=True), runtime)
    less = guarantees_of(About("1", bounds_memory=False, bounds_swap=False, bounds_processes=False), runtime)

    rootless = About("1", bounds_memory=False, bounds_swap=False, bounds_processes=False, is_rootless=True)

    assert whole - less == {Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED}
    assert guarantees_of(rootless, runtime) == whole  # held by us: looked at, and counted in a namespace of its own
    assert not {Guarantee.OWN_KERNEL, Guarantee.DENIED_AT_OPEN} & whole


@pytest.mark.parametrize("url", ["unix:///nowhere/docker.sock", "tcp://127.0.0.1:1", "https://127.0.0.1:1", "nonsense"])
def test_doctor_says_plainly_that_no_daemon_answers(url: str) -> None:
    (fact,) = docker_facts({"DOCKER_HOST": url})

    assert url in fact.missing and fact.hint and not fact.guarantees


def test_doctor_takes_no_file_for_a_daemon(tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()

    (fact,) = docker_facts({"DOCKER_HOST": f"unix://{tmp_path}/docker.sock"})

    assert "no Docker daemon" in fact.missing


def test_the_name_of_a_manager_is_of_this_process() -> None:
    assert f" {os.getpid()} " in own_name()


def test_podman_is_known_by_what_it_says_it_is_made_of() -> None:
    podman = About.parse({"Version": "4.3.1", "Components": [{"Name": "Podman Engine"}, {"Name": "Conmon"}]}, {})
    docker = About.parse({"Version": "28.2", "Components": [{"Name": "Engine"}, {"Name": "containerd"}]}, {})

    assert (podman.engine, docker.engine) == ("Podman", "Docker")


def test_the_runtime_is_the_one_that_is_given_else_the_environment_s() -> None:
    environ = {"RINGFENCE_DOCKER_RUNTIME": "crun"}

    assert read_docker_settings({}).runtime is None and read_docker_settings(environ).runtime == "crun"
    assert read_docker_settings(environ, runtime="runc").runtime == "runc"
