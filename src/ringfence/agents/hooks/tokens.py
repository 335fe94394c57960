"""One-time tokens: that the command which a hook rewrote is the one that ran, inside the wall.

A token is a file below Ringfence's state, which no box can write: issued by the hook with a digest of the command,
redeemed by whoever runs it, by a rename that succeeds once. After the call, the client's second hook looks whether its
token was redeemed. If not, the client ran something else than it was told to, and an alarm for its session makes the
hook deny every command until a person has looked.

What this does not protect against: other programs of the same user, who can write these files; an agent's own tools for
files are such programs.
"""

import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from ringfence.dataclass import dataclass
from ringfence.errors import CommandNotAllowed, PermissionDenied

_KEPT_SECONDS: Final = 24 * 3600.0
"""After which a token that nobody redeemed is gone: a person may take long to answer their client."""
_BACKGROUND_SECONDS: Final = 5.0
"""How long after a call its token may still be redeemed: a client tells of a command in the background at once."""
_LETTERS: Final = frozenset("0123456789abcdef")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a token stands for."""

    client: str
    session: str
    command: str
    """A digest."""
    options: tuple[str, ...]
    """Words for `ringfence run`."""
    approved: bool
    """Whether the client asked a person about it."""


class Ledger:
    """The tokens of one user.

    Raises:
        PermissionDenied: the directory cannot be made.
    """

    def __init__(self, state: Path) -> None:
        self._directory = state / "hooks"
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as fault:
            raise PermissionDenied(
                f"tokens of hooks cannot be kept: {fault.strerror}",
                path=os.fspath(self._directory),
                hint="make it writable, or set RINGFENCE_STATE_DIR",
            ) from fault

    def issue(self, ticket: Ticket, call: str) -> str:
        """A token for one run of one command; found again by what the client calls the call."""
        self._forget_old()
        token = secrets.token_hex(24)
        fields = {
            "client": ticket.client,
            "session": ticket.session,
            "command": ticket.command,
            "options": list(ticket.options),
            "approved": ticket.approved,
        }
        self._write(self._issued(token), json.dumps(fields))
        if call:
            self._write(self._called(ticket.session, call), token)
        return token

    def redeem(self, token: str, command: str) -> Ticket:
        """
        Raises:
            CommandNotAllowed: it was never issued, was used already, or is for another command.
        """
        found = self._issued(token) if token and set(token) <= _LETTERS else None
        try:
            if found is None:
                raise FileNotFoundError
            fields: dict[str, Any] = json.loads(found.read_text())
            if fields["command"] != digest(command):
                raise CommandNotAllowed(
                    "the command is another one than the hook has looked at",
                    rule="hook.token",
                    hint="run it again, so that the hook sees it",
                )
            os.rename(found, self._redeemed(token))  # who comes second finds nothing
        except FileNotFoundError:
            raise CommandNotAllowed(
                "the token of this command was used already, or was never given out",
                rule="hook.token",
                hint="run the command itself again: the hook gives it a new one",
            ) from None
        return Ticket(
            client=fields["client"],
            session=fields["session"],
            command=fields["command"],
            options=tuple(fields["options"]),
            approved=bool(fields["approved"]),
        )

    def was_redeemed(self, token: str, sleep: Callable[[float], None] = time.sleep) -> bool:
        """Whether what it was issued for ran inside; waits a little for one in the background."""
        until = time.monotonic() + _BACKGROUND_SECONDS
        while True:
            if self._redeemed(token).exists():
                return True
            if not self._issued(token).exists() or time.monotonic() > until:
                return False
            sleep(0.05)

    def token_of(self, session: str, call: str) -> str:
        """The token of a call; empty if there is none."""
        try:
            return self._called(session, call).read_text() if call else ""
        except OSError:
            return ""

    def settle(self, session: str, call: str, token: str) -> None:
        """It was proven: nothing has to be kept."""
        for path in (self._redeemed(token), self._called(session, call)):
            path.unlink(missing_ok=True)

    def raise_alarm(self, session: str, why: str) -> None:
        self._write(self._alarm(session), why)

    def alarm(self, session: str) -> str:
        """What ran unproven in a session; empty if nothing did."""
        try:
            return self._alarm(session).read_text()
        except FileNotFoundError:
            return ""

    def alarms(self) -> tuple[tuple[str, str], ...]:
        """(handle, what) of every alarm that stands."""
        found = sorted(self._directory.glob("alarm-*"))
        return tuple((path.name.removeprefix("alarm-"), path.read_text()) for path in found)

    def clear(self) -> None:
        """A person has looked."""
        for path in self._directory.glob("alarm-*"):
            path.unlink(missing_ok=True)

    def _issued(self, token: str) -> Path:
        return self._directory / f"issued-{token}"

    def _redeemed(self, token: str) -> Path:
        return self._directory / f"ran-{token}"

    def _called(self, session: str, call: str) -> Path:
        return self._directory / f"call-{digest(json.dumps([session, call]))[:32]}"

    def _alarm(self, session: str) -> Path:
        return self._directory / f"alarm-{digest(session)[:16]}"

    def _write(self, path: Path, text: str) -> None:
        made = path.with_name(f".{secrets.token_hex(8)}")
        with open(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "w") as file:
            file.write(text)
        os.replace(made, path)

    def _forget_old(self) -> None:
        before = time.time() - _KEPT_SECONDS
        for path in self._directory.iterdir():
            with suppress(FileNotFoundError):  # another hook has renamed or removed it meanwhile
                if not path.name.startswith("alarm-") and path.stat().st_mtime < before:
                    path.unlink()


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def words_for(program: Sequence[str], token: str, command: str) -> list[str]:
    """How a command is run with its token."""
    return [*program, "--token", token, "-c", command]
