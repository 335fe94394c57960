"""What came of a call, for a model: words of ours first, then what others said, pictures, and the same as values.

A refusal and every fault is an answer that says so, with the rule and what the person could do: an exception would be
shown to no model. What others said is in texts of its own, so that none of it can pass for ours.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ringfence.dataclass import dataclass, field
from ringfence.errors import PathAccessDenied, RingfenceError
from ringfence.tools.world.text import cut, readable, shown, with_gap
from ringfence.values.annotate import plain, violation_lines
from ringfence.values.display import DisplayData
from ringfence.values.outcome import Exited, LimitHit, Refused, Result, TimedOut
from ringfence.values.remedy import Door, raising
from ringfence.values.sizes import show_seconds
from ringfence.values.violation import Violation

if TYPE_CHECKING:
    from ringfence.tools.world.base import Place

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

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture of an answer: a figure that code drew, or a file."""

    mime_type: str
    data: bytes = field(repr=False)

    @property
    def base64(self) -> str:
        return base64.b64encode(self.data).decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolAnswer:
    """What one call of a tool came to, whatever the tool is."""

    ok: bool
    """Whether it did what it was asked for; of a command, whether it exited with 0."""
    is_error: bool = False
    """Whether the model has to do something else: it was refused, or could not be done. A command that ends with a code
    is no error: that is its answer."""
    texts: tuple[str, ...] = ()
    """What Ringfence says, then, each by itself, what others said: output, files, pages. The latter is data that nobody
    vouches for."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """The same for programs; ready for JSON."""
    pictures: tuple[Picture, ...] = ()
    result: Result | None = None
    """Of a command or a piece of code, all that is known."""

    @property
    def text(self) -> str:
        """All texts as one."""
        return "\n".join(self.texts)

    @property
    def error_code(self) -> str:
        return str(self.values.get("error_code", ""))

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON; pictures in base64."""
        pictures = [{"mime_type": one.mime_type, "data": one.base64} for one in self.pictures]
        return {
            "ok": self.ok,
            "is_error": self.is_error,
            "texts": list(self.texts),
            "values": dict(self.values),
            "pictures": pictures,
        }


def answered(*texts: str, values: Values | None = None, pictures: Iterable[Picture] = ()) -> ToolAnswer:
    """A call that did what it was asked for."""
    own = {"ok": True}
    return ToolAnswer(ok=True, texts=tuple(filter(None, texts)), values=own | (values or {}), pictures=tuple(pictures))


def told(why: str, code: str = "failed") -> ToolAnswer:
    """A call that came to nothing for a reason that the model can do something about."""
    said = cut(why, _WORDS_MAX)
    return ToolAnswer(ok=False, is_error=True, texts=(said,), values={"ok": False, "error": said, "error_code": code})


def failed(fault: RingfenceError, door: Door, only_the_person: str) -> ToolAnswer:
    """A call that came to nothing."""
    is_refusal = isinstance(fault, PathAccessDenied) or fault.code in ("network_access_denied", "command_not_allowed")
    said = f"{'Refused' if is_refusal else 'Error'} [{fault.code}]: {shown(fault.message)}"
    lines = [cut(said, _WORDS_MAX)]
    if fault.hint:
        lines.append(f"What would help: {cut(shown(fault.hint), _WORDS_MAX)}")
    if is_refusal:
        lines.append(only_the_person)
    values = {
        "ok": False,
        "error": cut(shown(str(fault)), _WORDS_MAX),
        "error_code": fault.code,
        "refusals": _refusals(fault.violations, door),
    }
    return ToolAnswer(ok=False, is_error=True, texts=("\n".join(lines),), values=values)


def of_run(result: Result, place: Place) -> ToolAnswer:
    """What a command or a piece of code came to."""
    out = with_gap(result.stdout_bytes, result.stdout_dropped)
    err = with_gap(result.stderr_bytes, result.stderr_dropped)
    pictures, left_out = pictures_of(result.results)
    value = "\n".join(cut(readable(each.text), _TEXT_MAX) for each in result.results if each.text is not None)
    is_error = result.blocked or not isinstance(result.ending, Exited)
    values: Values = {
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
        "refusals": _refusals(result.violations, place.door),
    }
    exception = result.exception
    if value:
        values["value"] = value
    if exception is not None:
        values["exception"] = cut(readable(exception.traceback or str(exception)), _TEXT_MAX)
    if result.error is not None:
        values["error"] = cut(shown(result.error), _WORDS_MAX)
    texts = [_words(result, place, left_out)]
    texts += [f"{name}:\n{text}" for name, text in (("stdout", out), ("stderr", err), ("value", value)) if text]
    if exception is not None and exception.traceback.strip() not in result.stderr:
        texts.append(f"exception:\n{values['exception']}")
    return ToolAnswer(
        ok=result.ok, is_error=is_error, texts=tuple(texts), values=values, pictures=tuple(pictures), result=result
    )


def _words(result: Result, place: Place, left_out: int) -> str:
    """What Ringfence itself says about a run."""
    ending = result.ending
    where = f", sandbox {place.name}" if place.name else ""
    lines = [f"{plain(str(ending), _WORDS_MAX)} ({show_seconds(result.usage.wall_seconds)}{where})"]
    if isinstance(ending, Refused):
        lines = [plain(str(ending), _WORDS_MAX), place.only_the_person]
    else:
        if isinstance(ending, LimitHit):
            lines.append(f"To allow more: {raising(ending.limit, place.door)}. {place.only_the_person}")
        if isinstance(ending, TimedOut) and not ending.capped_by:
            lines.append("Give a longer timeout, or background: true for what is to go on.")
        refused = violation_lines(result.violations, place.door)
        if refused:
            lines += ["Refused or noticed by Ringfence:", *(f"- {line}" for line in refused)]
        if result.blocked:
            lines.append(place.only_the_person)
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


def pictures_of(results: Iterable[DisplayData]) -> tuple[list[Picture], int]:
    """Figures, and how many were left out."""
    found: list[Picture] = []
    left_out = 0
    for each in results:
        forms = {mime: form for mime, form in each.forms if mime.startswith("image/")}
        fit = next(((mime, form) for mime in PICTURES if isinstance(form := forms.get(mime), bytes)), None)
        if fit is not None and len(fit[1]) <= PICTURE_BYTES and len(found) < MOST_PICTURES:
            found.append(Picture(*fit))
        elif forms:
            left_out += 1
    return found, left_out
