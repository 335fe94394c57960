"""Makes a question from a request: the hash over everything that would run, and what a person is shown.

The hash walks through every field of the request and of the grant, those that are added later included. A value of a
kind that it does not know is an error rather than a gap.

What this does not protect against: input that comes as a stream is not known beforehand. It is named as such, and a
yes is never remembered for it. Nor is it for what runs in a shell or an interpreter that stays: its directory,
functions and variables are not in the hash, and make another act of the same text. Files that the command reads may
change between the answer and the run.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import AsyncIterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import TYPE_CHECKING

from ringfence.approvals.base import Question
from ringfence.errors import Internal
from ringfence.policy.decide import command_text
from ringfence.values.risk import Risk
from ringfence.values.verdict import Decision, Verdict

if TYPE_CHECKING:
    from ringfence.values.facts import Span
    from ringfence.values.grant import Grant
    from ringfence.values.request import Request

_NOT_WHAT_RUNS = frozenset({"on_output"})
"""Fields of a request that only say where its output goes."""


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
    variables: tuple[tuple[str, str], ...] = (),
) -> Question:
    """The question that a decision to ask leads to; open for `seconds` from now.

    Args:
        variables: which the caller has set for the box, besides those of the request.
    """
    streamed = request.live_input or not (request.stdin is None or isinstance(request.stdin, bytes))
    return Question(
        id=os.urandom(16).hex(),
        request_hash=hash_request(request, decision.grant),
        command=command_text(request),
        reasons=tuple(reason for reason in decision.reasons if reason.verdict is not Verdict.ALLOW),
        spans=spans,
        risk=risk,
        session=session,
        expires_at=time.time() + seconds,
        may_remember=may_remember and not streamed and not request.is_in_kept_state,
        details=tuple(_details(request, decision.grant, {**dict(variables), **dict(request.env)})),
    )


def _details(request: Request, grant: Grant, variables: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Whole, whatever they hold: what is cut or hidden here was not approved."""
    yield "in", _directory(request, grant)
    for name, value in sorted(variables.items()):
        yield f"variable {name}", value
    if isinstance(request.stdin, bytes):
        yield "input", _input(request.stdin)
    if request.live_input or not (request.stdin is None or isinstance(request.stdin, bytes)):
        yield "input", "a stream, not known beforehand"
    if request.keep_background:
        yield "afterwards", "what it leaves running goes on until the sandbox is closed"


def _directory(request: Request, grant: Grant) -> str:
    """Where it runs, as far as that is known: only what stays from call to call knows where an earlier call has led."""
    if not request.is_in_kept_state:
        return os.fspath(request.cwd or grant.workspace)
    if request.code is None and request.cwd is not None:
        return f"{os.fspath(request.cwd)}, in the shell `{request.context}` with what it keeps"
    kind = "shell" if request.code is None else "interpreter"
    which = f"the {kind} `{request.context}`" if request.context is not None else f"the {kind}"
    return f"wherever {which} is now, with what it keeps"


def _input(data: bytes) -> str:
    """Standard input as text, or as Python would write the bytes."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return repr(data)
