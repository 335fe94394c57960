"""The first process of a small internet (`internet.py`): lays the cable, puts files in place, starts both sides."""

import os
import subprocess
import sys
from pathlib import Path

import certifi

from tests.support.internet import JAVA_STORE, SYSTEM_BUNDLE

_USER = "1000"


def main() -> None:
    root = Path(sys.argv[1])
    for name, place in (
        ("hosts", Path("/etc/hosts")),
        ("resolv.conf", Path("/etc/resolv.conf")),
        ("bundle.pem", SYSTEM_BUNDLE),
        ("certifi.pem", Path(certifi.where())),
        ("cacerts", JAVA_STORE),
    ):
        if place.exists():
            _run("mount", "--bind", str(root / name), str(place.resolve()))
    if os.geteuid() == 0:
        # Groups are named by the pid that a manager has in here; to tests outside they would look like a dead one's.
        subprocess.run(("umount", "-R", "-l", "/sys/fs/cgroup"), check=False, capture_output=True, timeout=30)
    servers = subprocess.Popen(
        ("unshare", "--net", "--", sys.executable, "-m", "tests.support.internet_servers", str(root)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert servers.stdin and servers.stdout
    try:
        _wait(servers, b"here\n")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "here", "type", "veth", "peer", "name", "there", "netns", str(servers.pid))
        _run("ip", "addr", "add", "172.31.0.1/24", "dev", "here")
        _run("ip", "link", "set", "here", "up")
        _run("ip", "route", "add", "default", "via", "172.31.0.2")
        servers.stdin.write(b"cable\n")
        servers.stdin.flush()
        _wait(servers, b"serving\n")
        boxes = (sys.executable, "-m", "tests.support.internet_boxes", str(root))
        # Whoever is root only in here is an ordinary user again: this is what the proxy and the boxes are to see.
        ordinary = ("unshare", "--user", f"--map-user={_USER}", f"--map-group={_USER}", "--")
        is_root = Path("/proc/self/uid_map").read_text().split()[2] == str(2**32 - 1)
        subprocess.run(boxes if is_root else (*ordinary, *boxes), check=False)
    finally:
        servers.stdin.close()
        servers.wait(30)


def _run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, timeout=30, env=os.environ)


def _wait(process: "subprocess.Popen[bytes]", line: bytes) -> None:
    assert process.stdout
    if process.stdout.readline() != line:
        raise RuntimeError("the servers do not start")


if __name__ == "__main__":
    main()
