"""What an interpreter inside a box says on its socket: frames, taken apart with every length bounded.

A frame is `KIND LENGTH\\n` and LENGTH bytes. The body of what is shown, and of an error, is a list of parts of the same
form, `NAME LENGTH\\n` and LENGTH bytes. There is no nesting and nothing to decode, so that a hostile body costs no more
memory than its bytes.
"""

from collections.abc import Iterator

from ringfence.errors import Internal
from ringfence.values.display import CodeError, DisplayData

FRAME_MAX = 17 * 1024 * 1024
_HEADER_MAX = 64
_PARTS_MAX = 32
_KINDS = frozenset({b"ready", b"display", b"result", b"error", b"done"})
_TEXT_TYPES = frozenset({"application/json", "application/javascript", "image/svg+xml"})


class Frames:
    """Collects bytes and gives the frames that are complete."""

    __slots__ = ("_buffer",)

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[str, bytes]]:
        """The frames that are complete with these bytes.

        Raises:
            Internal: what came is not a frame.
        """
        self._buffer += data
        while True:
            end = self._buffer.find(b"\n", 0, _HEADER_MAX)
            if end < 0:
                if len(self._buffer) >= _HEADER_MAX:
                    raise Internal("an interpreter sent what is not a frame")
                return
            kind, length = _header(bytes(self._buffer[:end]))
            if kind not in _KINDS or length > FRAME_MAX:
                raise Internal("an interpreter sent a frame of unknown kind or impossible length")
            if len(self._buffer) < end + 1 + length:
                return
            body = bytes(self._buffer[end + 1 : end + 1 + length])
            del self._buffer[: end + 1 + length]
            yield kind.decode("ascii"), body


def _header(line: bytes) -> tuple[bytes, int]:
    name, blank, digits = line.rpartition(b" ")
    if not blank or not digits.isdigit() or len(digits) > 9:
        raise Internal("an interpreter sent a header that makes no sense")
    return name, int(digits)


def parts(body: bytes) -> dict[str, bytes]:
    """The parts of a body, the last of equal name.

    Raises:
        Internal: it does not consist of parts, or of too many.
    """
    found: dict[str, bytes] = {}
    at = 0
    for _ in range(_PARTS_MAX):
        if at == len(body):
            return found
        end = body.find(b"\n", at, at + 2 * _HEADER_MAX)
        if end < 0:
            break
        name, length = _header(body[at:end])
        at = end + 1 + length
        if at > len(body) or not name.isascii():
            break
        found[name.decode("ascii")] = body[end + 1 : at]
    raise Internal("an interpreter showed something that cannot be read")


def read_shown(body: bytes, *, is_value: bool) -> DisplayData:
    """What `display` and `result` carry: one part for each MIME type."""
    forms = parts(body).items()
    return DisplayData(tuple((mime, _text(data) if _is_text(mime) else data) for mime, data in forms), is_value)


def read_error(body: bytes) -> CodeError:
    found = parts(body)
    return CodeError(*(_text(found.get(name, b"")) for name in ("type", "value", "traceback")))


def read_done(body: bytes, call: bytes) -> int | None:
    """The exit code that `done` carries; None if it is not about this call."""
    about, _, code = body.rpartition(b" ")
    if about != call:
        return None
    if not code.isdigit() or len(code) > 3:
        raise Internal("an interpreter ended with a code that cannot be")
    return int(code) & 0xFF


def _is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime in _TEXT_TYPES or mime.endswith(("+json", "+xml"))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
