"""Requests before and after they are judged: what makes no sense at all, and how a box takes the rest."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from ringfence.dataclass import replace
from ringfence.deferred import deferred
from ringfence.errors import CommandNotAllowed, InvalidArgument, SpawnFailed
from ringfence.manager.environment import check_variables
from ringfence.policy.expanding import is_encodable

if TYPE_CHECKING:
    from ringfence.engines.base import Box
    from ringfence.languages.registry import find as find_language
    from ringfence.languages.registry import invocation
    from ringfence.values.request import Request
else:
    find_language = deferred("ringfence.languages.registry", "find")
    invocation = deferred("ringfence.languages.registry", "invocation")


def check_form(request: Request) -> None:
    """Refuse what no wall and no policy could make sense of.

    Raises:
        CommandNotAllowed: empty, or with a NUL byte, which would end it early without a word.
        InvalidArgument: a variable or a time that cannot be.
    """
    text = request.command if request.command is not None else request.code
    words = (text,) if text is not None else request.argv or ()
    if not words or not words[0].strip():
        raise CommandNotAllowed("the command is empty", hint="say what to run")
    for word in words:
        if "\0" in word:
            raise CommandNotAllowed("the command holds a NUL byte", command=word, hint="remove it")
        if not is_encodable(word):
            raise CommandNotAllowed("the command contains an unpaired surrogate", hint="give it as proper Unicode")
    check_variables(request.env)
    if request.timeout is not None and not request.timeout > 0:
        raise InvalidArgument(
            f"a timeout of {request.timeout!r} s is not above zero", hint="leave it out for the default"
        )
    if request.output_limit is not None and request.output_limit < 0:
        raise InvalidArgument(
            f"an output limit of {request.output_limit!r} bytes is below zero", hint="leave it out for the default"
        )


def as_run_by(box: Box, request: Request) -> Request:
    """The request as this box takes it: code goes to an interpreter of its own, or to a program of its language.

    Raises:
        InvalidArgument: there is no such language, or the code makes no sense in it.
        SpawnFailed: its interpreter is not there; says how to get it.
    """
    if request.code is None or request.language is None or request.language in box.interprets:
        return request
    language = find_language(request.language)
    program = box.find_program(language.programs)
    if program is None:
        raise SpawnFailed(
            language.programs[0], f"there is no {language.name} in the box", number=errno.ENOENT, hint=language.install
        )
    made = invocation(language, request.code, program)
    stdin = request.stdin if made.stdin is None else made.stdin
    return replace(request, code=None, context=None, argv=made.argv, stdin=stdin)
