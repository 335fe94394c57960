"""A small internet of the test's own: servers on public-looking addresses, and a machine beside them that runs boxes.

Two network namespaces joined by a cable, names in an /etc/hosts of their own, an authority that this machine trusts
there and nowhere else. What runs boxes is what everybody runs, with the proxy as a process: nothing is told to resolve
or dial otherwise. Made as root, or as an ordinary user in a user namespace; gone with its first process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import certifi

from ringfence.egress.inspection.authority import Authority
from ringfence.engines.networking.java_store import java_store
from ringfence.values.hosts import canonical_host
from tests.support import ssh_git_server

ROOT: Final = Path(__file__).parents[2]
SYSTEM_BUNDLE: Final = Path("/etc/ssl/certs/ca-certificates.crt")
JAVA_STORE: Final = Path("/etc/ssl/certs/java/cacerts")
HOSTS: Final = {
    "web.example": "93.184.216.34",
    "other.example": "93.184.216.35",
    "git.example": "93.184.216.36",
    "open-git.example": "93.184.216.37",
    "grpc.example": "93.184.216.38",
    ssh_git_server.KNOWN: "93.184.216.39",
    ssh_git_server.CHANGED: "93.184.216.40",
    ssh_git_server.UNKNOWN: "93.184.216.41",
}
OPEN_PASSWORD: Final = "known-to-everybody"
_SECONDS: Final = 120


@dataclass(frozen=True)
class Answer:
    """What came of a command."""

    exit: int
    stdout: str
    stderr: str
    violations: list[dict[str, Any]]
    records: list[dict[str, Any]]
    """Of the journal, those of the network that were written meanwhile."""

    @property
    def doors(self) -> set[str]:
        """Through which of them connections came."""
        return {each["door"] for each in self.records if each["door"] != "dns"}


class Internet:
    """The machine with the boxes, as a test speaks to it."""

    def __init__(self, process: subprocess.Popen[str], root: Path) -> None:
        self._process = process
        self.root = root
        self.workspace = root / "work"
        self.home = root / "home"

    def run(self, command: str, network: Mapping[str, Any]) -> Answer:
        """A command in a box of its own with that network."""
        return self.run_all([command], network)[0]

    def run_all(self, commands: list[str], network: Mapping[str, Any], *, violations: int = 0) -> list[Answer]:
        """The same for several commands, one after the other; each answer has the records of all.

        Args:
            violations: how many are waited for. The proxy tells of a refusal beside its answer to the client, so that
                it may be in the result of a later command, of which there are more answers then.
        """
        return self._ask({"commands": commands, "network": dict(network), "violations": violations})

    def ringfence(self, *words: str) -> Answer:
        """The command line, on the machine itself."""
        return self._ask({"words": words})[0]

    def seen(self) -> list[dict[str, Any]]:
        """Every request that the web servers got, with its headers."""
        path = self.root / "seen.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def journal(self) -> Path:
        return self.home / ".ringfence/state/journal.jsonl"

    def _ask(self, order: Mapping[str, Any]) -> list[Answer]:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the machine with the boxes ended: {(self.root / 'stderr').read_text()[-4000:]}")
        return [Answer(**each) for each in json.loads(line)]


@contextlib.contextmanager
def internet(root: Path, secrets: Mapping[str, str]) -> Iterator[Internet]:
    """
    Args:
        secrets: variables of whoever runs boxes; `GIT_TOKEN` is the one that git.example takes.
    """
    write_files(root, secrets)
    alone: tuple[str, ...] = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child")
    alone += () if os.geteuid() == 0 else ("--user", "--map-root-user")
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(root / "home"),
        "TMPDIR": str(root / "tmp"),
        "LANG": "C.UTF-8",
        "SSL_CERT_FILE": str(SYSTEM_BUNDLE),
        **secrets,
    }
    with (root / "stderr").open("w") as errors:
        process = subprocess.Popen(
            (*alone, "--mount-proc", "--", sys.executable, "-m", "tests.support.internet_stage", str(root)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=environment,
        )
    try:
        yield Internet(process, root)
    finally:
        assert process.stdin and process.stdout
        process.stdin.close()  # by which everything there ends
        try:
            process.wait(_SECONDS)
        finally:
            process.kill()
            process.stdout.close()


def write_files(root: Path, secrets: Mapping[str, str]) -> None:
    for name in ("home", "work", "tmp", "repositories"):
        (root / name).mkdir()
    authority = Authority.make()
    system = SYSTEM_BUNDLE.read_bytes() + b"\n" + authority.certificate_pem
    (root / "bundle.pem").write_bytes(system)
    (root / "certifi.pem").write_bytes(Path(certifi.where()).read_bytes() + b"\n" + authority.certificate_pem)
    (root / "cacerts").write_bytes(java_store(authority.certificate_pem))
    (root / "hosts").write_text("".join(f"{address} {name}\n" for name, address in HOSTS.items()))
    (root / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # where nobody answers
    for name in HOSTS:
        (root / f"{name}.pem").write_bytes(authority.chain_pem(canonical_host(name)))
    (root / "git-token").write_text(secrets.get("GIT_TOKEN", OPEN_PASSWORD))
    (root / "git-token").chmod(0o600)
    ssh_git_server.write_keys(root)
