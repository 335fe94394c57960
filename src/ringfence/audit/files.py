"""Which files the log consists of, and how they are read while others write."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Final

from ringfence.audit.head import HEAD_BYTES, HEAD_FILE, Head
from ringfence.dataclass import dataclass

CURRENT: Final = "journal.jsonl"
_ROTATED = re.compile(r"journal-(\d{6,12})\.jsonl")
_BLOCK = 1 << 16


def numbered(number: int) -> str:
    """The name of a file that was rotated."""
    return f"journal-{number:06}.jsonl"


def rotated(directory: Path) -> dict[int, Path]:
    """The rotated files by their number."""
    found: dict[int, Path] = {}
    with suppress(OSError):
        for name in os.listdir(directory):
            if (match := _ROTATED.fullmatch(name)) is not None:
                found[int(match[1])] = directory / name
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the log, open for reading, as far as it was written at that moment."""

    number: int
    path: Path
    file: BinaryIO
    size: int


@dataclass(frozen=True, slots=True)
class LogSnapshot:
    """The log at one moment. Use it as a context manager."""

    head: Head | None
    head_is_there: bool
    parts: tuple[Part, ...]
    closing: ExitStack

    def __enter__(self) -> "LogSnapshot":
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.close()


def take_snapshot(directory: Path) -> LogSnapshot:
    """The log as no writer is just changing it; what is written or rotated afterwards does not show.

    Raises:
        OSError: it cannot be read; FileNotFoundError if there is none.
    """
    with ExitStack() as stack:
        raw = b""
        with suppress(FileNotFoundError):
            head_file = stack.enter_context(open(directory / HEAD_FILE, "rb", buffering=0))
            fcntl.flock(head_file, fcntl.LOCK_SH)
            raw = head_file.read(HEAD_BYTES)
        head = Head.decode(raw)
        older = rotated(directory)
        number = head.file if head is not None else max(older, default=0) + 1
        parts = []
        for name, path in (*older.items(), (number, directory / CURRENT)):
            with suppress(FileNotFoundError):
                file = stack.enter_context(open(path, "rb", buffering=1 << 20))
                parts.append(Part(name, path, file, os.fstat(file.fileno()).st_size))
        if not parts and not raw:
            raise FileNotFoundError(2, "there is no journal", os.fspath(directory))
        if raw:
            fcntl.flock(head_file, fcntl.LOCK_UN)
        return LogSnapshot(head, bool(raw), tuple(parts), stack.pop_all())


def lines(part: Part, begin: int = 0) -> Iterator[tuple[int, bytes]]:
    """Where each line begins, and the line with its newline; the last one may lack it."""
    part.file.seek(begin)
    left = part.size - begin
    for line in part.file:
        if left <= 0:
            return
        if len(line) > left:
            line = line[:left]
        yield begin, line
        begin += len(line)
        left -= len(line)


def read_last_line(descriptor: int) -> bytes | None:
    """The last whole line of a file, with its newline."""
    end = os.fstat(descriptor).st_size
    data = b""
    while end > 0:
        begin = max(0, end - _BLOCK)
        data = os.pread(descriptor, end - begin, begin) + data
        end = begin
        last = data.rfind(b"\n")
        if last >= 0:
            before = data.rfind(b"\n", 0, last)
            if before >= 0 or begin == 0:
                return data[before + 1 : last + 1]
    return None
