"""Where in a request a placeholder stands, and the same request with the value in its place. Pure.

A header of the client's own (`authorization`, `x-api-key`, ...) may hold it as it is, HTTP Basic in base64, a query and
a path as they are. Everything else, such as base64 in another header or a name in capitals, is a place where nobody
legitimate puts it.
"""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote_from_bytes, quote_plus, unquote_to_bytes

from ringfence.dataclass import replace
from ringfence.egress.base import Headers, RequestHead
from ringfence.egress.secrets.forms import spellings
from ringfence.values.network import SecretPlace

ELSEWHERE: Final = None
"""A place where no placeholder may be."""
Spot = SecretPlace | None

_NEVER_IN: Final = frozenset(
    (
        # these are logged, shown to others, or decide where a request goes
        b"host",
        b"user-agent",
        b"referer",
        b"origin",
        b"from",
        b"via",
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"range",
        b"content-type",
        b"content-disposition",
        b"accept",
        b"accept-language",
        b"accept-encoding",
        b"proxy-authorization",
    )
)
_PATH_SAFE: Final = ":@!$&'()*+,;=~"
_BASIC: Final = b"basic "


def spots(head: RequestHead, placeholder: bytes, only_header: str = "") -> frozenset[Spot]:
    """Every kind of place in a head where the placeholder is.

    Args:
        only_header: the one header that may hold it, if it is not any.
    """
    found: set[Spot] = set()
    forms = tuple(form.lower() for form in spellings(placeholder))
    path, _, query = head.path.partition("?")
    found |= _in_target(path.encode("latin-1", "replace"), placeholder, forms, SecretPlace.PATH)
    found |= _in_target(query.encode("latin-1", "replace"), placeholder, forms, SecretPlace.QUERY)
    if _holds(head.method.encode("latin-1", "replace"), forms):
        found.add(ELSEWHERE)
    for name, value in head.headers:
        if _holds(name, forms):
            found.add(ELSEWHERE)
        named = not only_header or name == only_header.lower().encode()
        if placeholder in value:
            is_usual = named and name not in _NEVER_IN and not name.startswith(b":")
            found.add(SecretPlace.HEADER if is_usual else ELSEWHERE)
        elif name == b"authorization" and (pair := basic_pair(value)) is not None:
            if placeholder in pair:
                found.add(SecretPlace.BASIC if named else ELSEWHERE)
            elif _holds(pair, forms):
                found.add(ELSEWHERE)
        elif _holds(value, forms):
            found.add(ELSEWHERE)
    return frozenset(found)


def _in_target(text: bytes, placeholder: bytes, forms: tuple[bytes, ...], place: SecretPlace) -> set[Spot]:
    if placeholder in text:
        return {place}
    return {ELSEWHERE} if _holds(text, forms) or _holds(unquote_to_bytes(text), forms) else set()


def _holds(text: bytes, forms: Iterable[bytes]) -> bool:
    lower = text.lower()
    return any(form in lower for form in forms)


def basic_pair(value: bytes) -> bytes | None:
    """`user:password` of a header in HTTP Basic; None if it is none."""
    if value[: len(_BASIC)].lower() != _BASIC:
        return None
    try:
        return base64.b64decode(value[len(_BASIC) :].strip(), validate=True)
    except binascii.Error:
        return None


def basic_header(pair: bytes) -> bytes:
    return b"Basic " + base64.b64encode(pair)


def put_in(head: RequestHead, placeholder: bytes, value: bytes, places: frozenset[Spot]) -> RequestHead:
    """The head with the value where the placeholder stands, in these places."""
    text = placeholder.decode("ascii")
    path, mark, query = head.path.partition("?")
    if SecretPlace.PATH in places:
        path = path.replace(text, quote_from_bytes(value, safe=_PATH_SAFE))
    if SecretPlace.QUERY in places:
        query = query.replace(text, quote_from_bytes(value, safe=""))
    headers: list[tuple[bytes, bytes]] = []
    for name, old in head.headers:
        new = old
        if SecretPlace.HEADER in places and placeholder in old:
            new = old.replace(placeholder, value)
        elif (
            SecretPlace.BASIC in places and name == b"authorization" and placeholder in (pair := basic_pair(old) or b"")
        ):
            new = basic_header(pair.replace(placeholder, value))
        headers.append((name, new))
    return replace(head, path=path + mark + query, headers=tuple(headers))


def inject(head: RequestHead, header: str, template: str, value: bytes) -> RequestHead:
    """The head with a header of ours, instead of whatever the client sent under its name.

    A template that begins with `Basic ` has the pair after it in clear: `Basic x-access-token:{}`.
    """
    name = (header or "authorization").lower().encode("ascii")
    filled = template.encode("utf-8").replace(b"{}", value)
    if template.lower().startswith("basic ") and ":" in template:
        filled = basic_header(filled[len(_BASIC) :])
    return replace(head, headers=(*without(head.headers, name), (name, filled)))


def without(headers: Headers, *names: bytes) -> Headers:
    return tuple(pair for pair in headers if pair[0] not in names)


def header_of(head: RequestHead, name: bytes) -> bytes:
    """The first header of this name; empty if there is none."""
    return next((value for key, value in head.headers if key == name), b"")


def with_header(head: RequestHead, name: bytes, value: bytes) -> RequestHead:
    """The head with this header set, in the place of the old one."""
    headers: list[tuple[bytes, bytes]] = []
    for key, old in head.headers:
        if key != name:
            headers.append((key, old))
        elif not any(seen == name for seen, _ in headers):
            headers.append((name, value))
    if not any(key == name for key, _ in headers):
        headers.append((name, value))
    return replace(head, headers=tuple(headers))


def for_body(value: bytes, content_type: bytes) -> bytes:
    """The value as a body of this type has to hold it."""
    kind = content_type.partition(b";")[0].strip().lower()
    if kind == b"application/x-www-form-urlencoded":
        return quote_plus(value).encode()
    if kind.endswith((b"/json", b"+json", b"ndjson")):
        return _in_json(value)
    return value


def for_message(value: bytes, message: bytes) -> bytes:
    """The value as a text message of a WebSocket has to hold it."""
    return _in_json(value) if message.lstrip()[:1] in (b"{", b"[") else value


def _in_json(value: bytes) -> bytes:
    try:
        return json.dumps(value.decode("utf-8"))[1:-1].encode()
    except UnicodeDecodeError:
        return value
