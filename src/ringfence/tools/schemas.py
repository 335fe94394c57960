"""The tools of an agent as data, in the forms that model providers take, for people who write their own loop.

    client.messages.create(..., tools=schemas.anthropic())
    answer = await world.execute(block.name, block.input)
    messages.append({"role": "user", "content": [schemas.anthropic_result(block.id, answer)]})

Without an argument, of every tool of `WorldInterface`; with `world.tools`, of those that it offers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ringfence.tools.world.answers import ToolAnswer
from ringfence.tools.world.base import ToolSpec
from ringfence.tools.world.interface import tools_here

Form = dict[str, Any]


def anthropic(tools: Iterable[ToolSpec] | None = None) -> list[Form]:
    """For `tools=` of Anthropic's Messages API."""
    return [
        {"name": one.name, "description": one.description, "input_schema": one.input_schema} for one in _chosen(tools)
    ]


def openai(tools: Iterable[ToolSpec] | None = None) -> list[Form]:
    """For `tools=` of OpenAI's Responses API."""
    return [{"type": "function", **_function(one), "strict": False} for one in _chosen(tools)]


def openai_chat(tools: Iterable[ToolSpec] | None = None) -> list[Form]:
    """For `tools=` of OpenAI's Chat Completions API, and of the many servers that speak it."""
    return [{"type": "function", "function": _function(one)} for one in _chosen(tools)]


def mcp(tools: Iterable[ToolSpec] | None = None) -> list[Form]:
    """As `tools/list` of the Model Context Protocol answers it."""
    return [
        {
            "name": one.name,
            "title": one.title,
            "description": one.description,
            "inputSchema": one.input_schema,
            "outputSchema": one.output_schema,
        }
        for one in _chosen(tools)
    ]


def anthropic_result(tool_use_id: str, answer: ToolAnswer) -> Form:
    """The block that answers a `tool_use` block."""
    content: list[Form] = [{"type": "text", "text": text} for text in answer.texts]
    for picture in answer.pictures:
        source = {"type": "base64", "media_type": picture.mime_type, "data": picture.base64}
        content.append({"type": "image", "source": source})
    return {"type": "tool_result", "tool_use_id": tool_use_id, "content": content, "is_error": answer.is_error}


def openai_result(call_id: str, answer: ToolAnswer) -> Form:
    """The item that answers a `function_call` item of the Responses API."""
    output: list[Form] = [{"type": "input_text", "text": text} for text in answer.texts]
    for picture in answer.pictures:
        address = f"data:{picture.mime_type};base64,{picture.base64}"
        output.append({"type": "input_image", "image_url": address})
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def openai_chat_result(tool_call_id: str, answer: ToolAnswer) -> Form:
    """The message that answers a tool call of the Chat Completions API, which takes text alone."""
    left_out = f"\n[{len(answer.pictures)} pictures cannot be shown here]" if answer.pictures else ""
    return {"role": "tool", "tool_call_id": tool_call_id, "content": answer.text + left_out}


def arguments_of(text: str) -> dict[str, Any] | None:
    """The arguments of a call of OpenAI's, which come as JSON text; None if a model wrote no object."""
    try:
        given = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return None
    return given if isinstance(given, dict) else None


def _function(one: ToolSpec) -> Form:
    return {"name": one.name, "description": one.description, "parameters": one.input_schema}


def _chosen(tools: Iterable[ToolSpec] | None) -> Iterable[ToolSpec]:
    return tuple(tool.spec for tool in tools_here()) if tools is None else tools
