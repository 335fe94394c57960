"""`python -m tests.soak.serving`: a server with 200 sessions and 50 requests at once, killed in the middle and started
anew. Nothing may be lost, nothing may be left. Exits with 1 if something was wrong."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.support.serving import RunningServer

SESSIONS = 200
AT_ONCE = 50


def main() -> int:
    wrong: list[str] = []
    with tempfile.TemporaryDirectory(prefix="rf-soak-") as place:
        server = RunningServer(Path(place))
        server.start()
        try:
            with ThreadPoolExecutor(AT_ONCE) as pool:
                wrong += _fill(server, pool)
                server.stop(signal.SIGKILL)
                server.start()
                wrong += _after(server, pool)
        finally:
            server.stop()
    for line in wrong:
        print(f"wrong: {line}")
    print(f"{SESSIONS} sessions, {AT_ONCE} requests at once, one kill: {'fine' if not wrong else 'NOT fine'}")
    return 1 if wrong else 0


def _fill(server: RunningServer, pool: ThreadPoolExecutor) -> list[str]:
    limits = httpx.Limits(max_connections=AT_ONCE + 5)
    with server.client(limits=limits, timeout=300) as client:
        begin = time.monotonic()

        def one(number: int) -> str:
            made = client.post("/v1/sessions", json={"id": f"s{number}"})
            if made.status_code != 201:
                return f"session {number}: {made.text[:200]}"
            done = client.post(f"/v1/sessions/s{number}/executions", json={"command": f"echo {number} | tee f"})
            if done.status_code != 200 or done.json()["result"]["stdout"] != f"{number}\n":
                return f"execution {number}: {done.text[:200]}"
            return ""

        wrong = [line for line in pool.map(one, range(SESSIONS)) if line]
        held = len(client.get("/v1/sessions", params={"limit": 1000}).json()["items"])
        print(f"{held} sessions held after {time.monotonic() - begin:.1f} s")
        return wrong if held == SESSIONS else [*wrong, f"{held} of {SESSIONS} sessions"]


def _after(server: RunningServer, pool: ThreadPoolExecutor) -> list[str]:
    """Every session is known, says that its box is gone, and its files are there."""
    with server.client(timeout=300) as client:

        def one(number: int) -> str:
            lost = client.post(f"/v1/sessions/s{number}/executions", json={"command": "true"})
            if (lost.status_code, lost.json().get("code")) != (410, "session_lost"):
                return f"session {number}: {lost.text[:200]}"
            if number % 20 == 0:
                forked = client.post(f"/v1/sessions/s{number}/fork", json={"id": f"f{number}"})
                if forked.status_code != 429:
                    return f"fork {number}: {forked.text[:200]}"
                client.delete(f"/v1/sessions/s{number + 1}")
                client.post(f"/v1/sessions/s{number}/fork", json={"id": f"f{number}"}).raise_for_status()
                read = client.get(f"/v1/sessions/f{number}/files", params={"path": "f"})
                return "" if read.text == f"{number}\n" else f"file of {number}: {read.text[:200]}"
            return ""

        # Each that is forked needs room, for which the next one is ended.
        wrong = [line for line in map(one, (n for n in range(SESSIONS) if n % 20 != 1)) if line]
        for session in client.get("/v1/sessions", params={"limit": 1000}).json()["items"]:
            client.delete(f"/v1/sessions/{session['id']}")
        return wrong


if __name__ == "__main__":
    sys.exit(main())
