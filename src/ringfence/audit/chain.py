"""The form of a record in the journal, and the chain that ties each one to the one before.

A record is one line of JSON in ASCII:

    {"seq":7,"prev":"<hash of record 6>","event_type":"...", ... ,"hash":"<sha256 of all that is before it>"}

The hash is over the bytes of the line up to the comma before `"hash"`. So the canonical form is the line as it was
written, and verifying needs no parser: one changed, missing, added or moved byte shows.
"""

import hashlib
import json
import re
from typing import Any, Final

from ringfence.dataclass import dataclass

GENESIS: Final = "0" * 64
"""What the first record has for a predecessor."""
HASH_TAIL: Final = len(',"hash":"') + 64 + len('"}\n')

EXECUTION: Final = "sandbox_execution"
CHECKPOINT: Final = "checkpoint"
"""A signature over the record before it."""
REPAIRED: Final = "repaired"
"""A line that was torn by a crash has been moved aside."""
BEGUN: Final = "begun"
"""The chain begins in a journal that had lines without hashes."""
DAMAGED: Final = "damaged"
"""The log was not as its head says when somebody came to write. Verifying stops here."""

_LINK = re.compile(rb'\{"seq":(\d{1,18}),"prev":"([0-9a-f]{64})",.*,"hash":"([0-9a-f]{64})"\}\n?', re.DOTALL)
# ASCII keeps control characters and half characters of file names escaped: one record is one line, whatever it holds.
_ENCODER = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), check_circular=False)


@dataclass(frozen=True, slots=True)
class Link:
    """What a line says about its place in the chain."""

    seq: int
    prev: str
    hash: str


def encode(fields: Any) -> str:
    """A record's fields, or the value of one, as they stand in its line."""
    return _ENCODER.encode(fields)


def join(first: str, second: str) -> str:
    """One object of two encoded ones, which share no field."""
    return f"{first[:-1]},{second[1:]}"


def seal(fields: str, seq: int, prev: str) -> tuple[bytes, str]:
    """The line of a record, and its hash."""
    body = f'{{"seq":{seq},"prev":"{prev}",{fields[1:-1]}'.encode("ascii")
    digest = hashlib.sha256(body).hexdigest()
    return b'%b,"hash":"%b"}\n' % (body, digest.encode("ascii")), digest


def read_link(line: bytes) -> Link | None:
    """What a line claims; None if it is no record of the chain. Says nothing about whether the claim is true."""
    found = _LINK.fullmatch(line)
    return Link(int(found[1]), found[2].decode(), found[3].decode()) if found is not None else None


def true_hash(line: bytes) -> str:
    """The hash that a line, with its newline, should have."""
    return hashlib.sha256(line[:-HASH_TAIL]).hexdigest()
