"""Asks over WebSockets that somebody else's server has: the question goes out as a message, the answer comes as one.

    confirmation = WebSocketConfirmationService(ws_manager)
    manager = SandboxManager("session_123", confirmation_service=confirmation)

    await websocket.send_json(confirmation.open_message())             # whoever connects sees what is open
    confirmation.receive(await websocket.receive_json(), by=user)      # for each message that comes

The server says who answers: `by` is the user that it has authenticated, never something from the message.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Protocol

from ringfence.approvals.base import Answer, Choice, Question
from ringfence.approvals.queue import QueueConfirmationService
from ringfence.errors import InvalidArgument, WrongType

REQUEST = "confirmation_request"
RESOLVED = "confirmation_resolved"
RESPONSE = "confirmation_response"
OPEN = "confirmation_open"
_SEND_SECONDS = 10.0


class WebSocketManager(Protocol):
    """Whoever keeps the connections."""

    async def broadcast(self, message: dict[str, Any], /) -> None:
        """Send a message, as JSON, to everybody who may answer."""


class WebSocketConfirmationService(QueueConfirmationService):
    """Sends each question to everybody who is connected; the first answer counts, silence is a refusal.

    Args:
        ws_manager: has `broadcast(message)`, which sends a message to all who may answer.

    Raises:
        WrongType: it has not.
    """

    def __init__(self, ws_manager: WebSocketManager) -> None:
        if not callable(getattr(ws_manager, "broadcast", None)):
            raise WrongType("ws_manager", ws_manager, "an object with `async broadcast(message)`")
        super().__init__()
        self._manager = ws_manager

    async def confirm(self, question: Question) -> Answer:
        """Send the question, and wait until it is answered or its time is over."""
        waiting = asyncio.ensure_future(super().confirm(question))
        answer: Answer | None = None
        try:
            await asyncio.sleep(0)  # it is open before anybody can answer it
            if not waiting.done():
                await self._manager.broadcast({"type": REQUEST, **plain_question(question)})
            answer = await waiting
            return answer
        finally:
            if not waiting.done():
                waiting.cancel()
                await asyncio.wait((waiting,))
            choice = None if answer is None else answer.choice.value
            by = None if answer is None else answer.by
            await self._tell({"type": RESOLVED, "id": question.id, "choice": choice, "by": by})

    def open_message(self) -> dict[str, Any]:
        """All questions that wait, for somebody who has just connected."""
        return {"type": OPEN, "questions": [plain_question(question) for question in self.pending()]}

    def receive(self, message: str | bytes | Mapping[str, Any], *, by: str) -> bool:
        """Take a message from a connection; false if it is no answer.

        Args:
            by: who is connected, as the server has found out.

        Raises:
            InvalidArgument: it is an answer that makes no sense, or to another request than the question's.
            QuestionNotOpen: nobody waits for it any more.
        """
        given = _read(message)
        if given is None or given.get("type") != RESPONSE:
            return False
        ident, choice, hashed = given.get("id"), given.get("choice"), given.get("request_hash")
        if choice is None and isinstance(given.get("approved"), bool):
            choice = Choice.YES.value if given["approved"] else Choice.NO.value
        if not isinstance(ident, str) or choice not in {each.value for each in Choice}:
            raise InvalidArgument("an answer has an id and a choice", hint=", ".join(Choice))
        for question in self.pending():
            if question.id == ident and hashed != question.request_hash:
                raise InvalidArgument("the answer is to another request", hint="send the question's request_hash back")
        self.answer(ident, Choice(choice), by)
        return True

    async def _tell(self, message: dict[str, Any]) -> None:
        """Best effort: the answer stands whoever hears of it."""
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                await self._manager.broadcast(message)
        except Exception:  # anybody's code
            return


def plain_question(question: Question) -> dict[str, Any]:
    """Everything that a person needs in order to answer, for JSON."""
    return {
        "id": question.id,
        "request_hash": question.request_hash,
        "command": question.command,
        "reasons": [
            {
                "verdict": reason.verdict.name.lower(),
                "rule": reason.rule,
                "why": reason.why,
                "allow_by": reason.allow_by,
                "place": reason.place,
            }
            for reason in question.reasons
        ],
        "spans": [[span.start, span.end] for span in question.spans],
        "risk": question.risk.name.lower(),
        "session": question.session,
        "expires_at": question.expires_at,
        "may_remember": question.may_remember,
        "details": [list(pair) for pair in question.details],
    }


def _read(message: str | bytes | Mapping[str, Any]) -> Mapping[str, Any] | None:
    if isinstance(message, Mapping):
        return message
    try:
        given = json.loads(message)
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, Mapping) else None
