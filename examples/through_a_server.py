"""The same sandbox on a server: starts `ringfence serve` on a Unix socket, runs a few calls through it, and stops it.

A real program connects to a server that is there: `ringfence.connect()` takes its URL from RINGFENCE_URL.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ringfence


async def main(url: str) -> None:
    async with ringfence.connect(url) as server, server.Sandbox() as box:
        done = await box.shell("echo hello from $(uname -s); exit 3")
        print(done.stdout.strip(), "· exit code", done.exit_code, "· wall", done.wall.name if done.wall else None)

        await box.python("rows = [n * n for n in range(5)]")
        shown = await box.python("sum(rows)")  # the interpreter keeps its state, on the server
        print("sum:", shown.results[0].text)

        await box.files.write("notes/a.txt", "written from here", parents=True)
        print("read there:", (await box.shell("cat notes/a.txt")).stdout)

        try:
            await box.files.read("/etc/shadow")
        except ringfence.PathAccessDenied as refusal:  # the same error, with the same fields
            print("refused by:", refusal.rule)


def serve(state: Path) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-m", "ringfence.cli.app", "serve", "--state", str(state)]
    process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not (state / "server.sock").exists() and time.monotonic() < until:
        time.sleep(0.05)
    return process


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        running = serve(Path(directory))
        try:
            asyncio.run(main(f"unix://{directory}/server.sock"))
        finally:
            running.terminate()
            running.wait()
