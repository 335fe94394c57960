"""Real clients, unmodified, in real boxes, by the real proxy process, to servers of the test's own on public addresses.

Each by the box's variables, without any variable, and looked into in both ways; the journal tells by which door it
came and whether it was looked into. What is installed by registries is in `test_egress_registries.py`.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.clients import CLIENTS, GO, GO_PROGRAM, NEWER_NODE, PYTHON_ON, Client
from tests.support.git_server import run_git
from tests.support.internet import SYSTEM_BUNDLE, Answer, Internet, internet
from tests.support.internet_secrets import GIT_TOKEN

HOSTS: Final = ["web.example", "open-git.example", "grpc.example"]
SPLICED: Final = {"allow": HOSTS}
INSPECTED: Final = {"allow": HOSTS, "inspect": True}
BARE: Final = "env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/tmp"
SYSTEM_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    if shutil.which("unshare") is None or shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("there is no unshare or no ip here to make networks with")
    with internet(tmp_path_factory.mktemp("net"), {"GIT_TOKEN": GIT_TOKEN}) as made:
        yield made


def run_client(net: Internet, client: Client, network: dict[str, object], *before: str) -> list[Answer]:
    """The client with each of these words before it, in one box."""
    if client.program == NEWER_NODE:
        bring_newer_node(net.workspace)
    elif client.program == GO:
        build_with_go(net.workspace)
    elif client.program != PYTHON_ON and shutil.which(client.program, path=SYSTEM_PATH) is None:
        pytest.skip(f"{client.program} is not installed")
    for name, text in client.files:
        (net.workspace / name).write_text(text)
    command = shlex.quote(client.command.replace(PYTHON_ON, shlex.quote(sys.executable), 1))
    return net.run_all([f"{words} sh -c {command}" for words in before], network)


def bring_newer_node(workspace: Path) -> None:
    """The newest one, by npm from the registry that the machine's own client uses."""
    npm, place = shutil.which("npm"), workspace / "newer"
    if npm is None:
        pytest.skip("there is no npm here to bring a newer node")
    if (place / "node_modules/node/bin/node").exists():
        return
    if place.exists():
        pytest.skip("npm has not brought a newer node")
    place.mkdir()
    words = (npm, "install", "--no-audit", "--no-fund", "--prefix", str(place), "node@latest")
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        pytest.skip(f"npm does not bring a newer node here: {done.stderr[-200:]}")


def build_with_go(workspace: Path) -> None:
    """A program without C, so that it finds names and authorities as Go does."""
    if (workspace / "go_get").exists():
        return
    go = os.environ.get("RINGFENCE_GO") or shutil.which("go")
    if go is None:
        pytest.skip("there is no go here (apt-get install golang-go, or RINGFENCE_GO=PATH)")
    (workspace / "get.go").write_text(GO_PROGRAM)
    environment = {"PATH": os.environ["PATH"], "HOME": str(workspace), "CGO_ENABLED": "0", "GO111MODULE": "off"}
    words = (go, "build", "-o", str(workspace / "go_get"), str(workspace / "get.go"))
    more = {"GOCACHE": str(workspace.parent / "go-cache")}
    subprocess.run(words, check=True, timeout=600, env={**environment, **more})


def check(answers: list[Answer], client: Client, doors: set[str], *, inspected: bool) -> None:
    for answer in answers:
        assert client.says in answer.stdout, answer.stderr
        assert answer.exit == 0
        assert not answer.violations
    assert answers[0].doors == doors
    assert {each["inspected"] for each in answers[0].records if each["door"] != "dns"} == {inspected}


def door_by_variables(client: Client) -> str:
    if not client.heeds:
        return "transparent"
    return "http" if is_plain(client) else "connect"


def is_plain(client: Client) -> bool:
    return any("http://" in text for text in (client.command, *(text for _, text in client.files)))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_by_the_variables_that_the_box_has_and_without_any(net: Internet, client: Client) -> None:
    # What tells a client with roots of its own about the test's authority, as its owner would without any box.
    trusting = f"{client.own_roots}={SYSTEM_BUNDLE}" if client.own_roots else ""

    by_variables, bare = run_client(net, client, SPLICED, f"env {trusting}", f"{BARE} {trusting}")

    check([by_variables, bare], client, {door_by_variables(client), "transparent"}, inspected=is_plain(client))


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_looked_into_by_the_variables_and_without_any(net: Internet, client: Client) -> None:
    """Without any, by the mounts over what clients read; one that carries its own roots refuses us, and says so."""
    by_variables, bare = run_client(net, client, INSPECTED, "env", BARE)

    if client.own_roots:
        assert bare.exit != 0
        assert "certificate" in bare.stderr.lower()
        assert client.says in by_variables.stdout, by_variables.stderr
        assert door_by_variables(client) in by_variables.doors
    else:
        check([by_variables, bare], client, {door_by_variables(client), "transparent"}, inspected=True)


@pytest.mark.parametrize("before", ["", BARE], ids=["by variables", "without any"])
def test_what_no_rule_allows_is_refused_to_the_same_client(net: Internet, before: str) -> None:
    refused, *later = net.run_all([f"{before} curl -sS https://other.example/"], SPLICED, violations=1)
    allowed = net.run(f"{before} curl -sS https://other.example/", {"allow": ["other.example"]})

    assert refused.exit != 0
    assert "hello" not in refused.stdout
    violations = [each for answer in (refused, *later) for each in answer.violations]
    assert {each["kind"] for each in violations} == {"network_violation"}
    assert all("other.example" in each["target"] for each in violations)
    assert "hello from outside" in allowed.stdout, allowed.stderr


@pytest.mark.parametrize("url", ["https://git.example/first", "git@git.example:first"])
def test_git_clones_and_pushes_with_a_token_that_the_box_never_sees(net: Internet, url: str) -> None:
    secrets = ["GIT_TOKEN=env:GIT_TOKEN@git.example;places=header,basic"]
    network = {"allow": [{"host": "git.example", "ports": [443]}]}
    subject = f"by {url}"
    commands = (
        f"env; rm -rf mine; set -e; git clone -q {url} mine; cd mine; date >> README; export GIT_TERMINAL_PROMPT=0",
        f"git -c user.name=A -c user.email=a@example.com commit -qam {shlex.quote(subject)}",
        "git push -q origin main; cat .git/config; git log --format=%s; cd ..; rm -rf mine",
    )

    done = net.run("\n".join(commands), {**network, "secrets": secrets})
    without = net.run(f"GIT_TERMINAL_PROMPT=0 GIT_SSH_COMMAND=false git clone -q {url} no", network)

    assert done.exit == 0, done.stderr
    assert without.exit != 0
    repository = net.root / "repositories/git.example/first"
    assert subject in run_git("-C", str(repository), "log", "--format=%s", "main").splitlines()
    assert {name for each in done.records for name in each.get("secrets", ())} == {"GIT_TOKEN"}
    assert GIT_TOKEN not in done.stdout + done.stderr + net.journal.read_text()
    assert base64.b64encode(f"x-access-token:{GIT_TOKEN}".encode()).decode() not in done.stdout + done.stderr


def test_fetch_gets_a_page_as_text(net: Internet) -> None:
    done = net.ringfence("fetch", "--allow", "web.example", "https://web.example/page")

    assert done.exit == 0, done.stderr
    assert "· 200 ·" in done.stderr
    assert "# Hello" in done.stdout
    assert "title: A page" in done.stderr
    assert [(each["door"], each["host"], each["port"]) for each in done.records] == [("tool", "web.example", 443)]


def test_http_gets_an_answer(net: Internet) -> None:
    words = ("http", "--allow", "web.example", "-j", '{"a": 1}', "POST")

    done = net.ringfence(*words, "https://web.example/echo")
    plain = net.ringfence(*words, "http://web.example/echo")

    for each in (done, plain):
        assert each.exit == 0, each.stderr
        assert '"a"' in each.stdout
        assert "· 200 ·" in each.stderr
    assert [(each["door"], each["host"], each["port"]) for each in done.records] == [("tool", "web.example", 443)]
    assert [(each["method"], each["path"], each["status"]) for each in plain.records] == [("POST", "/echo", 200)]


def test_the_files_of_this_machine_are_as_they_were(net: Internet) -> None:
    """What the servers are trusted by exists over there only."""
    assert (net.root / "bundle.pem").read_bytes() != SYSTEM_BUNDLE.read_bytes()
    assert "web.example" not in Path("/etc/hosts").read_text()
