"""What is deployed, really run: the keeper, its container under compose's and under Kubernetes' rules."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import ringfence
from tests.integration.stage import SYSTEM_PATH, Place
from tests.support.images import Ran, docker, why_no_image

pytestmark = pytest.mark.req("B8")

DEPLOY = Path(__file__).parents[2] / "deploy"
IMAGE = "ringfence/manager"
STARTING_SECONDS = 30.0

needs_manager = pytest.mark.skipif(
    bool(why_no_image(IMAGE)), reason=why_no_image(IMAGE) + "; then build deploy/Dockerfile.manager as it says"
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- the keeper -------------------------------------------------------------------------------------------------------


@contextmanager
def keeper(place: Place, **environment: str) -> Iterator[subprocess.Popen[str]]:
    env = {"PATH": SYSTEM_PATH, "HOME": str(place.home), "TMPDIR": os.environ["TMPDIR"], **environment}
    env["PYTHONPATH"] = os.path.dirname(os.path.dirname(ringfence.__file__))
    child = subprocess.Popen([sys.executable, DEPLOY / "keeper.py"], stderr=subprocess.PIPE, text=True, env=env)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def metrics(port: int) -> str:
    """Once a heartbeat has gone through a box."""
    deadline = time.monotonic() + STARTING_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
                text = answer.read().decode()
        except OSError:
            text = ""
        if "sandbox_executions_total{" in text:
            return str(text)
        time.sleep(0.1)
    raise AssertionError("no heartbeat in time")


def test_the_keeper_serves_metrics_of_a_heartbeat_and_ends_when_told(place: Place) -> None:
    port = free_port()
    with keeper(place, RINGFENCE_METRICS_PORT=str(port), RINGFENCE_POOL_SIZE="1") as child:
        found = metrics(port)
        child.send_signal(signal.SIGTERM)
        code = child.wait(STARTING_SECONDS)

    assert 'sandbox_executions_total{language="python",status="success",tool="code_run"} 1.0' in found
    assert 'sandbox_pool_size{status="idle"}' in found
    assert code == 0


def test_the_variables_of_the_design_documents_compose_file_are_understood(place: Place) -> None:
    port = free_port()
    named = {"SANDBOX_MAX_MEMORY": "512m", "SANDBOX_MAX_CPU": "1.0", "SANDBOX_NETWORK": "none"}
    with keeper(place, RINGFENCE_METRICS_PORT=str(port), SANDBOX_POOL_SIZE="1", **named) as child:
        found = metrics(port)
        child.send_signal(signal.SIGTERM)
        code = child.wait(STARTING_SECONDS)

    assert 'sandbox_executions_total{language="python",status="success",tool="code_run"} 1.0' in found
    assert code == 0


def test_what_the_environment_bounds_caps_everything_and_our_name_wins(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def limits(**options: object) -> ringfence.Limits:
        with place.box_closed(**options) as box:
            return box.resource_limits

    asked = ringfence.Limits(memory_bytes=1 << 30)
    policy = ringfence.PolicyEngine.from_text("policies: {default: {max_memory: 256MB}}", "p.yaml")
    monkeypatch.setenv("SANDBOX_MAX_MEMORY", "512m")
    monkeypatch.setenv("SANDBOX_MAX_CPU", "1.0")
    assert limits().memory_bytes == limits(limits=asked).memory_bytes == 512 << 20
    assert limits().cpu_seconds == limits().wall_seconds
    assert limits(policy=policy).memory_bytes == 256 << 20
    monkeypatch.setenv("RINGFENCE_MAX_MEMORY", "64MB")  # ours wins
    assert limits(policy=policy).memory_bytes == 64 << 20


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RINGFENCE_POOL_SIZE", "many"),
        ("SANDBOX_POOL_SIZE", "few"),
        ("SANDBOX_NETWORK", "bridge"),
        ("SANDBOX_MAX_MEMORY", "1, x: y"),
        ("SANDBOX_MAX_CPU", "lots"),
        ("RINGFENCE_WALL", "paper"),
        ("RINGFENCE_POLICY", "/nonexistent/policy.yaml"),
    ],
)
def test_a_setting_that_makes_no_sense_ends_the_keeper(place: Place, name: str, value: str) -> None:
    with keeper(place, **{name: value}) as child:
        _, said = child.communicate(timeout=STARTING_SECONDS)

    assert child.returncode == 1
    assert value in said
    assert "Traceback" not in said


@pytest.mark.root
@pytest.mark.skipif(
    Path("/proc/self/uid_map").read_text().split()[:2] != ["0", "0"], reason="we are in a user namespace ourselves"
)
def test_root_of_the_machine_keeps_no_boxes_of_a_docker_daemon(place: Place) -> None:
    with keeper(place, RINGFENCE_TOOL_ENGINE="docker", DOCKER_HOST="unix:///nowhere") as child:
        _, said = child.communicate(timeout=STARTING_SECONDS)

    assert child.returncode == 1
    assert "this is root of the machine" in said and "rootless" in said


# --- its container ----------------------------------------------------------------------------------------------------

UNPRIVILEGED = (
    *("--network", "none", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--read-only"),
    *("--user", "1000:1000", "--tmpfs", "/tmp", "--tmpfs", "/var/lib/ringfence:uid=1000,mode=0700,exec"),
    *("--volume", f"{DEPLOY}/policy.yaml:/etc/ringfence/policy.yaml:ro"),
    *("--env", "RINGFENCE_POLICY=/etc/ringfence/policy.yaml"),
)
AS_IN_COMPOSE = (
    *UNPRIVILEGED,
    *("--security-opt", f"seccomp={DEPLOY}/seccomp-manager.json", "--security-opt", "systempaths=unconfined"),
)


@contextmanager
def container(*options: str) -> Iterator[str]:
    name = f"ringfence-test-{os.getpid()}"
    try:
        started = docker("run", "--detach", "--name", name, *options, IMAGE)
        assert started.code == 0, started.err
        yield name
    finally:
        docker("rm", "--force", "--volumes", name)


def wait_for_pool(name: str) -> Ran:
    deadline = time.monotonic() + STARTING_SECONDS
    while (found := docker("exec", name, "ringfence", "pool")).code != 0 and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


@needs_manager
def test_under_composes_rules_boxes_have_the_full_wall() -> None:
    attempts = 'echo 42; ls ~/state; python3 -c "open(chr(47) + chr(120), chr(119))"'  # writes /x
    script = f"mkdir -p ~/w && cd ~/w && ringfence run --verbose '{attempts}'"
    with container(*AS_IN_COMPOSE) as name:
        healthy = wait_for_pool(name)
        done = docker("exec", name, "sh", "-c", script)
        docker("stop", name)
        code = docker("inspect", "--format", "{{.State.ExitCode}}", name).out

    assert healthy.code == 0, healthy.out
    assert done.out == "42\n", done.err
    assert "No such file" in done.err  # the journal is not in the box
    assert "Read-only file system" in done.err
    for guarantee in ("host files hidden", "writes confined", "network off", "host processes hidden", "never root"):
        assert guarantee in done.err
    assert code == "0\n"


@needs_manager
def test_under_the_restricted_standard_boxes_stand_behind_landlock_when_that_is_asked_for() -> None:
    with container(*UNPRIVILEGED, "--env", "RINGFENCE_WALL=landlock") as name:
        assert wait_for_pool(name).code == 0, docker("logs", name).err


@needs_manager
def test_without_being_asked_nothing_runs_behind_the_weaker_wall() -> None:
    done = docker("run", "--rm", *UNPRIVILEGED, IMAGE)

    assert done.code == 1
    assert "no wall on this machine gives what is required" in done.err


# --- compose itself ---------------------------------------------------------------------------------------------------


def compose_command() -> list[str] | None:
    if named := os.environ.get("RINGFENCE_TEST_COMPOSE"):
        return [named]
    if shutil.which("docker") and docker("compose", "version").code == 0:
        return ["docker", "compose"]
    return [found] if (found := shutil.which("docker-compose")) else None


@pytest.mark.parametrize("files", [["compose.yaml"], ["compose.yaml", "compose.docker.yaml"]], ids=["native", "docker"])
def test_docker_compose_takes_the_files(files: list[str]) -> None:
    command = compose_command()
    if command is None:
        pytest.skip("there is no docker compose; install it, or name one in RINGFENCE_TEST_COMPOSE")
    options = [word for name in files for word in ("--file", str(DEPLOY / name))]
    env = os.environ | {"RINGFENCE_DOCKER_SOCKET": "/run/user/1000/docker.sock", "RINGFENCE_DATA": "/home/me/data"}

    done = subprocess.run(
        [*command, *options, "config", "--quiet"], capture_output=True, text=True, env=env, check=False
    )

    assert done.returncode == 0, done.stderr


# --- compose with a rootless daemon -----------------------------------------------------------------------------------

ROOTLESS = os.environ.get("RINGFENCE_TEST_ROOTLESS", "")
WITHOUT_NETWORKS = """
services:
  manager: {networks: !reset null, network_mode: none}
  prometheus: {networks: !reset null, network_mode: none}
networks: !reset null
"""
"""The daemon that scripts/rootless-engine.sh starts has none to give; nothing here needs one."""


def why_no_overlay() -> str:
    """Empty if the manager can be started by a rootless daemon of ours."""
    if not ROOTLESS:
        return "no rootless daemon: RINGFENCE_TEST_ROOTLESS is not set (scripts/rootless-engine.sh starts one)"
    if os.stat(ROOTLESS.removeprefix("unix://")).st_uid != os.getuid():
        return "the rootless daemon is another user's: use scripts/rootless-engine.sh run"
    if compose_command() is None:
        return "there is no docker compose; install it, or name one in RINGFENCE_TEST_COMPOSE"
    if int(docker("--host", ROOTLESS, "version", "--format", "{{.Server.Version}}").out.split(".")[0]) < 23:
        return "a rootless daemon before Docker 23 shows no container the host's processes"
    if docker("--host", ROOTLESS, "image", "inspect", IMAGE).code:
        return f"the rootless daemon has no {IMAGE}: build deploy/Dockerfile.manager with EXTRAS=metrics,docker"
    return ""


@pytest.mark.req("B7", "D1")
def test_a_manager_in_a_rootless_daemon_has_its_boxes_beside_it(tmp_path: Path) -> None:
    if why := why_no_overlay():
        pytest.skip(why)
    data, more = tmp_path / "data", tmp_path / "more.yaml"
    data.mkdir(mode=0o700)
    more.write_text(WITHOUT_NETWORKS)
    files = (DEPLOY / "compose.yaml", DEPLOY / "compose.docker.yaml", more)
    named = ("--project-name", f"ringfence-test-{os.getpid()}", *(word for each in files for word in ("--file", each)))
    own = {"DOCKER_HOST": ROOTLESS, "RINGFENCE_DOCKER_SOCKET": ROOTLESS.removeprefix("unix://")}

    def compose(*words: str) -> Ran:
        line = [*(compose_command() or ()), *map(str, named), *words]
        env = os.environ | own | {"RINGFENCE_DATA": str(data)}
        done = subprocess.run(line, capture_output=True, text=True, env=env, timeout=100, check=False)
        return Ran(done.returncode, done.stdout, done.stderr)

    script = "mkdir ~/w && cd ~/w && ringfence run --verbose 'id -u; echo 42 > made; ls ~/state; echo x > /x'"
    try:
        started = compose("up", "--detach", "--no-build", "--no-deps", "manager")
        assert started.code == 0, started.err
        deadline = time.monotonic() + STARTING_SECONDS
        while (pool := compose("exec", "-T", "manager", "ringfence", "pool")).code and time.monotonic() < deadline:
            time.sleep(0.2)
        assert pool.code == 0, compose("logs", "manager").out
        done = compose("exec", "-T", "manager", "sh", "-c", script)
        boxes = docker("--host", ROOTLESS, "ps", "--quiet", "--filter", "label=ringfence.box").out.split()
        compose("stop", "manager")
        code = compose("ps", "--all", "--format", "{{.ExitCode}}").out
    finally:
        compose("down", "--volumes")

    assert done.out == "1000\n", done.err  # uid 0 of the daemon is not what a box sees
    assert (data / "w" / "made").read_text() == "42\n" and (data / "w" / "made").stat().st_uid == os.getuid()
    assert "No such file" in done.err and "Read-only file system" in done.err
    assert "a rootless daemon" in done.err and "never root" in done.err
    assert len(boxes) == 4
    assert code == "0\n"
    assert not docker("--host", ROOTLESS, "ps", "--all", "--quiet", "--filter", "label=ringfence.box").out
    assert sorted(os.listdir(data)) == ["state", "w", "workspaces"] and not os.listdir(data / "workspaces")
