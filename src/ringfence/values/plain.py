"""A result as plain values, for JSON: numbers, texts, lists and objects, and back.

Bytes that are UTF-8 are texts. Where a text would not give the bytes back, they stand beside it in base64, under the
name with `_base64`. What can be worked out from the rest (`ok`, `exit_code`, `error` ...) is there for the reader and
is not read back.
"""

import base64
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ringfence.deferred import deferred
from ringfence.errors import InvalidArgument
from ringfence.values.display import CodeError, DisplayData
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limit
from ringfence.values.sandbox_type import SandboxType
from ringfence.values.violation import Violation

if TYPE_CHECKING:
    from dataclasses import asdict

    from ringfence.values.outcome import Observed, Result
else:
    asdict = deferred("dataclasses", "asdict")


def plain(result: "Result") -> dict[str, Any]:
    """All that is known, under the names that the fields and properties have."""
    ending, wall, seen = result.ending, result.wall, result.observed
    return {
        "run_id": result.run_id,
        "ok": result.ok,
        "exit_code": result.exit_code,
        "ending": {"kind": type(ending).__name__.lower(), "text": str(ending)} | asdict(ending),
        "error": result.error,
        "exception": None if result.exception is None else asdict(result.exception),
        **_text("stdout", result.stdout_bytes),
        **_text("stderr", result.stderr_bytes),
        "stdout_dropped": result.stdout_dropped,
        "stderr_dropped": result.stderr_dropped,
        "results": [
            {"is_value": shown.is_value, "forms": {mime: _form(form) for mime, form in shown.forms}}
            for shown in result.results
        ],
        "blocked": result.blocked,
        "blocked_reason": result.blocked_reason,
        "violations": [violation.as_record() for violation in result.violations],
        "usage": asdict(result.usage),
        "sandbox_type": None if result.sandbox_type is None else str(result.sandbox_type),
        "session_id": result.session_id,
        "state_kept": result.state_kept,
        "overlapped": result.overlapped,
        "wall": None
        if wall is None
        else {
            "name": wall.name,
            "guarantees": sorted(map(str, wall.guarantees)),
            "limits_by": list(wall.limits_by),
            "notes": list(wall.notes),
        },
        "audit": None
        if result.audit is None
        else {"wrapper": result.audit.wrapper, "command": list(result.audit.command)},
        "sandbox_audits": [{"wrapper": each.wrapper, "command": list(each.command)} for each in result.sandbox_audits],
        "observed": None if seen is None else _observed(seen),
        "files": [
            {"path": file.path, "size_bytes": file.size_bytes, **_optional("data", file.data)} for file in result.files
        ],
    }


def parts(given: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """What a `Result` is made of, from what `plain` gave.

    Args:
        kinds: the classes that cannot be named from here: those of endings by their kind, and those of single fields.

    Raises:
        InvalidArgument: it is no such object; names what is missing or wrong.
    """
    try:
        return _parts(given, kinds)
    except (KeyError, TypeError, ValueError, AttributeError) as fault:
        raise InvalidArgument(
            f"not a result as to_dict() gives it: {type(fault).__name__}: {fault}", hint="give what to_dict() gave"
        ) from fault


def _parts(given: Mapping[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    wall, audit, seen = given["wall"], given["audit"], given["observed"]
    return {
        "ending": _ending(given["ending"], kinds),
        "stdout_bytes": _bytes("stdout", given),
        "stderr_bytes": _bytes("stderr", given),
        "stdout_dropped": int(given["stdout_dropped"]),
        "stderr_dropped": int(given["stderr_dropped"]),
        "usage": kinds["usage"](**given["usage"]),
        "violations": tuple(Violation.from_record(record) for record in given["violations"]),
        "wall": None
        if wall is None
        else Wall(
            wall["name"], frozenset(map(Guarantee, wall["guarantees"])), tuple(wall["limits_by"]), tuple(wall["notes"])
        ),
        "audit": None if audit is None else kinds["audit"](audit["wrapper"], tuple(audit["command"])),
        "inner_audits": tuple(
            kinds["audit"](each["wrapper"], tuple(each["command"])) for each in given.get("sandbox_audits", ())[1:]
        ),
        "run_id": str(given["run_id"]),
        "results": tuple(_shown(shown) for shown in given["results"]),
        "exception": None if given["exception"] is None else CodeError(**given["exception"]),
        "state_kept": bool(given["state_kept"]),
        "overlapped": int(given["overlapped"]),
        "observed": None if seen is None else _seen(seen, kinds),
        "files": tuple(
            kinds["file"](file["path"], file["size_bytes"], None if "data" not in file else _bytes("data", file))
            for file in given["files"]
        ),
        "sandbox_type": None if given["sandbox_type"] is None else SandboxType(given["sandbox_type"]),
        "session_id": given["session_id"],
    }


def _ending(given: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    own = {name: value for name, value in given.items() if name not in ("kind", "text")}
    if "limit" in own:
        own["limit"] = Limit(own["limit"])
    return kinds[given["kind"]](**own)


def _observed(seen: "Observed") -> dict[str, Any]:
    return {
        "written": list(seen.written),
        "touched": [
            {
                "path": name.path,
                "before": None if name.before is None else asdict(name.before),
                "operations": sorted(name.operations),
            }
            for name in seen.touched
        ],
        "read": None if seen.read is None else list(seen.read),
        "executed": list(seen.executed),
        "is_complete": seen.is_complete,
    }


def _seen(given: Mapping[str, Any], kinds: Mapping[str, type]) -> Any:
    return kinds["observed"](
        written=tuple(given["written"]),
        touched=tuple(
            kinds["touched"](
                name["path"],
                None if name["before"] is None else kinds["state"](**name["before"]),
                frozenset(name["operations"]),
            )
            for name in given["touched"]
        ),
        read=None if given["read"] is None else tuple(given["read"]),
        executed=tuple(given["executed"]),
        is_complete=bool(given["is_complete"]),
    )


def _shown(given: Mapping[str, Any]) -> DisplayData:
    forms: list[tuple[str, str | bytes]] = []
    for mime, form in given["forms"].items():
        if isinstance(form, Mapping):
            forms.append((mime, base64.b64decode(form["base64"], validate=True)))
        else:
            forms.append((mime, str(form)))
    return DisplayData(tuple(forms), bool(given["is_value"]))


def _form(form: str | bytes) -> str | dict[str, str]:
    return form if isinstance(form, str) else {"base64": base64.b64encode(form).decode()}


def _text(name: str, data: bytes) -> dict[str, str]:
    out = {name: data.decode("utf-8", "replace")}
    if out[name].encode() != data:
        out[f"{name}_base64"] = base64.b64encode(data).decode()
    return out


def _optional(name: str, data: bytes | None) -> dict[str, str]:
    return {} if data is None else _text(name, data)


def _bytes(name: str, given: Mapping[str, Any]) -> bytes:
    whole = given.get(f"{name}_base64")
    return base64.b64decode(whole, validate=True) if whole is not None else str(given[name]).encode()
