"""What survives a restart, in SQLite: tokens, sessions, questions with their answers, keys of repeated requests.

One connection, used in the loop's own thread: every statement is a lookup by key or an insert of a small row. WAL, so
that `ringfence token` reads and writes while the server runs. The record of what ran is not here (docs/audit.md).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any, Final

from ringfence.errors import Damaged, FileError

STATE_FILE: Final = "server.sqlite3"
_VERSION: Final = 1
_BUSY_SECONDS: Final = 10.0
_SCHEMA: Final = f"""
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, hash BLOB NOT NULL, tenant TEXT NOT NULL, name TEXT NOT NULL, scopes TEXT NOT NULL,
    created_at REAL NOT NULL, expires_at REAL, revoked_at REAL, used_at REAL
);
CREATE TABLE sessions (
    tenant TEXT NOT NULL, id TEXT NOT NULL, created_at REAL NOT NULL, expires_at REAL NOT NULL, state TEXT NOT NULL,
    agent_id TEXT NOT NULL, asked TEXT NOT NULL, workspace TEXT NOT NULL, shadow TEXT, run TEXT NOT NULL,
    PRIMARY KEY (tenant, id)
);
CREATE TABLE questions (
    id TEXT PRIMARY KEY, tenant TEXT NOT NULL, session_id TEXT NOT NULL, asked_at REAL NOT NULL,
    expires_at REAL NOT NULL, asked TEXT NOT NULL, answered_at REAL, choice TEXT, by TEXT, comment TEXT, how TEXT
);
CREATE INDEX questions_of ON questions (tenant, asked_at);
CREATE TABLE keys (
    tenant TEXT NOT NULL, key TEXT NOT NULL, digest BLOB NOT NULL, at REAL NOT NULL, run TEXT NOT NULL,
    status INTEGER, body BLOB, PRIMARY KEY (tenant, key)
);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL);
PRAGMA user_version = {_VERSION};
"""


class Store:
    """The database in a state directory; made if it is not there.

    Raises:
        Damaged: it is no database, or of a later version.
        FileError: it cannot be opened or written.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / STATE_FILE
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # before SQLite, which heeds umask
        try:
            self._database = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
            self._database.row_factory = sqlite3.Row
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            version = self._database.execute("PRAGMA user_version").fetchone()[0]
            if version == 0:
                self._database.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
        except sqlite3.DatabaseError as fault:
            raise Damaged(
                f"cannot be read: {fault}", source=str(self.path), hint="move it away; tokens go with it"
            ) from fault
        if version > _VERSION:
            raise Damaged(
                f"was written by a later version ({version})", source=str(self.path), hint="use that version, or newer"
            )

    def close(self) -> None:
        self._database.close()

    def one(self, statement: str, *values: Any) -> sqlite3.Row | None:
        rows = self.all(statement, *values)
        return rows[0] if rows else None

    def all(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.DatabaseError as fault:
            raise self._fault(fault) from fault

    def do(self, statement: str, *values: Any) -> int:
        """Change something; returns how many rows it changed.

        Raises:
            FileError: the disk is full, or cannot be written.
        """
        try:
            return self._database.execute(statement, values).rowcount
        except sqlite3.DatabaseError as fault:
            raise self._fault(fault) from fault

    def _fault(self, fault: sqlite3.DatabaseError) -> FileError | Damaged:
        name = getattr(fault, "sqlite_errorname", "")
        if name.startswith("SQLITE_FULL"):
            import errno

            return FileError("the disk is full", path=str(self.path), number=errno.ENOSPC, hint="free some space")
        if name.startswith(("SQLITE_IOERR", "SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_BUSY", "SQLITE_LOCKED")):
            return FileError(f"cannot be written: {fault}", path=str(self.path), hint="look at the disk")
        return Damaged(f"cannot be used: {fault}", source=str(self.path), hint="move it away; tokens go with it")
