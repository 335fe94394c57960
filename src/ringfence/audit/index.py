"""An index of the journal for questions, in SQLite, made from the log and never the other way round.

Writing the journal does not touch it. Whoever asks first lets it catch up with the log. If it is gone, is not whole, or
does not fit the log any more, it is made anew; where it cannot be written, it is made in memory.

What this does not protect against: whoever may write the file can make it lie. `verify` reads the log alone.
"""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from ringfence.audit.files import CURRENT, LogSnapshot, Part, lines, numbered, take_snapshot
from ringfence.dataclass import dataclass

INDEX_FILE: Final = "index.sqlite3"
_VERSION: Final = 1
_BATCH: Final = 5000
_BUSY_SECONDS: Final = 30.0

_COLUMNS: Final = (
    "seq",
    "timestamp",
    "event_type",
    "run",
    "session_id",
    "agent_id",
    "org_id",
    "sandbox_id",
    "tool",
    "language",
    "result",
    "verdict",
    "exit_code",
    "execution_time_ms",
    "memory_used_mb",
)
_TEXTS: Final = ("command", "error", "why", "rule", "ending")
"""What is searched for a text."""
_SCHEMA: Final = f"""
CREATE TABLE records (id INTEGER PRIMARY KEY, file INTEGER, begin INTEGER, {", ".join(_COLUMNS)}, text);
CREATE INDEX by_seq ON records (seq);
CREATE INDEX by_run ON records (run);
CREATE INDEX by_session ON records (session_id);
CREATE INDEX by_time ON records (timestamp);
CREATE TABLE place (file INTEGER, begin INTEGER, last BLOB);
PRAGMA user_version = {_VERSION};
"""
_INSERT: Final = (
    f"INSERT INTO records (file, begin, {', '.join(_COLUMNS)}, text) VALUES ({', '.join('?' * (len(_COLUMNS) + 3))})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which records are asked for; what is None does not matter."""

    session_id: str | None = None
    agent_id: str | None = None
    org_id: str | None = None
    tool: str | None = None
    result: str | None = None
    since: str | None = None
    """RFC 3339, UTC."""
    until: str | None = None
    text: str | None = None
    """Is in the command, the error or the reasons; upper and lower case are the same."""
    before: int | None = None
    """Only records with a smaller number: for whoever goes back page by page."""

    def where(self) -> tuple[str, list[str | int]]:
        """As SQL, with its values."""
        terms: list[str] = ["1"]
        values: list[str | int] = []
        for name in ("session_id", "agent_id", "org_id", "tool", "result"):
            value = getattr(self, name)
            if value is not None:
                terms.append(f"{name} = ?")
                values.append(value)
        for value, term in (
            (self.since, "timestamp >= ?"),
            (self.until, "timestamp < ?"),
            (self.before, "seq < ?"),
            (self.text.lower() if self.text is not None else None, "instr(text, ?)"),
        ):
            if value is not None:
                terms.append(term)
                values.append(value)
        return " AND ".join(terms), values


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts over the records that a filter lets through."""

    records: int
    first: str | None
    last: str | None
    by_result: dict[str, int]
    by_tool: dict[str, int]
    by_agent: dict[str, int]
    mean_ms: float | None
    most_ms: float | None
    most_mb: float | None


class Index:
    """The index of the log in a directory, caught up with it. Use it as a context manager.

    Raises:
        OSError: the log cannot be read; FileNotFoundError if there is none.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._database = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def find(self, wanted: Filter, *, limit: int | None = None, newest: bool = True) -> Iterator[dict[str, Any]]:
        """The records themselves, in the order of the log; at most so many, the newest (or oldest) of them."""
        where, values = wanted.where()
        order = "DESC" if newest and limit is not None else "ASC"
        rows = self._database.execute(
            f"SELECT file, begin FROM records WHERE {where} ORDER BY id {order} LIMIT ?",
            (*values, -1 if limit is None else limit),
        )
        places = rows.fetchall() if order == "ASC" else rows.fetchall()[::-1]
        return self._read(places)

    def show(self, name: str) -> list[dict[str, Any]]:
        """The records of a run, or the one with a number."""
        column = "seq" if name.isascii() and name.isdigit() and len(name) < 16 else "run"
        value: int | str = int(name) if column == "seq" else name
        rows = self._database.execute(f"SELECT file, begin FROM records WHERE {column} = ? ORDER BY id", (value,))
        return list(self._read(rows.fetchall()))

    def stats(self, wanted: Filter) -> Stats:
        where, values = wanted.where()
        where = f"event_type = 'sandbox_execution' AND {where}"
        total = self._database.execute(
            "SELECT count(*), min(timestamp), max(timestamp), avg(execution_time_ms), max(execution_time_ms),"
            f" max(memory_used_mb) FROM records WHERE {where}",
            values,
        ).fetchone()
        return Stats(
            total[0],
            total[1],
            total[2],
            by_result=self._counts("result", where, values),
            by_tool=self._counts("tool", where, values),
            by_agent=self._counts("agent_id", where, values),
            mean_ms=total[3],
            most_ms=total[4],
            most_mb=total[5],
        )

    def _counts(self, column: str, where: str, values: list[str | int]) -> dict[str, int]:
        rows = self._database.execute(
            f"SELECT coalesce({column}, '-'), count(*) FROM records WHERE {where} GROUP BY 1 ORDER BY 2 DESC LIMIT 20",
            values,
        )
        return dict(rows.fetchall())

    # --- making it ----------------------------------------------------------------------------------------------------

    def _open(self) -> sqlite3.Connection:
        path = self._directory / INDEX_FILE
        with take_snapshot(self._directory) as snapshot:
            for _ in range(2):
                try:
                    return _caught_up(_connect(path), snapshot)
                except (sqlite3.DatabaseError, OSError) as fault:
                    if isinstance(fault, sqlite3.OperationalError) and "locked" in str(fault):
                        break  # another one is at it for longer than we wait
                    with suppress(OSError):
                        path.unlink(missing_ok=True)
            return _caught_up(sqlite3.connect(":memory:", isolation_level=None), snapshot)

    def _read(self, places: list[tuple[int, int]]) -> Iterator[dict[str, Any]]:
        files: dict[int, Any] = {}
        try:
            for number, begin in places:
                if number not in files:
                    path = self._directory / numbered(number)
                    files[number] = open(path if path.exists() else self._directory / CURRENT, "rb")  # noqa: SIM115  closed below
                files[number].seek(begin)
                with suppress(ValueError):
                    yield dict(json.loads(files[number].readline()))
        finally:
            for file in files.values():
                file.close()


def _connect(path: Path) -> sqlite3.Connection:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    os.close(descriptor)
    database = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None)
    database.execute("PRAGMA synchronous = OFF")  # it can be made anew
    return database


def _caught_up(database: sqlite3.Connection, snapshot: LogSnapshot) -> sqlite3.Connection:
    try:
        database.execute("BEGIN IMMEDIATE")
        number, begin = _place(database, snapshot)
        for part in snapshot.parts:
            if part.number >= number:
                _take_in(database, part, begin if part.number == number else 0)
        database.execute("COMMIT")
    except BaseException:
        database.close()
        raise
    return database


def _place(database: sqlite3.Connection, snapshot: LogSnapshot) -> tuple[int, int]:
    """Up to where the log is in it; all is thrown away if the log is another one."""
    if database.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
        found = database.execute("SELECT file, begin, last FROM place").fetchone()
        if found is None:
            return 0, 0
        number, begin, last = found
        part = next((part for part in snapshot.parts if part.number == number), None)
        if part is not None and part.size >= begin:
            part.file.seek(begin - len(last))
            if part.file.read(len(last)) == last:
                return int(number), int(begin)
    for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        database.execute(f'DROP TABLE "{name}"')
    for statement in _SCHEMA.split(";"):
        database.execute(statement)
    return 0, 0


def _take_in(database: sqlite3.Connection, part: Part, begin: int) -> None:
    rows: list[tuple[Any, ...]] = []
    end, last = begin, b""
    for at, line in lines(part, begin):
        if not line.endswith(b"\n"):
            break
        end, last = at + len(line), line
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict):
                rows.append((part.number, at, *map(_plain, map(record.get, _COLUMNS)), _text(record)))
        if len(rows) >= _BATCH:
            database.executemany(_INSERT, rows)
            rows.clear()
    database.executemany(_INSERT, rows)
    if end > begin:
        database.execute("DELETE FROM place")
        database.execute("INSERT INTO place VALUES (?, ?, ?)", (part.number, end, last))


def _plain(value: Any) -> Any:
    """As SQLite can hold it; half characters of file names it cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value if isinstance(value, int | float) or value is None else json.dumps(value)


def _text(record: dict[str, Any]) -> Any:
    return _plain("\n".join(str(record.get(name) or "") for name in _TEXTS).lower())
