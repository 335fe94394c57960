"""What the advice calls SAFE does nothing that the interpreter's own audit would report."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ringfence.policy.risk.assess import assess
from ringfence.values.risk import Risk
from tests.unit.policy.test_risk_python import SAFE

pytestmark = pytest.mark.req("E2")

# Runs each snippet in one interpreter and prints the audit events that are neither its own imports nor plain computing.
PROGRAM = """
import io, json, sys
from contextlib import redirect_stdout

snippets = json.loads(sys.argv[1])
quiet = ("import", "compile", "exec", "marshal.loads", "object.__", "code.__new__", "builtins.id", "sys._getframe")
seen, watching = [], False

def hook(event, args):
    if watching and not event.startswith(quiet):
        if event == "open" and str(args[0]).startswith(sys.base_prefix) and args[1] in ("r", "rb"):
            return  # a module of the standard library
        if event in ("os.listdir", "os.scandir") and "python" in str(args[0]):
            return  # the import system looks for one
        seen.append([event, repr(args)[:200]])

sys.addaudithook(hook)
report = []
for snippet in snippets:
    seen.clear()
    watching = True
    try:
        with redirect_stdout(io.StringIO()):
            exec(snippet, {"__name__": "__main__"})
    except SystemExit:
        pass
    finally:
        watching = False
    report.append(list(seen))
print(json.dumps(report))
"""


def events(snippets: list[str]) -> list[list[list[str]]]:
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", PROGRAM, json.dumps(snippets)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    report: list[list[list[str]]] = json.loads(done.stdout)
    return report


def test_safe_code_makes_no_event_of_the_interpreters_audit() -> None:
    assert [assess("python", code).risk for code in SAFE] == [Risk.SAFE] * len(SAFE)

    assert [(code, seen) for code, seen in zip(SAFE, events(SAFE), strict=True) if seen] == []


def test_the_audit_does_notice_code_that_is_not_safe() -> None:
    code = ["open('/dev/null')", "import os\nos.listdir('.')", "import socket\nsocket.socket().close()"]

    assert all(events(code))
