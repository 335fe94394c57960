"""What a shell that keeps its state is told for one call: the command, and where, with which variables and input.

A call's directory, variables and input are its own, and gone after it; what the command itself changes stays. So the
directory is put back, unless the command has moved on; the variables stand before `eval`, which takes them back when it
is done; the input comes from a process beside, of which the shell has the reading end.

The text is read by bash as a script, so that everything in it is quoted: nothing of a value is ever expanded.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING

from ringfence.errors import InvalidArgument

if TYPE_CHECKING:
    from ringfence.values.request import Request

STDIN_MAX = 8 * 1024 * 1024
"""Bytes of input for one call of a kept shell: the shell has to read them as text."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


async def shell_lines(command: bytes, request: Request, shell: str) -> bytes:
    """The script for one call; without the word that it is over, which whoever sends it adds.

    Raises:
        InvalidArgument: a variable has a name that a shell cannot have; the input is longer than a kept shell takes, or
            this shell cannot be given any.
    """
    for name, _ in request.env:
        if _NAME.fullmatch(name) is None:
            raise InvalidArgument(
                f"{name!r} cannot be a variable of a shell", hint="letters, digits and `_`, and no digit first"
            )
    line = b"eval " + quote(command)
    is_bash = shell.endswith("bash")
    if request.env:
        words = (name.encode() + b"=" + quote(_bytes(value)) for name, value in request.env)
        # Before `eval` itself, the variables would stay in a shell that follows POSIX to the letter.
        line = b" ".join(words) + (b" " if is_bash else b" command ") + line
    if request.stdin is None:
        line += b" </dev/null"
    elif is_bash:
        line += b" < <(exec </dev/null 9<&-; printf '%%b' %b)" % _as_printf(await _whole(request.stdin))
    else:
        raise InvalidArgument(
            f"a kept {shell} takes no input",
            hint="leave `context` out, or put the input into a file that the command reads",
        )
    line += b" 9<&-"
    if request.cwd is None:
        return line
    place = quote(_bytes(str(request.cwd)))
    # What it was is put back, unless the command itself went elsewhere.
    return (
        b"RINGFENCE_WAS=$PWD RINGFENCE_OLD=${OLDPWD-}; if cd -- %b; then %b; RINGFENCE_CODE=$?; "
        b'if [ "$PWD" -ef %b ]; then cd -- "$RINGFENCE_WAS" && OLDPWD=$RINGFENCE_OLD; fi; '
        b"(exit $RINGFENCE_CODE); else (exit 1); fi" % (place, line, place)
    )


def quote(text: bytes) -> bytes:
    """One word of a shell, whatever is in it."""
    return b"'" + text.replace(b"'", b"'\\''") + b"'"


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _as_printf(data: bytes) -> bytes:
    """The word from which `printf %b` makes these bytes: a script cannot hold a NUL."""
    return quote(data.replace(b"\\", b"\\\\").replace(b"\0", b"\\0000"))


async def _whole(stdin: bytes | AsyncIterable[bytes]) -> bytes:
    if isinstance(stdin, bytes):
        data = stdin
    else:
        collected = bytearray()
        async for piece in stdin:
            collected += piece
            if len(collected) > STDIN_MAX:
                break
        data = bytes(collected)
    if len(data) > STDIN_MAX:
        raise InvalidArgument(
            f"a kept shell takes at most {STDIN_MAX} bytes of input for one call",
            hint="leave `context` out, or put the input into a file that the command reads",
        )
    return data
