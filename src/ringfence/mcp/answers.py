"""What came of a call, for a model: words of ours first, then what others said, pictures, and the same as values.

A refusal and every fault is a result that says so (`isError`), with the rule and what the person could do: an error of
the protocol would be shown to nobody. What others said is in blocks of its own, so that none of it can pass for ours.
"""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

import mcp_types as types

from ringfence.errors import PathAccessDenied, RingfenceError
from ringfence.mcp.text import cut, readable, shown, with_gap
from ringfence.values.annotate import plain, violation_lines
from ringfence.values.display import DisplayData
from ringfence.values.outcome import Exited, LimitHit, Refused, Result, TimedOut
from ringfence.values.remedy import Door, raising
from ringfence.values.sizes import show_seconds
from ringfence.values.violation import Violation

_ENDINGS: Final = {
    "Exited": "exited",
    "Signalled": "signalled",
    "TimedOut": "timed_out",
    "LimitHit": "limit_hit",
    "Refused": "refused",
}
PICTURES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
PICTURE_BYTES: Final = 3 * 1024 * 1024
"""Of one picture: models take about 5 MB of base64."""
MOST_PICTURES: Final = 6
_TEXT_MAX: Final = 64 * 1024
_WORDS_MAX: Final = 4000
ONLY_THE_PERSON: Final = (
    "Only the person can change this: options stand after `ringfence mcp` in the client's configuration. Tell them "
    "what you need and why; do not try to get around it."
)

Values = dict[str, Any]


def block(text: str) -> types.TextContent:
    return types.TextContent(type="text", text=text)


def answered(
    sandbox: str, *texts: str, values: Values | None = None, pictures: Iterable[types.ImageContent] = ()
) -> types.CallToolResult:
    """A call that did what it was asked for."""
    own = {"sandbox": sandbox, "ok": True}
    return types.CallToolResult(
        content=[*map(block, filter(None, texts)), *pictures], structured_content=own | (values or {})
    )


def told(sandbox: str, why: str, code: str = "failed") -> types.CallToolResult:
    """A call that came to nothing for a reason that the model can do something about."""
    said = cut(why, _WORDS_MAX)
    values = {"sandbox": sandbox, "ok": False, "error": said, "error_code": code}
    return types.CallToolResult(content=[block(said)], structured_content=values, is_error=True)


def failed(sandbox: str, fault: RingfenceError, door: Door) -> types.CallToolResult:
    """A call that came to nothing."""
    is_refusal = isinstance(fault, PathAccessDenied) or fault.code in ("network_access_denied", "command_not_allowed")
    said = f"{'Refused' if is_refusal else 'Error'} [{fault.code}]: {shown(fault.message)}"
    lines = [cut(said, _WORDS_MAX)]
    if fault.hint:
        lines.append(f"What would help: {cut(shown(fault.hint), _WORDS_MAX)}")
    if is_refusal:
        lines.append(ONLY_THE_PERSON)
    values = {
        "sandbox": sandbox,
        "ok": False,
        "error": cut(shown(str(fault)), _WORDS_MAX),
        "error_code": fault.code,
        "refusals": _refusals(fault.violations, door),
    }
    return types.CallToolResult(content=[block("\n".join(lines))], structured_content=values, is_error=True)


def of_run(sandbox: str, result: Result, door: Door) -> types.CallToolResult:
    """What a command or a piece of code came to."""
    out = with_gap(result.stdout_bytes, result.stdout_dropped)
    err = with_gap(result.stderr_bytes, result.stderr_dropped)
    pictures, left_out = pictures_of(result.results)
    value = "\n".join(cut(readable(each.text), _TEXT_MAX) for each in result.results if each.text is not None)
    is_error = result.blocked or not isinstance(result.ending, Exited)
    values: Values = {
        "sandbox": sandbox,
        "ok": result.ok,
        "ending": _ENDINGS[type(result.ending).__name__],
        "exit_code": result.exit_code,
        "stdout": out,
        "stderr": err,
        "stdout_dropped": result.stdout_dropped,
        "stderr_dropped": result.stderr_dropped,
        "pictures": len(pictures),
        "state_kept": result.state_kept,
        "seconds": round(result.usage.wall_seconds, 3),
        "run_id": result.run_id,
        "refusals": _refusals(result.violations, door),
    }
    exception = result.exception
    if value:
        values["value"] = value
    if exception is not None:
        values["exception"] = cut(readable(exception.traceback or str(exception)), _TEXT_MAX)
    if result.error is not None:
        values["error"] = cut(shown(result.error), _WORDS_MAX)
    blocks = [_words(sandbox, result, door, left_out)]
    blocks += [f"{name}:\n{text}" for name, text in (("stdout", out), ("stderr", err), ("value", value)) if text]
    if exception is not None and exception.traceback.strip() not in result.stderr:
        blocks.append(f"exception:\n{values['exception']}")
    return types.CallToolResult(content=[*map(block, blocks), *pictures], structured_content=values, is_error=is_error)


def _words(sandbox: str, result: Result, door: Door, left_out: int) -> str:
    """What Ringfence itself says about a run."""
    ending = result.ending
    lines = [f"{plain(str(ending), _WORDS_MAX)} ({show_seconds(result.usage.wall_seconds)}, sandbox {sandbox})"]
    if isinstance(ending, Refused):
        lines = [plain(str(ending), _WORDS_MAX), ONLY_THE_PERSON]
    else:
        if isinstance(ending, LimitHit):
            lines.append(f"To allow more: {raising(ending.limit, door)}. {ONLY_THE_PERSON}")
        if isinstance(ending, TimedOut) and not ending.capped_by:
            lines.append("Give a longer timeout, or background: true for what is to go on.")
        refused = violation_lines(result.violations, door)
        if refused:
            lines += ["Refused or noticed by Ringfence:", *(f"- {line}" for line in refused)]
        if result.blocked:
            lines.append(ONLY_THE_PERSON)
    for name, dropped in (("stdout", result.stdout_dropped), ("stderr", result.stderr_dropped)):
        if dropped:
            lines.append(f"{name} was long: {dropped} bytes of its middle are left out; redirect it to a file.")
    if not result.state_kept:
        lines.append("The earlier state of the interpreter or shell is gone.")
    if left_out:
        lines.append(f"{left_out} picture(s) are left out: too many, too large or of a kind that is not shown.")
    return "\n".join(lines)


def _refusals(violations: Iterable[Violation], door: Door) -> list[Mapping[str, str]]:
    return [
        {
            "what": plain(one.what or one.target),
            "rule": plain(one.rule_and_place),
            "remedy": plain(one.remedy(door)),
            "severity": str(one.severity),
        }
        for one in tuple(violations)[:20]
    ]


def pictures_of(results: Iterable[DisplayData]) -> tuple[list[types.ImageContent], int]:
    """Figures as image content, and how many were left out."""
    found: list[types.ImageContent] = []
    left_out = 0
    for each in results:
        forms = {mime: form for mime, form in each.forms if mime.startswith("image/")}
        fit = next(((mime, form) for mime in PICTURES if isinstance(form := forms.get(mime), bytes)), None)
        if fit is not None and len(fit[1]) <= PICTURE_BYTES and len(found) < MOST_PICTURES:
            found.append(picture(*fit))
        elif forms:
            left_out += 1
    return found, left_out


def picture(mime: str, data: bytes) -> types.ImageContent:
    return types.ImageContent(type="image", data=base64.b64encode(data).decode(), mime_type=mime)
