"""What callers give, made into what the pipeline takes: times, sizes, input, commands; and what is of a wrong type.

The one place for both faces: a time may be `5`, `"5s"` or a timedelta, a size `1024` or `"1KB"`, input a text, bytes,
or pieces of bytes as they come.
"""

import asyncio
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from ringfence.errors import InvalidArgument, WrongType
from ringfence.values.request import OnOutput, Overflow, Request
from ringfence.values.sizes import Duration as Duration
from ringfence.values.sizes import Size as Size
from ringfence.values.sizes import bytes_of, seconds_of

StrPath = str | os.PathLike[str]
Stdin = str | bytes | Iterable[bytes] | AsyncIterable[bytes]
"""What a command reads: a text, bytes, or pieces of bytes; those of a plain iterable are fetched in a thread."""

_END: Final = object()


class StreamArguments(TypedDict, total=False):
    """What `Sandbox.stream` takes besides the command: what `shell` takes, but for `on_output`."""

    cwd: StrPath | None
    env: Mapping[str, str] | None
    stdin: Stdin | None
    timeout: Duration | None
    overflow: Overflow
    output_limit: Size | None
    context: str | None
    keep_background: bool


class CallArguments(StreamArguments, total=False):
    """What most calls take besides what they run."""

    on_output: OnOutput | None


def make_request(
    *,
    command: str | None = None,
    argv: Sequence[str] | None = None,
    code: str | None = None,
    language: str | None = None,
    **call: Unpack[CallArguments],
) -> Request:
    """A request from what a caller gave.

    Raises:
        WrongType: an argument is of a type that is not taken; says which, what it is and what is taken.
        InvalidArgument: a time or a size that is none.
    """
    context, timeout, limit = call.get("context"), call.get("timeout"), call.get("output_limit")
    return Request(
        command=_text("command", command, "use exec() for a program and its arguments"),
        argv=None if argv is None else _words(argv),
        code=_text("code", code),
        language=language,
        context=_text("context", context),
        cwd=_path("cwd", call.get("cwd")),
        env=_variables(call.get("env")),
        stdin=as_input(call.get("stdin")),
        timeout=None if timeout is None else seconds_of("timeout", timeout),
        overflow=_overflow(call.get("overflow", Overflow.STOP)),
        output_limit=None if limit is None else bytes_of("output_limit", limit),
        on_output=_callable("on_output", call.get("on_output")),
        keep_background=call.get("keep_background", False),
    )


def as_input(given: Stdin | None) -> bytes | AsyncIterable[bytes] | None:
    """Input as the pipeline takes it."""
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        try:
            return given.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(
                "stdin contains an unpaired surrogate", argument="stdin", hint="give it as bytes"
            ) from None
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    if isinstance(given, AsyncIterable):
        return given
    if isinstance(given, Iterable):
        return _fetched(given)
    raise WrongType("stdin", given, "text, bytes, or an iterable of bytes")


async def _fetched(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    """A plain iterable may wait for something, such as a file or a person: not in the loop."""
    iterator = iter(pieces)
    while (piece := await asyncio.to_thread(next, iterator, _END)) is not _END:
        if not isinstance(piece, bytes):
            raise WrongType("a piece of stdin", piece, "bytes")
        yield piece


def _text(name: str, given: object, hint: str = "") -> str | None:
    if given is None or isinstance(given, str):
        return given
    raise WrongType(name, given, "text", hint=hint)


def _words(given: object) -> tuple[str, ...]:
    if isinstance(given, str | bytes):
        raise WrongType("argv", given, "a sequence of texts", hint="use shell() for a command line")
    if not isinstance(given, Sequence):
        raise WrongType("argv", given, "a sequence of texts")
    for word in given:
        if not isinstance(word, str):
            raise WrongType("a word of argv", word, "text", hint="str(...) each of them")
    return tuple(given)


def _path(name: str, given: object) -> Path | None:
    if given is None:
        return None
    if isinstance(given, str | os.PathLike) and isinstance(os.fspath(given), str):
        return Path(given)
    raise WrongType(name, given, "a path")


def _variables(given: object) -> tuple[tuple[Any, Any], ...]:
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple(given.items())
    raise WrongType("env", given, "a mapping of names to values")


def _overflow(given: object) -> Overflow:
    if isinstance(given, Overflow):
        return given
    try:
        return Overflow(given)
    except ValueError:
        raise WrongType("overflow", given, "an Overflow") from None


def _callable(name: str, given: OnOutput | None) -> OnOutput | None:
    if given is None or callable(given):
        return given
    raise WrongType(name, given, "a function of a stream and bytes")
