"""Makes a question from a request: the hash over everything that would run, and what a person is shown.

The hash walks through every field of the request and of the grant, those that are added later included. A value of a
kind that it does not know is an error rather than a gap.

What this does not protect against: input that comes as a stream is not known beforehand. It is named as such, and a yes
is never remembered for it. Files that the command reads may change between the answer and the run.
"""

import hashlib
import os
import time
from collections.abc import AsyncIterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath

from ringfence.approvals.base import Question
from ringfence.errors import Internal
from ringfence.values.facts import Span
from ringfence.values.grant import Grant
from ringfence.values.request import Request
from ringfence.values.risk import Risk
from ringfence.values.verdict import Decision, Verdict

_NOT_WHAT_RUNS = frozenset({"on_output"})
"""Fields of a request that only say where its output goes."""
_INPUT_SHOWN = 2000
"""Bytes of standard input that a person is shown."""


def hash_request(request: Request, grant: Grant) -> str:
    """sha256 over everything that runs: command, directory, variables, input, and what the box may touch."""
    digest = hashlib.sha256()
    for thing in (request, grant):
        for piece in _pieces(thing):
            digest.update(piece)
    return digest.hexdigest()


def _pieces(thing: object) -> Iterator[bytes]:
    """A value as bytes that no other value gives: each kind is marked, each length written before its content."""
    match thing:
        case None:
            yield b"n"
        case Enum():
            yield from _text(b"e", f"{type(thing).__name__}.{thing.name}")
        case bool() | int() | float():
            yield from _text(b"i", f"{type(thing).__name__} {thing!r}")
        case str():
            yield from _text(b"s", thing)
        case PurePath():
            yield from _text(b"p", os.fspath(thing))
        case bytes():
            yield b"b%d:" % len(thing)
            yield thing
        case tuple():
            yield b"t%d:" % len(thing)
            for item in thing:
                yield from _pieces(item)
        case frozenset():
            yield b"f%d:" % len(thing)
            yield from sorted(b"".join(_pieces(item)) for item in thing)
        case _ if is_dataclass(thing):
            yield from _text(b"d", type(thing).__name__)
            for field in fields(thing):
                if field.name not in _NOT_WHAT_RUNS:
                    yield from _text(b"k", field.name)
                    yield from _pieces(getattr(thing, field.name))
        case AsyncIterable():
            yield b"stream"
        case _:
            raise Internal(f"a {type(thing).__name__} cannot be part of what is approved")


def _text(kind: bytes, text: str) -> Iterator[bytes]:
    content = text.encode("utf-8", "surrogatepass")
    yield kind + b"%d:" % len(content)
    yield content


def make_question(
    request: Request,
    decision: Decision,
    *,
    session: str,
    seconds: float,
    risk: Risk = Risk.HIGH,
    spans: tuple[Span, ...] = (),
    may_remember: bool = True,
) -> Question:
    """The question that a decision to ask leads to; open for `seconds` from now."""
    streamed = request.stdin is not None and not isinstance(request.stdin, bytes)
    return Question(
        id=os.urandom(16).hex(),
        request_hash=hash_request(request, decision.grant),
        command=request.shown,
        reasons=tuple(reason for reason in decision.reasons if reason.verdict is not Verdict.ALLOW),
        spans=spans,
        risk=risk,
        session=session,
        expires_at=time.time() + seconds,
        may_remember=may_remember and not streamed,
        details=tuple(_details(request, decision.grant)),
    )


def _details(request: Request, grant: Grant) -> Iterator[tuple[str, str]]:
    yield "in", os.fspath(request.cwd or grant.workspace)
    if request.argv is not None:
        yield "arguments", repr(request.argv)
    if request.env:
        yield "variables", ", ".join(sorted(name for name, _ in request.env))
    if isinstance(request.stdin, bytes):
        shown = request.stdin[:_INPUT_SHOWN].decode("utf-8", "replace")
        more = f" ... and {len(request.stdin) - _INPUT_SHOWN} bytes more" if len(request.stdin) > _INPUT_SHOWN else ""
        yield "input", shown + more
    elif request.stdin is not None:
        yield "input", "a stream, not known beforehand"
