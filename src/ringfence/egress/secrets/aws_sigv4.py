"""Signs requests to AWS anew: the box signs with a key that is worth nothing, the proxy with the real one.

Region, service and the list of signed headers are the client's. The hash of the body is the one that the client says
(AWS compares it with the body), `UNSIGNED-PAYLOAD`, or the unsigned trailer; where the client says none, the body has
to be known first. Chunks that are signed one by one depend on the first signature, and a presigned URL is made for
somebody else to use: neither can be signed anew, and both are refused.
"""

import hashlib
import hmac
import json
import re
import time
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from ringfence.dataclass import dataclass, field
from ringfence.egress.base import RequestHead
from ringfence.egress.secrets.swapping import header_of, with_header, without

BODY_LIMIT_BYTES: Final = 64 * 1024 * 1024
"""Of a body that is held in memory because its hash is signed."""
_ALGORITHM: Final = b"AWS4-HMAC-SHA256"
_END: Final = "aws4_request"
_UNSIGNED: Final = (b"UNSIGNED-PAYLOAD", b"STREAMING-UNSIGNED-PAYLOAD-TRAILER")
_HEX_HASH: Final = re.compile(rb"[0-9a-f]{64}")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PRINTABLE: Final = re.compile(r"[!-~]+")
_DATE: Final = re.compile(r"\d{8}T\d{6}Z")
_RAW_PATH_SERVICES: Final = frozenset(("s3", "s3express", "s3-outposts", "s3-object-lambda"))
"""Their keys are paths with meaning: nothing is normalised, and nothing is encoded twice."""
_NOT_SIGNED: Final = frozenset(
    # parts of one connection, or changed by whoever carries the request
    (
        b"authorization",
        b"connection",
        b"content-length",
        b"expect",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"transfer-encoding",
        b"upgrade",
    )
)


class CannotSign(Exception):
    """A request, or a value, that cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Credentials:
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)

    @property
    def values(self) -> tuple[bytes, ...]:
        """What must not come back."""
        return tuple(text.encode() for text in (self.secret_access_key, self.session_token) if text)


@dataclass(frozen=True, slots=True)
class Claim:
    """What the client's own signature says."""

    access_key_id: str
    region: str
    service: str
    signed_headers: tuple[bytes, ...]


def parse_credentials(value: bytes) -> Credentials:
    """`ID:SECRET[:TOKEN]`, or JSON as `aws configure export-credentials` prints it.

    Raises:
        CannotSign: it is neither.
    """
    try:
        text = value.decode("ascii").strip()
    except UnicodeDecodeError:
        raise CannotSign("its value is no AWS key") from None
    if text.startswith("{"):
        try:
            found = json.loads(text)
        except ValueError:
            raise CannotSign("its value is no JSON") from None
        parts = [_text(found, "AccessKeyId"), _text(found, "SecretAccessKey"), _text(found, "SessionToken")]
    else:
        parts = [*text.split(":", 2), ""]
    if len(parts) < 3 or not all(map(_PRINTABLE.fullmatch, parts[:2])) or re.search(r"\s", parts[2]):
        raise CannotSign("its value is no AWS key: ID:SECRET[:TOKEN], or JSON with AccessKeyId and SecretAccessKey")
    return Credentials(parts[0], parts[1], parts[2])


def _text(found: object, name: str) -> str:
    value = found.get(name, "") if isinstance(found, dict) else ""
    return value if isinstance(value, str) else ""


def claim_of(head: RequestHead) -> Claim | None:
    """What the client's signature says; None if there is none.

    Raises:
        CannotSign: there is one, in a form that we do not know.
    """
    given = header_of(head, b"authorization")
    if given.startswith(b"AWS4-ECDSA"):
        raise CannotSign("signatures for several regions (SigV4a) cannot be made anew")
    if not given.startswith(_ALGORITHM):
        return None
    fields = dict(
        part.strip().partition("=")[::2] for part in given[len(_ALGORITHM) :].decode("latin-1").split(",") if part
    )
    key, *scope = fields.get("Credential", "").split("/")
    if len(scope) != 4 or scope[3] != _END or not all(map(_WORD.fullmatch, scope[1:3])):
        raise CannotSign("the credential of the AWS signature has an unknown form")
    names = tuple(name.strip().lower().encode("latin-1") for name in fields.get("SignedHeaders", "").split(";"))
    return Claim(key, scope[1], scope[2], names)


def declared_hash(head: RequestHead) -> bytes:
    """What the client says about its body; empty if it says nothing.

    Raises:
        CannotSign: a body whose chunks are signed.
    """
    declared = header_of(head, b"x-amz-content-sha256")
    if not declared or _HEX_HASH.fullmatch(declared) or declared in _UNSIGNED:
        return declared
    if declared.startswith(b"STREAMING-"):
        raise CannotSign("a body whose chunks are signed one by one cannot be signed anew: use an unsigned payload")
    raise CannotSign("x-amz-content-sha256 has an unknown form")


def resign(
    head: RequestHead, claim: Claim, credentials: Credentials, authority: str, payload: bytes, now: float | None = None
) -> RequestHead:
    """The head with a signature by the real key.

    Args:
        authority: of the request, where it has no `host` header (HTTP/2).
        payload: the hash of the body, or the word that stands for one.
    """
    date = header_of(head, b"x-amz-date").decode("latin-1")
    if not _DATE.fullmatch(date):
        date = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        head = with_header(head, b"x-amz-date", date.encode())
    plain = RequestHead(head.method, head.path, without(head.headers, b"authorization", b"x-amz-security-token"))
    if credentials.session_token:
        plain = with_header(plain, b"x-amz-security-token", credentials.session_token.encode())
    if header_of(plain, b"x-amz-content-sha256"):
        plain = with_header(plain, b"x-amz-content-sha256", payload)
    present = {name for name, _ in plain.headers} | {b"host"}
    required = {name for name in present if name.startswith(b"x-amz-")} | {b"host"}
    names = tuple(sorted((({*claim.signed_headers} & present) | required) - _NOT_SIGNED))
    canonical = canonical_request(plain, names, authority, payload, raw_path=claim.service in _RAW_PATH_SERVICES)
    scope = f"{date[:8]}/{claim.region}/{claim.service}/{_END}"
    made = signature(credentials, date, scope, canonical)
    value = (
        f"AWS4-HMAC-SHA256 Credential={credentials.access_key_id}/{scope}, "
        f"SignedHeaders={b';'.join(names).decode()}, Signature={made}"
    )
    return with_header(plain, b"authorization", value.encode())


def canonical_request(
    head: RequestHead, names: tuple[bytes, ...], authority: str, payload: bytes, *, raw_path: bool
) -> bytes:
    """The request in the one spelling that both sides sign."""
    path, _, query = head.path.encode("utf-8").partition(b"?")
    by_name = {
        name: b",".join(b" ".join(value.split()) for key, value in head.headers if key == name) for name in names
    }
    by_name[b"host"] = by_name.get(b"host") or authority.encode()
    lines = (
        head.method.encode(),
        _encode(unquote_to_bytes(path), b"/") if raw_path else _encode(_normal(path), b"/"),
        _canonical_query(query),
        *(name + b":" + by_name[name] for name in names),
        b"",
        b";".join(names),
        payload,
    )
    return b"\n".join(lines)


def signature(credentials: Credentials, date: str, scope: str, canonical: bytes) -> str:
    """The signature of a canonical request, in hex."""
    key = b"AWS4" + credentials.secret_access_key.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = b"\n".join((_ALGORITHM, date.encode(), scope.encode(), hashlib.sha256(canonical).hexdigest().encode()))
    return hmac.digest(key, text, "sha256").hex()


def _encode(text: bytes, safe: bytes = b"") -> bytes:
    return quote_from_bytes(text, safe=safe + b"~").encode()


def _canonical_query(query: bytes) -> bytes:
    pairs = []
    for part in query.split(b"&") if query else ():
        name, _, value = part.partition(b"=")
        pairs.append((_encode(unquote_to_bytes(name)), _encode(unquote_to_bytes(value))))
    return b"&".join(name + b"=" + value for name, value in sorted(pairs))


def _normal(path: bytes) -> bytes:
    """Without empty parts, `.` and `..`."""
    kept: list[bytes] = []
    parts = path.split(b"/")
    for part in parts:
        if part == b"..":
            del kept[-1:]
        elif part not in (b"", b"."):
            kept.append(part)
    ends_with_slash = kept and parts[-1] in (b"", b".", b"..")
    return b"/" + b"/".join(kept) + (b"/" if ends_with_slash else b"")
