"""Which wall a sandbox has by what runs in it, over an engine that makes two kinds of box."""

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence import PolicyEngine, Result, Sandbox, SecurityMode
from ringfence.errors import InitializationFailed
from ringfence.manager import parts as module
from ringfence.manager import pipeline as pipeline_module
from ringfence.manager.assemble import assemble
from ringfence.manager.leases import Lease
from ringfence.manager.options import SandboxOptions
from ringfence.manager.pipeline import Judge, Pipeline
from ringfence.policy.decide import decide
from ringfence.values.grant import Grant
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.outcome import Exited, Refused
from ringfence.values.request import Request
from tests.support.fakes import FakeBox

pytestmark = pytest.mark.req("E2", "D1")

SAFE = "echo x"
LOW = "cat"
HIGH = "exit 0; curl http://example.com"
PLAIN, STRONG = "plain", "strong"


class TwoWalls:
    """Makes boxes with or without a kernel of their own, as the grant requires, and takes its time."""

    name = "two walls"

    def __init__(self) -> None:
        self.boxes: list[FakeBox] = []
        self.has_strong = True

    async def open(self, grant: Grant) -> FakeBox:
        await asyncio.sleep(0.01)
        wants = Guarantee.OWN_KERNEL in grant.requires
        if wants and not self.has_strong:
            raise InitializationFailed("lacks own kernel", hint="install one")
        box = FakeBox(grant)
        gives = frozenset({Guarantee.OWN_KERNEL}) if wants else frozenset()
        box.wall = Wall(STRONG if wants else PLAIN, gives)
        self.boxes.append(box)
        return box

    @property
    def walls(self) -> list[str]:
        return [box.wall.name for box in self.boxes]


class Desk:
    def __init__(self, home: Path) -> None:
        self.home = home
        self.work = home / "project"
        self.work.mkdir(parents=True)
        self.engine = TwoWalls()

    def use(
        self, work: Callable[[Sandbox], Awaitable[Any]], mode: str = "permissive", *, once: bool = False, **options: Any
    ) -> Any:
        text = f"policies:\n  default:\n    security_mode: {mode}\n    isolation_requires: [own_kernel]\n"

        async def main() -> Any:
            rules = {"policy": PolicyEngine.from_text(text, "p.yaml")} | options
            make = Sandbox.for_one_call if once else Sandbox
            async with asyncio.timeout(30), make(self.work, **rules) as sandbox:
                return await work(sandbox)

        return asyncio.run(main())

    @property
    def records(self) -> list[dict[str, Any]]:
        path = self.home / ".ringfence" / "state" / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    desk = Desk(tmp_path / "home")
    for name in list(os.environ):
        if name.startswith(("RINGFENCE_", "SYNAPSE_", "OPENAGENTIC_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(desk.home))
    monkeypatch.setattr(module, "assemble", lambda *a, **k: replace(assemble(*a, **k), engine=desk.engine))
    return desk


def in_turn(*commands: str) -> Callable[[Sandbox], Awaitable[list[Result]]]:
    async def work(sandbox: Sandbox) -> list[Result]:
        return [await sandbox.shell(command) for command in commands]

    return work


@pytest.mark.parametrize(
    ("mode", "once", "command", "wall"),
    [
        ("permissive", True, SAFE, PLAIN),
        ("permissive", True, LOW, PLAIN),
        ("permissive", True, HIGH, STRONG),
        ("strict", True, SAFE, PLAIN),
        ("strict", True, LOW, STRONG),
        ("strict", False, SAFE, STRONG),
        ("permissive", False, SAFE, PLAIN),
        ("permissive", False, HIGH, STRONG),
    ],
)
def test_one_call_has_the_wall_that_its_risk_and_the_mode_ask_for(
    desk: Desk, mode: str, once: bool, command: str, wall: str
) -> None:
    (result,) = desk.use(in_turn(command), mode, once=once)

    assert desk.engine.walls == [wall] and result.wall.name == wall


def test_the_callers_mode_tightens_the_policys(desk: Desk) -> None:
    assert desk.use(in_turn(SAFE), "permissive", security_mode=SecurityMode.STRICT)[0].wall.name == STRONG
    assert desk.use(in_turn(SAFE), "strict", security_mode=SecurityMode.PERMISSIVE)[0].wall.name == STRONG


def test_a_session_that_began_harmless_refuses_what_needs_more_and_goes_on(desk: Desk) -> None:
    first, refused, last = desk.use(in_turn(SAFE, HIGH, SAFE))

    assert desk.engine.walls == [PLAIN] and len(desk.engine.boxes[0].ran) == 2
    assert (first.ending, last.ending) == (Exited(0), Exited(0))
    assert isinstance(refused.ending, Refused)
    assert "HIGH risk (curl, line 1) under permissive" in refused.ending.why and "own kernel" in refused.ending.why
    assert refused.ending.rule == "isolation_requires at p.yaml:4" and "new session" in refused.ending.allow_by
    assert [found.rule for found in refused.violations] == ["isolation_requires"]


def test_a_session_that_began_isolated_stays_so(desk: Desk) -> None:
    results = desk.use(in_turn(HIGH, SAFE, HIGH))

    assert desk.engine.walls == [STRONG] and all(result.wall.name == STRONG for result in results)
    assert desk.engine.boxes[0].notes == ["the session is isolated: HIGH risk (curl, line 1) under permissive"]


def test_a_box_in_place_of_a_lost_one_has_the_same_wall(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> None:
        await sandbox.shell(HIGH)
        await desk.engine.boxes[0].close()
        await sandbox.shell(SAFE)
        await desk.engine.boxes[1].close()
        await sandbox.shell(HIGH)

    desk.use(work)
    assert desk.engine.walls == [STRONG] * 3


@pytest.mark.parametrize("first", [SAFE, HIGH])
def test_of_calls_at_once_none_runs_behind_less_than_it_needs(desk: Desk, first: str) -> None:
    """Both are judged before a box stands; the one that opens it chooses, and the other has to do with it."""
    second = HIGH if first == SAFE else SAFE

    async def work(sandbox: Sandbox) -> list[Result]:
        return await asyncio.gather(sandbox.shell(first), sandbox.shell(second))

    results = desk.use(work)
    (box,) = desk.engine.boxes
    assert isinstance(results[1].ending, Refused) is (box.wall.name == PLAIN)
    assert all("curl" not in (request.command or "") for request in box.ran) is (box.wall.name == PLAIN)


def test_background_commands_are_held_to_the_same(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> None:
        await sandbox.shell(SAFE)
        with pytest.raises(Exception, match="own kernel") as caught:
            await sandbox.start(HIGH)
        assert type(caught.value).__name__ == "CommandNotAllowed"

    desk.use(work)
    assert desk.engine.walls == [PLAIN]


def test_a_wall_that_cannot_be_had_is_an_error_that_says_why_it_is_needed(desk: Desk) -> None:
    desk.engine.has_strong = False

    async def work(sandbox: Sandbox) -> Result:
        with pytest.raises(InitializationFailed) as caught:
            await sandbox.shell(HIGH)
        assert caught.value.message == "isolated: HIGH risk (curl, line 1) under permissive, and lacks own kernel"
        assert caught.value.hint == "install one"
        return await sandbox.shell(SAFE)

    assert desk.use(work).ok, "nothing stands, so that harmless code may begin"
    assert desk.engine.walls == [PLAIN]
    with pytest.raises(InitializationFailed, match="riskiest piece"):
        desk.use(in_turn(SAFE), "strict")


def test_the_result_and_the_record_say_where_it_went_and_why(desk: Desk) -> None:
    (done,) = desk.use(in_turn(HIGH), once=True)
    desk.use(in_turn(SAFE, "curl AKIAIOSFODNN7EXAMPLE"))

    why = "isolated: HIGH risk (curl, line 1) under permissive"
    assert done.wall.notes == (why,)
    assert [(record["route"], record["result"], record["wall"]) for record in desk.records] == [
        ("isolated", "success", STRONG),
        ("walled", "success", PLAIN),
        ("isolated", "refused", None),
    ]
    assert desk.records[0]["route_why"] == why
    assert all("AKIAIOSFODNN7EXAMPLE" not in json.dumps(record) for record in desk.records)


def test_without_isolation_no_word_is_said_about_it(desk: Desk) -> None:
    rules = PolicyEngine.from_text("policies: {default: {security_mode: strict}}")

    (done,) = desk.use(in_turn(HIGH), policy=rules)

    assert desk.engine.walls == [PLAIN] and done.wall.notes == ()
    assert "route" not in desk.records[0]


def test_checks_of_a_sandbox_know_the_wall_that_stands(desk: Desk) -> None:
    async def work(sandbox: Sandbox) -> tuple[str, str]:
        before = sandbox.check_command(HIGH).rule
        await sandbox.shell(SAFE)
        return before, sandbox.check_command(HIGH).rule

    assert desk.use(work) == ("default", "isolation_requires")


def test_the_pipeline_trusts_no_box_that_it_is_given(desk: Desk) -> None:
    """Whoever made it: what it gives is looked at before anything runs in it."""
    rules = PolicyEngine.from_text("policies: {default: {security_mode: permissive, isolation_requires: [own_kernel]}}")
    grant = Grant(workspace=desk.work)
    box = FakeBox(grant)

    async def give(_: object) -> Lease:
        return Lease.of(box, grant)

    async def main() -> list[Result]:
        assembly = assemble(SandboxOptions(workspace=desk.work))
        pipeline = Pipeline(grant, assembly.journal, give, Judge(terms=rules.terms()))
        try:
            return [await pipeline.run(Request(command=command)) for command in (SAFE, HIGH)]
        finally:
            assembly.journal.close()

    safe, high = asyncio.run(main())
    assert safe.ending == Exited(0) and isinstance(high.ending, Refused)
    assert [request.command for request in box.ran] == [SAFE]


def test_a_long_text_is_read_apart_from_the_event_loop(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    judged_in: list[int] = []

    def watched(*words: Any, **options: Any) -> Any:
        judged_in.append(threading.get_ident())
        return decide(*words, **options)

    monkeypatch.setattr(pipeline_module, "decide", watched)
    results = desk.use(in_turn(SAFE, "echo x; " * 1000 + HIGH), once=True)

    assert judged_in[0] == threading.get_ident() and judged_in[1] != threading.get_ident()
    assert results[0].ok and isinstance(results[1].ending, Refused)
