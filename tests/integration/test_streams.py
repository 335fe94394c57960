"""What goes in and comes out: as it comes, whole or capped, byte by byte, and never in the way of the end."""

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator

import pytest

from ringfence import Exited, Limit, LimitHit, Limits, Output, Overflow, Result, Sandbox, Stream
from tests.integration.stage import Place

pytestmark = pytest.mark.req("B2", "X2")

MIB = 1024 * 1024
FLOOD = "head -c 209715200 /dev/zero"  # 200 MB


# --- as it comes ------------------------------------------------------------------------------------------------------


def test_the_callback_gets_output_while_the_command_still_runs(place: Place) -> None:
    async def work(box: Sandbox) -> tuple[Result, list[bytes]]:
        pieces: list[bytes] = []

        def heard(stream: Stream, data: bytes) -> None:
            pieces.append(data)
            (place.workspace / "go").touch()  # the command waits for this: it cannot have ended before we heard it

        done = await box.shell(
            "echo first; until test -e go; do sleep 0.01; done; echo second", on_output=heard, timeout=20
        )
        return done, pieces

    done, pieces = place.in_box(work)

    assert done.ending == Exited(0)
    assert pieces == [b"first\n", b"second\n"]
    assert done.stdout == "first\nsecond\n"


def test_the_async_iterator_gives_output_while_the_command_still_runs_and_then_the_result(place: Place) -> None:
    async def work(box: Sandbox) -> list[Output | Result]:
        seen: list[Output | Result] = []
        async for piece in box.stream("echo first; until test -e go; do sleep 0.01; done; echo second >&2", timeout=20):
            seen.append(piece)
            (place.workspace / "go").touch()
        return seen

    *pieces, last = place.in_box(work)

    assert pieces == [Output(Stream.STDOUT, b"first\n"), Output(Stream.STDERR, b"second\n")]
    assert isinstance(last, Result) and last.ok


def test_leaving_the_async_iterator_early_ends_the_command(place: Place) -> None:
    async def work(box: Sandbox) -> str:
        pieces = box.stream("echo first; sleep 300; touch too-late")
        async for _ in pieces:
            break
        await pieces.aclose()  # type: ignore[attr-defined]
        return (await box.shell("echo next", timeout=20)).stdout

    begin = time.monotonic()
    assert place.in_box(work) == "next\n"
    assert time.monotonic() - begin < 20


def test_the_async_iterator_passes_on_what_shell_raises(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        with pytest.raises(Exception, match="empty"):
            async for _ in box.stream(""):
                pass

    place.in_box(work)


def test_a_callback_that_fails_ends_the_command_and_its_fault_is_raised(place: Place) -> None:
    async def work(box: Sandbox) -> str:
        def bad(stream: Stream, data: bytes) -> None:
            raise ZeroDivisionError("of the caller")

        with pytest.raises(ZeroDivisionError):
            await box.shell("echo x; sleep 300", on_output=bad, timeout=20)
        return (await box.shell("echo next")).stdout

    begin = time.monotonic()
    assert place.in_box(work) == "next\n"
    assert time.monotonic() - begin < 15


def test_the_two_streams_are_apart_and_each_in_order(place: Place) -> None:
    done = place.run("for i in $(seq 2000); do echo o$i; echo e$i >&2; done")

    assert done.stdout.split() == [f"o{n}" for n in range(1, 2001)]
    assert done.stderr.split() == [f"e{n}" for n in range(1, 2001)]


# --- caps -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("to", ["", " >&2"])
def test_a_flood_past_the_cap_ends_the_command_and_the_head_is_kept(place: Place, to: str) -> None:
    done = place.run(FLOOD + to + "; touch ran-on; sleep 300", limits=Limits(output_bytes=MIB), timeout=60)

    kept = done.stderr_bytes if to else done.stdout_bytes
    assert done.ending == LimitHit(Limit.OUTPUT, MIB)
    assert kept == bytes(MIB)
    assert (done.stderr_dropped if to else done.stdout_dropped) > 0
    assert done.exit_code == 123
    assert done.blocked and "output" in (done.blocked_reason or "")
    assert not (place.workspace / "ran-on").exists()


def test_a_flood_may_run_on_and_its_two_ends_are_kept(place: Place) -> None:
    line = f"echo begin; {FLOOD}; {FLOOD} >&2; echo end; exit 3"

    done = place.run(line, limits=Limits(output_bytes=MIB), overflow=Overflow.KEEP_ENDS, timeout=100)

    assert done.ending == Exited(3)
    assert len(done.stdout_bytes) == len(done.stderr_bytes) == MIB
    assert done.stdout_bytes.startswith(b"begin\n") and done.stdout_bytes.endswith(b"end\n")
    assert done.stdout_dropped == 209715200 + len("begin\nend\n") - MIB
    assert done.stderr_dropped == 209715200 - MIB
    assert not done.blocked


@pytest.mark.parametrize("size", [0, 1, 4095, 4096])
def test_output_up_to_the_cap_is_kept_whole(place: Place, size: int) -> None:
    for overflow in Overflow:
        done = place.run(f"head -c {size} /dev/zero", limits=Limits(output_bytes=4096), overflow=overflow)

        assert (done.ending, done.stdout_bytes, done.stdout_dropped) == (Exited(0), bytes(size), 0)


def test_one_byte_past_the_cap_is_past_it(place: Place) -> None:
    done = place.run("head -c 4097 /dev/zero; sleep 300", limits=Limits(output_bytes=4096), timeout=20)

    assert (done.ending, len(done.stdout_bytes), done.stdout_dropped) == (LimitHit(Limit.OUTPUT, 4096), 4096, 1)


def test_the_callback_gets_no_more_than_the_cap(place: Place) -> None:
    heard: list[int] = []

    place.run(FLOOD, limits=Limits(output_bytes=MIB), on_output=lambda stream, data: heard.append(len(data)))

    assert sum(heard) == MIB


# --- bytes ------------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_utf_8_survive(place: Place) -> None:
    every = bytes(range(256)) * 16 + b"\xff\xfe\x00\xc3"

    done = place.run("cat", stdin=every)

    assert done.stdout_bytes == every
    assert "\ufffd" in done.stdout


def test_a_character_that_is_cut_in_two_pieces_is_whole_in_the_result(place: Place) -> None:
    assert place.run("printf '\\xe6\\x97'; sleep 0.05; printf '\\xa5'").stdout == "日"


# --- input ------------------------------------------------------------------------------------------------------------


def test_ten_megabytes_of_input_arrive_whole(place: Place) -> None:
    data = bytes(range(256)) * 40960

    done = place.run("sha256sum", stdin=data)

    assert done.stdout.split()[0] == hashlib.sha256(data).hexdigest()


def test_ten_megabytes_go_in_and_come_out_at_once_without_a_deadlock(place: Place) -> None:
    data = bytes(range(256)) * 40960

    assert place.run("tee /dev/stderr", stdin=data).stderr_bytes == data


def test_input_comes_from_an_async_stream_as_it_is_given(place: Place) -> None:
    async def work(box: Sandbox) -> list[str]:
        heard: asyncio.Queue[bytes] = asyncio.Queue()
        answers: list[str] = []

        async def talk() -> AsyncIterator[bytes]:
            for word in (b"one\n", b"two\n"):
                yield word
                answers.append((await asyncio.wait_for(heard.get(), 20)).decode())  # answered before the next is given

        def said(stream: Stream, data: bytes) -> None:
            heard.put_nowait(data)

        done = await box.shell(
            "while read -r w; do echo got $w; done; echo end", stdin=talk(), on_output=said, timeout=20
        )
        return [*answers, done.stdout]

    assert place.in_box(work) == ["got one\n", "got two\n", "got one\ngot two\nend\n"]


def test_input_that_the_command_does_not_read_is_no_fault(place: Place) -> None:
    for line in ("true", "head -c1 >/dev/null", "exec <&-; sleep 0.1"):
        done = place.run(line, stdin=bytes(10 * MIB))

        assert done.ending == Exited(0), line


def test_an_async_stream_that_never_ends_does_not_outlast_the_command(place: Place) -> None:
    closed: list[bool] = []

    async def forever() -> AsyncIterator[bytes]:
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)
        finally:
            closed.append(True)

    async def work(box: Sandbox) -> Result:
        done = await box.shell("head -c3", stdin=forever(), timeout=20)
        await asyncio.sleep(0.05)
        return done

    assert place.in_box(work).stdout == "xxx"
    assert closed == [True]


def test_an_async_stream_that_fails_ends_the_command_and_its_fault_is_raised(place: Place) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"x\n"
        raise ZeroDivisionError("of the caller")

    async def work(box: Sandbox) -> str:
        with pytest.raises(ZeroDivisionError):
            await box.shell("cat; sleep 300", stdin=broken(), timeout=20)
        return (await box.shell("echo next")).stdout

    begin = time.monotonic()
    assert place.in_box(work) == "next\n"
    assert time.monotonic() - begin < 15


def test_without_input_a_command_reads_the_end_and_not_the_callers_stdin(place: Place) -> None:
    assert place.run("wc -c; readlink /proc/self/fd/0").stdout == "0\n/dev/null\n"


# --- who holds the pipes ----------------------------------------------------------------------------------------------


def test_a_background_child_that_holds_stdout_does_not_hold_up_the_caller(place: Place) -> None:
    begin = time.monotonic()

    done = place.run("(setsid sleep 300 &) ; sleep 300 & echo done", timeout=60)

    assert (done.ending, done.stdout) == (Exited(0), "done\n")
    assert time.monotonic() - begin < 20


def test_output_that_a_child_wrote_just_before_the_end_is_not_lost(place: Place) -> None:
    for _ in range(10):
        assert len(place.run("head -c 65536 /dev/zero & head -c 65536 /dev/zero >&2 & wait").stdout_bytes) == 65536


def test_a_command_that_closes_its_output_runs_on(place: Place) -> None:
    assert place.run("exec >&- 2>&-; sleep 0.1; touch made; exit 4").exit_code == 4
    assert (place.workspace / "made").exists()


def test_streams_are_pipes_and_no_terminal(place: Place) -> None:
    assert (
        place.run("for n in 0 1 2; do test -t $n && echo $n; done; test -p /dev/stdout && echo pipe").stdout == "pipe\n"
    )
