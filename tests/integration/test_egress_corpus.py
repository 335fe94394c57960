"""The corpus of decisions, each case through every door at which it can be said, with equal verdicts.

`N right of M` is printed; anything but all of them is a failure. A case is right when what was expected came true at
the client and, if it was to be refused, nobody was dialled and the refusal was recorded.
"""

import asyncio
import dataclasses
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ringfence.errors import InvalidConfig
from ringfence.policy.reach import check_network
from ringfence.values.network import DenyRule, NetworkGrant, NetworkRule
from ringfence.values.verdict import Verdict
from tests.support.carried import carried
from tests.support.egress import PORTS, Captured, World, captured, in_loop, origin_servers, serving
from tests.support.egress_doors import DOORS, DoesNotApply, Request, parse_target, socks_request, through

CORPUS = Path(__file__).parent.parent / "corpus"
TUNNELS = ("connect", "socks", "http", "transparent")


@pytest.fixture(scope="module", params=["passed", "carried"])
def network(request: pytest.FixtureRequest) -> Iterator[Captured]:
    """Listeners are passed out, or carried out of what may be a kernel of its own."""
    with captured() if request.param == "passed" else carried() as made:
        yield made


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (CORPUS / name).read_text().splitlines()]


def grant_of(row: dict[str, Any]) -> NetworkGrant:
    given = row.get("rules") or [{"host": host} for host in row["allow"]]
    rules = tuple(
        NetworkRule(**{key: tuple(value) if isinstance(value, list) else value for key, value in each.items()})
        for each in given
    )
    return NetworkGrant(rules=rules, denied=tuple(DenyRule(host=host) for host in row["deny"]))


def answers_of(row: dict[str, Any]) -> list[tuple[str, ...]]:
    return [tuple(filter(None, each.split(","))) for each in row["resolve"].split(" then ")]


class Names(dict[str, list[tuple[str, ...]]]):
    """Every name has these answers."""

    def __init__(self, answers: list[tuple[str, ...]]) -> None:
        super().__init__()
        self._answers = list(answers)

    def get(self, name: str, default: object = None) -> Any:
        return self._answers


@asynccontextmanager
async def proxied(network: Captured, row: dict[str, Any]) -> AsyncIterator[World]:
    world = World(names=Names(answers_of(row)))
    async with origin_servers(world), serving(world, grant_of(row), network.listeners(*PORTS)):
        yield world


async def tried(network: Captured, row: dict[str, Any], request: Request, doors: tuple[str, ...]) -> dict[str, str]:
    """What is wrong, by door; "" for nothing."""
    found: dict[str, str] = {}
    for door in doors:
        async with proxied(network, row) as world:
            try:
                passed = await asyncio.wait_for(asyncio.to_thread(through, door, network, world, request), 30)
            except DoesNotApply:
                continue
            await asyncio.sleep(0.01)
            found[door] = _fault(row, world, passed)
    return found


def _fault(row: dict[str, Any], world: World, passed: bool) -> str:
    if row["expect"] == "allow":
        first = answers_of(row)[0][0]
        if not passed:
            return f"refused: {[event.reason for event in world.events]}"
        literal = row["target"].rpartition(":")[0].strip("[]")
        return "" if world.dialled[0][0] in (first, literal) else f"dialled {world.dialled}"
    if passed:
        return "passed"
    reached_nobody = row.get("first") or row.get("sni") is not None  # known only after the tunnel stands
    if world.dialled and not reached_nobody:
        return f"dialled {world.dialled}"
    if not any(event.verdict is Verdict.DENY or event.status == 502 for event in world.events):
        return "nothing is recorded"
    return ""


def report(title: str, found: dict[str, dict[str, str]], capsys: pytest.CaptureFixture[str]) -> None:
    doors = Counter(door for each in found.values() for door in each)
    wrong = {f"{case} {door}": fault for case, each in found.items() for door, fault in each.items() if fault}
    right = sum(not any(each.values()) for each in found.values())
    with capsys.disabled():
        print(f"\n{title}: {right} right of {len(found)}; tries by door: {dict(doors)}")
    assert not wrong, "\n".join(f"{case}: {fault}" for case, fault in wrong.items())
    assert all(found.values()), [case for case, each in found.items() if not each]


@in_loop
async def test_own_cases_have_the_same_verdict_at_every_door(
    network: Captured, capsys: pytest.CaptureFixture[str]
) -> None:
    found = {}
    for row in rows("egress_own.jsonl"):
        host, port = parse_target(row["target"])
        request = Request(
            host,
            port,
            row.get("method", "GET"),
            row.get("path", "/"),
            row.get("sni"),
            row.get("first", ""),
            row.get("host_header", ""),
        )
        doors = tuple(row.get("doors", DOORS))
        if port in (443, 8443) and row["expect"] == "allow":
            doors = tuple(door for door in doors if door != "http")  # plain HTTP to a server of TLS
        found[row["id"]] = await tried(network, row, request, doors)
    assert len(found) >= 60
    report("own cases", found, capsys)


@in_loop
async def test_the_corpus(network: Captured, capsys: pytest.CaptureFixture[str]) -> None:
    found = {}
    for row in rows("egress.jsonl"):
        special = SPECIAL.get(row["id"])
        if special is not None:
            found[row["id"]] = {row["proto"]: await special(network, row)}
        elif row["proto"] == "GET":
            found[row["id"]] = {"http": await by_url(network, row)}
        else:
            host, port = parse_target(row["target"])
            doors = tuple(door for door in DOORS if door != "http" or port != 443 or row["expect"] == "deny")
            found[row["id"]] = await tried(network, row, Request(host, port), doors)
    assert len(found) == 55
    report("corpus", found, capsys)


async def spoken(network: Captured, row: dict[str, Any], *said: bytes) -> tuple[bytes, World]:
    """What the proxy port answers to these bytes, said one after the other."""

    def speak() -> bytes:
        with network.connect("127.0.0.1", 3128) as opened:
            got = b""
            try:
                for each in said:
                    opened.sendall(each)
                    got = opened.recv(65536)
                while data := opened.recv(65536):
                    got += data
            except OSError:
                pass
            return got

    async with proxied(network, row) as world:
        got = await asyncio.wait_for(asyncio.to_thread(speak), 30)
        await asyncio.sleep(0.01)
        return got, world


async def by_url(network: Captured, row: dict[str, Any]) -> str:
    target = row["target"]
    host = target.partition("//")[2].partition("/")[0] or "example.com"
    request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    got, world = await spoken(network, row, request)
    return _fault({**row, "target": "x:80"}, world, got.startswith(b"HTTP/1.1 200"))


async def other_host_header(network: Captured, row: dict[str, Any]) -> str:
    got, world = await spoken(network, row, b"GET http://example.com/ HTTP/1.1\r\nHost: evil.com\r\n\r\n")
    return _fault(row, world, got.startswith(b"HTTP/1.1 200"))


async def redirected(network: Captured, row: dict[str, Any]) -> str:
    async with proxied(network, row) as world:
        status, out = await network.run(
            *("curl", "-sS", "-L", "-m", "10", "-x", "http://127.0.0.1:3128", "http://example.com/to/http://evil.com/"),
            env={"PATH": "/usr/bin:/bin"},
        )
        refused = status == 0 and "no rule allows evil.com:80" in out
        return "" if refused and len(world.dialled) == 1 else f"{out} {world.dialled}"


async def inner_host(network: Captured, row: dict[str, Any]) -> str:
    request = Request("example.com", 443, host_header="evil.com")
    return "".join((await tried(network, {**row, "target": "example.com:443"}, request, ("connect",))).values())


async def bad_pattern(network: Captured, row: dict[str, Any]) -> str:
    try:
        check_network(grant_of(row))
    except InvalidConfig:
        return ""
    return "loaded"


async def in_connect(network: Captured, row: dict[str, Any]) -> str:
    got, world = await spoken(network, row, f"CONNECT {row['target']} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return _fault(row, world, got.startswith(b"HTTP/1.1 200"))


async def in_socks(network: Captured, row: dict[str, Any]) -> str:
    host, port = parse_target(row["target"])
    got, world = await spoken(network, row, b"\5\1\0", socks_request(host, port))
    return _fault(row, world, got[:2] == b"\5\0") or ("" if got[:1] == b"\5" else f"{got!r}")


async def bind(network: Captured, row: dict[str, Any]) -> str:
    for command in (2, 3):
        got, world = await spoken(network, row, b"\5\1\0", socks_request("0.0.0.0", 0, command))
        if got[:2] != b"\5\7" or _fault(row, world, False):
            return f"{got!r}"
    return ""


async def socks4(network: Captured, row: dict[str, Any]) -> str:
    got, world = await spoken(network, row, b"\4\1\0\x50" + bytes((93, 184, 216, 34)) + b"me\0")
    return _fault(row, world, got[:2] != b"\0\x5b")


async def slow_headers(network: Captured, row: dict[str, Any]) -> str:
    async with proxied(network, row) as world:
        began = asyncio.get_running_loop().time()

        def slowly() -> bytes:
            with network.connect("127.0.0.1", 3128) as opened:
                opened.settimeout(1)
                for byte in b"CONNECT example.com:443 HTTP/1.1\r\n":
                    try:
                        opened.sendall(bytes((byte,)))
                        if got := opened.recv(1000):
                            return got
                    except TimeoutError:
                        continue
                    except OSError:
                        break
                return b""

        got = await asyncio.to_thread(slowly)
        took = asyncio.get_running_loop().time() - began
        return "" if b" 408 " in got and took < 13 and not world.dialled else f"{got!r} after {took} s"


async def long_header(network: Captured, row: dict[str, Any]) -> str:
    got, world = await spoken(network, row, b"CONNECT example.com:443 HTTP/1.1\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n")
    return "" if not world.dialled and (b" 431 " in got or not got) and world.events else f"{got!r}"


async def many_connections(network: Captured, row: dict[str, Any]) -> str:
    """As many as the box may have stand; the next is refused with a reason, and another box does not notice.

    Ten thousand at once are in test_egress_limits.py."""
    async with proxied(network, row) as world:

        def open_many() -> list[bytes]:
            opened = [network.connect("127.0.0.1", 3128) for _ in range(300)]
            for each in opened:
                each.settimeout(0.2)
            got = []
            for each in opened[-20:]:
                try:
                    got.append(each.recv(1000))
                except OSError:
                    got.append(b"")
            for each in opened:
                each.close()
            return got

        got = await asyncio.to_thread(open_many)
        return "" if all(b" 429 " in each for each in got) and not world.dialled else f"{got[:2]}"


async def direct(network: Captured, row: dict[str, Any]) -> str:
    async with proxied(network, row) as world:
        status, out = await network.run(
            *("curl", "-sSk", "-m", "5", "https://93.184.216.34/"), env={"PATH": "/usr/bin:/bin", "NO_PROXY": "*"}
        )
        return "" if status != 0 and not world.dialled and world.events else out


SPECIAL = {
    "E-016": in_connect,
    "E-017": in_socks,
    "E-021": bind,
    "E-022": socks4,
    "E-034": in_connect,
    "E-054": other_host_header,
    "E-066": redirected,
    "E-068": inner_host,
    "E-070": bad_pattern,
    "E-071": bad_pattern,
    "E-072": bad_pattern,
    "E-073": bad_pattern,  # "normalised or refused at load": refused
    "E-074": in_connect,
    "E-077": in_connect,
    "E-078": in_connect,
    "E-084": slow_headers,
    "E-085": long_header,
    "E-086": many_connections,
    "E-087": direct,
    "E-090": direct,
}


@in_loop
async def test_the_same_attempts_pass_with_the_guard_off(network: Captured) -> None:
    """The twin: what is refused above for its name or address passes when a rule names it, or the address is public."""
    row = {
        "rules": [{"host": "evil.com"}],
        "deny": [],
        "resolve": "93.184.216.34",
        "expect": "allow",
        "target": "evil.com:443",
    }
    found = await tried(network, row, Request("evil.com", 443), ("connect", "socks", "transparent"))
    assert found == dict.fromkeys(("connect", "socks", "transparent"), "")


def test_rules_in_the_corpus_are_rules() -> None:
    known = {field.name for field in dataclasses.fields(NetworkRule)}
    assert all(rule.keys() <= known for row in rows("egress_own.jsonl") for rule in row["rules"])
