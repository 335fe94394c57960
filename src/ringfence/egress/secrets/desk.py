"""The secrets of one box: puts them into requests, refuses placeholders that go astray, takes values out of answers.

For each request, in this order:

1. every place of the head where a placeholder is has to be one that its secret names, for a host that it names, over
   TLS; else the request is refused, and the refusal says whose placeholder it was (a canary);
2. all values that the request needs are asked for, before a byte of it goes out;
3. the head is rewritten: placeholders, then headers of ours, then signatures.

Bodies and messages are watched as they go by; to a model's host a placeholder may go there as it is (`quoted_to`).
TRACE and OPTIONS never get a secret: an answer to TRACE is the request.

What this does not protect against: an allowed host that uses a secret for something else than was meant (methods and
paths of the rules hold that); a placeholder in a spelling that nobody looks for, such as compressed: it is worth
nothing.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from typing import Final
from urllib.parse import unquote_to_bytes

from ringfence.dataclass import dataclass, field, replace
from ringfence.egress.base import FetchSecret, Refusal, RequestHead, SecretRefused, Swapped
from ringfence.egress.secrets import aws_sigv4
from ringfence.egress.secrets.aws_sigv4 import CannotSign, Claim, Credentials
from ringfence.egress.secrets.bound import Bound
from ringfence.egress.secrets.scrubbing import Scrubber
from ringfence.egress.secrets.streams import Replacer, Watcher, replace_all, replaced
from ringfence.egress.secrets.swapping import Spot, for_body, for_message, header_of, inject, put_in, with_header
from ringfence.egress.secrets.vault import DEADLINE_SECONDS, NoValue, Vault
from ringfence.values.hosts import Host
from ringfence.values.network import SecretGrant, SecretPlace

_NEVER_METHODS: Final = frozenset(("TRACE", "OPTIONS", "CONNECT"))
_MEASURED_BYTES: Final = 4 * 1024 * 1024
"""Of a body whose length a value changes, so that it has to be known before the head goes out."""


@dataclass(frozen=True, slots=True)
class Prepared(Swapped):
    """A request whose head waits for the body."""

    pairs: tuple[tuple[bytes, bytes], ...] = field(default=(), repr=False)
    claim: Claim | None = None
    credentials: Credentials | None = field(default=None, repr=False)
    authority: str = ""


class Desk:
    """`SecretDesk` of `egress.base`."""

    def __init__(
        self, secrets: tuple[SecretGrant, ...], fetch: FetchSecret, *, deadline_seconds: float = DEADLINE_SECONDS
    ) -> None:
        self._secrets = tuple(Bound.of(secret) for secret in secrets)
        self._vault = Vault(fetch, deadline_seconds=deadline_seconds)
        self._scrubber = Scrubber()

    def __repr__(self) -> str:
        return f"<Desk of {', '.join(each.name for each in self._secrets) or 'nothing'}>"

    async def swap(self, host: Host, port: int, head: RequestHead, *, tls: bool) -> Swapped | Refusal:
        """The request with secrets put in, or why it may not go out."""
        if not self._secrets:
            return Swapped(head, ())
        here = tuple(each for each in self._secrets if tls and each.means(host, port))
        usable = () if head.method.upper() in _NEVER_METHODS else here
        seen: dict[str, frozenset[Spot]] = {}
        for each in self._secrets:
            found = each.spots(head)
            if found and (refused := _astray(each, found, host, head, tls=tls, here=here, usable=usable)) is not None:
                return refused
            seen[each.name] = found
        needed = tuple(each for each in usable if seen[each.name] or each.is_injected or _in_body(each, head))
        values = await self._values(needed)
        if isinstance(values, Refusal):
            return values
        return self._rewritten(host, port, head, here, needed, seen, values)

    def _rewritten(
        self,
        host: Host,
        port: int,
        head: RequestHead,
        here: tuple[Bound, ...],
        needed: tuple[Bound, ...],
        seen: dict[str, frozenset[Spot]],
        values: dict[str, bytes],
    ) -> Swapped | Refusal:
        names: list[str] = []
        injected: dict[str, str] = {}
        signing: Bound | None = None
        for each in needed:
            value = values[each.name]
            if each.grant.signer == "aws-sigv4":
                signing = each if seen[each.name] else signing
                continue
            if (seen[each.name] or each.is_injected) and not _fits_a_header(value):
                return _unusable(each, "its value holds a control character, which no header may")
            if each.is_injected:
                name = (each.grant.header or "authorization").lower()
                if (other := injected.setdefault(name, each.name)) != each.name:
                    return _unusable(each, f"{other} is put into the header {name} of this host as well")
                head = inject(head, each.grant.header, each.grant.template, value)
                names.append(each.name)
            elif seen[each.name]:
                head = put_in(head, each.placeholders[0], value, seen[each.name])
                names.append(each.name)
        if here and header_of(head, b"accept-encoding"):
            head = with_header(head, b"accept-encoding", b"identity")  # else answers could not be scrubbed
        quoted = tuple(each.name for each in self._secrets if each.may_be_quoted(host, port))
        swapped = self._with_streams(head, tuple(names), needed, values, quoted)
        if signing is None:
            return swapped
        return self._signed(swapped, signing, values[signing.name], host, port)

    def _with_streams(
        self,
        head: RequestHead,
        names: tuple[str, ...],
        needed: tuple[Bound, ...],
        values: dict[str, bytes],
        quoted: tuple[str, ...],
    ) -> Prepared:
        kind = header_of(head, b"content-type")
        in_body = [each for each in needed if SecretPlace.BODY in each.grant.places and each.placeholders]
        in_frame = [each for each in needed if SecretPlace.WEBSOCKET in each.grant.places and each.placeholders]
        pairs = tuple((each.placeholders[0], for_body(values[each.name], kind)) for each in in_body)
        has_other_length = any(len(old) != len(new) for old, new in pairs) and header_of(head, b"content-length")
        framed = tuple((each.placeholders[0], values[each.name]) for each in in_frame)
        learned = not self._scrubber.is_empty
        return Prepared(
            head=head,
            names=names,
            body=self._body((*quoted, *(each.name for each in in_body)), pairs),
            frame=self._frame((*quoted, *(each.name for each in in_frame)), framed),
            scrub=self._scrubber.scrub if learned else None,
            scrub_body=self._scrubber.scrub_body if learned else None,
            signed_body=_MEASURED_BYTES if has_other_length else 0,
            pairs=pairs,
        )

    def _signed(self, swapped: Prepared, signing: Bound, value: bytes, host: Host, port: int) -> Swapped | Refusal:
        try:
            credentials = aws_sigv4.parse_credentials(value)
            claim = aws_sigv4.claim_of(swapped.head)
            declared = aws_sigv4.declared_hash(swapped.head)
        except CannotSign as fault:
            return _unusable(signing, str(fault))
        if claim is None:
            return _astray_refusal(signing, "it may only sign requests")
        for each in credentials.values:
            self._scrubber.learn(each, signing.placeholders[1] if len(each) == 40 else b"")
        authority = host.in_url if port == 443 else f"{host.in_url}:{port}"
        named = replace(swapped, names=(*swapped.names, signing.name))
        if (declared and not swapped.pairs) or declared.startswith((b"UNSIGNED", b"STREAMING")):
            head = aws_sigv4.resign(swapped.head, claim, credentials, authority, declared)
            return replace(named, head=head, scrub=self._scrubber.scrub, scrub_body=self._scrubber.scrub_body)
        return replace(
            named,
            claim=claim,
            credentials=credentials,
            authority=authority,
            signed_body=aws_sigv4.BODY_LIMIT_BYTES,
            scrub=self._scrubber.scrub,
            scrub_body=self._scrubber.scrub_body,
        )

    async def sign(self, host: Host, swapped: Swapped, body: bytes | None) -> RequestHead | Refusal:
        """The head that goes out, from the whole body."""
        if not isinstance(swapped, Prepared):
            return swapped.head
        sent = replace_all(swapped.pairs, body or b"")
        head = swapped.head
        if header_of(head, b"content-length"):
            head = with_header(head, b"content-length", str(len(sent)).encode())
        if swapped.claim is None or swapped.credentials is None:
            return head
        payload = hashlib.sha256(sent).hexdigest().encode()
        return aws_sigv4.resign(head, swapped.claim, swapped.credentials, swapped.authority, payload)

    def canary(self, raw: bytes) -> str:
        """The secret whose placeholder is in these bytes, also split over the labels of a name."""
        texts = {text.lower() for text in (raw, raw.replace(b".", b""), unquote_to_bytes(raw))}
        for each in self._secrets:
            if any(form.lower() in text for form in each.forms for text in texts):
                return each.name
        return ""

    # --- values and streams -------------------------------------------------------------------------------------------

    async def _values(self, needed: tuple[Bound, ...]) -> dict[str, bytes] | Refusal:
        found = await asyncio.gather(*(self._vault.value(each.grant) for each in needed), return_exceptions=True)
        values: dict[str, bytes] = {}
        for each, value in zip(needed, found, strict=True):
            if isinstance(value, NoValue):
                return _unusable(each, str(value))
            if isinstance(value, BaseException):
                raise value
            values[each.name] = value
            if each.grant.signer != "aws-sigv4":
                self._scrubber.learn(value, each.placeholders[0] if each.placeholders else b"")
        return values

    def _watcher(self, allowed: tuple[str, ...]) -> Watcher:
        return Watcher(
            tuple((each.name, form) for each in self._secrets if each.name not in allowed for form in each.forms)
        )

    def _body(
        self, allowed: tuple[str, ...], pairs: tuple[tuple[bytes, bytes], ...]
    ) -> Callable[[AsyncIterator[bytes]], AsyncIterator[bytes]]:
        def through(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            watched = self._watched(chunks, allowed)
            return replaced(watched, Replacer(pairs)) if pairs else watched

        return through

    async def _watched(self, chunks: AsyncIterator[bytes], allowed: tuple[str, ...]) -> AsyncIterator[bytes]:
        watcher = self._watcher(allowed)
        async for chunk in chunks:
            if name := watcher.feed(chunk):
                raise SecretRefused(_body_refusal(name, "a body"))
            yield chunk

    def _frame(self, allowed: tuple[str, ...], pairs: tuple[tuple[bytes, bytes], ...]) -> Callable[[bytes], bytes]:
        def through(message: bytes) -> bytes:
            if name := self._watcher(allowed).feed(message):
                raise SecretRefused(_body_refusal(name, "a message"))
            return replace_all(((old, for_message(new, message)) for old, new in pairs), message)

        return through


def _in_body(each: Bound, head: RequestHead) -> bool:
    """Whether its value may be needed once the head is out."""
    if not each.placeholders:
        return False
    if SecretPlace.WEBSOCKET in each.grant.places and _is_upgrade(head):
        return True
    has_body = header_of(head, b"content-length") not in (b"", b"0") or bool(header_of(head, b"transfer-encoding"))
    return SecretPlace.BODY in each.grant.places and (has_body or head.method not in ("GET", "HEAD"))


def _is_upgrade(head: RequestHead) -> bool:
    return header_of(head, b"upgrade").lower() == b"websocket" or header_of(head, b":protocol") == b"websocket"


def _fits_a_header(value: bytes) -> bool:
    return all(byte >= 0x20 and byte != 0x7F for byte in value)


def _astray(
    each: Bound,
    found: frozenset[Spot],
    host: Host,
    head: RequestHead,
    *,
    tls: bool,
    here: tuple[Bound, ...],
    usable: tuple[Bound, ...],
) -> Refusal | None:
    """Why a placeholder may not be where it is; None if it may."""
    if not tls:
        return _astray_refusal(each, "it is never sent in cleartext")
    if each not in here:
        return _astray_refusal(each, f"it is not for {host.in_url[:80]}")
    if each not in usable:
        return _astray_refusal(each, f"it is never sent with {head.method[:10]}")
    if (
        each.grant.signer == "aws-sigv4"
        and SecretPlace.QUERY in found
        and b"x-amz-signature" in head.path.lower().encode()
    ):
        return _unusable(each, "a presigned URL cannot be signed anew", status=403)
    if wrong := found - each.allowed:
        where = ", ".join(sorted("another place" if spot is None else f"a {spot.value}" for spot in wrong))
        return _astray_refusal(each, f"it may not stand in {where}")
    return None


def _astray_refusal(each: Bound, why: str) -> Refusal:
    return Refusal(403, f"placeholder of secret {each.shown}: {why}", canary=each.name)


def _body_refusal(name: str, where: str) -> Refusal:
    return Refusal(403, f"placeholder of a secret in {where}: it may not stand there", canary=name)


def _unusable(each: Bound, why: str, status: int = 502) -> Refusal:
    return Refusal(status, f"secret {each.shown}: {why}")
