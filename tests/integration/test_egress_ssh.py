"""Git by SSH from a box, ended at the proxy: unmodified git and ssh, to a server that refuses nothing to its key."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.git_server import run_git
from tests.support.internet import HOSTS, Answer, Internet, internet
from tests.support.ssh_git_server import CHANGED, KNOWN, UNKNOWN

asyncssh = pytest.importorskip("asyncssh", reason="the extra `ssh` is not installed")
READ: Final = {"host": KNOWN, "ssh": "read", "paths": ["/org/first"]}
PUSH: Final = {"host": KNOWN, "ssh": "push", "paths": ["/org/*"]}
COMMIT: Final = "git -c user.name=A -c user.email=a@example.com commit -q --allow-empty -m"
RAW: Final = {"allow": [{"host": KNOWN, "ports": [22], "raw": True}]}
WITH_KEY: Final = "ssh -i key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
"""What somebody does who has the key inside, against a rule that lets bytes pass unseen: each refusal's twin."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if shutil.which("ssh-agent") is None or shutil.which("ssh") is None:
        pytest.skip("there is no ssh here")
    socket = tmp_path_factory.mktemp("agent") / "socket"
    process = subprocess.Popen(("ssh-agent", "-D", "-a", str(socket)), stdout=subprocess.DEVNULL)
    try:
        while not socket.exists() and process.poll() is None:
            time.sleep(0.01)
        yield socket
    finally:
        process.terminate()
        process.wait(10)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory, agent: Path) -> Iterator[Internet]:
    if shutil.which("unshare") is None or shutil.which("ip", path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
        pytest.skip("there is no unshare or no ip here to make networks with")
    with internet(tmp_path_factory.mktemp("net"), {"SSH_AUTH_SOCK": str(agent)}) as made:
        adding = ("ssh-add", "-q", str(made.root / "ssh_key"))
        subprocess.run(adding, check=True, timeout=30, env={"SSH_AUTH_SOCK": str(agent), "PATH": "/usr/bin:/bin"})
        shutil.copy(made.root / "ssh_key", made.workspace / "key")
        (made.workspace / "key").chmod(0o600)
        yield made


def by_file(net: Internet, *rules: dict[str, Any], host: str = KNOWN) -> dict[str, Any]:
    return {"allow": list(rules), "secrets": [f"GIT_KEY=file:{net.root}/ssh_key@{host};places=ssh"]}


def by_agent(*rules: dict[str, Any]) -> dict[str, Any]:
    return {"allow": list(rules), "secrets": [f"GIT_KEY=agent:@{KNOWN}"]}


def asked_of_server(net: Internet) -> list[dict[str, Any]]:
    path = net.root / "ssh-seen.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def of_git(answer: Answer) -> list[tuple[str, str, str]]:
    return [(each["method"], each["path"], each["verdict"]) for each in answer.records if each.get("method")]


@pytest.mark.parametrize("source", ["file", "agent"])
@pytest.mark.parametrize("url", [f"git@{KNOWN}:org/first", f"ssh://git@{KNOWN}/org/first.git"])
def test_git_clones_with_a_key_that_is_not_inside(net: Internet, url: str, source: str) -> None:
    if url.startswith("ssh://"):  # from the root of the server's file system
        url = f"ssh://git@{KNOWN}{net.root}/repositories/ssh/org/first.git"
    rule = {**READ, "paths": ["/org/first", f"{net.root}/repositories/ssh/org/first.git"]}
    network = by_file(net, rule) if source == "file" else by_agent(rule)

    done = net.run(
        f"rm -rf mine; env; git clone -q {url} mine && cat mine/README; ls -a ~ /etc/ssh; rm -rf mine", network
    )

    assert "hello from outside" in done.stdout, done.stderr
    assert "SSH_AUTH_SOCK" not in done.stdout
    (record,) = [each for each in done.records if each.get("method")]
    assert (record["method"], record["verdict"], record["secrets"]) == ("GIT-UPLOAD-PACK", "allow", ["GIT_KEY"])
    assert record["network_bytes_recv"] > 0
    assert record["inspected"] is True
    assert asked_of_server(net)[-1]["user"] == "git"
    key = (net.root / "ssh_key").read_text().splitlines()[1]
    assert key not in done.stdout + done.stderr + net.journal.read_text()


def test_without_a_secret_nobody_signs_in(net: Internet) -> None:
    done = net.run(f"git clone -q git@{KNOWN}:org/first no", {"allow": [READ]})

    assert done.exit != 0
    assert "Ringfence: " in done.stderr
    assert "--secret" in done.stderr


def test_a_push_is_refused_where_the_rule_is_to_read_and_passes_where_it_is_to_push(net: Internet) -> None:

    words = f"set -e; cd $(mktemp -d); git clone -q git@{KNOWN}:org/first p; cd p; {COMMIT} 'from a box'; git push -q"

    read = net.run(words, by_file(net, READ))
    pushed = net.run(words, by_file(net, PUSH))

    repository = net.root / "repositories/ssh/org/first.git"
    assert read.exit != 0
    assert "Ringfence: no rule allows GIT-RECEIVE-PACK" in read.stderr
    assert of_git(read) == [
        ("GIT-UPLOAD-PACK", "/org/first", "allow"),
        ("GIT-RECEIVE-PACK", "/org/first", "deny"),
    ]
    assert any("ssh: push" in each.get("allow_by", "") for each in read.records)
    assert pushed.exit == 0, pushed.stderr
    assert run_git("-C", str(repository), "log", "--format=%s", "main").splitlines().count("from a box") == 1


@pytest.mark.parametrize("path", ["org/second", "other/secret.git", "org/../org/second", "./org/first", "org//first"])
def test_another_repository_is_refused(net: Internet, path: str) -> None:
    before = len(asked_of_server(net))

    refused = net.run(f"git clone -q git@{KNOWN}:{path} no", by_file(net, READ))
    within = len(asked_of_server(net))
    through = net.run(f"rm -rf yes; GIT_SSH_COMMAND='{WITH_KEY}' git clone -q git@{KNOWN}:{path} yes; rm -r yes", RAW)

    assert refused.exit != 0
    assert "Ringfence: " in refused.stderr
    assert within == before
    assert through.exit == 0, through.stderr


REFUSED: Final = {
    "a shell": (f"git@{KNOWN} </dev/null", "a shell"),
    "a command": (f"git@{KNOWN} id", "not `id`"),
    "more behind it": (f"git@{KNOWN} \"git-upload-pack 'org/first'; id\" </dev/null", "only git's own"),
    "in its path": (f"git@{KNOWN} \"git-upload-pack '\\$(id)'\" </dev/null", "two ways"),
    "an option": (f"git@{KNOWN} \"git-upload-pack --strict 'org/first'\" </dev/null", "only git's own"),
    "another user": (f"root@{KNOWN} \"git-upload-pack 'org/first'\" </dev/null", "for the user git"),
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_all_else_by_ssh_is_refused(net: Internet, words: tuple[str, str]) -> None:
    arguments, reason = words
    before = len(asked_of_server(net))

    refused = net.run(f"ssh {arguments}", by_file(net, READ))
    seen = len(asked_of_server(net))
    net.run(f"{WITH_KEY} {arguments}", RAW)

    assert refused.exit != 0
    assert reason in refused.stderr, refused.stderr
    assert refused.stdout == ""
    assert seen == before
    denied = [each for each in refused.records if each["verdict"] == "deny"]
    assert reason in denied[-1]["why"]
    assert len(asked_of_server(net)) > before


def test_sftp_is_refused(net: Internet) -> None:
    words = f"-b - git@{KNOWN} <<< 'ls {net.root}/repositories/ssh/org'"

    refused = net.run(f"sftp {words}", by_file(net, READ))
    through = net.run(f"sftp {WITH_KEY.removeprefix('ssh ')} {words}", RAW)

    assert refused.exit != 0
    assert any("the subsystem sftp" in each["why"] for each in refused.records if each["verdict"] == "deny")
    assert "first.git" in through.stdout, through.stderr


FORWARDED: Final = {
    "a port": f"-W {HOSTS[KNOWN]}:22 git@{KNOWN} </dev/null",
    "a listening port": f"-R 127.0.0.1:9999:127.0.0.1:22 -o ExitOnForwardFailure=yes git@{KNOWN} true",
}


@pytest.mark.parametrize("words", FORWARDED.values(), ids=FORWARDED)
def test_nothing_is_forwarded(net: Internet, words: str) -> None:
    refused = net.run(f"ssh {words}", by_file(net, READ))
    through = net.run(f"{WITH_KEY} {words}", RAW)

    assert refused.exit != 0
    assert refused.stdout == ""
    assert any("not forwarded" in each["why"] for each in refused.records if each["verdict"] == "deny")
    assert through.exit == 0, through.stderr
    assert "SSH-2" in through.stdout or "-W" not in words


@pytest.mark.parametrize(
    ("host", "reason"), [(CHANGED, "not the one in your known_hosts"), (UNKNOWN, "is not in your known_hosts")]
)
def test_a_server_that_is_not_the_one_that_is_known_is_refused(net: Internet, host: str, reason: str) -> None:
    before = len(asked_of_server(net))
    network = by_file(net, {**READ, "host": host}, host=host)
    known = net.home / ".ssh/known_hosts"
    text = known.read_text()

    refused = net.run(f"git clone -q git@{host}:org/first no", network)
    seen = len(asked_of_server(net))
    kept = "".join(line for line in text.splitlines(keepends=True) if not line.startswith(host))
    public = asyncssh.read_private_key(net.root / f"{host}.ssh").export_public_key().decode()
    known.write_text(f"{kept}{host} {public}")
    try:
        trusted = net.run(f"rm -rf yes; git clone -q git@{host}:org/first yes && rm -r yes", network)
    finally:
        known.write_text(text)

    assert refused.exit != 0
    assert reason in refused.stderr
    assert seen == before
    (record,) = (each for each in refused.records if each.get("method"))
    assert (record["result"], record["verdict"], record["final_verdict"]) == ("refused", "allow", "deny")
    assert reason in record["error"]
    assert all("final_verdict" not in each for each in trusted.records)
    assert trusted.exit == 0, trusted.stderr


def test_a_key_that_the_server_does_not_take_is_said(net: Internet) -> None:
    other, locked = net.root / "other_key", net.root / "locked_key"
    key = asyncssh.generate_private_key("ssh-ed25519")  # `ssh-keygen` wants a user who has a name
    key.write_private_key(other)
    key.write_private_key(locked, "pkcs8-pem", passphrase="hidden")
    for path in (other, locked):
        path.chmod(0o600)
    clone = f"git clone -q git@{KNOWN}:org/first no"

    refused = net.run(clone, {"allow": [READ], "secrets": [f"GIT_KEY=file:{other}@{KNOWN};places=ssh"]})
    encrypted = net.run(clone, {"allow": [READ], "secrets": [f"GIT_KEY=file:{locked}@{KNOWN};places=ssh"]})

    assert "does not take the key of the secret GIT_KEY" in refused.stderr
    assert "it is encrypted; use the agent" in encrypted.stderr


def test_a_host_that_no_rule_allows_is_refused_in_the_words_of_ssh(net: Internet) -> None:
    network = by_file(net, READ, {"host": "web.example"})

    done = net.run("ssh -o StrictHostKeyChecking=no git@web.example id", network)

    assert done.exit != 0
    assert "Ringfence: no rule allows port 22 of web.example" in done.stderr


def test_http_on_a_port_for_ssh_is_refused(net: Internet) -> None:
    done = net.run(f"curl -sS -X GIT-UPLOAD-PACK http://{KNOWN}:22/org/first", by_file(net, READ))

    assert "is for git by SSH" in done.stdout + done.stderr


def test_of_the_clients_variables_only_gits_protocol_goes_on(net: Internet) -> None:
    ssh = "ssh -o SetEnv=LD_PRELOAD=/x -o SendEnv=GIT_PROTOCOL"

    done = net.run(f"GIT_PROTOCOL=version=2 {ssh} git@{KNOWN} git-upload-pack org/first </dev/null", by_file(net, READ))

    assert "version 2" in done.stdout, done.stderr
    assert asked_of_server(net)[-1]["env"] == {"GIT_PROTOCOL": "version=2"}


def test_bytes_out_are_counted_and_end_with_the_budget(net: Internet) -> None:
    fill = "head -c 3000000 /dev/urandom > large; git add large"
    words = f"set -e; cd $(mktemp -d); git clone -q git@{KNOWN}:org/second p; cd p; {fill}; {COMMIT} large; git push -q"

    refused = net.run(words, by_file(net, {**PUSH, "budget": {"total_out": "1MB"}}))
    pushed = net.run(words, by_file(net, {**PUSH, "budget": {"total_out": "9MB"}}))

    assert "the bytes that may be sent are sent" in refused.stderr
    assert refused.records[-1]["method"] == "GIT-RECEIVE-PACK"
    assert refused.records[-1]["result"] == "refused"
    assert pushed.exit == 0, pushed.stderr
    assert pushed.records[-1]["network_bytes_sent"] > 3_000_000


FLOOD = """
import asyncio, sys
import asyncssh

async def main():
    # Each asks for a repository that no rule allows.
    async with asyncssh.connect(sys.argv[1], username="git", known_hosts=None, config=None) as connection:
        opened, refused = [], 0
        for _ in range(40):
            try:
                opened.append(await connection.create_process("git-upload-pack 'org/other'", stdin=asyncssh.PIPE))
            except asyncssh.ChannelOpenError:
                refused += 1
        print(len(opened) + refused)
asyncio.run(main())
"""


def test_many_sessions_on_a_connection_are_each_refused_and_what_follows_is_served(net: Internet) -> None:
    (net.workspace / "flood.py").write_text(FLOOD)

    done = net.run(
        f"HOME=/tmp {sys.executable} flood.py {KNOWN} && git clone -q git@{KNOWN}:org/first after && rm -rf after",
        by_file(net, READ),
    )

    assert done.exit == 0, done.stderr
    assert done.stdout.startswith("40")
    assert of_git(done)[-1] == ("GIT-UPLOAD-PACK", "/org/first", "allow")
