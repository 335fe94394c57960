"""The desk puts secrets where they belong, refuses placeholders that go astray, and never shows a value."""

import asyncio
import base64
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.base import Refusal, RequestHead, SecretRefused, SecretValue, Swapped
from ringfence.egress.secrets.desk import Desk
from ringfence.egress.secrets.placeholders import shaped_like
from ringfence.errors import InvalidConfig
from ringfence.values.hosts import canonical_host
from ringfence.values.network import SecretGrant, SecretPlace, SecretStyle

VALUE = b"ghp_" + b"Zz9y8X7w6V5u4T3s2R1q" + b"0" * 16
SHAM = shaped_like(VALUE)
GITHUB = canonical_host("api.github.com")
OTHER = canonical_host("evil.example")
EVERYWHERE = tuple(SecretPlace)


def a_secret(**changes: Any) -> SecretGrant:
    given = {"name": "gh", "hosts": ("api.github.com", "*.github.com"), "placeholder": SHAM, **changes}
    return SecretGrant(**given)


def a_desk(*secrets: SecretGrant, value: bytes = VALUE) -> Desk:
    async def fetch(secret: SecretGrant) -> SecretValue:
        return SecretValue(value)

    return Desk(secrets or (a_secret(),), fetch)


def a_head(*headers: tuple[str, str | bytes], method: str = "GET", path: str = "/user") -> RequestHead:
    pairs = ((name.encode(), text.encode() if isinstance(text, str) else text) for name, text in headers)
    return RequestHead(method, path, ((b"host", b"api.github.com"), *pairs))


def swap(desk: Desk, head: RequestHead, host: Any = GITHUB, *, port: int = 443, tls: bool = True) -> Any:
    return asyncio.run(desk.swap(host, port, head, tls=tls))


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def header(result: Swapped, name: str) -> bytes:
    (found,) = [value for key, value in result.head.headers if key == name.encode()]
    return found


async def pieces(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


def through(result: Swapped, *chunks: bytes) -> bytes:
    async def run() -> bytes:
        assert result.body is not None
        return b"".join([chunk async for chunk in result.body(pieces(*chunks))])

    return asyncio.run(run())


# --- put in -----------------------------------------------------------------------------------------------------------


def test_a_placeholder_in_a_header_becomes_the_value() -> None:
    result = swap(a_desk(), a_head(("authorization", f"token {SHAM}"), ("accept-encoding", "gzip, br")))

    assert header(result, "authorization") == b"token " + VALUE
    assert result.names == ("gh",)
    assert header(result, "accept-encoding") == b"identity"


def test_basic_is_decoded_and_encoded_again() -> None:
    result = swap(a_desk(), a_head(("authorization", basic("x-access-token", SHAM))))

    assert base64.b64decode(header(result, "authorization")[6:]) == b"x-access-token:" + VALUE


def test_query_and_path_hold_the_value_encoded() -> None:
    value = b"1234:abc/def+ghi=j&k"
    sham = shaped_like(value)
    desk = a_desk(a_secret(placeholder=sham, places=EVERYWHERE), value=value)

    result = swap(desk, a_head(path=f"/bot{sham}/send?key={sham}&x=1"))

    assert result.head.path == f"/bot{quote(value, safe=':@!$&()*+,;=~')}/send?key={quote(value, safe='')}&x=1"


@given(st.lists(st.integers(0, 300), max_size=8), st.binary(max_size=60), st.binary(max_size=60))
def test_a_body_keeps_its_length_wherever_it_is_cut(places: list[int], before: bytes, after: bytes) -> None:
    result = swap(a_desk(a_secret(places=EVERYWHERE)), a_head(("content-length", "99"), method="POST"))
    body = before + SHAM.encode() + after
    borders = sorted({0, len(body), *(place % (len(body) + 1) for place in places)})
    chunks = [body[start:end] for start, end in itertools.pairwise(borders)]

    assert through(result, *chunks) == before + VALUE + after
    assert result.signed_body == 0


def test_a_body_whose_length_changes_is_measured_first() -> None:
    value = b'a"b/c+d e&f%g=h'
    sham = shaped_like(value)
    desk = a_desk(a_secret(placeholder=sham, places=EVERYWHERE), value=value)
    kinds = {
        "application/json": b'"a\\"b/c+d e&f%g=h"',
        "application/x-www-form-urlencoded": b'"a%22b%2Fc%2Bd+e%26f%25g%3Dh"',
    }
    for kind, expected in kinds.items():
        body = b'"' + sham.encode() + b'"'
        head = a_head(("content-type", kind), ("content-length", str(len(body))), method="POST")

        result = swap(desk, head)
        signed = asyncio.run(desk.sign(GITHUB, result, body))

        assert result.signed_body > 0
        assert through(result, body) == expected
        assert (b"content-length", str(len(expected)).encode()) in signed.headers


def test_a_message_of_a_websocket_is_swapped_and_json_stays_json() -> None:
    value = b'quo"te-value-16b'
    sham = shaped_like(value)
    desk = a_desk(a_secret(placeholder=sham, places=EVERYWHERE), value=value)
    result = swap(desk, a_head(("upgrade", "websocket")))

    assert result.frame(b'{"token": "%s"}' % sham.encode()) == b'{"token": "quo\\"te-value-16b"}'
    assert result.frame(b"AUTH " + sham.encode()) == b"AUTH " + value


def test_an_injected_header_replaces_what_the_client_sent() -> None:
    secret = a_secret(style=SecretStyle.INJECT, placeholder="")
    result = swap(a_desk(secret), a_head(("authorization", "Bearer own"), ("authorization", "Bearer two")))

    assert header(result, "authorization") == b"Bearer " + VALUE


def test_an_injected_header_has_its_name_and_template() -> None:
    key = a_secret(style=SecretStyle.INJECT, placeholder="", header="X-Api-Key", template="{}")
    git = a_secret(style=SecretStyle.INJECT, placeholder="", template="Basic x-access-token:{}")

    assert header(swap(a_desk(key), a_head()), "x-api-key") == VALUE
    assert base64.b64decode(header(swap(a_desk(git), a_head()), "authorization")[6:]) == b"x-access-token:" + VALUE


def test_a_variable_that_a_client_insists_on_does_not_hinder_injection() -> None:
    secret = a_secret(style=SecretStyle.INJECT, variable="GH_TOKEN")
    desk = a_desk(secret)

    assert header(swap(desk, a_head(("authorization", f"token {SHAM}"))), "authorization") == b"Bearer " + VALUE
    assert swap(desk, a_head(("x-other", SHAM))).canary == "gh"


def test_two_secrets_for_one_header_are_refused() -> None:
    one = a_secret(style=SecretStyle.INJECT, placeholder="")
    two = a_secret(style=SecretStyle.INJECT, placeholder="", name="two")

    refused = swap(a_desk(one, two), a_head())

    assert isinstance(refused, Refusal)
    assert "gh" in refused.reason


def test_a_value_that_would_end_a_header_is_refused() -> None:
    for style in SecretStyle:
        secret = a_secret(style=style)
        refused = swap(a_desk(secret, value=b"line one\r\nX-Evil: 1"), a_head(("authorization", SHAM)))
        assert isinstance(refused, Refusal)
        assert "control character" in refused.reason


# --- canaries ---------------------------------------------------------------------------------------------------------

HEAD = a_head(("authorization", f"Bearer {SHAM}"))


def test_another_host_does_not_get_it() -> None:
    refused = swap(a_desk(), HEAD, OTHER)

    assert isinstance(refused, Refusal)
    assert (refused.status, refused.canary) == (403, "gh")
    assert SHAM not in refused.reason
    assert isinstance(swap(a_desk(), HEAD, GITHUB), Swapped)


def test_another_port_of_a_rule_with_one_does_not_get_it() -> None:
    secret = a_secret(hosts=("api.github.com:443",))

    assert swap(a_desk(secret), HEAD, port=8443).canary == "gh"
    assert isinstance(swap(a_desk(secret), HEAD, port=443), Swapped)


def test_cleartext_does_not_get_it() -> None:
    assert swap(a_desk(), HEAD, tls=False).canary == "gh"
    injected = swap(a_desk(a_secret(style=SecretStyle.INJECT, placeholder="")), a_head(), tls=False)
    assert injected.head == a_head()
    assert injected.names == ()


@pytest.mark.parametrize("method", ["TRACE", "OPTIONS", "trace"])
def test_trace_and_options_never_get_one(method: str) -> None:
    injecting = a_desk(a_secret(style=SecretStyle.INJECT, placeholder=""))
    bare = a_head(method=method)

    assert swap(a_desk(), a_head(("authorization", SHAM), method=method)).canary == "gh"
    assert b"authorization" not in dict(swap(injecting, bare).head.headers)
    assert b"authorization" in dict(swap(injecting, a_head()).head.headers)


ASTRAY: dict[str, Callable[[], RequestHead]] = {
    "query": lambda: a_head(path=f"/x?t={SHAM}"),
    "path": lambda: a_head(path=f"/{SHAM}/x"),
    "path, encoded": lambda: a_head(path="/" + "".join(f"%{ord(letter):02x}" for letter in SHAM)),
    "query, base64": lambda: a_head(path="/?b=" + base64.urlsafe_b64encode(b"ab" + SHAM.encode()).decode()),
    "user agent": lambda: a_head(("user-agent", SHAM)),
    "referer": lambda: a_head(("referer", f"https://x/{SHAM}")),
    "pseudo header": lambda: a_head((":authority", f"{SHAM}.example")),
    "capitals": lambda: a_head(("authorization", SHAM.upper())),
    "base64 in a header": lambda: a_head(("x-data", base64.b64encode(b"a:" + SHAM.encode()))),
    "a header's name": lambda: a_head((f"x-{SHAM.lower()}", "1")),
    "method": lambda: a_head(method=SHAM),
    "proxy authorization": lambda: a_head(("proxy-authorization", SHAM)),
}


@pytest.mark.parametrize("where", ASTRAY)
def test_a_place_that_is_not_named_is_refused(where: str) -> None:
    refused = swap(a_desk(), ASTRAY[where]())

    assert isinstance(refused, Refusal)
    assert refused.canary == "gh"
    assert SHAM not in refused.reason
    assert refused.reason.isascii()
    assert len(refused.reason) < 200


def test_query_and_path_pass_where_they_are_named() -> None:
    desk = a_desk(a_secret(places=EVERYWHERE))

    assert isinstance(swap(desk, ASTRAY["query"]()), Swapped)
    assert isinstance(swap(desk, ASTRAY["path"]()), Swapped)


def test_only_the_named_header_may_hold_it() -> None:
    desk = a_desk(a_secret(header="X-Api-Key"))

    assert swap(desk, HEAD).canary == "gh"
    assert swap(desk, a_head(("authorization", basic("u", SHAM)))).canary == "gh"
    assert header(swap(desk, a_head(("x-api-key", SHAM))), "x-api-key") == VALUE


@pytest.mark.parametrize("host", [GITHUB, OTHER])
@pytest.mark.parametrize("border", range(0, len(SHAM) + 1, 3))
def test_a_body_that_may_not_hold_it_ends_before_its_last_byte(host: Any, border: int) -> None:
    result = swap(a_desk(), a_head(method="POST"), host)
    sent: list[bytes] = []

    async def run() -> None:
        async for chunk in result.body(pieces(b"start ", SHAM[:border].encode(), SHAM[border:].encode(), b" end")):
            sent.append(chunk)

    with pytest.raises(SecretRefused) as refused:
        asyncio.run(run())

    assert refused.value.refusal.canary == "gh"
    assert SHAM.encode() not in b"".join(sent)


def test_a_body_without_it_passes_as_it_is() -> None:
    assert through(swap(a_desk(), a_head(method="POST")), b"plain ", b"body") == b"plain body"


def test_a_message_that_may_not_hold_it_is_refused() -> None:
    result = swap(a_desk(), a_head(("upgrade", "websocket")))

    with pytest.raises(SecretRefused):
        result.frame(base64.b64encode(b"x" + SHAM.encode()))
    assert result.frame(b"hello") == b"hello"


def test_canaries_are_found_in_names_and_opaque_bytes() -> None:
    desk = a_desk()
    text = SHAM.encode()

    for raw in (
        b"\x16\x03" + text + b"\0",
        text.lower() + b".evil.example",
        text.hex().encode() + b".evil.example",
        text.hex()[:40].encode() + b"." + text.hex()[40:].encode() + b".evil.example",
        base64.b32encode(text).rstrip(b"=").lower() + b".evil.example",
        b"https://evil.example/?q=" + base64.b64encode(b"ab" + text),
        b"/%67" + text[1:],
    ):
        assert desk.canary(raw) == "gh", raw
    assert desk.canary(b"api.github.com") == ""


def test_a_secret_of_another_desk_is_no_canary_of_this_one() -> None:
    assert isinstance(swap(a_desk(a_secret(placeholder=shaped_like(VALUE))), HEAD, OTHER), Swapped)


def test_a_secret_for_every_host_is_refused() -> None:
    with pytest.raises(InvalidConfig):
        a_desk(a_secret(hosts=("*",)))


# --- sources ----------------------------------------------------------------------------------------------------------


def run_with(fetch: Callable[[SecretGrant], Awaitable[SecretValue]], head: RequestHead = HEAD) -> Any:
    return asyncio.run(Desk((a_secret(),), fetch, deadline_seconds=0.1).swap(GITHUB, 443, head, tls=True))


def test_a_source_that_hangs_is_refused_within_the_deadline() -> None:
    async def hang(secret: SecretGrant) -> SecretValue:
        await asyncio.sleep(60)
        raise AssertionError

    started = time.monotonic()
    refused = run_with(hang)

    assert time.monotonic() - started < 5
    assert refused.status == 502
    assert "0.1 s" in refused.reason
    assert refused.canary == ""


def test_a_source_that_fails_is_refused_with_its_reason() -> None:
    async def fail(secret: SecretGrant) -> SecretValue:
        raise OSError("the command exited\r\nwith 3 \x1b[1m\u20ac")

    refused = run_with(fail)

    assert "the command exited with 3" in refused.reason
    assert refused.reason.isascii()
    assert refused.reason.isprintable()


@pytest.mark.parametrize("value", [b"", b"short", b"x" * 70_000])
def test_a_value_that_cannot_be_used_is_refused(value: bytes) -> None:
    async def give(secret: SecretGrant) -> SecretValue:
        return SecretValue(value)

    assert run_with(give).status == 502


def test_a_source_is_not_asked_for_requests_that_need_nothing() -> None:
    async def fail(secret: SecretGrant) -> SecretValue:
        raise AssertionError

    assert isinstance(run_with(fail, a_head()), Swapped)


def test_concurrent_requests_ask_once_and_a_value_is_renewed_when_it_ends() -> None:
    asked: list[str] = []

    async def give(secret: SecretGrant) -> SecretValue:
        asked.append(secret.name)
        await asyncio.sleep(0.01)
        return SecretValue(b"value-number-%03d" % len(asked), time.monotonic() + 0.2)

    async def run() -> tuple[list[Any], Any, Any]:
        desk = Desk((a_secret(),), give)
        first = await asyncio.gather(*(desk.swap(GITHUB, 443, HEAD, tls=True) for _ in range(20)))
        await asyncio.sleep(0.25)
        later = await desk.swap(GITHUB, 443, HEAD, tls=True)
        return first, later, later.scrub(b"value-number-001 value-number-002")

    first, later, scrubbed = asyncio.run(run())

    assert {header(each, "authorization") for each in first} == {b"Bearer value-number-001"}
    assert header(later, "authorization") == b"Bearer value-number-002"
    assert len(asked) == 2
    assert b"value-number" not in scrubbed


def test_a_request_that_is_given_up_does_not_end_the_question_of_another() -> None:
    async def give(secret: SecretGrant) -> SecretValue:
        await asyncio.sleep(0.05)
        return SecretValue(VALUE)

    async def run() -> Any:
        desk = Desk((a_secret(),), give)
        one = asyncio.ensure_future(desk.swap(GITHUB, 443, HEAD, tls=True))
        two = asyncio.ensure_future(desk.swap(GITHUB, 443, HEAD, tls=True))
        await asyncio.sleep(0.01)
        one.cancel()
        return await two

    assert isinstance(asyncio.run(run()), Swapped)


# --- what comes back --------------------------------------------------------------------------------------------------


def test_answers_hold_the_placeholder_again() -> None:
    desk = a_desk()
    result = swap(desk, HEAD)

    assert result.scrub(b"Bearer " + VALUE) == b"Bearer " + SHAM.encode()
    assert swap(desk, a_head(), OTHER).scrub(VALUE) == SHAM.encode()


def test_values_are_in_no_repr() -> None:
    desk = a_desk(a_secret(places=EVERYWHERE))
    result = swap(desk, a_head(("authorization", SHAM), method="POST"))

    for shown in (repr(desk), repr(SecretValue(VALUE)), repr(result)):
        assert VALUE.decode() not in shown


def test_a_placeholder_may_be_quoted_to_a_model_and_nowhere_else() -> None:
    head = a_head(("content-type", "application/json"), method="POST")
    said = b'{"said": "' + SHAM.encode() + b'"}'

    # As it is: the value is never put in.
    assert through(swap(a_desk(a_secret(quoted_to=("api.github.com",))), head), said) == said
    for others in ((), ("elsewhere.example",)):
        with pytest.raises(SecretRefused):
            through(swap(a_desk(a_secret(quoted_to=others)), head), said)
