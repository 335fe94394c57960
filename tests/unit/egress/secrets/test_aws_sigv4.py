"""Requests to AWS are signed as AWS's published vectors say, and what cannot be signed anew is refused."""

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.egress.base import Refusal, RequestHead, SecretValue, Swapped
from ringfence.egress.secrets import aws_sigv4
from ringfence.egress.secrets.aws_sigv4 import CannotSign, Claim, Credentials
from ringfence.egress.secrets.desk import Desk
from ringfence.egress.secrets.placeholders import companion
from ringfence.values.hosts import canonical_host
from ringfence.values.network import SecretGrant

SUITE = json.loads((Path(__file__).parent / "aws_sigv4_vectors.json").read_text())
EMPTY = hashlib.sha256(b"").hexdigest().encode()
S3 = canonical_host("examplebucket.s3.amazonaws.com")
SHAM = "AKIAQQQQQQQQQQQQQQQQ"
REAL = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")


def a_head(method: str, path: str, *headers: tuple[str, str]) -> RequestHead:
    return RequestHead(method, path, tuple((name.encode(), value.encode()) for name, value in headers))


@pytest.mark.parametrize("vector", SUITE["vectors"], ids=lambda vector: vector["name"])
def test_a_published_vector(vector: dict[str, Any]) -> None:
    names = tuple(sorted({name.encode() for name, _ in vector["headers"]}))
    claim = Claim("SHAM", SUITE["region"], SUITE["service"], names)
    credentials = Credentials(SUITE["key"], SUITE["secret"], vector["token"])
    payload = hashlib.sha256(vector["body"].encode()).hexdigest().encode()

    head = aws_sigv4.resign(
        a_head(vector["method"], vector["path"], *vector["headers"]), claim, credentials, "", payload
    )

    signed = dict(head.headers)[b"authorization"].decode()
    assert signed.startswith(f"AWS4-HMAC-SHA256 Credential={SUITE['key']}/20150830/us-east-1/service/aws4_request, ")
    assert signed.rpartition("Signature=")[2] == vector["signature"]


def a_signed_head(
    method: str = "GET", path: str = "/test.txt", *more: tuple[str, str], hashed: bytes = EMPTY
) -> RequestHead:
    names = ";".join(
        sorted({"host", "x-amz-date", *(name for name, _ in more), *(["x-amz-content-sha256"] * bool(hashed))})
    )
    return a_head(
        method,
        path,
        ("host", "examplebucket.s3.amazonaws.com"),
        *more,
        *([("x-amz-content-sha256", hashed.decode())] if hashed else []),
        ("x-amz-date", "20130524T000000Z"),
        (
            "authorization",
            f"AWS4-HMAC-SHA256 Credential={SHAM}/20130524/us-east-1/s3/aws4_request,"
            f" SignedHeaders={names}, Signature={'0' * 64}",
        ),
    )


def a_desk(value: str = f"{REAL.access_key_id}:{REAL.secret_access_key}") -> Desk:
    async def fetch(secret: SecretGrant) -> SecretValue:
        return SecretValue(value.encode())

    return Desk((SecretGrant(name="aws", hosts=("*.amazonaws.com",), signer="aws-sigv4", placeholder=SHAM),), fetch)


def swap(desk: Desk, head: RequestHead) -> Any:
    return asyncio.run(desk.swap(S3, 443, head, tls=True))


def signature_of(head: RequestHead) -> str:
    return dict(head.headers)[b"authorization"].decode().rpartition("Signature=")[2]


def test_the_example_of_s3s_own_documentation() -> None:
    result = swap(a_desk(), a_signed_head("GET", "/test.txt", ("range", "bytes=0-9")))

    assert result.signed_body == 0
    assert result.names == ("aws",)
    assert signature_of(result.head) == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    assert SHAM not in repr(result.head.headers)


@pytest.mark.parametrize("word", [b"UNSIGNED-PAYLOAD", b"STREAMING-UNSIGNED-PAYLOAD-TRAILER"])
def test_unsigned_bodies_are_signed_at_once(word: bytes) -> None:
    result = swap(a_desk(), a_signed_head("PUT", "/key", hashed=word))

    assert isinstance(result, Swapped)
    assert result.signed_body == 0
    assert dict(result.head.headers)[b"x-amz-content-sha256"] == word
    assert signature_of(result.head) != "0" * 64


def test_a_body_without_a_hash_is_needed_first() -> None:
    desk = a_desk()
    result = swap(desk, a_signed_head("POST", "/", hashed=b""))
    one = asyncio.run(desk.sign(S3, result, b"body"))
    two = asyncio.run(desk.sign(S3, result, b"other"))

    assert result.signed_body == aws_sigv4.BODY_LIMIT_BYTES
    assert isinstance(one, RequestHead)
    assert isinstance(two, RequestHead)
    assert signature_of(one) != signature_of(two)


def test_a_session_token_is_added_and_signed() -> None:
    result = swap(
        a_desk('{"AccessKeyId": "ASIAX", "SecretAccessKey": "ssssssss", "SessionToken": "tttttttttt"}'), a_signed_head()
    )

    assert dict(result.head.headers)[b"x-amz-security-token"] == b"tttttttttt"
    assert b"x-amz-security-token" in dict(result.head.headers)[b"authorization"]
    assert b"tttttttttt" not in result.scrub(b"echo tttttttttt")


@pytest.mark.parametrize(
    ("head", "why"),
    [
        (a_signed_head("PUT", "/k", hashed=b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD"), "chunks"),
        (a_signed_head("PUT", "/k", hashed=b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"), "chunks"),
        (
            a_head(
                "GET",
                f"/k?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={SHAM}%2F20130524&X-Amz-Signature=00",
                ("host", "examplebucket.s3.amazonaws.com"),
            ),
            "presigned",
        ),
        (a_head("GET", "/", ("authorization", f"AWS4-ECDSA-P256-SHA256 Credential={SHAM}/20130524/s3/x")), "SigV4a"),
    ],
    ids=["chunked", "chunked with trailer", "presigned", "sigv4a"],
)
def test_what_cannot_be_signed_anew_is_refused_with_a_reason(head: RequestHead, why: str) -> None:
    refused = swap(a_desk(), head)

    assert isinstance(refused, Refusal)
    assert why in refused.reason
    assert refused.canary == ""


def test_the_pair_of_placeholders_is_a_canary_everywhere_else() -> None:
    desk = a_desk()
    other = canonical_host("evil.example")

    for text in (SHAM, companion(SHAM)):
        assert swap(desk, a_head("GET", "/", ("x-data", text))).canary == "aws"
        assert asyncio.run(desk.swap(other, 443, a_head("GET", f"/{text}"), tls=True)).canary == "aws"
        assert desk.canary(text.encode()) == "aws"


def test_a_request_that_is_signed_with_another_key_is_left_alone() -> None:
    head = a_head("GET", "/", ("authorization", "AWS4-HMAC-SHA256 Credential=AKIAOWN/1/us-east-1/s3/aws4_request"))

    assert swap(a_desk(), head).head == head


@pytest.mark.parametrize("value", ["nothing-at-all", '{"a": 1}', "{broken json}", "id with space:secret-secret"])
def test_a_value_that_is_no_key_is_refused_and_not_shown(value: str) -> None:
    refused = swap(a_desk(value), a_signed_head())

    assert isinstance(refused, Refusal)
    assert value not in refused.reason
    with pytest.raises(CannotSign):
        aws_sigv4.parse_credentials(value.encode())


def test_the_secret_key_is_scrubbed_and_in_no_repr() -> None:
    result = swap(a_desk(), a_signed_head())

    assert result.scrub(REAL.secret_access_key.encode()) == companion(SHAM).encode()
    assert REAL.secret_access_key not in repr(REAL)
    assert REAL.secret_access_key not in repr(result)
