"""`ringfence image` against a real daemon."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence.engines.docker import image as probing
from ringfence.engines.docker.image import probe_image
from ringfence.errors import InitializationFailed
from tests.support.images import IMAGE, docker, needs_daemon, needs_image

pytestmark = pytest.mark.req("B8")

BASE = "debian:bookworm-slim"


def ringfence(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ringfence.cli.app", "image", *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=os.environ | environment,
    )


def containers_of_probes() -> str:
    return docker("ps", "--all", "--quiet", "--filter", "label=ringfence.probe").out


@pytest.fixture
def image_of() -> Iterator[Callable[[str, str], str]]:
    """Makes an image by a Dockerfile; removed afterwards."""
    made: list[str] = []

    def make(name: str, dockerfile: str) -> str:
        done = docker("build", "--quiet", "--tag", name, "-", stdin=dockerfile)
        assert done.code == 0, done.err
        made.append(name)
        return name

    yield make
    for name in made:
        docker("rmi", "--force", name)


@needs_image
@pytest.mark.alone  # it counts what probes have left: nobody else may be probing
def test_the_image_that_we_build_is_fit() -> None:
    done = ringfence("check", "--json", IMAGE)
    report = json.loads(done.stdout)

    assert done.returncode == 0, done.stdout
    assert report["fit"]
    assert report["set_id"] == []
    assert report["uid"] == 1000
    assert {"sh", "bash", "python3", "node", "git", "pip3"} <= set(report["programs"])
    assert containers_of_probes() == ""


@needs_image
def test_what_makes_an_image_unfit_is_named(image_of: Callable[[str, str], str]) -> None:
    name = image_of(
        "ringfence-test/unfit", f"FROM {IMAGE}\nUSER root\nRUN cp /bin/true /bin/bad && chmod u+s /bin/bad\n"
    )

    done = ringfence("check", "--json", name)
    wrong = {each["claim"] for each in json.loads(done.stdout)["checks"] if not each["ok"]}

    assert done.returncode == 1
    assert wrong == {"its user is not root", "no program in it runs as somebody else"}
    assert json.loads(done.stdout)["set_id"] == ["/usr/bin/bad"]  # where Debian's /bin leads


@needs_image
def test_an_image_without_a_shell_can_run_our_helper_and_is_still_unfit(image_of: Callable[[str, str], str]) -> None:
    name = image_of("ringfence-test/empty", f"FROM scratch\nCOPY --from={IMAGE} /etc/debian_version /\nUSER 1000\n")

    done = ringfence("check", "--json", name)
    checks = {each["claim"]: each["ok"] for each in json.loads(done.stdout)["checks"]}

    assert done.returncode == 1
    assert checks["our helper runs in it"]
    assert not checks["it has a shell"]
    assert checks["its user is not root"]


@needs_image
def test_the_probe_tells_engines_what_they_need() -> None:
    found = asyncio.run(probe_image(None, IMAGE))

    assert found.helper_fault == ""
    assert found.has_shell
    assert not found.runs_as_root
    assert found.programs["python3"].version.startswith("Python 3.")
    assert found.labels["ringfence.image"] == "sandbox"
    assert found.id.startswith("sha256:")


@needs_image
def test_our_images_are_listed_with_age_and_size_and_others_are_not() -> None:
    done = ringfence("list", "--json")
    listed = json.loads(done.stdout)

    assert done.returncode == 0
    assert any(IMAGE in each["tags"] and each["size_bytes"] > 1_000_000 for each in listed)
    assert not any(BASE in each["tags"] for each in listed)
    assert IMAGE in ringfence("list").stdout


@needs_image
def test_the_entry_point_refuses_root_and_runs_for_others() -> None:
    ran = docker("run", "--rm", "--network", "none", IMAGE, "id", "-u")
    refused = docker("run", "--rm", "--network", "none", "--user", "0", IMAGE, "id", "-u")

    assert (ran.code, ran.out) == (0, "1000\n")
    assert (refused.code, refused.out) == (125, "")
    assert "--user 1000:1000" in refused.err


@needs_image
def test_nothing_in_the_image_can_be_written_by_its_user_but_its_own_places() -> None:
    program = "find / -xdev -writable ! -type l 2>/dev/null"

    done = docker("run", "--rm", "--network", "none", "--entrypoint", "bash", IMAGE, "-c", program)
    writable = {"/" + path.split("/")[1] for path in done.out.split()}

    assert writable <= {"/workspace", "/output", "/tmp", "/home", "/var", "/run", "/dev"}
    assert [path for path in done.out.split() if path.startswith("/var/")] in ([], ["/var/tmp"])


@needs_daemon
def test_an_image_that_is_not_there_says_how_to_make_it() -> None:
    done = ringfence("check", "ringfence-test/nothing")

    assert done.returncode == 125
    assert "no image 'ringfence-test/nothing'" in done.stderr
    assert "ringfence image build" in done.stderr


@needs_daemon
def test_a_build_that_fails_says_so(tmp_path: Path) -> None:
    done = ringfence("build", "--base", "ringfence-test/no-such-base:1")

    assert done.returncode == 125
    assert "could not build" in done.stderr


@pytest.mark.parametrize("url", ["unix:///nonexistent/docker.sock", "tcp://127.0.0.1:1", "nonsense"])
def test_without_a_daemon_it_says_where_it_looked(url: str) -> None:
    done = ringfence("list", "--docker-url", url)

    assert done.returncode == 125
    assert "initialization_failed" in done.stderr
    assert url in done.stderr
    assert "Traceback" not in done.stderr


def test_a_daemon_that_never_answers_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probing, "_ANSWER_SECONDS", 0.5)
    with socket.socket(socket.AF_UNIX) as listener:
        path = str(tmp_path / "s")
        listener.bind(path)
        listener.listen()
        accepted: list[socket.socket] = []
        thread = threading.Thread(target=lambda: accepted.append(listener.accept()[0]))
        thread.start()
        try:
            with pytest.raises(InitializationFailed, match="does not answer"):
                asyncio.run(probe_image(f"unix://{path}", "x"))
        finally:
            thread.join()
            for each in accepted:
                each.close()
