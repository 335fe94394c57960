"""Asks the person at the client: a question of ours becomes a form of the client's, by elicitation.

Which call carries the question is found by context: a command is judged within its call, while a question about a host
comes from the proxy and goes with the latest call of the same sandbox. Where the client cannot show forms, the answer
is no, with what the person can do instead; never an error of the protocol, which no model sees.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

from ringfence.approvals.base import Answer, Choice, ConfirmationService, Question, refuse
from ringfence.approvals.show import lines_of, why_too_long
from ringfence.values.visible import visible

FIELD: Final = "decision"
_NAME_MAX: Final = 60
CANNOT_ASK: Final = (
    "this MCP client cannot show questions (it lacks elicitation); the person can allow it in the policy, run it "
    "themselves with `ringfence run`, or use a client that asks"
)


class Asker(Protocol):
    """A call of a client that is not over."""

    @property
    def is_over(self) -> bool: ...

    @property
    def can_ask(self) -> bool: ...

    @property
    def client(self) -> str:
        """What the client calls itself."""
        ...

    def asks_elsewhere(self, question: str) -> None:
        """It waits for a person who is asked by another way; empty: no longer."""
        ...

    async def fill_form(self, message: str, schema: dict[str, Any]) -> tuple[str, Mapping[str, Any]]:
        """What the person did (accept, decline, cancel), and the form as they filled it."""
        ...


CURRENT: ContextVar[Asker | None] = ContextVar("ringfence_mcp_call", default=None)


class ClientConfirmation:
    """The `ConfirmationService` of one sandbox.

    Args:
        otherwise: who is asked where the client cannot show forms: a server's own questions, in its console.
    """

    def __init__(self, otherwise: ConfirmationService | None = None) -> None:
        self._calls: list[Asker] = []
        self._otherwise = otherwise

    def enter(self, call: Asker) -> None:
        self._calls.append(call)

    def leave(self, call: Asker) -> None:
        self._calls.remove(call)

    async def confirm(self, question: Question) -> Answer:
        call = self._call()
        if call is None or not call.can_ask:
            if self._otherwise is not None:
                return await self._ask_elsewhere(self._otherwise, question, call)
            why = CANNOT_ASK if call is not None else "no call is running that could carry the question"
            return refuse(question, by="nobody", how=why)
        if why := why_too_long(question):
            return refuse(question, by="nobody", how=f"too long to be judged: {why}")
        by = f"the person at {visible(call.client)[:_NAME_MAX] or 'the MCP client'}"
        action, form = await call.fill_form("\n".join(lines_of(question)), schema_of(question))
        choice = _choice(action, form, question)
        how = "MCP form" if choice is not Choice.NO else f"MCP form: {_said(action)}"
        return Answer(choice=choice, by=by, how=how, request_hash=question.request_hash)

    async def _ask_elsewhere(self, service: ConfirmationService, question: Question, call: Asker | None) -> Answer:
        if call is not None:
            call.asks_elsewhere(question.id)
        try:
            return await service.confirm(question)
        finally:
            if call is not None:
                call.asks_elsewhere("")

    def _call(self) -> Asker | None:
        here = CURRENT.get()
        if here is not None and not here.is_over:
            return here
        return next((call for call in reversed(self._calls) if not call.is_over), None)


def schema_of(question: Question) -> dict[str, Any]:
    """A form with one choice. No is first: it is what a client may fill in by itself."""
    choices = [str(choice) for choice in Choice if choice is not Choice.YES_FOR_SESSION or question.may_remember]
    field = {"type": "string", "title": "May this run?", "enum": choices}
    return {"type": "object", "properties": {FIELD: field}, "required": [FIELD]}


def _choice(action: str, form: Mapping[str, Any], question: Question) -> Choice:
    """Everything but a clear yes is a no."""
    if action != "accept":
        return Choice.NO
    try:
        choice = Choice(str(form.get(FIELD)))
    except ValueError:
        return Choice.NO
    return Choice.NO if choice is Choice.YES_FOR_SESSION and not question.may_remember else choice


def _said(action: str) -> str:
    return {"decline": "declined", "cancel": "closed without an answer"}.get(action, "no")
