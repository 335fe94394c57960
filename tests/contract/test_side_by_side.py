"""One suite for every box: calls that run side by side, and what they leave running."""

import asyncio
import time
from dataclasses import replace

import pytest

from ringfence.engines.base import Box, Process
from ringfence.errors import Internal, InvalidArgument, SpawnFailed
from ringfence.values.grant import Grant
from ringfence.values.limits import Limit, Limits
from ringfence.values.outcome import Exited, LimitHit, Result, Signalled, TimedOut
from ringfence.values.request import Overflow, Request
from tests.contract.test_boxes import Bench, bench, real, server_for_boxes

__all__ = ["bench", "real", "server_for_boxes"]


async def together(box: Box, *requests: Request) -> list[Result]:
    return await asyncio.gather(*map(box.run, requests))


# --- calls ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("C2")
def test_calls_of_one_box_do_not_wait_for_each_other(bench: Bench) -> None:
    async def work(box: Box) -> tuple[float, list[Result]]:
        await box.run(Request(command="echo warm"))
        begin = time.monotonic()
        results = await together(box, *(Request(command=f"sleep 0.8; echo {number}") for number in range(4)))
        return time.monotonic() - begin, results

    seconds, results = bench.use(work)

    assert seconds < 2.4, "one after the other takes 3.2 s"
    assert [result.stdout for result in results] == ["0\n", "1\n", "2\n", "3\n"]


@pytest.mark.req("C2")
def test_each_of_several_calls_has_its_own_ending_output_and_usage(real: Bench) -> None:
    async def work(box: Box) -> list[Result]:
        return await together(
            box,
            Request(command="echo out; exit 3"),
            Request(command="sleep 60", timeout=0.5),
            Request(command="yes", output_limit=1000),
            Request(command="kill -11 $$"),
            Request(command="i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; echo counted"),
            Request(command="cat", stdin=b"given"),
        )

    exited, timed, said, signalled, busy, fed = real.use(work)

    assert (exited.ending, exited.stdout) == (Exited(3), "out\n")
    assert timed.ending == TimedOut(0.5)
    assert said.ending == LimitHit(Limit.OUTPUT, 1000)
    assert said.stdout == "y\n" * 500
    assert signalled.ending == Signalled(11)
    assert busy.stdout == "counted\n"
    assert busy.usage.cpu_seconds > 2 * exited.usage.cpu_seconds
    assert fed.stdout == "given"
    assert busy.overlapped, "it is said that others ran beside it"


def test_a_call_that_ran_alone_says_so(real: Bench) -> None:
    assert real.run("echo x").overlapped == 0


def test_cancelling_one_call_leaves_the_others_alone(real: Bench) -> None:
    async def work(box: Box) -> Result:
        other = asyncio.create_task(box.run(Request(command="sleep 0.8; echo whole")))
        cancelled = asyncio.create_task(box.run(Request(command="sleep 0.5; touch survived; sleep 60")))
        await asyncio.sleep(0.2)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        return await other

    assert real.use(work).stdout == "whole\n"
    assert not (real.workspace / "survived").exists()


def test_what_one_call_leaves_behind_is_ended_with_it_and_nothing_of_another(real: Bench) -> None:
    async def work(box: Box) -> list[Result]:
        return await together(
            box,
            Request(command="(sleep 0.7; touch left) & echo gone"),
            Request(command="(sleep 0.7; touch kept) & wait; echo waited"),
        )

    gone, waited = real.use(work)

    assert (gone.stdout, waited.stdout) == ("gone\n", "waited\n")
    assert (real.workspace / "kept").exists()
    assert not (real.workspace / "left").exists()


def test_calls_of_one_interpreter_take_turns_and_those_of_two_do_not(real: Bench) -> None:
    async def work(box: Box) -> tuple[float, float]:
        def sleep(name: str) -> Request:
            return Request(command="sleep 0.6", context=name)

        await together(box, Request(command=":", context="a"), Request(command=":", context="b"))
        begin = time.monotonic()
        await together(box, sleep("a"), sleep("a"))
        between = time.monotonic()
        await together(box, sleep("a"), sleep("b"))
        return between - begin, time.monotonic() - between

    one, two = real.use(work)

    assert one >= 1.2
    assert two < 1.15


# --- what calls leave running -----------------------------------------------------------------------------------------


def test_a_daemon_lives_on_if_it_may_and_goes_with_the_box(real: Bench) -> None:
    async def work(box: Box) -> None:
        started = await box.run(
            Request(command="(while sleep 0.1; do date +%s%N > beat; done) & echo started", keep_background=True)
        )
        assert (started.ending, started.stdout) == (Exited(0), "started\n")
        await box.run(Request(command="sleep 60 & echo other"))  # what this one leaves is ended, and nothing else
        beats = [await _beat(real) for _ in range(2)]
        assert beats[0] != beats[1]
        (process,) = box.processes()
        assert process.alive

    real.use(work)

    last = (real.workspace / "beat").read_text()
    time.sleep(0.4)
    assert (real.workspace / "beat").read_text() == last


async def _beat(bench: Bench) -> str:
    await asyncio.sleep(0.4)
    return (bench.workspace / "beat").read_text()


def test_without_that_the_same_daemon_is_ended_with_its_call(real: Bench) -> None:
    async def work(box: Box) -> None:
        await box.run(Request(command="(while sleep 0.1; do date +%s%N > beat; done) & sleep 0.3; echo started"))
        beats = [await _beat(real) for _ in range(2)]
        assert beats[0] == beats[1]
        assert box.processes() == ()

    real.use(work)


def test_a_daemon_can_be_ended_by_itself_and_is_then_forgotten(real: Bench) -> None:
    async def work(box: Box) -> None:
        for _ in range(2):
            await box.run(Request(command="sleep 60 & sleep 61 & :", keep_background=True))
        first, second = box.processes()
        first.kill()
        assert await first.wait(5) is not None
        assert box.processes() == (second,)
        assert second.alive

    real.use(work)


def test_what_a_daemon_says_can_be_read(real: Bench) -> None:
    async def work(box: Box) -> Result | None:
        done = await box.run(Request(command="(sleep 0.4; echo late) & echo early", keep_background=True))
        assert done.stdout == "early\n"
        (process,) = box.processes()
        return await process.wait(5)

    result = real.use(work)

    assert result is not None
    assert result.stdout == "late\n"


def test_a_command_that_may_leave_something_and_does_not_is_over_with_its_end(real: Bench) -> None:
    async def work(box: Box) -> tuple[Process, ...]:
        assert (await box.run(Request(command="exit 4", keep_background=True))).ending == Exited(4)
        with pytest.raises(SpawnFailed):
            await box.run(Request(argv=("no-such-program",), keep_background=True))
        return box.processes()

    assert real.use(work) == ()


# --- processes in the background --------------------------------------------------------------------------------------


def test_a_process_takes_input_and_time_and_its_result_has_what_it_said(real: Bench) -> None:
    async def work(box: Box) -> tuple[Result | None, ...]:
        fed = await box.start(Request(command="cat; echo done", stdin=b"given\n"))
        slow = await box.start(Request(command="echo begun; sleep 60", timeout=0.5))
        loud = await box.start(Request(command="seq 100000", output_limit=100))
        assert not await fed.write(b"more")
        return await fed.wait(10), await slow.wait(10), await loud.wait(10)

    fed, slow, loud = real.use(work)

    assert (fed.ending, fed.stdout) == (Exited(0), "given\ndone\n")
    assert (slow.ending, slow.stdout) == (TimedOut(0.5), "begun\n")
    assert loud.stdout.startswith("1\n2\n") and loud.stdout.endswith("100000\n")
    assert len(loud.stdout_bytes) == 100
    assert loud.stdout_dropped == 588_795


def test_reading_a_process_takes_nothing_from_its_result(real: Bench) -> None:
    async def work(box: Box) -> tuple[bytes, Result | None]:
        process = await box.start(Request(command="echo one; read x; echo two >&2"))
        read = b""
        while not read:
            await asyncio.sleep(0.02)
            read += process.read()[0]
        process.close_input()
        return read, await process.wait(10)

    read, result = real.use(work)

    assert read == b"one\n"
    assert result is not None
    assert (result.stdout, result.stderr) == ("one\n", "two\n")


def test_a_process_that_was_waited_for_is_forgotten_and_one_that_was_not_is_not(real: Bench) -> None:
    async def work(box: Box) -> None:
        one, two = [await box.start(Request(command=f"exit {code}")) for code in (1, 2)]
        await one.wait(10)
        while two.alive:
            await asyncio.sleep(0.02)
        assert box.processes() == (two,)
        await two.wait(10)
        assert box.processes() == ()

    real.use(work)


# --- a shell that keeps its state -------------------------------------------------------------------------------------


def test_a_kept_shell_takes_directory_variables_and_input_for_one_call(real: Bench) -> None:
    given = b"a\\b\0c'd\n\xff" + b"$(touch expanded)"

    async def work(box: Box) -> list[Result]:
        def call(command: str) -> Request:
            return Request(command=command, context="a")

        calls = [
            call("kept=1; f() { echo f; }"),
            replace(call("cat"), stdin=given),
            replace(
                call("pwd; echo $ONE $kept; printenv ONE; f"), cwd=real.workspace / "sub", env=(("ONE", "1 '\n2"),)
            ),
            call("pwd; echo [$ONE]"),
            replace(call("cd /"), cwd=real.workspace / "sub"),
            call("pwd; exit 7"),
        ]
        return [await box.run(each) for each in calls]

    _, fed, placed, after, _, last = real.use(work)

    assert fed.stdout_bytes == given
    assert placed.stdout == f"{real.workspace}/sub\n1 ' 2 1\n1 '\n2\nf\n"
    assert after.stdout == f"{real.workspace}\n[]\n", "they were for that call"
    assert (last.stdout, last.exit_code) == ("/\n", 7), "unless the command itself goes elsewhere"
    assert not (real.workspace / "expanded").exists()


@pytest.mark.parametrize("name", ["A B", "A;touch made", "1A", "$(touch made)", "A-B"])
def test_a_variable_s_name_is_never_read_as_a_command(real: Bench, name: str) -> None:
    async def work(box: Box) -> None:
        with pytest.raises(InvalidArgument, match="cannot be a variable of a shell"):
            await box.run(Request(command="true", context="a", env=((name, "x"),)))

    real.use(work)

    assert not (real.workspace / "made").exists()


# --- an output limit of a call's own ----------------------------------------------------------------------------------


@pytest.mark.req("C9")
def test_a_call_may_ask_for_less_output_to_be_kept_and_not_for_more(bench: Bench) -> None:
    assert bench.run("yes", output_limit=100).ending == LimitHit(Limit.OUTPUT, 100)
    assert bench.run("yes", output_limit=5000, limits=Limits(output_bytes=1000)).ending == LimitHit(Limit.OUTPUT, 1000)


def test_of_a_limited_output_both_ends_can_be_kept(real: Bench) -> None:
    result = real.run("seq 100000", output_limit=100, overflow=Overflow.KEEP_ENDS)

    assert result.ending == Exited(0)
    assert len(result.stdout_bytes) == 100


# --- life -------------------------------------------------------------------------------------------------------------


async def _opened(bench: Bench) -> Box:
    box = await bench.engine.open(Grant(workspace=bench.workspace))
    await box.run(Request(command="sleep 60 & :", keep_background=True))
    await box.run(Request(command=":", context="a"))
    return box


def test_a_box_may_be_closed_when_the_loop_of_its_calls_is_gone(real: Bench) -> None:
    box = asyncio.run(_opened(real))
    asyncio.run(box.close())

    assert not box.alive


def test_a_box_may_be_closed_from_another_thread_while_a_call_runs(real: Bench) -> None:
    async def work() -> None:
        box = await _opened(real)
        call = asyncio.create_task(box.run(Request(command="sleep 60")))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(lambda: asyncio.run(box.close()))
        with pytest.raises(Internal, match="closed"):
            await call
        assert not box.alive

    asyncio.run(work())
