"""What a hook answers: before a call pass, deny or run this instead; after it, whether what ran was that.

    read the call -> not a shell? pass -> an alarm stands? deny -> judge -> issue a token -> rewrite

Whatever goes wrong on the way is a denial: the clients take a crash for a yes.
"""

import json
import os
import shlex
from collections.abc import Callable, Mapping
from typing import Any, Final

from ringfence.agents.hooks.dialects import BLOCK, Answer, Dialect, HookCall, Way
from ringfence.agents.hooks.tokens import Ledger, Ticket, digest, words_for
from ringfence.dataclass import dataclass
from ringfence.values.verdict import Decision, Verdict

Judge = Callable[[str, tuple[str, ...]], Decision | None]
"""What would be decided about a command, with these options besides; None where no policy is in force, so that nothing
but the wall holds it."""

_MOST_BYTES: Final = 8 * 1024 * 1024
_NOT_AROUND: Final = "Do not look for a way around it; tell the person what you need and why."


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One client's hook, as it was installed."""

    dialect: Dialect
    program: tuple[str, ...]
    """What runs a command inside: `ringfence-shell`."""
    options: tuple[str, ...]
    """Words for `ringfence run`."""
    trusts_wall: bool
    """Whether the client need ask nobody about what runs inside."""

    def answer(self, data: bytes, ledger: Callable[[], Ledger], judge: Judge) -> Answer:
        """What to say to a client. Never raises for what the client sent."""
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError("it is too long")
            call = self.dialect.read(_fields(data))
        except (LookupError, TypeError, ValueError, RecursionError) as fault:
            return Answer(stderr=f"ringfence: this is no call of a tool of {self.dialect.title}: {fault}", code=BLOCK)
        if call.tool not in self.dialect.shell_tools:
            return Answer()
        return self._after(call, ledger()) if call.is_over else self._before(call, ledger(), judge)

    def _before(self, call: HookCall, ledger: Ledger, judge: Judge) -> Answer:
        if alarm := ledger.alarm(call.session):
            return self.dialect.deny(
                f"ringfence: {alarm} Until a person has looked, and run `ringfence hook clear`, nothing runs."
            )
        if not call.command.strip():
            return self.dialect.deny("ringfence: there is no command in this call")
        _, command = self.unwrapped(call.command)
        decision = judge(command, self._place(call))
        if decision is not None and decision.verdict is Verdict.DENY:
            return self.dialect.deny(f"ringfence: {decision.sentence}. {_NOT_AROUND}")
        is_asked = decision is not None and decision.verdict is Verdict.ASK
        if is_asked and not self._can_ask(call):
            assert decision is not None
            return self.dialect.deny(
                f"ringfence: {decision.sentence}. {self.dialect.title} asks nobody here, so it is refused. Ask the "
                "person to run it, or to allow it in the policy."
            )
        if self.dialect.way is Way.TELL and self._token_in(call.command):
            return self.dialect.rewrite(call, call.command, False)
        token = ledger.issue(
            Ticket(
                client=self.dialect.name,
                session=call.session,
                command=digest(command),
                options=(*self.options, *self._place(call)),
                approved=is_asked,
            ),
            call.call,
        )
        rewritten = shlex.join(words_for(self.program, token, command))
        if self.dialect.way is Way.TELL:
            # With its token, because that is what carries the options.
            return self.dialect.deny(
                f"ringfence: commands run inside the wall here. Run exactly this instead: {rewritten}"
            )
        if is_asked:
            assert self.dialect.ask is not None and decision is not None
            return self.dialect.ask(call, rewritten, f"ringfence: {decision.sentence}")
        return self.dialect.rewrite(call, rewritten, self.trusts_wall)

    def _place(self, call: HookCall) -> tuple[str, ...]:
        """The project, where nobody has named one: not where the agent's shell happens to be."""
        if any(word in ("-w", "--workspace") or word.startswith("--workspace=") for word in self.options):
            return ()
        place = os.environ.get(self.dialect.project_variable, "") or call.cwd
        return ("--workspace", place) if place else ()

    def _can_ask(self, call: HookCall) -> bool:
        return self.dialect.ask is not None and call.mode in self.dialect.asking_modes

    def _after(self, call: HookCall, ledger: Ledger) -> Answer:
        if self.dialect.way is Way.TELL:
            is_proven = self.unwrapped(call.command)[0]
        else:
            token = ledger.token_of(call.session, call.call) or self._token_in(call.command)
            is_proven = bool(token) and ledger.was_redeemed(token)
            if is_proven:
                ledger.settle(call.session, call.call, token)
        if is_proven:
            return Answer()
        why = (
            f"A command of {self.dialect.title} was not proven to have run inside the wall: "
            f"{call.command[:200]!r}. The client has dropped the rewritten command, or it could not be started."
        )
        ledger.raise_alarm(call.session, why)
        return self.dialect.report(f"ringfence: {why}")

    def unwrapped(self, command: str) -> tuple[bool, str]:
        """Whether a command is exactly a call of ours, and what it runs: nothing is wrapped twice."""
        try:
            words = shlex.split(command)
        except ValueError:
            return False, command
        if shlex.join(words) != command or tuple(words[: len(self.program)]) != self.program:
            return False, command
        rest = words[len(self.program) :]
        if len(rest) == 2 and rest[0] == "-c":
            return True, rest[1]
        if len(rest) == 4 and rest[0] == "--token" and rest[2] == "-c":
            return True, rest[3]
        return False, command

    def _token_in(self, command: str) -> str:
        is_ours, _ = self.unwrapped(command)
        words = shlex.split(command) if is_ours else []
        return words[len(self.program) + 1] if "--token" in words[len(self.program) :][:1] else ""


def _fields(data: bytes) -> Mapping[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict):
        raise TypeError("it is no object")
    return found
