"""What `ringfence-shell` was asked to run: the forms in which programs call a shell. Pure.

ringfence-shell -c COMMAND          as SHELL is called; -lc, -ic and -l -c mean the same here
ringfence-shell COMMAND             a prefix before one quoted command (CLAUDE_CODE_SHELL_PREFIX)
ringfence-shell PROGRAM ARGUMENT... a prefix before words
ringfence-shell --token T -c ...    as a hook rewrites a command
"""

from collections.abc import Sequence
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument

_FLAGS: Final = frozenset("lirbceuxvE")
"""Letters that shells take before `-c`; those about start-up files mean nothing inside, where there are none."""
_LONG: Final = frozenset(("--login", "--norc", "--noprofile", "--posix"))


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellCall:
    """Words are one command line, or a program with its arguments; none: an interactive shell."""

    words: tuple[str, ...] = ()
    token: str = ""

    @property
    def text(self) -> str:
        """The command line that a hook has looked at."""
        return self.words[0] if len(self.words) == 1 else ""


def parse(given: Sequence[str]) -> ShellCall:
    """
    Raises:
        InvalidArgument: it is none of the forms.
    """
    words = list(given)
    token = ""
    if words[:1] == ["--token"]:
        if len(words) < 2:
            raise InvalidArgument("--token without a token", hint="a hook adds it by itself")
        token = words[1]
        del words[:2]
    wants_command = False
    options: list[str] = []
    while words and words[0].startswith("-") and words[0] not in ("-", "--"):
        word = words.pop(0)
        if word in _LONG:
            continue
        if not set(word[1:]) <= _FLAGS:
            raise InvalidArgument(f"ringfence-shell knows no option {word!r}", hint="write -c COMMAND")
        options += (letter for letter in word[1:] if letter in "eux")
        if "c" in word[1:]:
            wants_command = True
    if words[:1] == ["--"]:
        del words[:1]
    if not wants_command:
        return ShellCall(words=tuple(words), token=token)
    if not words:
        raise InvalidArgument("-c without a command", hint="write -c COMMAND")
    set_first = f"set -{''.join(dict.fromkeys(options))}; " if options else ""
    command, *parameters = words
    if not parameters:
        return ShellCall(words=(set_first + command,), token=token)
    return ShellCall(words=("/bin/sh", "-c", set_first + command, *parameters), token=token)
