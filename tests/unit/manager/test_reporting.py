"""Who is told what: every execution once, whatever came of it; a failing observer harms nobody."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ringfence.approvals.base import Answer, Approval, Choice, Question
from ringfence.audit.events import ApprovalAsked, ApprovalEnded, Event, ExecutionEnded, Outcome, Status
from ringfence.audit.journal import Journal
from ringfence.errors import RingfenceError
from ringfence.manager.leases import Lease
from ringfence.manager.pipeline import Judge, Pipeline
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.reporting import Reporting, outcome_of
from ringfence.values.grant import Grant
from ringfence.values.limits import Limits
from ringfence.values.principal import Principal
from ringfence.values.request import Request
from tests.support.fakes import FakeBox

POLICY = """
policies:
  default:
    denied_commands: [curl]
    approvals: {timeout: 200ms, remember: session, ask_for: {patterns: [printenv]}}
"""


class Person:
    """Answers as told; never, if there is no answer."""

    def __init__(self, choice: Choice | None, by: str = "ada") -> None:
        self._choice = choice
        self._by = by

    async def confirm(self, question: Question) -> Answer:
        if self._choice is None:
            await asyncio.sleep(60)
        return Answer(choice=self._choice or Choice.NO, by=self._by, how="test", request_hash=question.request_hash)


class Broken:
    async def confirm(self, question: Question) -> Answer:
        raise OSError("no line")


class Bench:
    def __init__(self, tmp_path: Path, observer: Callable[[Event], object] | None = None, **judge: Any) -> None:
        self.workspace = tmp_path / "work"
        self.workspace.mkdir()
        self.journal = Journal(tmp_path / "state")
        self.grant = Grant(workspace=self.workspace, limits=Limits(output_bytes=1000))
        self.box = FakeBox(self.grant)
        self.told: list[Event] = []
        observers = (observer or self.told.append,)
        self.reporting = Reporting(who=Principal(tool="code_run", session_id="s", sandbox_id="b"), observers=observers)
        terms = PolicyEngine.from_text(POLICY).terms("code_run")
        self.judge = Judge(terms=terms, who=self.reporting.who, **judge)
        self.pipeline = Pipeline(self.grant, self.journal, self._acquire, self.judge, self.reporting)

    async def _acquire(self, _: object = None) -> Lease:
        return Lease.of(self.box, self.grant)

    def run(self, *commands: str, **parts: Any) -> None:
        async def all_of_them() -> None:
            for command in commands:
                with suppress(RingfenceError):
                    await self.pipeline.run(Request(command=command, **parts))

        asyncio.run(all_of_them())
        self.journal.close()

    @property
    def ended(self) -> list[ExecutionEnded]:
        return [event for event in self.told if isinstance(event, ExecutionEnded)]


@pytest.mark.parametrize(
    ("command", "status", "fault"),
    [
        ("echo a", Status.SUCCESS, ""),
        ("exit 3", Status.FAILED, ""),
        ("kill -9 $$", Status.SIGNALLED, ""),
        ("yes", Status.LIMIT_HIT, ""),
        ("sleep 60", Status.TIMED_OUT, ""),
        ("curl x", Status.REFUSED, ""),
        ("no-such-program", Status.FAULT, "spawn_failed"),
    ],
)
@pytest.mark.req("B10")
def test_every_execution_is_told_once_with_what_came_of_it(
    tmp_path: Path, command: str, status: Status, fault: str
) -> None:
    bench = Bench(tmp_path)
    bench.run(command, timeout=0.05 if status is Status.TIMED_OUT else None)

    (event,) = bench.ended
    assert (event.status, event.fault) == (status, fault)
    assert (event.tool, event.language, event.session, event.sandbox_id) == ("code_run", "bash", "s", "b")
    assert event.verdict == ("deny" if status is Status.REFUSED else "allow")
    assert 0 <= event.seconds < 60


def test_an_abandoned_execution_is_told_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path)

    async def cancel() -> None:
        task = asyncio.create_task(bench.pipeline.run(Request(command="sleep 60")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.journal.close()

    asyncio.run(cancel())

    assert [event.status for event in bench.ended] == [Status.ABANDONED]


@pytest.mark.req("C7")
def test_a_refusal_is_in_the_store_with_its_run(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.run("echo a", "curl x")

    (entry,) = bench.reporting.violations.recent()
    assert (entry.session, entry.tool, entry.run_id) == ("s", "code_run", bench.ended[-1].run_id)
    assert entry.violation.place == "policy:4"
    assert entry.violation.target == "curl x"


def test_an_observer_that_fails_is_logged_and_harms_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def bad(event: Event) -> None:
        raise KeyError("mine")

    bench = Bench(tmp_path, bad)
    with caplog.at_level(logging.ERROR, "ringfence"):
        bench.run("echo a")

    assert [request.command for request in bench.box.ran] == ["echo a"]
    assert "an observer failed on ExecutionEnded" in caplog.text


@pytest.mark.parametrize(
    ("service", "outcome"),
    [
        (Person(Choice.YES), Outcome.GRANTED),
        (Person(Choice.NO), Outcome.REFUSED),
        (Person(None), Outcome.TIMED_OUT),
        (Broken(), Outcome.FAILED),
    ],
)
@pytest.mark.req("B10")
def test_every_question_is_told_with_what_came_of_it(tmp_path: Path, service: Any, outcome: Outcome) -> None:
    bench = Bench(tmp_path, confirmation=service)
    bench.run("printenv A")

    asked, answered, ended = bench.told
    assert isinstance(asked, ApprovalAsked) and isinstance(answered, ApprovalEnded)
    assert answered.outcome is outcome
    assert isinstance(ended, ExecutionEnded) and ended.verdict == "ask"
    assert ended.seconds < 0.19, "the time that a person takes is not the execution's"


def test_a_yes_for_the_session_is_remembered_the_next_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, confirmation=Person(Choice.YES_FOR_SESSION))
    bench.run("printenv A", "printenv A")

    outcomes = [event.outcome for event in bench.told if isinstance(event, ApprovalEnded)]
    assert outcomes == [Outcome.GRANTED, Outcome.REMEMBERED]


def test_a_question_whose_asker_goes_away_is_told_as_abandoned(tmp_path: Path) -> None:
    bench = Bench(tmp_path, confirmation=Person(None))

    async def cancel() -> None:
        task = asyncio.create_task(bench.pipeline.run(Request(command="printenv A")))
        await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.journal.close()

    asyncio.run(cancel())

    assert [event.outcome for event in bench.told if isinstance(event, ApprovalEnded)] == [Outcome.ABANDONED]


def test_nobodys_refusal_is_a_time_out_only_if_the_time_was_up() -> None:
    nobody = Approval(granted=False, by="nobody", how="", remembered=False, at=0.0, request_hash="", question_id="")

    assert outcome_of(nobody, 9.9, 10.0) is Outcome.TIMED_OUT
    assert outcome_of(nobody, 0.1, 10.0) is Outcome.FAILED
