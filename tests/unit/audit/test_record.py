"""A record has every field of the requirement, measured or null with a reason, and no secret in any of them."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ringfence.audit import record
from ringfence.audit.redact import Redactor
from ringfence.errors import Internal, InvalidArgument
from ringfence.values.display import CodeError
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limit
from ringfence.values.outcome import (
    Ending,
    Exited,
    LimitHit,
    OutputFile,
    Refused,
    Result,
    SandboxAudit,
    Signalled,
    TimedOut,
    Usage,
)
from ringfence.values.principal import Principal
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Reason, Verdict
from ringfence.values.violation import Severity, Violation, ViolationKind

pytestmark = pytest.mark.req("B9")

FIELDS = {
    "session_id", "agent_id", "org_id", "sandbox_id", "tool", "language", "code_hash", "execution_time_ms", "exit_code",
    "memory_used_mb", "cpu_time_ms", "network_bytes_sent", "network_bytes_recv", "files_read", "files_written",
    "result", "error",
}  # fmt: skip
"""The document's, without `timestamp` and `event_type`, which the journal adds."""
SECRET = "ghp_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
WALL = Wall("bwrap", frozenset({Guarantee.NETWORK_OFF}), ("cgroup v2",))
SUCCESS = Exited(0)
WHO = Principal(session_id="s", agent_id="a", org_id="o", sandbox_id="b", tool="code_run")


def an_opened(request: Request, *reasons: Reason, who: Principal = WHO) -> dict[str, Any]:
    decision = Decision(reasons or (Reason(Verdict.ALLOW, "default", "no rule objects"),), Grant(workspace=Path("/w")))
    return record.opened(request, decision, Path("/w/sub"), who, Redactor())


def an_ended(ending: Ending = SUCCESS, *, collected: bool = False, **parts: Any) -> dict[str, Any]:
    parts = {"usage": Usage(0.25, 0.5, 3 << 20, "cgroup v2"), "wall": WALL} | parts
    return record.ended(Result(ending=ending, **parts), Redactor(), files_collected=collected)


@pytest.mark.parametrize(
    "ended",
    [an_ended(), an_ended(Refused("no", "r")), record.interrupted(), record.failed(Internal("lost"), Redactor())],
)
def test_every_field_of_the_requirement_is_there_and_null_only_with_a_reason(ended: dict[str, Any]) -> None:
    opened = an_opened(Request(code="1", language="python"))
    whole = opened | ended

    assert whole.keys() >= FIELDS
    assert opened.keys() & ended.keys() == set()
    unknown = {name for name in FIELDS - {"error", "exit_code"} if whole[name] is None}
    assert unknown == set(ended.get("not_observed", {}))
    json.dumps(whole)


def test_what_was_measured_is_what_is_written() -> None:
    done = an_ended(audit=SandboxAudit("bwrap", ("bwrap", "--unshare-all")), stdout_bytes=b"12", stdout_dropped=3)

    assert (done["execution_time_ms"], done["cpu_time_ms"], done["memory_used_mb"]) == (250.0, 500.0, 3.0)
    assert (done["network_bytes_sent"], done["network_bytes_recv"]) == (0, 0)
    assert (done["measured_by"], done["wall"], done["limits_by"]) == ("cgroup v2", "bwrap", ["cgroup v2"])
    assert (done["wrapped"], done["stdout_bytes"], done["error"]) == ("bwrap --unshare-all", 5, None)


def test_what_nobody_measured_is_not_invented() -> None:
    done = an_ended(usage=Usage(), wall=Wall("none", frozenset()))

    for name in ("execution_time_ms", "memory_used_mb", "network_bytes_sent", "files_read", "files_written"):
        assert done[name] is None and done["not_observed"][name]


def test_files_that_were_collected_are_named_also_if_there_are_none() -> None:
    files = tuple(OutputFile(f"out/{number}.txt", 1) for number in range(150))

    some, none = an_ended(files=files, collected=True), an_ended(collected=True)

    assert some["files_written"][:2] == ["/workspace/out/0.txt", "/workspace/out/1.txt"]
    assert (len(some["files_written"]), some["files_written_count"]) == (100, 150)
    assert none["files_written"] == [] and "files_written" not in none["not_observed"]


@pytest.mark.parametrize(
    ("ending", "word", "has_error"),
    [
        (Exited(0), "success", False),
        (Exited(3), "failure", False),
        (Signalled(9), "failure", True),
        (TimedOut(3), "timeout", True),
        (LimitHit(Limit.MEMORY, 1 << 30), "limit", True),
        (Refused("because", "rule"), "refused", True),
    ],
)
def test_the_result_is_one_word(ending: Ending, word: str, has_error: bool) -> None:
    done = an_ended(ending)

    assert done["result"] == word
    assert (done["error"] is not None) is has_error


def test_a_refusal_touched_nothing() -> None:
    done = an_ended(Refused("because", "rule"), usage=Usage(), wall=None)

    assert (done["files_read"], done["files_written"], done["network_bytes_sent"]) == ([], [], 0)
    assert "not_observed" not in done


def test_the_hash_is_of_the_whole_text_with_its_secrets() -> None:
    text = f"curl -H 'Authorization: Bearer {SECRET}' x"
    opened = an_opened(Request(command=text))

    assert opened["code_hash"] == "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    assert SECRET not in opened["command"]
    assert an_opened(Request(command="echo \udcff"))["code_hash"].startswith("sha256:")


def test_no_text_of_a_request_or_a_result_brings_a_secret_in() -> None:
    reason = Reason(Verdict.DENY, f"rule {SECRET}", f"why {SECRET}", f"by {SECRET}", f"/etc/{SECRET}")
    violation = Violation(ViolationKind.COMMAND, Severity.HIGH, f"what {SECRET}", f"rule {SECRET}", f"by {SECRET}")
    who = record.without_secrets(Principal(session_id=SECRET, agent_id=SECRET, org_id=SECRET, tool=SECRET), Redactor())
    opened = an_opened(Request(command=f"echo {SECRET}"), reason, reason, who=who)
    failed = record.failed(Internal(f"lost {SECRET}"), Redactor())
    for done in (
        an_ended(Refused(f"why {SECRET}", f"rule {SECRET}", f"by {SECRET}"), violations=(violation,)),
        an_ended(Exited(1), exception=CodeError("ValueError", SECRET, SECRET), audit=SandboxAudit("x", ("a", SECRET))),
        an_ended(files=(OutputFile(SECRET, 1),), collected=True),
        failed,
    ):
        assert SECRET not in json.dumps(opened | done)


def test_a_command_of_thousands_of_parts_does_not_fill_the_disk() -> None:
    reasons = [Reason(Verdict.DENY, "r" * 9999, "w" * 9999) for _ in range(5000)]

    assert len(json.dumps(an_opened(Request(command="x" * 99_999), *reasons))) < 20_000


@pytest.mark.parametrize("name", ["x" * 257, 5])
def test_a_name_that_a_record_should_not_hold_is_refused(name: Any) -> None:
    with pytest.raises(InvalidArgument):
        Principal(agent_id=name)
