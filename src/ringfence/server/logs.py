"""The server's log: one line of JSON for each entry, or plain lines for a person at a terminal. Never a token."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_KNOWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        told |= {name: value for name, value in vars(record).items() if name not in _KNOWN and value is not None}
        if record.exc_info is not None:
            told["exception"] = self.formatException(record.exc_info)
        return json.dumps(told, default=str)


class PlainFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        if record.name == "ringfence.access":
            given = vars(record)
            return f"{given['status']} {given['method']} {given['path']} {given['seconds'] * 1000:.1f} ms"
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info is not None else text


def set_up(*, as_json: bool) -> None:
    """Everything that Ringfence and uvicorn log, on stderr."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else PlainFormatter())
    for name, level in (("ringfence", logging.INFO), ("uvicorn", logging.WARNING)):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
