"""The suite of every box, on those of the engine wasi: behind bubblewrap, and behind walls without it.

What of the suite is written for a shell, or for processes of the kernel, has its reason in `ELSEWHERE`, and its twin
below where the same can be asked of modules. A test that is added to the suite has to be put into one of the two.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from ringfence.confinement.choose import confiners
from ringfence.engines.base import Box, Engine
from ringfence.errors import Internal, SpawnFailed
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited, LimitHit, Refused, Result, TimedOut
from ringfence.values.request import Request
from tests.contract import test_boxes as suite
from tests.contract.test_boxes import (  # noqa: F401  collected here, on the boxes of this module
    test_a_call_of_an_interpreter_has_the_limits_of_a_command,
    test_a_cancelled_command_is_dead_before_the_cancellation_goes_on,
    test_a_closed_box_takes_no_command_and_can_be_closed_again,
    test_a_command_that_ends_in_time_is_not,
    test_a_command_that_says_too_much_is_stopped_at_exactly_the_limit,
    test_a_command_that_takes_too_long_is_ended_and_its_output_kept,
    test_a_fault_of_whoever_listens_reaches_the_caller,
    test_a_process_whose_program_is_not_there_is_a_fault_and_the_box_lives_on,
    test_a_program_that_is_not_there_is_a_fault_and_the_box_lives_on,
    test_a_warmed_box_gives_what_a_cold_one_gives,
    test_an_exit_code_is_the_command_s_own,
    test_both_ends_of_a_long_output_can_be_kept,
    test_bytes_that_are_no_text_survive,
    test_closing_a_box_is_not_a_loss,
    test_closing_ends_what_runs_and_tells_its_caller,
    test_commands_run_one_after_the_other_and_do_not_mix,
    test_every_wall_but_the_fake_s_guarantees_something,
    test_files_of_the_workspace_stay_for_the_next_command,
    test_input_arrives_whole,
    test_input_may_be_a_stream,
    test_left_alone_the_same_command_does_its_work,
    test_output_and_errors_are_kept_apart_and_heard_as_they_come,
    test_output_is_heard_while_the_command_still_runs,
    test_the_caller_s_environment_is_not_there,
    test_the_grant_s_time_cannot_be_exceeded_by_a_request,
    test_usage_can_be_asked_at_any_time,
    test_variables_of_the_box_and_of_the_request_are_there,
    test_without_input_a_command_reads_nothing_and_does_not_wait,
)
from tests.support import wasi

ELSEWHERE = {
    "test_a_signal_is_told_from_an_exit_code": "modules have no signals",
    "test_more_arguments_than_a_message_holds_are_a_fault_and_the_box_lives_on": "no kernel counts them here",
    "test_input_that_nobody_reads_is_no_fault": "closes a descriptor by `exec`; twin below",
    "test_a_command_starts_in_the_workspace_or_where_it_is_told": "modules know it as /workspace; twin below",
    "test_a_box_goes_on_after_every_way_to_end": "sends a signal; twin below",
    "test_what_a_command_leaves_running_does_not_hold_its_end_up": "there are no jobs in the background; twin below",
    "test_every_result_says_which_wall_it_ran_behind": "two walls; twin below",
    "test_an_interpreter_keeps_its_state_and_each_name_has_its_own": "shells keep no state here; twin below",
    "test_an_interpreter_that_leaves_ends_with_its_own_code_and_the_next_is_new": "sends a signal; twin below",
    "test_an_interrupt_ends_the_call_and_not_the_interpreter": "an interrupt ends the guest; twin below",
    "test_a_process_goes_on_beside_commands_until_it_is_ended": "written as a loop of the shell; twin below",
    "test_a_process_may_have_a_terminal": "there are none; twin below",
    "test_a_program_is_found_by_the_first_of_its_names_that_is_there": "looks for bash; twin below",
    "test_a_box_that_is_lost_is_known_at_once_and_told_once": "looks into the box's own parts; twin below",
    "test_without_a_wall_nothing_goes_on_and_no_state_is_kept_and_it_says_so": "of the fake alone",
    "test_no_further_user_namespace_can_be_made_even_if_the_filter_let_it_pass": "a module makes no system calls",
    "test_the_filter_is_what_stops_a_new_user_namespace": "a module makes no system calls",
}
KINDS = ["bwrap", "unshare", *(["landlock"] if os.geteuid() != 0 else [])]


class WasiBench(suite.Bench):
    @property
    def engine(self) -> Engine:
        return wasi.engine(self.home / "wasi", self.home, self.kind)


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> suite.Bench:
    wasi.needed()
    (confiner,) = (confiner for confiner in confiners() if confiner.name == request.param)
    if not confiner.probe().usable:
        pytest.skip(f"{request.param}: {confiner.probe().missing}")
    return WasiBench(request.param, tmp_path)


real = walled = bench


@pytest.mark.req("D1")
def test_every_test_of_the_suite_runs_here_or_says_why_not() -> None:
    every = {name for name in vars(suite) if name.startswith("test_")}

    assert every - globals().keys() <= ELSEWHERE.keys()
    assert not ELSEWHERE.keys() & globals().keys()


def test_input_that_no_module_reads_is_no_fault(bench: suite.Bench) -> None:
    assert bench.run("echo done", stdin=b"x" * 1_000_000).ending == Exited(0)


@pytest.mark.req("D2", "D5")
def test_a_module_starts_in_the_workspace_and_never_learns_where_that_lies(bench: suite.Bench) -> None:
    (bench.workspace / "sub" / "note").write_text("here\n")

    assert bench.run("pwd").stdout == "/workspace\n"
    assert bench.run("pwd; cat note", cwd=bench.workspace / "sub").stdout == "/workspace/sub\nhere\n"
    assert bench.run(f"cat {bench.workspace}/sub/note").stdout == "here\n"
    assert str(bench.workspace) not in bench.run("python3 -c 'import os; print(dict(os.environ))'; env").stdout


def test_a_box_goes_on_after_every_way_in_which_modules_end(bench: suite.Bench) -> None:
    async def work(box: Box) -> list[str]:
        said = []
        for command in ("exit 3", "sleep 60", "yes", "cat <(echo x)"):
            said.append(type((await box.run(Request(command=command, timeout=0.5))).ending).__name__)
            assert (await box.run(Request(command="echo fine"))).stdout == "fine\n"
        return said

    ways = bench.use(work, limits=Limits(output_bytes=1000))
    assert ways == [Exited.__name__, TimedOut.__name__, LimitHit.__name__, Refused.__name__]


@pytest.mark.req("D6", "D5")
def test_every_result_names_both_walls_and_no_path_of_the_host(bench: suite.Bench) -> None:
    result = bench.run(f"cat {bench.workspace}/nothing")

    assert result.wall is not None and result.wall.name == f"wasi in {bench.kind}"
    assert [audit.wrapper for audit in result.sandbox_audits] == [bench.kind, "wasi"]
    assert "/workspace/nothing" in str(result.sandbox_audits[1])
    assert str(bench.workspace) not in str(result.sandbox_audits)
    assert Result.from_dict(result.to_dict()).sandbox_audits == result.sandbox_audits
    assert [each["wrapper"] for each in result.to_dict()["sandbox_audits"]] == [bench.kind, "wasi"]


@pytest.mark.req("X2", "D2")
def test_a_guest_keeps_its_globals_and_each_name_has_its_own(bench: suite.Bench) -> None:
    async def work(box: Box) -> list[str]:
        assert (await box.run(Request(code="x = 1", language="python"))).ok
        await box.run(Request(code="x = 2", language="python", context="b"))
        said = []
        for context in (None, "b"):
            done = await box.run(Request(code="print(x); x", language="python", context=context))
            said.append(done.stdout + str(done.results[0].forms))
        failed = await box.run(Request(code="1 / 0", language="python"))
        assert failed.exception is not None and failed.exception.type == "ZeroDivisionError"
        left = await box.run(Request(code="import os; os._exit(7)", language="python"))
        assert left.ending == Exited(7)
        assert (await box.run(Request(code="print('x' in globals())", language="python"))).stdout == "False\n"
        return said

    assert bench.use(work) == ["1\n(('text/plain', '1'),)", "2\n(('text/plain', '2'),)"]


def test_an_interrupt_ends_the_call_and_the_result_says_that_the_state_is_gone(bench: suite.Bench) -> None:
    async def work(box: Any) -> Result:
        heard = asyncio.Event()
        code = "x = 5\nprint('on')\nwhile True: pass"
        request = Request(code=code, language="python", on_output=lambda *piece: heard.set())
        task = asyncio.create_task(box.run(request))
        await asyncio.wait_for(heard.wait(), 20)
        assert box.interrupt("main", "python")
        stopped = await asyncio.wait_for(task, 20)
        assert (await box.run(Request(code="print('x' in globals())", language="python"))).stdout == "False\n"
        return stopped

    result = bench.use(work)
    assert (result.exit_code, result.state_kept) == (130, False)


def test_a_module_goes_on_beside_commands_until_it_is_ended(bench: suite.Bench) -> None:
    async def work(box: Box) -> bytes:
        process = await box.start(Request(command="cat"))
        assert await process.write(b"over\n")
        assert (await box.run(Request(command="echo beside"))).stdout == "beside\n"
        process.close_input()
        ended = await process.wait(20)
        assert ended is not None and ended.ending == Exited(0)
        with pytest.raises(SpawnFailed, match="no terminals"):
            await box.start(Request(command="cat"), terminal=(30, 90))
        with pytest.raises(SpawnFailed, match="substitution"):
            await box.start(Request(command="echo $(echo x)"))
        return ended.stdout_bytes

    assert bench.use(work) == b"over\n"


def test_programs_are_modules_and_no_program_of_the_host_is_one(bench: suite.Bench) -> None:
    async def work(box: Box) -> tuple[str | None, ...]:
        return tuple(box.find_program((name,)) for name in ("python3", "node", "grep", "bash", "gcc", "curl"))

    assert bench.use(work) == ("python3", "node", "grep", None, None, None)


def test_a_box_whose_first_process_is_killed_is_known_to_be_lost(bench: suite.Bench) -> None:
    async def work(box: Any) -> None:
        told: list[int] = []
        box.when_lost(lambda: told.append(1))
        task = asyncio.create_task(box.run(Request(command="sleep 60")))
        await asyncio.sleep(0.5)
        first = box._box._inside.control.first_pid
        os.kill(first, signal.SIGKILL)
        with pytest.raises(Internal):
            await asyncio.wait_for(task, 20)
        assert not box.alive and told == [1]
        with pytest.raises(Internal):
            await box.run(Request(command="echo x"))

    bench.use(work)
