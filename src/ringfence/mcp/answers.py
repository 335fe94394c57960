"""Answers of tools as results of the protocol: the same texts, pictures and values, with the sandbox's id."""

from typing import Any, Final

import mcp_types as types

from ringfence.errors import RingfenceError
from ringfence.tools.world import answers
from ringfence.tools.world.answers import ToolAnswer
from ringfence.values.remedy import Door

ONLY_THE_PERSON: Final = (
    "Only the person can change this: options stand after `ringfence mcp` in the client's configuration. Tell them "
    "what you need and why; do not try to get around it."
)


def result_of(sandbox: str, answer: ToolAnswer) -> types.CallToolResult:
    """A fault is a result that says so (`isError`): an error of the protocol would be shown to no model."""
    content: list[Any] = [types.TextContent(type="text", text=text) for text in answer.texts]
    for one in answer.pictures:
        content.append(types.ImageContent(type="image", data=one.base64, mime_type=one.mime_type))
    values = {"sandbox": sandbox, **answer.values}
    return types.CallToolResult(content=content, structured_content=values, is_error=answer.is_error)


def told(sandbox: str, why: str, code: str = "failed") -> types.CallToolResult:
    """A call that came to nothing for a reason that the model can do something about."""
    return result_of(sandbox, answers.told(why, code))


def failed(sandbox: str, fault: RingfenceError, door: Door) -> types.CallToolResult:
    """A call that came to nothing."""
    return result_of(sandbox, answers.failed(fault, door, ONLY_THE_PERSON))


def waiting_elsewhere(question: str) -> types.CallToolResult:
    """A person was asked by another way than the client, and has not answered yet."""
    why = (
        "Nothing has run yet: a person has to approve this, and was asked in the console of the server (question "
        f"{question}). Tell the person. Then make exactly the same call again: it waits for the answer, and does "
        "not ask twice."
    )
    return told("none", why, "waiting_for_approval")
