"""`ringfence net` and `--allow` as a person uses them: real processes, real exit codes, real output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ringfence.audit import network_records
from ringfence.audit.journal import Journal
from ringfence.audit.redact import Redactor
from ringfence.policy.audit_settings import read_audit_settings
from ringfence.policy.load import load_policy
from ringfence.values.network import NetworkDoor
from ringfence.values.network_event import NetworkEvent
from ringfence.values.principal import Principal
from ringfence.values.verdict import Verdict

RINGFENCE = (sys.executable, "-m", "ringfence.cli.app")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("workspace", "home", "state"):
        (tmp_path / name).mkdir()
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place / "home"),
        "RINGFENCE_STATE_DIR": str(place / "state"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "PIP_CONFIG_FILE": os.devnull,
        **more,
    }


def ringfence(place: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*RINGFENCE, *words],
        cwd=place / "workspace",
        env=environment(place, **more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )


POLICY = """\
network:
  default: none
  allow:
    - pip
    - host: api.example.com
      methods: [GET]
      paths: [/v1/**]
    - {host: ask.example.com, ask: true}
  denylist:
    domains: [bad.example.com]
"""


@pytest.fixture
def policy(place: Path) -> str:
    path = place / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


@pytest.mark.req("B5")
@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("https://pypi.org/simple/x/",), 0, "policy.yaml:4"),
        (("https://api.example.com/v1/items",), 0, "policy.yaml:5"),
        (("-X", "POST", "https://api.example.com/v1/items"), 11, "methods: [POST]"),
        (("https://api.example.com/v2",), 11, "api.example.com"),
        (("https://ask.example.com/",), 10, "policy.yaml:8"),
        (("https://bad.example.com/",), 11, "policy.yaml:10"),
        (("api.example.com:22",), 11, "port 22"),
        (("http://127.0.0.1:8080/",), 11, "127.0.0.1"),
        (("https://0x7f.1/",), 11, "127.0.0.1"),
    ],
)
def test_net_check_says_verdict_rule_and_line(
    place: Path, policy: str, words: tuple[str, ...], code: int, says: str
) -> None:
    done = ringfence(place, "net", "check", "--policy", policy, *words)

    assert done.returncode == code and says in done.stdout, done.stdout + done.stderr


def test_net_check_without_a_rule_names_what_would_allow_it(place: Path, policy: str) -> None:
    without = ringfence(place, "net", "check", "--json", "https://example.org/")
    found = json.loads(without.stdout)

    assert (without.returncode, found["verdict"]) == (11, "deny") and "--allow example.org" in found["allow_by"]
    assert ringfence(place, "net", "check", "--allow", "example.org", "https://example.org/").returncode == 0
    closed = json.loads(ringfence(place, "net", "check", "--json", "--policy", policy, "https://example.org/").stdout)
    assert closed["verdict"] == "deny" and closed["allow_by"]
    assert ringfence(place, "net", "check", "ftp://example.org/").returncode == 125
    assert ringfence(place, "net", "check", "http://a b/").returncode == 125


def test_what_is_allowed_beyond_the_policy_is_refused_with_its_place(place: Path, policy: str) -> None:
    done = ringfence(place, "run", "--policy", policy, "--allow", "evil.example", "true")

    assert done.returncode == 125 and "network_access_denied" in done.stderr
    assert "network.allow at" in done.stderr and "policy.yaml:3" in done.stderr


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--allow", "*"), "names no host"),
        (("--allow", "https://example.com/x"), "is a URL"),
        (("--allow", "pipp"), "did you mean 'pip'?"),
        (("--publish", "x"), "is not a port"),
        (("--reach", "0"), "is not a port"),
        (("--secret", "hunter2"), "secret"),
        (("--secret", "KEY=hunter2@api.example.com", "--allow", "api.example.com"), "the source has no kind"),
        (("--allow-all-read",), "No such option"),
    ],
)
def test_options_that_make_no_sense_are_refused_and_show_no_secret(
    place: Path, words: tuple[str, ...], says: str
) -> None:
    done = ringfence(place, "run", *words, "true")

    assert done.returncode == 125 and says in done.stderr, done.stderr
    assert "hunter2" not in done.stderr or words[1] == "hunter2"


def test_presets_show_the_persons_own_mirror(place: Path) -> None:
    more = {"PIP_INDEX_URL": "https://someone:hunter2@mirror.corp:8443/simple"}
    listed = ringfence(place, "net", "presets")
    one = ringfence(place, "net", "presets", "uv", **more)
    plain = json.loads(ringfence(place, "net", "presets", "--json").stdout)

    assert listed.returncode == 0 and "github-push ORG/REPO" in listed.stdout
    assert "mirror.corp:8443 GET,HEAD" in one.stdout and "pypi.org" not in one.stdout
    assert "hunter2" not in one.stdout + one.stderr and "give it as a secret" in one.stderr
    assert all(row["reason"] and row["risk"] for row in plain)
    assert ringfence(place, "net", "presets", "nonsense").returncode == 1


def event(host: str, verdict: Verdict = Verdict.ALLOW, **more: Any) -> NetworkEvent:
    return NetworkEvent(
        box="b", door=NetworkDoor.CONNECT, host=host, port=443, verdict=verdict, reason="because", rule="r", **more
    )


def write(place: Path, *events: NetworkEvent) -> None:
    journal = Journal(place / "state", read_audit_settings(environment(place)))
    try:
        for number, each in enumerate(events):
            fields = network_records.asked(each, Principal(), Redactor(()))
            journal.open(f"{time.monotonic_ns():016x}{number}", fields).close(
                network_records.answered(each, Redactor(()))
            )
    finally:
        journal.close()


def test_the_log_shows_what_was_asked_and_what_came_of_it(place: Path) -> None:
    assert "No request" in ringfence(place, "net", "log").stdout
    write(
        place,
        event("pypi.org", method="GET", path="/simple/x/", status=200, bytes_out=120, bytes_in=4000, inspected=True),
        event("evil.example", Verdict.DENY, canary="GH_TOKEN", allow_by="--allow evil.example"),
    )

    table = ringfence(place, "net", "log").stdout
    refused = [json.loads(line) for line in ringfence(place, "net", "log", "--refused", "--json").stdout.splitlines()]
    assert "GET pypi.org:443/simple/x/" in table and "200" in table and "canary GH_TOKEN" in table
    assert [record["host"] for record in refused] == ["evil.example"]
    assert "pypi.org" not in ringfence(place, "net", "log", "--host", "evil").stdout


def test_the_log_goes_on_with_what_comes(place: Path) -> None:
    write(place, event("first.example"))
    process = subprocess.Popen(
        [*RINGFENCE, "net", "log", "--follow", "--json"],
        cwd=place / "workspace",
        env=environment(place),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["host"] == "first.example"
        write(place, event("second.example"))
        assert json.loads(process.stdout.readline())["host"] == "second.example"
    finally:
        process.kill()
        process.communicate()


def test_what_was_learned_is_the_smallest_policy(place: Path) -> None:
    from ringfence.manager.network_pages import learned_policy, network_log

    write(
        place,
        event("pypi.org", method="GET", path="/simple/a/"),
        event("pypi.org", method="HEAD", path="/simple/b/"),
        event("opaque.example"),
        event("denied.example", Verdict.DENY, method="GET", path="/", allow_by="--allow denied.example"),
    )
    text = learned_policy(network_log(place / "state"), {"opaque.example": ("10.1.2.3/32",)})
    rules = load_policy(text, "learned").default["allowed_domains"].value[0]

    assert (
        rules[0].allow.private == ("10.1.2.3/32",) and "# refused: because; would be allowed by: --allow denied" in text
    )
    assert [(rule.allow.host, rule.allow.ports, rule.allow.methods, rule.allow.paths) for rule in rules] == [
        ("opaque.example", (443,), (), ()),
        ("pypi.org", (443,), ("GET", "HEAD"), ("/simple/**",)),
    ]
    assert "allow: []" in learned_policy(())


def test_learning_does_not_write_over_a_file_nor_past_a_policy(place: Path, policy: str) -> None:
    done = ringfence(place, "net", "learn", "-o", policy, "--", "true")
    past = ringfence(place, "net", "learn", "--", "true", RINGFENCE_POLICY=policy)

    assert done.returncode == 125 and Path(policy).read_text() == POLICY
    assert past.returncode == 125 and "nothing can be learned" in past.stderr
