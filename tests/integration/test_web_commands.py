"""`ringfence fetch` and `ringfence http` with the real proxy process: refusals explain themselves and are recorded.

Nothing here may be resolved or dialled: every host that is asked for is one that no rule allows.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringfence.cli.commands.fetch import show
from ringfence.cli.commands.http import as_object
from ringfence.tools.fetch import Fetched
from ringfence.tools.http import HttpAnswer

VALUE = "ghp_" + "n4M8b2V6c0" * 4


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "work").mkdir()
    return tmp_path / "home"


def ringfence(home: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "TMPDIR": os.environ["TMPDIR"], **more}
    return subprocess.run(
        [sys.executable, "-m", "ringfence.cli.app", *words],
        cwd=home.parent / "work",
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_without_a_rule_nothing_is_reached(home: Path) -> None:
    done = ringfence(home, "fetch", "https://unlisted.example/")

    assert done.returncode == 125
    assert "no rule allows any host" in done.stderr
    assert "--allow" in done.stderr


def test_a_refusal_says_what_would_allow_it_and_is_in_the_record(home: Path) -> None:
    done = ringfence(home, "http", "--allow", "listed.example", "GET", "https://unlisted.example/path?token=1")

    assert done.returncode == 125
    assert "no rule allows unlisted.example:443" in done.stderr
    assert "hint: --allow unlisted.example:443" in done.stderr
    journal = (home / ".ringfence/state/journal.jsonl").read_text()
    (record,) = [line for line in map(json.loads, journal.splitlines()) if line.get("host") == "unlisted.example"][:1]
    assert record["door"] == "tool"


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]", "0x7f.1"])
def test_an_address_that_no_rule_names_is_refused_before_anything_is_dialled(home: Path, address: str) -> None:
    done = ringfence(home, "http", "--allow", "listed.example", "GET", f"http://{address}/")

    assert done.returncode == 125
    assert "no rule allows" in done.stderr


def test_a_secret_without_a_value_is_said_and_a_value_is_shown_nowhere(home: Path) -> None:
    # The host that is asked for is unlisted, so that no name is looked up; secrets are read before.
    words = ("fetch", "--allow", "a.example", "https://unlisted.example/", "--secret")
    absent = ringfence(home, *words, "K=env:ABSENT@a.example")
    present = ringfence(home, *words, "K=env:K@a.example", K=VALUE)

    assert "the variable ABSENT is not set" in absent.stderr
    assert present.returncode == 125
    for path in home.parent.rglob("*"):
        assert not path.is_file() or VALUE.encode() not in path.read_bytes()
    assert VALUE not in present.stdout + present.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("fetch", "--allow", "a.example", "ftp://a.example/"),
        ("http", "--allow", "a.example", "TRACE", "https://a.example/"),
        ("http", "--allow", "a.example", "-H", "nocolon", "GET", "https://a.example/"),
        ("http", "--allow", "a.example", "-j", "{", "POST", "https://a.example/"),
    ],
)
def test_what_makes_no_sense_is_an_error_of_the_arguments(home: Path, words: tuple[str, ...]) -> None:
    done = ringfence(home, *words)

    assert done.returncode == 125
    assert "error [invalid_argument]" in done.stderr


def test_a_page_that_would_command_the_terminal_is_made_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    show(Fetched("https://a.example/", 200, "text/plain", title="\x1b]0;x\x07", text="one\x1b[2Jtwo\nthree", length=14))

    out, err = capsys.readouterr()
    assert "\x1b" not in out + err
    assert "three" in out


def test_an_answer_as_json_holds_text_or_the_count_of_its_bytes() -> None:
    text = HttpAnswer("https://a.example/", 200, (("content-type", "text/plain"),), b"hello")
    data = HttpAnswer("https://a.example/", 200, (), b"\xff\0")

    assert as_object(text)["body"] == "hello"
    assert (as_object(data)["body"], as_object(data)["bytes"]) == (None, 2)
