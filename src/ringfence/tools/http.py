"""`HttpTool`: an agent's HTTP request, outside the wall and through the same judge (requirement A6).

A redirect is a new request: judged anew, at most ten, never from HTTPS to HTTP, and without the caller's credentials
where it leads to another host.
"""

import asyncio
import json as json_module
import re
from collections.abc import Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

from ringfence.dataclass import dataclass, field
from ringfence.errors import InvalidArgument, NetworkAccessDenied, NotInstalled, Timeout

if TYPE_CHECKING:
    from ringfence.tools.carrying import Came, Carrier, Opener

MOST_REDIRECTS: Final = 10
USUAL_SECONDS: Final = 30.0
USUAL_BYTES: Final = 10 * 1024 * 1024
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_CREDENTIALS: Final = frozenset(("authorization", "cookie", "proxy-authorization", "x-api-key", "private-token"))
_OURS: Final = frozenset(
    ("host", "connection", "content-length", "transfer-encoding", "accept-encoding", "te", "upgrade")
)
"""Headers that nobody else sets: they decide how a request is framed and where it goes."""
_METHOD: Final = re.compile(r"[A-Z]{1,20}")
_FORBIDDEN_METHODS: Final = ("CONNECT", "TRACE")
_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_AGENT: Final = "ringfence"


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back."""

    url: str
    """Where it came from, after redirects."""
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes = field(repr=False)
    redirects: tuple[str, ...] = ()
    """The addresses that were asked before, the caller's first."""
    seconds: float = 0.0
    is_cut: bool = False
    """Whether the body goes on."""

    def header(self, name: str) -> str:
        """The first header of this name; empty if there is none."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), "")

    @property
    def text(self) -> str:
        """The body, by the charset that it says."""
        from ringfence.tools.charsets import decoded

        return decoded(self.body, self.header("content-type"))

    def json(self) -> Any:
        """
        Raises:
            ValueError: the body is no JSON.
        """
        return json_module.loads(self.body)


class HttpTool:
    """Sends requests by the proxy of a box.

    Args:
        opener: gives a connection to the proxy (`EgressService.connect`).
        authority: the proxy's own, in PEM, where it inspects.
        seconds: for one call, redirects included.
        most_bytes: of an answer's body.
    """

    name = "http"

    def __init__(
        self,
        opener: "Opener",
        *,
        authority: bytes = b"",
        seconds: float = USUAL_SECONDS,
        most_bytes: int = USUAL_BYTES,
        carrier: "Carrier | None" = None,
    ) -> None:
        self._carrier = carrier or make_carrier(opener, authority)
        self._seconds = seconds
        self._most_bytes = most_bytes

    async def execute(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | str | None = None,
        json: Any = None,
    ) -> HttpAnswer:
        """
        Raises:
            InvalidArgument: a method, URL, header or body that cannot be sent.
            NetworkAccessDenied: it, or a redirect, was refused, or the host cannot be reached; says what would allow
                it.
            ResourceLimitExceeded: the answer is too long.
            Timeout: it took too long.
        """
        content, given = _content(headers or {}, body, json)
        return await self.ask(method, url, given, content)

    async def ask(
        self, method: str, url: str, headers: tuple[tuple[str, str], ...], content: bytes, *, cut: bool = False
    ) -> HttpAnswer:
        """The same with everything made ready; a body that is too long is cut, if that is wanted."""
        if not _METHOD.fullmatch(method.upper()) or method.upper() in _FORBIDDEN_METHODS:
            raise InvalidArgument(f"{method!r} is no method that can be sent", argument="method")
        started = monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                return await self._follow(method.upper(), checked_url(url), headers, content, started, cut=cut)
        except TimeoutError:
            raise Timeout(self._seconds) from None

    async def _follow(
        self,
        method: str,
        url: str,
        headers: tuple[tuple[str, str], ...],
        content: bytes,
        started: float,
        *,
        cut: bool,
    ) -> HttpAnswer:
        from ringfence.tools.carrying import Sent

        seen: list[str] = []
        while True:
            came = await self._carrier.carry(
                Sent(method, url, (*headers, *_own(headers, method, content)), content),
                most_bytes=self._most_bytes,
                cut=cut,
            )
            target = _target(url, came)
            if not target:
                return HttpAnswer(
                    url, came.status, came.headers, came.body, tuple(seen), monotonic() - started, came.is_cut
                )
            if len(seen) == MOST_REDIRECTS:
                raise NetworkAccessDenied(urlsplit(url).netloc, f"more than {MOST_REDIRECTS} redirects")
            seen.append(url)
            method, content, headers = _redirected(came.status, method, content, headers, url, target)
            url = target


def make_carrier(opener: "Opener", authority: bytes = b"") -> "Carrier":
    """
    Raises:
        NotInstalled: the extra is missing.
    """
    try:
        from ringfence.tools.carrying import Carrier
    except ImportError as fault:
        raise NotInstalled("the tools fetch and http need packages", hint="pip install 'ringfence[fetch]'") from fault
    return Carrier(opener, authority)


def checked_url(url: str) -> str:
    """A URL that can be asked for, without its fragment.

    Raises:
        InvalidArgument: it is none.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError as fault:
        raise InvalidArgument(f"{url[:200]!r} is no URL: {fault}", argument="url") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidArgument(
            f"{url[:200]!r} is no URL of the web", argument="url", hint="write it as https://example.com/path"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidArgument("a URL with a password in it", argument="url", hint="give it as a header, or as a secret")
    if re.search(r"[\x00-\x20\x7f\\]", url.strip()) or port == 0:
        raise InvalidArgument(f"{url[:200]!r} holds a character that no URL holds", argument="url")
    host = parts.hostname
    try:
        ascii_host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        raise InvalidArgument(f"{host[:100]!r} is no host name", argument="url") from None
    written = f"[{ascii_host}]" if ":" in ascii_host else ascii_host
    authority = written if port is None else f"{written}:{port}"
    return _ascii(urlunsplit((parts.scheme, authority, parts.path or "/", parts.query, "")))


def _ascii(url: str) -> str:
    """Characters beyond ASCII as browsers send them."""
    return "".join(
        letter if letter.isascii() else "".join(f"%{byte:02X}" for byte in letter.encode("utf-8", "replace"))
        for letter in url
    )


def _content(
    headers: Mapping[str, str], body: bytes | str | None, json: Any
) -> tuple[bytes, tuple[tuple[str, str], ...]]:
    given = tuple((str(name), str(value)) for name, value in headers.items())
    for name, value in given:
        if not _NAME.fullmatch(name) or name.lower() in _OURS:
            raise InvalidArgument(f"the header {name!r} cannot be set", argument="headers")
        if re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value) or not value.isascii():
            raise InvalidArgument(f"the header {name!r} holds a character that none holds", argument="headers")
    if json is not None and body is not None:
        raise InvalidArgument("both a body and JSON", argument="json", hint="give one of them")
    if json is not None:
        typed = any(name.lower() == "content-type" for name, _ in given)
        return json_module.dumps(json).encode(), given if typed else (*given, ("content-type", "application/json"))
    return (body.encode() if isinstance(body, str) else body or b""), given


def _own(headers: tuple[tuple[str, str], ...], method: str, content: bytes) -> tuple[tuple[str, str], ...]:
    names = {name.lower() for name, _ in headers}
    own = [("accept-encoding", "gzip, deflate")]
    if "user-agent" not in names:
        own.append(("user-agent", _AGENT))
    if "accept" not in names:
        own.append(("accept", "*/*"))
    if content or method in ("POST", "PUT", "PATCH"):
        own.append(("content-length", str(len(content))))
    return tuple(own)


def _target(url: str, came: "Came") -> str:
    """Where an answer leads to; empty if it is the last.

    Raises:
        NetworkAccessDenied: to where no request may go.
    """
    place = came.header("location")
    if came.status not in _REDIRECTS or not place:
        return ""
    host = urlsplit(url).netloc
    try:
        target = checked_url(urljoin(url, place.encode("latin-1").decode("utf-8", "replace")))
    except (InvalidArgument, ValueError):
        raise NetworkAccessDenied(host, "it redirects to what is no URL of the web") from None
    if url.startswith("https:") and not target.startswith("https:"):
        raise NetworkAccessDenied(
            host,
            "it redirects from HTTPS to HTTP, where anybody could read along",
            hint=f"ask for {target[:200]} itself",
        )
    return target


def _redirected(
    status: int, method: str, content: bytes, headers: tuple[tuple[str, str], ...], url: str, target: str
) -> tuple[str, bytes, tuple[tuple[str, str], ...]]:
    """Method, body and headers of the next request."""
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, content = "GET", b""
        headers = tuple(pair for pair in headers if not pair[0].lower().startswith("content-"))
    if _origin(url) != _origin(target):
        headers = tuple(pair for pair in headers if pair[0].lower() not in _CREDENTIALS)
    return method, content, headers


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
