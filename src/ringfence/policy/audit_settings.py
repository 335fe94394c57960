"""How the journal is kept, as the environment says it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidArgument, InvalidConfig
from ringfence.policy.environment import Variable, lookup
from ringfence.values.sizes import parse_duration, parse_size

MAX_BYTES_MIN: Final = 64 * 1024
"""A file that holds only some records would be rotated all the time."""


class Fsync(StrEnum):
    """When records are forced to the disk. A crash of a process loses none in any case; a power cut may."""

    NEVER = "never"
    """The kernel writes them when it sees fit, within some 30 seconds."""
    INTERVAL = "interval"
    """At most so many seconds of records are at risk while records are written."""
    EACH = "each"
    """Before the command runs, and before its result is given: costs two waits for the disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    fsync: Fsync = Fsync.NEVER
    """Not by default: a wait for the disk takes longer than a whole call of a warm box."""
    fsync_seconds: float = 1.0
    max_bytes: int = 64 * 1024 * 1024
    """Of one file: some 50,000 records, which any tool still opens."""
    key: str | None = None
    """The private key that signs checkpoints."""
    checkpoint_records: int = 1000
    """A checkpoint takes some 100 microseconds: so many records make it disappear."""
    checkpoint_seconds: float = 60.0
    redact: tuple[str, ...] = ()
    """Further texts to take out of records; `*` stands for part of a word."""


def read_audit_settings(environ: Mapping[str, str]) -> AuditSettings:
    """Read every RINGFENCE_AUDIT variable of the table in docs/configuration.md, and RINGFENCE_REDACT.

    Raises:
        InvalidConfig: a value makes no sense; names the variable.
    """
    default = AuditSettings()
    fsync = lookup(environ, "RINGFENCE_AUDIT_FSYNC")
    seconds = lookup(environ, "RINGFENCE_AUDIT_FSYNC_INTERVAL")
    size = lookup(environ, "RINGFENCE_AUDIT_MAX_BYTES")
    records = lookup(environ, "RINGFENCE_AUDIT_CHECKPOINT_RECORDS")
    every = lookup(environ, "RINGFENCE_AUDIT_CHECKPOINT_INTERVAL")
    return AuditSettings(
        fsync=_fsync(fsync) if fsync else default.fsync,
        fsync_seconds=_duration(seconds) if seconds else default.fsync_seconds,
        max_bytes=_size(size) if size else default.max_bytes,
        key=_key(lookup(environ, "RINGFENCE_AUDIT_KEY")),
        checkpoint_records=_count(records) if records else default.checkpoint_records,
        checkpoint_seconds=_duration(every) if every else default.checkpoint_seconds,
        redact=_patterns(lookup(environ, "RINGFENCE_REDACT")),
    )


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with a text to take out, if anything is."""
    if pattern.count("*") > 2:
        return "has more than two stars"
    if len(pattern.replace("*", "")) < 4:
        return "has fewer than four characters besides stars, and would take out too much"
    return None


def _fsync(variable: Variable) -> Fsync:
    try:
        return Fsync(variable.value)
    except ValueError:
        raise InvalidConfig(f"{variable.name} is {variable.value!r}", hint=f"use one of {', '.join(Fsync)}") from None


def _duration(variable: Variable) -> float:
    try:
        seconds = parse_duration(variable.value)
    except InvalidArgument as fault:
        raise InvalidConfig(f"{variable.name}: {fault.message}", hint=fault.hint) from None
    if not seconds > 0:
        raise InvalidConfig(f"{variable.name} is not above zero", hint="a time such as 500ms or 5s")
    return seconds


def _size(variable: Variable) -> int:
    try:
        size = parse_size(variable.value)
    except InvalidArgument as fault:
        raise InvalidConfig(f"{variable.name}: {fault.message}", hint=fault.hint) from None
    if size < MAX_BYTES_MIN:
        raise InvalidConfig(f"{variable.name} is below {MAX_BYTES_MIN} bytes", hint="a size such as 64MB")
    return size


def _count(variable: Variable) -> int:
    if not (variable.value.isascii() and variable.value.isdigit() and int(variable.value) > 0):
        raise InvalidConfig(f"{variable.name} is {variable.value!r}", hint="a number above zero")
    return int(variable.value)


def _key(variable: Variable | None) -> str | None:
    if variable is not None and not variable.value.startswith("/"):
        # A relative path would be looked up in the working directory, which the command inside can write.
        raise InvalidConfig(f"{variable.name} is {variable.value!r}", hint="use an absolute path")
    return variable and variable.value


def _patterns(variable: Variable | None) -> tuple[str, ...]:
    patterns = tuple(variable.value.split()) if variable is not None else ()
    for pattern in patterns:
        fault = pattern_fault(pattern)
        if fault is not None:
            raise InvalidConfig(f"RINGFENCE_REDACT holds a text that {fault}", hint="texts with blanks between them")
    return patterns
