"""What hostile bytes meet first: first bytes, heads, look-ups and SOCKS take anything and never fail otherwise."""

import asyncio
import ipaddress
import socket
import ssl
from dataclasses import replace

import dnslib
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.egress.addresses import StandIns
from ringfence.egress.asking import Questions
from ringfence.egress.base import NetworkAnswer, NetworkQuestion, Refusal
from ringfence.egress.budgets import Meter
from ringfence.egress.dns import NameService
from ringfence.egress.first_bytes import Kind, look_at
from ringfence.egress.flow import Box
from ringfence.egress.http_head import BadHead, parse_head, split_authority, split_url
from ringfence.egress.proxy_port import proxy_port
from ringfence.egress.sockets import Client
from ringfence.values.hosts import BadHost, canonical_host
from ringfence.values.network import Budget, NetworkGrant, NetworkRule
from tests.support.egress import World, in_loop


def hello(name: str | None = "example.com") -> bytes:
    """A real ClientHello."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.set_alpn_protocols(["h2", "http/1.1"])
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name).do_handshake()
    return outgoing.read()


HELLO = hello()


def test_a_client_hello_shows_its_name_and_protocols() -> None:
    found = look_at(HELLO)
    assert found is not None and (found.kind, found.server_name) == (Kind.TLS, "example.com")
    assert found.alpn == (b"h2", b"http/1.1") and not found.fault
    nameless = look_at(hello(None))
    assert nameless is not None and nameless.server_name is None


@given(st.integers(1, 200))
@settings(max_examples=40)
def test_a_client_hello_in_many_records_is_the_same(size: int) -> None:
    body = HELLO[5:]
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    split = b"".join(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece for piece in pieces)
    assert look_at(split) == look_at(HELLO)
    assert look_at(split[:-1]) is None


@given(st.integers(0, len(HELLO) - 1), st.binary(max_size=6))
@settings(max_examples=200)
def test_a_broken_client_hello_is_a_fault_or_waits(at: int, junk: bytes) -> None:
    found = look_at(HELLO[:at] + junk + HELLO[at + len(junk) :])
    assert found is None or isinstance(found.kind, Kind)


@given(st.binary(max_size=300))
@settings(max_examples=200)
def test_any_first_bytes_are_something(data: bytes) -> None:
    found = look_at(data)
    assert found is not None or len(data) < 300


@given(st.binary(max_size=200))
@settings(max_examples=200)
def test_any_head_is_one_or_bad(data: bytes) -> None:
    try:
        head = parse_head(b"GET " + data + b"\r\n\r\n")
    except BadHead:
        return
    assert head.target.isascii()


@given(st.text(max_size=60))
def test_any_authority_and_url_is_one_or_bad(text: str) -> None:
    for act in (lambda: split_authority(text), lambda: split_url("http://" + text)):
        try:
            found = act()
        except (BadHost, BadHead):
            continue
        assert found[1] is None or 0 < found[1] < 65536


def a_box(network: NetworkGrant | None = None) -> Box:
    return Box("box", network or NetworkGrant(rules=(NetworkRule(host="example.com"),)), World().outside())


def asked(service: NameService, name: str, kind: str) -> dnslib.DNSRecord:
    answer = service.answer(dnslib.DNSRecord.question(name, kind).pack())
    assert answer is not None
    return dnslib.DNSRecord.parse(answer)


def test_names_that_are_allowed_have_one_address_each_and_others_do_not_exist() -> None:
    box = a_box()
    service = NameService(box)
    first, again = asked(service, "example.com", "A"), asked(service, "EXAMPLE.com.", "A")
    assert str(first.rr[0].rdata) == str(again.rr[0].rdata) and str(first.rr[0].rdata).startswith("198.1")
    for kind in ("AAAA", "HTTPS", "TXT", "MX"):
        empty = asked(service, "example.com", kind)
        assert not empty.rr and empty.header.rcode == 0
    assert asked(service, "evil.com", "A").header.rcode == 3
    assert str(asked(service, "localhost", "A").rr[0].rdata) == "127.0.0.1"


def test_looking_for_a_service_of_a_host_is_no_violation_where_the_host_is_allowed() -> None:
    world = World()
    service = NameService(Box("box", NetworkGrant(rules=(NetworkRule(host="example.com"),)), world.outside()))

    assert asked(service, "_https._tcp.example.com", "SRV").header.rcode == 3
    assert world.events == []
    assert asked(service, "_https._tcp.evil.com", "SRV").header.rcode == 3
    assert asked(service, "_https._tcp.example.com", "A").header.rcode == 3
    assert [event.host for event in world.events] == ["evil.com", "_https._tcp.example.com"]


@given(st.binary(max_size=120))
@settings(max_examples=300)
def test_any_look_up_is_answered_or_dropped(data: bytes) -> None:
    service = NameService(a_box())
    for query in (data, b"\0\1\1\0\0\1\0\0\0\0\0\0" + data):
        answer = service.answer(query)
        assert answer is None or (answer[:2] == query[:2] and answer[2] & 0x80)


@given(st.binary(min_size=1, max_size=80))
@settings(max_examples=100)
def test_any_bytes_at_the_proxy_port_end_without_a_dial(data: bytes) -> None:
    async def run() -> None:
        world = World()
        box = Box("box", NetworkGrant(), world.outside())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.setblocking(False)
            ours.sendall(b"\5\1\0" + data if data[0] % 2 else data)
            ours.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(proxy_port(box, Client(theirs, asyncio.get_running_loop())), 5)
        assert not world.dialled and not world.looked_up

    asyncio.run(run())


# --- questions and budgets --------------------------------------------------------------------------------------------

QUESTION = NetworkQuestion("box", "a.com", 443, "", "", "no rule", "--allow a.com:443")


@in_loop
async def test_a_late_yes_helps_the_retry_and_one_question_is_asked() -> None:
    asked_for = []

    async def ask(question: NetworkQuestion) -> NetworkAnswer:
        asked_for.append(question)
        await asyncio.sleep(0.2)
        return NetworkAnswer(True, "ann")

    questions = Questions(ask, hold_seconds=0.05)
    first, second = await asyncio.gather(questions.put(QUESTION), questions.put(QUESTION))
    assert isinstance(first, Refusal) and isinstance(second, Refusal)
    assert first.event_id == second.event_id == "1" and "question 1" in first.reason
    await asyncio.sleep(0.3)
    assert await questions.put(QUESTION) == NetworkAnswer(True, "ann")
    assert len(asked_for) == 1
    assert isinstance(await questions.put(QUESTION), Refusal)  # a yes for once was for one retry
    questions.close()


def test_budgets_are_held() -> None:
    rule = NetworkRule(host="a.com", budget=Budget(requests_per_minute=2, total_bytes_out=10))
    meter = Meter(NetworkGrant(rules=(rule,), budget=Budget(connections=1, total_bytes_out=15)))
    assert meter.open_box() and not meter.open_box()
    assert [bool(meter.request(rule)) for _ in range(3)] == [False, False, True]
    assert meter.spend(rule, 10) and not meter.spend(rule, 1)
    assert meter.spend(None, 4) and not meter.spend(None, 1)


def test_names_stand_for_addresses_that_the_box_can_reach() -> None:
    host = canonical_host("api.example.com")
    for on_loopback, network in ((False, "198.18.0.0/15"), (True, "127.64.0.0/10")):
        names = StandIns(on_loopback=on_loopback)
        address = names.address_of(host)
        assert address in ipaddress.ip_network(network)
        assert names.host_at(address) == host


@in_loop
async def test_a_yes_is_for_what_was_shown() -> None:
    asked_for: list[str] = []

    async def ask(question: NetworkQuestion) -> NetworkAnswer:
        asked_for.append(question.path)
        return NetworkAnswer(True, "ann", remembered=True)

    questions = Questions(ask)
    post = replace(QUESTION, method="POST", path="/a")
    for path in ("/a", "/a", "/b"):
        assert isinstance(await questions.put(replace(post, path=path)), NetworkAnswer)
    assert asked_for == ["/a", "/b"]
    for path in ("/c", "/d"):  # a host that no rule names is asked about as a whole
        await questions.put(replace(post, host="b.com", path=path), is_unlisted=True)
    assert asked_for == ["/a", "/b", "/c"]
    await questions.put(replace(post, host="b.com", method="GET", path="/d"), is_unlisted=True)
    assert asked_for[-1] == "/d", "reading and changing are two things"
    questions.close()
