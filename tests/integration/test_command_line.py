"""The command line as a person uses it: real processes, real exit codes, real output."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence import Result

RINGFENCE = (sys.executable, "-m", "ringfence.cli.app")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("workspace", "home", "state"):
        (tmp_path / name).mkdir()
    return tmp_path


def ringfence(place: Path, *words: str, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(place / "home"),
        "RINGFENCE_STATE_DIR": str(place / "state"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        **env,
    }
    return subprocess.run(
        [*RINGFENCE, *words], cwd=place / "workspace", env=environment, input=stdin, capture_output=True, timeout=60
    )


@pytest.mark.req("X3")
def test_output_passes_through_untouched_and_the_exit_code_is_the_commands(place: Path) -> None:
    done = ringfence(place, "run", r"printf 'a\377\n'; printf 'b\376\n' >&2; exit 42")

    assert (done.stdout, done.stderr, done.returncode) == (b"a\xff\n", b"b\xfe\n", 42)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "--timeout", "500ms", "sleep 20"), 124, b"timed out"),
        (("run", "--output", "1KB", "yes"), 123, b"output limit"),
        (("run", "-w", "/", "true"), 125, b"path_access_denied"),
        (("run", "--memory", "5QB", "true"), 125, b"not a size"),
        (("run", "--env", "NO_SUCH_VARIABLE", "true"), 125, b"no such variable"),
        (("run", ""), 125, b"the command is empty"),
        (("run",), 125, b"Missing argument"),
        (("nonsense",), 125, b"No such command"),
        (("run", "--no-such-option", "true"), 125, b"No such option"),
        (("run", "kill -9 $$"), 137, b"SIGKILL"),
        (("run", "--", "/no/such/program", "x"), 127, b"spawn_failed"),
    ],
)
def test_what_is_not_the_commands_own_ending_has_a_code_and_a_line_of_its_own(
    place: Path, words: tuple[str, ...], code: int, says: bytes
) -> None:
    done = ringfence(place, *words)

    assert done.returncode == code
    assert says in done.stderr


@pytest.mark.req("C9")
@pytest.mark.parametrize(
    ("options", "seconds"),
    [
        ((), 86_401),  # a timeout may raise it, so that the kernel's is far off: what watches the call holds it to 300
        (("--timeout", "10m"), 86_401),
        (("--cpu-time", "10s"), 16),
        (("--timeout", "10m", "--cpu-time", "1m"), 91),
    ],
)
def test_the_cpu_time_follows_the_timeout_unless_it_is_given(
    place: Path, options: tuple[str, ...], seconds: int
) -> None:
    """The kernel's own limit is half as much again, since it counts by ticks."""
    done = ringfence(place, "run", *options, "ulimit -t")

    assert int(done.stdout) == seconds


def test_a_command_that_exits_with_a_usage_code_keeps_it(place: Path) -> None:
    assert ringfence(place, "run", "exit 2").returncode == 2


def test_several_words_are_a_program_without_a_shell(place: Path) -> None:
    done = ringfence(place, "run", "--", "printf", "%s|", "a b", "$HOME", "-x")

    assert done.stdout == b"a b|$HOME|-x|"


def test_standard_input_is_passed_on_only_when_asked(place: Path) -> None:
    assert ringfence(place, "run", "cat", stdin=b"hello").stdout == b""
    assert ringfence(place, "run", "--stdin", "cat", stdin=b"hello").stdout == b"hello"


def test_variables_come_by_name_or_by_value_and_none_else(place: Path) -> None:
    done = ringfence(
        place, "run", "--env", "GIVEN=1", "--env", "OURS", "echo $GIVEN $OURS $SECRET", OURS="2", SECRET="3"
    )

    assert done.stdout == b"1 2\n"


def test_grants_on_the_command_line_open_what_they_name_and_nothing_more(place: Path) -> None:
    for name in ("readable", "writable"):
        (place / name).mkdir()
        (place / name / "file").write_text("content\n")
    line = (
        f"cat {place}/readable/file {place}/writable/file; echo x > {place}/writable/new; echo x > {place}/readable/new"
    )

    refused = ringfence(place, "run", line)
    allowed = ringfence(place, "run", "--read", f"{place}/readable", "--write", f"{place}/writable", line)

    assert refused.stdout == b""
    assert allowed.stdout == b"content\ncontent\n"
    assert (place / "writable" / "new").exists()
    assert not (place / "readable" / "new").exists()


def test_a_denied_name_is_hidden_in_the_workspace(place: Path) -> None:
    (place / "workspace" / "key.pem").write_text("secret\n")

    assert ringfence(place, "run", "cat key.pem").stdout == b"secret\n"
    assert ringfence(place, "run", "--deny", "**/*.pem", "cat key.pem").stdout == b""


def test_json_holds_everything_and_gives_the_bytes_back(place: Path) -> None:
    done = ringfence(place, "run", "--json", r"printf 'a\377'; exit 3")

    report = json.loads(done.stdout)
    assert (report["ending"]["kind"], report["exit_code"], done.returncode) == ("exited", 3, 3)
    assert report["stdout_base64"] == "Yf8="
    assert Result.from_dict(report).stdout_bytes == b"a\xff"
    assert report["wall"]["guarantees"]
    assert report["audit"]["wrapper"] == report["wall"]["name"]
    assert str(place) not in json.dumps(report["audit"])


def test_explain_names_the_wall_and_what_was_used_on_stderr_only(place: Path) -> None:
    done = ringfence(place, "run", "--verbose", "echo hi")

    assert done.stdout == b"hi\n"
    assert b"wall: " in done.stderr
    assert b"guarantees: " in done.stderr


def test_each_run_is_one_line_of_the_journal(place: Path) -> None:
    ringfence(place, "run", "echo one")
    ringfence(place, "run", "exit 7")

    lines = [json.loads(line) for line in (place / "state" / "journal.jsonl").read_text().splitlines()]
    assert [(line["command"], line["exit_code"]) for line in lines] == [("echo one", 0), ("exit 7", 7)]
    assert not list((place / "state" / "pending").iterdir())


def test_control_characters_of_a_path_do_not_reach_the_terminal(place: Path) -> None:
    done = ringfence(place, "run", "-w", "no\x1b[2Jsuch", "true")

    assert b"\x1b" not in done.stderr
    assert done.returncode == 125


def test_a_broken_configuration_warns_with_its_place_and_the_command_still_runs_walled(place: Path) -> None:
    broken = place / "broken.json"
    broken.write_text('{\n  "enabled": tru\n}')

    done = ringfence(place, "run", "--config", str(broken), "cat /etc/shadow; echo done")

    assert done.stdout == b"done\n"
    assert f"{broken}:2".encode() in done.stderr


@pytest.mark.req("B11")
def test_doctor_says_what_this_machine_can_guarantee(place: Path) -> None:
    shown = ringfence(place, "doctor")
    report = json.loads(ringfence(place, "doctor", "--json").stdout)

    assert shown.returncode == (0 if report["healthy"] else 1)
    assert b"Walls" in shown.stdout
    default = [wall for wall in report["walls"] if wall["default"]]
    assert len(default) == 1
    assert "network off" in default[0]["guarantees"]
    checks = {check["name"]: check for check in report["checks"]}
    assert checks["a plain command"]["ok"] is report["healthy"]
    assert checks["named hosts"]["ok"] and f"from behind {default[0]['name']}" in checks["named hosts"]["found"]


def test_doctor_says_that_a_network_needs_more_than_a_plain_command_does(place: Path) -> None:
    """A proxy that cannot be used is no reason to say that nothing runs."""
    report = json.loads(ringfence(place, "doctor", "--json", HTTPS_PROXY="socks5://127.0.0.1:1").stdout)

    (network,) = (check for check in report["checks"] if check["name"] == "named hosts")
    assert report["healthy"] and not network["ok"] and "socks5" in network["found"] + network["hint"]


def test_doctor_is_unhealthy_where_nothing_can_run(place: Path) -> None:
    done = ringfence(
        place, "doctor", "--json", RINGFENCE_PROCESS_SANDBOX="bwrap", RINGFENCE_BWRAP_PATH="/no/such/bwrap"
    )

    assert done.returncode == 1
    assert not json.loads(done.stdout)["healthy"]


@pytest.mark.req("B11")
def test_doctor_is_unhealthy_where_every_part_works_and_a_command_does_not(place: Path) -> None:
    tiny = place / "tiny.json"
    tiny.write_text('{"limits": {"openFiles": 3}}')  # no box can be made with that

    done = ringfence(place, "doctor", "--json", RINGFENCE_SANDBOX_CONFIG=str(tiny))

    report = json.loads(done.stdout)
    assert any(wall["default"] for wall in report["walls"]), "the probes find nothing wrong"
    (tried,) = (check for check in report["checks"] if check["name"] == "a plain command")
    assert (done.returncode, report["healthy"], tried["ok"]) == (1, False, False)
    assert tried["found"] and "ringfence doctor" not in tried["hint"], "that is what somebody has just done"


@pytest.mark.req("D8")
def test_a_required_wall_that_is_missing_fails_and_runs_nothing(place: Path) -> None:
    done = ringfence(
        place, "run", "touch ran", RINGFENCE_PROCESS_SANDBOX="bwrap", RINGFENCE_BWRAP_PATH="/no/such/bwrap"
    )

    assert done.returncode == 125
    assert b"initialization_failed" in done.stderr
    assert not (place / "workspace" / "ran").exists()


@pytest.mark.req("A1")
@pytest.mark.parametrize(
    "settings",
    [
        {"RINGFENCE_SANDBOX_ENABLED": "false"},
        {"RINGFENCE_SANDBOX_ENABLED": "false", "RINGFENCE_PROCESS_SANDBOX_REQUIRED": "0"},
        {"RINGFENCE_PROCESS_SANDBOX": "none", "RINGFENCE_PROCESS_SANDBOX_REQUIRED": "0"},
    ],
)
def test_nothing_runs_without_a_wall_whatever_is_switched_off(place: Path, settings: dict[str, str]) -> None:
    done = ringfence(place, "run", "touch ran", **settings)

    assert done.returncode == 125
    assert b"nothing runs without a wall" in done.stderr
    assert not (place / "workspace" / "ran").exists()
    assert ringfence(place, "run", "touch ran").returncode == 0
    assert (place / "workspace" / "ran").exists()
