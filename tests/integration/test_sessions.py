"""What goes on between calls: interpreters and shells that keep their state, processes that run beside them.

No claim here is about how long something takes: bounds are for what hangs.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence import (
    CommandNotAllowed,
    Exited,
    Internal,
    InvalidArgument,
    Limit,
    LimitHit,
    Limits,
    Overflow,
    PolicyEngine,
    Process,
    Refused,
    Result,
    Sandbox,
    Signalled,
    SpawnFailed,
    Stream,
    TimedOut,
)
from ringfence.approvals.base import Choice
from tests.integration.stage import Place, descriptors, eventually, processes_with
from tests.support.questions import FakeConfirmationService

pytestmark = pytest.mark.req("X2")

LONG = 20.0
"""Seconds; for what must end long before."""


def policy(line: str) -> PolicyEngine:
    return PolicyEngine.from_text(f"policies: {{default: {{{line}}}}}", "p.yaml")


def journal(place: Place) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place.state / "journal.jsonl").read_text().splitlines()]


async def heard(work: Callable[[Callable[[Stream, bytes], None]], Any]) -> asyncio.Task[Result]:
    """A call that is under way: returns when it has said something."""
    said = asyncio.Event()
    task = asyncio.ensure_future(work(lambda stream, data: said.set()))
    waiting = asyncio.ensure_future(said.wait())
    await asyncio.wait((task, waiting), timeout=LONG, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    assert said.is_set(), "it said nothing"
    return task


async def until_said(process: Process, wanted: bytes, so_far: bytes = b"") -> bytes:
    """Everything that it says on stdout until `wanted` is there."""
    said = so_far
    deadline = time.monotonic() + LONG
    while wanted not in said:
        assert time.monotonic() < deadline, f"{wanted!r} is not in {said!r}"
        await asyncio.sleep(0.01)
        said += process.read()[0]
    return said


# --- Python -----------------------------------------------------------------------------------------------------------


def test_names_imports_and_the_directory_stay_from_call_to_call(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        assert (await box.python("import os, math\nx = 40\ndef f(n): return n + x\nos.mkdir('d'); os.chdir('d')")).ok
        shown = await box.python("print(f(2)); os.path.basename(os.getcwd()), math.floor(2.5)")
        assert (shown.stdout, shown.results[-1].text) == ("42\n", "('d', 2)")
        assert shown.results[-1].is_value
        assert (await box.python("x += 1")).results == ()

    place.in_box(work)


def test_the_next_sandbox_knows_nothing_of_it(place: Place) -> None:
    async def ask(box: Sandbox) -> Result:
        return await box.python("secret = 1\nprint('fresh')" if first else "secret")

    first = True
    place.in_box(ask)
    first = False

    assert place.in_box(ask).exception is not None


def test_an_error_is_told_and_the_state_lives_on(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        failed = await box.python("x = 7\ndef g():\n    return 1 / 0\ng()")
        assert failed.exception is not None and failed.exception.type == "ZeroDivisionError"
        assert "in g" in failed.exception.traceback and "ringfence" not in failed.exception.traceback
        assert (failed.exit_code, failed.state_kept) == (1, True)
        wrong = await box.python("def (:")
        assert wrong.exception is not None and wrong.exception.type == "SyntaxError"
        assert (await box.python("print(x)")).stdout == "7\n"

    place.in_box(work)


@pytest.mark.parametrize(
    ("code", "exit_code", "stderr"),
    [
        ("sys.exit(3)", 3, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('too bad')", 1, "too bad\n"),
        ("raise SystemExit(300)", 44, ""),
        ("exit(4)", 4, ""),
        ("raise KeyboardInterrupt", 130, None),
    ],
)
def test_leaving_ends_the_call_with_the_code_of_a_script_and_keeps_the_state(
    place: Place, code: str, exit_code: int, stderr: str | None
) -> None:
    async def work(box: Sandbox) -> None:
        done = await box.python(f"import sys\nx = 5\n{code}")
        assert (done.ending, done.state_kept) == (Exited(exit_code), True)
        assert stderr is None or done.stderr == stderr
        assert (await box.python("print(x)")).stdout == "5\n"

    place.in_box(work)
    if code != "raise KeyboardInterrupt":
        script = place.host(f'python3 -c "import sys\nx = 5\n{code}"')
        assert (script.returncode, script.stderr) == (exit_code, stderr), "as a script would"


@pytest.mark.parametrize(
    ("code", "ending"),
    [
        ("import os; os._exit(7)", Exited(7)),
        ("import os; os._exit(0)", Exited(0)),
        ("import ctypes; ctypes.string_at(0)", Signalled(signal.SIGSEGV)),
        ("import os; os.abort()", Signalled(signal.SIGABRT)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", Signalled(signal.SIGKILL)),
    ],
)
def test_that_it_left_or_crashed_is_the_word_of_pid_1_and_the_next_call_works(
    place: Place, code: str, ending: object
) -> None:
    async def work(box: Sandbox) -> None:
        done = await box.python(f"x = 1\nprint('before', flush=True)\n{code}")
        assert (done.ending, done.state_kept, done.stdout) == (ending, False, "before\n")
        assert box.contexts() == ()
        after = await box.python("print('x' in globals())")
        assert (after.stdout, after.state_kept) == ("False\n", True)

    place.in_box(work)


def test_named_interpreters_stand_side_by_side(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await asyncio.gather(*(box.python(f"x = {n}", context=f"c{n}") for n in range(3)), box.python("x = 'main'"))
        assert set(box.contexts()) == {("python", name) for name in ("main", "c0", "c1", "c2")}
        for n in range(3):
            assert (await box.python("x", context=f"c{n}")).results[0].text == str(n)
        await box.python("import os; os._exit(1)", context="c1")
        assert (await box.python("x", context="c2")).results[0].text == "2", "one ends, the others go on"
        assert (await box.python("x")).results[0].text == "'main'"
        assert ("python", "c1") not in box.contexts()

    place.in_box(work)


def test_restart_forgets_and_what_it_started_is_gone(place: Place) -> None:
    mark = f"mark-{time.monotonic_ns()}"

    async def work(box: Sandbox) -> None:
        await box.python("x = 1")
        await box.python(
            f"import subprocess\np = subprocess.Popen(['bash', '-c', 'sleep 300; : {mark}'])\ny = 1", context="other"
        )
        await box.restart("other")
        assert box.contexts() == (("python", "main"),)
        assert (await box.python("print('y' in globals())", context="other")).stdout == "False\n"
        assert (await box.python("x")).results[0].text == "1"
        await box.restart("never was")

    place.in_box(work)
    assert eventually(lambda: not processes_with(mark))


# --- interrupts and time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        "import time; time.sleep(60)",
        "while True: pass",
        "import subprocess; subprocess.run(['sleep', '60'])",
        "import os; os.read(os.pipe()[0], 1)",
        "import threading; threading.Event().wait()",
        "import asyncio; await asyncio.sleep(60)",
    ],
)
def test_an_interrupt_ends_the_call_and_keeps_the_state(place: Place, code: str) -> None:
    async def work(box: Sandbox) -> None:
        task = await heard(lambda tell: box.python(f"x = 5\nprint('up', flush=True)\n{code}", on_output=tell))
        assert box.interrupt()
        done = await asyncio.wait_for(task, LONG)
        assert (done.state_kept, done.exit_code) == (True, 130), done
        assert done.exception is not None and done.exception.type == "KeyboardInterrupt"
        assert (await box.python("print(x)")).stdout == "5\n"

    place.in_box(work)


def test_an_interrupt_waits_for_a_loop_in_c_that_does_not_look(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        task = await heard(lambda tell: box.python("x = 5\nprint(1, flush=True)\nsum(range(10**7))", on_output=tell))
        box.interrupt()
        done = await asyncio.wait_for(task, LONG)
        assert done.state_kept
        assert (await box.python("print(x)")).stdout == "5\n"

    place.in_box(work)


def test_an_interrupt_when_nothing_runs_changes_nothing(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        assert not box.interrupt()
        await box.python("x = 5")
        for _ in range(20):
            assert not box.interrupt()
            assert not box.interrupt("no such context")
        assert (await box.python("print(x)")).stdout == "5\n"

    place.in_box(work)


def test_code_may_catch_the_interrupt(place: Place) -> None:
    tried = "import time\ntry:\n    print('up', flush=True)\n    time.sleep(60)\n"
    code = f"{tried}except KeyboardInterrupt:\n    print('caught')"

    async def work(box: Sandbox) -> None:
        task = await heard(lambda tell: box.python(code, on_output=tell))
        box.interrupt()
        done = await asyncio.wait_for(task, LONG)
        assert (done.ending, done.stdout) == (Exited(0), "up\ncaught\n")

    place.in_box(work)


def test_time_that_is_up_interrupts_and_keeps_the_state(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("x = 5; import time")
        late = await box.python("print('before', flush=True)\ntime.sleep(60)", timeout=0.3)
        assert (late.ending, late.exit_code, late.stdout) == (TimedOut(0.3), 124, "before\n")
        # A machine that is too busy to wake it within the half second that it has may lose it, and says so.
        known = (await box.python("print('x' in globals())")).stdout
        assert known == f"{late.state_kept}\n"

    place.in_box(work)


def test_what_ignores_the_interrupt_is_ended_and_the_result_says_that_its_state_is_lost(place: Place) -> None:
    stubborn = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass"
    uncaught = "import time\nwhile True:\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n        pass"

    async def work(box: Sandbox) -> None:
        for code in (stubborn, uncaught):
            await box.python("x = 5")
            late = await box.python(code, timeout=0.2)
            assert (late.ending, late.state_kept) == (TimedOut(0.2), False)
            assert (await box.python("print('x' in globals())")).stdout == "False\n"

    place.in_box(work)


def test_a_cancelled_call_has_stopped_before_the_cancellation_goes_on(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        code = "import time\nprint('up', flush=True)\ntime.sleep(0.5)\nopen('survived', 'w')"
        task = await heard(lambda tell: box.python(code, on_output=tell))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await box.python("print('next')")).stdout == "next\n"
        await asyncio.sleep(0.6)

    place.in_box(work)
    assert not (place.workspace / "survived").exists()


def test_calls_take_turns_in_the_order_in_which_they_came(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("seen = []")
        done = await asyncio.gather(*(box.python(f"seen.append({n}); print({n})") for n in range(20)))
        assert [result.stdout for result in done] == [f"{n}\n" for n in range(20)]
        assert (await box.python("print(seen == list(range(20)))")).stdout == "True\n"

    place.in_box(work)


# --- what it says, what it may use ------------------------------------------------------------------------------------


def test_both_streams_are_heard_as_they_come_and_belong_to_their_call(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        pieces: list[tuple[Stream, bytes]] = []
        code = "import sys, time\nprint('a', flush=True)\ntime.sleep(0.05)\nprint('b', file=sys.stderr)"
        done = await box.python(code, on_output=lambda *piece: pieces.append(piece))
        assert pieces == [(Stream.STDOUT, b"a\n"), (Stream.STDERR, b"b\n")]
        assert (done.stdout, done.stderr) == ("a\n", "b\n")
        for n in range(10):
            assert (await box.python(f"print({n}, end='')")).stdout == str(n)

    place.in_box(work)


def test_output_comes_while_the_call_runs(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        code = (
            "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('went')"
        )
        task = await heard(lambda tell: box.python(code, on_output=tell))
        assert not task.done()
        await box.write_file("go", b"")
        assert (await asyncio.wait_for(task, LONG)).stdout == "up\nwent\n"

    place.in_box(work)


def test_a_fault_of_whoever_listens_reaches_the_caller_and_the_interpreter_lives_on(place: Place) -> None:
    def listen(stream: Stream, data: bytes) -> None:
        raise LookupError("mine")

    async def work(box: Sandbox) -> None:
        await box.python("x = 5")
        with pytest.raises(LookupError, match="mine"):
            await box.python("import time\nprint('up', flush=True)\ntime.sleep(60)", on_output=listen)
        assert (await box.python("print('next')")).stdout == "next\n"

    place.in_box(work)


def test_more_output_than_the_limit_ends_the_call_or_loses_its_middle(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        flood = await box.python("while True: print('y' * 1000)")
        assert flood.ending == LimitHit(Limit.OUTPUT, 5000)
        assert flood.stdout_bytes == (b"y" * 1000 + b"\n")[:1001] * 4 + b"y" * 996
        ends = await box.python("for n in range(2000): print(n)", overflow=Overflow.KEEP_ENDS)
        assert ends.ending == Exited(0)
        assert ends.stdout.startswith("0\n1\n") and ends.stdout.endswith("1998\n1999\n")
        assert len(ends.stdout_bytes) == 5000 and ends.stdout_dropped == 8890 - 5000
        big = await box.python("'z' * 100_000")
        assert big.ok and all(len(str(shown.text)) < 5100 for shown in big.results)
        assert (await box.python("print('next')")).stdout == "next\n"

    place.in_box(work, limits=Limits(output_bytes=5000))


def test_too_much_memory_in_a_cell_is_the_limits_and_the_next_call_works(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        hog = await box.python("x = []\nwhile True: x.append(bytearray(10_000_000))")
        if isinstance(hog.ending, LimitHit):
            assert hog.ending.limit is Limit.MEMORY and hog.violations
        else:  # where an allocation is refused before the tree is counted
            assert hog.exception is not None and hog.exception.type == "MemoryError"
        assert (await box.python("print('next')")).stdout == "next\n"

    place.in_box(work, limits=Limits(memory_bytes=200 * 1024 * 1024))


def test_code_and_values_of_any_size_and_character_pass(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        long = "x = 0\n" + "x += 1  # é 漢 \U0001f600\n" * 60_000
        assert (await box.python(long + "print(x)")).stdout == "60000\n"
        assert (await box.python("'é\\n漢\\0'")).results[0].text == repr("é\n漢\0")
        nasty = "'''a\n\r\n\t\x01'''"
        assert (await box.python(nasty)).ok

    place.in_box(work)


def test_an_interpreter_that_lies_about_its_frames_is_ended_and_others_are_not(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("x = 'other'", context="other")
        liar = await box.python("import os, time\nos.write(9, b'nonsense' * 100)\ntime.sleep(60)")
        assert not liar.ok and not liar.state_kept
        assert (await box.python("print(x)", context="other")).stdout == "other\n"
        assert (await box.python("print('next')")).stdout == "next\n"

    place.in_box(work)


# --- shells -----------------------------------------------------------------------------------------------------------


def test_a_shell_of_that_name_keeps_directory_variables_functions_and_options(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.shell(
            'mkdir d; cd d; x=5; export y=6; f() { echo "f $1"; }; shopt -s extglob; alias ll=ls', context="a"
        )
        said = await box.shell('echo "$x $(printenv y) ${PWD##*/}"; f 2; shopt -q extglob && echo on', context="a")
        assert (said.stdout, said.ending) == ("5 6 d\nf 2\non\n", Exited(0))
        assert (await box.shell("false", context="a")).ending == Exited(1)
        assert (await box.shell("echo $x", context="b")).stdout == "\n"
        assert (await box.shell("echo $x; pwd")).stdout == f"\n{place.workspace}\n", "a plain command has none of it"
        assert set(box.contexts()) == {("shell", "a"), ("shell", "b")}
        kept = await box.code("bash", "echo $x", context="a")
        assert kept.stdout == "5\n"

    place.in_box(work)


def test_a_plain_command_leaves_only_files(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.warm()
        await box.shell("cd /tmp; x=5; f() { :; }; umask 077; set -e; echo kept > file")
        assert (await box.shell("echo [$x] $PWD; type f 2>/dev/null; umask; echo $-; cat /tmp/file")).stdout == (
            f"[] {place.workspace}\n0022\nhBc\nkept\n"
        )

    place.in_box(work)


@pytest.mark.parametrize(
    ("command", "code", "kept"),
    [
        ("exit 3", 3, False),
        ("exec echo x", 0, False),
        ("set -e; false; echo no", 1, False),
        ("if", 2, True),
        ("echo 'open", 2, True),
        ("return 4", 2, True),
        ("(exit 5)", 5, True),
        ("nosuchcommand", 127, True),
        ("sleep 300 & echo $! >/dev/null", 0, True),
        ("cat", 0, True),
        ("read line", 1, True),
    ],
)
def test_how_a_shells_call_ends_and_whether_it_lives_on(place: Place, command: str, code: int, kept: bool) -> None:
    async def work(box: Sandbox) -> None:
        await box.shell("x=5", context="a")
        done = await box.shell(command, context="a", timeout=LONG)
        assert (done.ending, done.state_kept) == (Exited(code), kept), done.stderr
        assert (await box.shell("echo [$x]", context="a")).stdout == ("[5]\n" if kept else "[]\n")

    place.in_box(work)


@pytest.mark.parametrize("command", ["break", "continue"])
def test_break_and_continue_outside_of_a_loop_do_no_harm(place: Place, command: str) -> None:
    async def work(box: Sandbox) -> None:
        done = await box.shell(f"x=5; {command}; echo after", context="a", timeout=2)
        assert (done.stdout, done.state_kept) == ("after\n", True)

    place.in_box(work)


def test_a_shell_that_keeps_its_state_takes_directory_variables_and_input_for_one_call(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.shell("mkdir sub; kept=1", context="a")
        done = await box.shell("pwd; echo $A $kept; cat", context="a", cwd="sub", env={"A": "b"}, stdin=b"x")
        assert done.stdout == f"{box.workspace}/sub\nb 1\nx"
        assert (await box.shell("pwd; echo [$A]", context="a")).stdout == f"{box.workspace}\n[]\n"

    place.in_box(work)


# --- a shell that waits is `bash -c` ----------------------------------------------------------------------------------

AS_BASH_DOES = [
    "true",
    "false",
    "exit 7",
    "exit 256",
    "(exit 9)",
    "kill -TERM $$",
    "kill -9 $$",
    "echo $0",
    "echo $-",
    'echo $#; echo "[$*]"',
    "echo $LINENO\necho $LINENO\n\necho $LINENO",
    "echo [$REPLY] [$IFS] [${BASH_SUBSHELL}] [$SHLVL]",
    "echo $BASH_EXECUTION_STRING",
    "printf '[%s]' \"$BASH_COMMAND\"",
    "echo ${FUNCNAME[0]-none} ${BASH_SOURCE[0]-none}",
    "caller; echo $?",
    "set -e; false; echo no",
    "set -e; (exit 4); echo no",
    "set -u; echo $nope; echo no",
    "set -o pipefail; false | true; echo $?",
    "set -x; echo traced",
    "trap 'echo bye $?' EXIT; exit 3",
    "trap 'echo err $LINENO' ERR; false; echo after",
    "trap 'echo got' TERM; kill -TERM $$; echo after",
    "trap 'echo debug' DEBUG; echo x",
    "cat <<end\nhere $HOME is\nend\necho after",
    "cat <<'end'\n$no `no`\nend",
    "cat <<-end\n\ttabs\n\tend",
    "cat <<<word",
    "cat <<end\nnever ended",
    "if",
    "echo one; if; echo two",
    "echo 'open",
    "echo $(",
    ")",
    "for x in 1 2; do echo $x; done",
    "break; echo $?",
    "continue; echo $?",
    "return 3; echo $?",
    "local x; echo $?",
    "shift; echo $?",
    "exec echo replaced; echo no",
    "exec 3>&1; echo to3 >&3",
    "exec >file; echo x; exec >&2; cat file",
    "exec nosuchprogram; echo no",
    "nosuchcommand; echo $?",
    "/etc; echo $?",
    "sleep 0.01 & wait $!; echo $?",
    "sleep 300 & jobs -p | wc -l; kill $!; wait; echo done",
    "(sleep 0.02; echo late) & wait",
    "umask 027; umask; umask 077; touch u; stat -c %a u",
    "ulimit -c; ulimit -Sn 50; ulimit -Sn",
    "cat; echo $?",
    "read x; echo $? [$x]",
    "test -t 0; echo $?; readlink /proc/self/fd/0",
    "ls /proc/self/fd | tr '\\n' ' '",
    'f() { echo "$1"; return 5; }; f a; echo $?',
    "x=1 y=2; echo $x$y; unset x; echo [$x]",
    "a=(1 2 3); echo ${a[@]:1} ${#a[@]}",
    "shopt -s extglob\ncase ab in a+(b)) echo ext;; esac",
    "alias q='echo aliased'\nq",
    "echo {1..3} ~ *",
    "set -- a b; echo $2; getopts x o; echo $?",
    "printf '%q\\n' \"a b'c\"; echo -e '\\x41'",
    'echo "$((1/0))"; echo after',
    "${x?unset}; echo after",
    "readonly r=1; r=2; echo after",
    "# only a comment",
    "\n\n  \necho late",
    "echo a # b\n# c\necho d",
    "echo tail \\\nhead",
    "! true; echo $?",
    "TIMEFORMAT=took; time true 2>/dev/null; coproc cat; echo ok",
    "echo $BASHPID = $$ | awk '{print ($1!=$3)}'",
    "[[ $SECONDS -lt 2 ]] && echo young",
    "eval 'exit 6'",
    "source /dev/null; . /nonexistent; echo $?",
    "echo out; echo err >&2; exit 1",
    "printf 'no newline'",
    "echo \xc3\xa9; printf '\\377'",
    "echo $PPID | grep -c .",
    "history | wc -l; set +o | grep -c history",
]
"""Each is given to a shell that waits, to one that is started for it, and to `bash -c` on the host."""


def without_names(stderr: bytes) -> bytes:
    """Messages without what names the shell's own way to the text: it evaluates what `bash -c` is given."""
    for ours, bashs in ((b"eval: line", b"-c: line"), (b"`unset REPLY; ", b"`")):
        stderr = stderr.replace(ours, bashs)
    return re.sub(rb"(?m)^\+\+ ", b"+ ", stderr)


def test_a_shell_that_waits_is_as_one_that_is_started_for_the_command(place: Place) -> None:
    async def work(box: Sandbox) -> list[tuple[str, object, object]]:
        different = []
        for command in AS_BASH_DOES:
            await box.warm()
            native: Any = box._box
            waiting = native._commands._shell
            assert waiting is not None and waiting.alive
            warm = await box.shell(command, timeout=LONG)
            assert native._commands._shell is not waiting, "it was used"
            await box.shell("rm -f file u", stdin=b"")
            cold = await box.shell(command, stdin=b"", timeout=LONG)
            await box.shell("rm -f file u", stdin=b"")
            ours = (warm.ending, warm.stdout_bytes, without_names(warm.stderr_bytes))
            other = (cold.ending, cold.stdout_bytes, cold.stderr_bytes)
            if ours != other and "/proc/self/fd/0" not in command:  # one has /dev/null there, the other an empty pipe
                different.append((command, ours, other))
        return different

    assert place.in_box(work) == []


def test_a_shell_that_waits_gives_what_bash_itself_gives(place: Place) -> None:
    of_the_place = ("SHLVL", "ulimit -c", "PPID", "kill -", "proc")  # differ by where they run, not by how
    assert len(AS_BASH_DOES) > 60

    async def work(box: Sandbox) -> list[tuple[str, object, object]]:
        different = []
        home = (await box.shell("echo $HOME")).stdout.strip()
        for command in AS_BASH_DOES:
            if any(word in command for word in of_the_place):
                continue
            await box.warm()
            done = await box.shell(command, timeout=LONG)
            await box.shell("rm -f file u")
            host = subprocess.run(
                ["/bin/bash", "-c", command],
                cwd=place.workspace,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=LONG,
                env={"PATH": "/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8"},
                check=False,
            )
            await box.shell("rm -f file u")
            ours = (done.exit_code, done.stdout_bytes, without_names(done.stderr_bytes))
            bashs = (host.returncode, host.stdout, host.stderr)
            if ours != bashs:
                different.append((command, ours, bashs))
        return different

    assert place.in_box(work) == []


def test_a_command_may_begin_with_a_dash(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        for stdin in (None, b""):
            assert (await box.shell("-x; echo $?", stdin=stdin)).stdout == "127\n"

    place.in_box(work)


def test_a_command_runs_even_if_the_shell_that_waited_for_it_was_killed(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        for n in range(20):
            await box.warm()
            await box.python("import os; os.kill(-1, 9)")
            assert (await box.shell(f"echo {n}")).stdout == f"{n}\n"

    place.in_box(work)


# --- processes --------------------------------------------------------------------------------------------------------


def test_a_process_goes_on_while_commands_and_cells_run(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        cat = await box.start('while read line; do echo "<$line>"; done; echo end; exit 3')
        assert cat.alive and cat.ending is None and cat.seconds >= 0
        assert box.processes() == (cat,) and "while read" in cat.command and "running" in repr(cat)
        assert await cat.write(b"one\n")
        assert await until_said(cat, b"<one>\n") == b"<one>\n"
        assert (await box.shell("echo beside")).stdout == "beside\n"
        assert (await box.python("print('beside')")).stdout == "beside\n"
        assert cat.alive, "what ends a command leaves it alone"
        assert await cat.wait(0.01) is None
        assert await cat.write(b"two\n")
        cat.close_input()
        done = await cat.wait(LONG)
        assert done is not None and done.ending == Exited(3) == cat.ending
        assert cat.read() == (b"<two>\nend\n", b"")
        assert cat.read() == (b"", b"")
        assert not await cat.write(b"late") and not cat.alive
        assert await cat.wait() == done

    place.in_box(work)


def test_processes_can_reach_each_other_inside(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        server = await box.start(["python3", "-u", "-m", "http.server", "8000", "--bind", "127.0.0.1"])
        await until_said(server, b"Serving")
        await box.write_file("page", b"hello")
        code = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:8000/page').read())"
        assert (await box.python(code)).stdout == "b'hello'\n"
        assert server.alive
        server.kill()
        assert await server.wait(LONG) is not None

    place.in_box(work)


def test_signals_reach_the_whole_group_and_killing_leaves_nothing(place: Place) -> None:
    mark = f"mark-{time.monotonic_ns()}"

    async def work(box: Sandbox) -> None:
        trap = await box.start(
            "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM; echo up; while :; do sleep 0.02; done"
        )
        await until_said(trap, b"up\n")
        trap.signal(signal.SIGUSR1)
        await until_said(trap, b"usr1\n")
        trap.signal(signal.SIGTERM)
        done = await trap.wait(LONG)
        assert done is not None and done.ending == Exited(5)
        sleep = f"bash -c 'sleep 300; : {mark}'"
        tree = await box.start(f"setsid {sleep} & {sleep} & echo up; trap '' TERM INT HUP; wait")
        await until_said(tree, b"up\n")
        assert eventually(lambda: len(processes_with(mark)) >= 2)
        tree.kill()
        ended = await tree.wait(LONG)
        assert ended is not None and ended.ending == Signalled(signal.SIGKILL)
        assert processes_with(mark) == []
        tree.kill()
        tree.signal(signal.SIGTERM)

    place.in_box(work)


def test_closing_the_sandbox_ends_processes_and_tells_who_waits(place: Place) -> None:
    mark = f"mark-{time.monotonic_ns()}"

    async def work() -> None:
        async with place.box() as box:
            process = await box.start(f"sleep 300 # {mark}")
            waiting = asyncio.ensure_future(process.wait())
            await asyncio.sleep(0)
        with pytest.raises(Internal):
            await asyncio.wait_for(waiting, LONG)
        assert not process.alive
        assert not await process.write(b"x")

    asyncio.run(work())
    assert processes_with(mark) == []


@pytest.mark.parametrize("terminal", [None, (24, 80)])
def test_a_program_that_is_not_there_is_a_clear_error(place: Place, terminal: tuple[int, int] | None) -> None:
    async def work(box: Sandbox) -> None:
        with pytest.raises(SpawnFailed, match=r"no-such-program.*No such file"):
            process = await box.start(["no-such-program", "x"], terminal=terminal)
            await process.wait(LONG)
        by_shell = await box.start("no-such-program", terminal=terminal)
        done = await by_shell.wait(LONG)
        assert done is not None and done.ending == Exited(127)
        assert b"not found" in b"".join(by_shell.read())
        assert (await box.shell("echo fine")).stdout == "fine\n"

    place.in_box(work)


def test_what_a_process_says_is_kept_up_to_the_limit_with_both_ends(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        talker = await box.start("seq 100000; echo end")
        done = await talker.wait(LONG)
        assert done is not None and done.ending == Exited(0), "too much output does not end a process"
        said, _ = talker.read()
        assert len(said) == 1000 and said.startswith(b"1\n2\n") and said.endswith(b"100000\nend\n")

    place.in_box(work, limits=Limits(output_bytes=1000))


def test_all_that_a_process_says_is_heard_where_somebody_listens(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        pieces: list[bytes] = []
        talker = await box.start("seq 30000", on_output=lambda stream, data: pieces.append(data))
        await talker.wait(LONG)
        assert b"".join(pieces) == b"".join(b"%d\n" % n for n in range(1, 30001))

    place.in_box(work)


def test_a_large_input_is_taken_as_it_is_read(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        count = await box.start("sleep 0.05; wc -c")
        assert await asyncio.wait_for(count.write(b"x" * 1_000_000), LONG)
        count.close_input()
        assert await count.wait(LONG) is not None
        assert count.read()[0].strip() == b"1000000"

    place.in_box(work)


def test_two_who_write_to_one_process_both_come_through(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        count = await box.start("sleep 0.2; wc -c")
        writes = asyncio.gather(*(count.write(b"x" * 300_000) for _ in range(3)))
        assert await asyncio.wait_for(writes, 3) == [True] * 3
        count.close_input()
        assert await count.wait(LONG) is not None
        assert count.read()[0].strip() == b"900000"

    place.in_box(work)


def test_closing_the_input_ends_a_write_that_waits(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        deaf = await box.start("sleep 60")
        write = asyncio.ensure_future(deaf.write(b"x" * 1_000_000))
        await asyncio.sleep(0.1)
        deaf.close_input()
        assert await asyncio.wait_for(write, 2) is False

    place.in_box(work)


def test_many_processes_may_be_started_at_once(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        padding = "x" * 40_000
        started = await asyncio.gather(*(box.start(f"exit {n} # {padding}") for n in range(40)))
        ended = [await process.wait(LONG) for process in started]
        assert [done.exit_code for done in ended if done is not None] == list(range(40))

    place.in_box(work)


def test_no_signal_is_lost_when_there_are_many(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        started = [await box.start("sleep 60") for _ in range(60)]
        for process in started:
            for _ in range(20):
                process.signal(signal.SIGCONT)
        for process in started:
            process.kill()
        ended = await asyncio.gather(*(process.wait(2) for process in started))
        assert all(ended)

    place.in_box(work)


# --- terminals --------------------------------------------------------------------------------------------------------


def test_a_terminal_is_one_and_has_a_size_that_can_be_changed(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        ask = "tty; read x; stty size; read x; stty size; test -t 0 -a -t 1 -a -t 2 && echo all"
        process = await box.start(ask, terminal=(31, 97))
        assert (await until_said(process, b"\n")).startswith(b"/dev/pts/")
        await process.write(b"\n")
        await until_said(process, b"\n31 97")
        process.resize(40, 120)
        await process.write(b"\n")
        assert b"40 120" in await until_said(process, b"all")
        done = await process.wait(LONG)
        assert done is not None and done.ok
        process.resize(1, 1)

    place.in_box(work)


def test_a_terminal_has_its_size_when_the_program_starts(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        for _ in range(20):
            process = await box.start(["stty", "size"], terminal=(31, 97))
            assert await process.wait(LONG) is not None
            assert process.read()[0] == b"31 97\r\n"

    place.in_box(work)


def test_an_interactive_shell_has_job_control_and_control_keys(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        shell = await box.start(["/bin/bash", "--norc", "-i"], terminal=(24, 80), env={"TERM": "dumb"})
        await shell.write(b"PS1='ready> '\n")
        said = await until_said(shell, b"\nready> ")
        assert b"no job control" not in said
        await shell.write(b"echo up; sleep 300\n")
        await until_said(shell, b"\r\nup\r\n")
        await asyncio.sleep(0.1)
        await shell.write(b"\x1a")
        await until_said(shell, b"Stopped")
        await shell.write(b"jobs; fg\n")
        await until_said(shell, b"sleep 300\r\n")
        await asyncio.sleep(0.1)
        await shell.write(b"\x03")
        await shell.write(b"echo code $?\n")
        await until_said(shell, b"\ncode 130")
        shell.close_input()
        done = await shell.wait(LONG)
        assert done is not None and done.ending == Exited(0)

    place.in_box(work)


def test_an_interactive_python_answers_on_a_terminal(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        python = await box.start(["python3", "-q"], terminal=(24, 80))
        await until_said(python, b">>> ")
        await python.write(b"6 * 7\n")
        await until_said(python, b"42")
        await python.write(b"exit()\n")
        done = await python.wait(LONG)
        assert done is not None and done.ok
        assert not await python.write(b"x")

    place.in_box(work)


# --- languages --------------------------------------------------------------------------------------------------------


def test_every_language_that_is_there_runs(place: Place) -> None:
    if place.host("command -v node").returncode:
        pytest.skip("node is not installed")

    async def work(box: Sandbox) -> None:
        for language, code in {
            "python": "print('hello', 1 + 1)",
            "py": "print('hello', 1 + 1)",
            "javascript": "console.log('hello', 1 + 1)",
            "typescript": "const n: number = 1 + 1;\ninterface A { a: string }\nconsole.log('hello', n as number)",
            "bash": "echo hello $((1 + 1))",
        }.items():
            done = await box.code(language, code)
            assert (done.stdout, done.ending) == ("hello 2\n", Exited(0)), (language, done.stderr)
        assert (await box.code("js", "process.exit(3)")).ending == Exited(3)
        assert (await box.code("js", "process.stdin.pipe(process.stdout)", stdin=b"piped")).stdout == "piped"

    place.in_box(work)
    assert [line["language"] for line in journal(place)][:5] == ["python", "python", "javascript", "typescript", "bash"]


def test_a_language_that_is_not_there_says_how_to_get_it_and_an_unknown_one_what_there_is(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        with pytest.raises(SpawnFailed) as missing:
            await box.code("julia", "println(1)")
        assert "there is no julia in the box" in str(missing.value) and "julialang.org" in missing.value.hint
        with pytest.raises(InvalidArgument) as unknown:
            await box.code("pyton", "1")
        assert "'python'" in unknown.value.hint
        with pytest.raises(InvalidArgument, match="syntax error"):
            await box.code("typescript", "let x: = 3")
        assert (await box.shell("echo fine")).stdout == "fine\n"

    if not place.host("command -v julia").returncode:
        pytest.skip("julia is installed")
    place.in_box(work)


# --- journal and policy -----------------------------------------------------------------------------------------------


@pytest.mark.req("B9")
def test_the_journal_has_a_record_of_each_call_and_each_process(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("1")
        await box.python("1 / 0")
        await box.python("import os; os._exit(7)", context="c")
        await box.shell("exit 3", context="s")
        ended = await box.start("exit 4")
        await ended.wait(LONG)
        await box.start("sleep 300")

    place.in_box(work)

    records = journal(place)
    told = [(r["command"], r["language"], r["ending"], r.get("background", False)) for r in records]
    assert told == [
        ("1", "python", "exited with 0", False),
        ("1 / 0", "python", "exited with 1", False),
        ("import os; os._exit(7)", "python", "exited with 7", False),
        ("exit 3", "bash", "exited with 3", False),
        ("exit 4", "bash", "exited with 4", True),
        ("sleep 300", "bash", "fault", True),
    ]
    assert records[1]["error"] == "ZeroDivisionError: division by zero"
    assert len({record["run"] for record in records}) == len(records)
    assert list((place.state / "pending").iterdir()) == []


def test_a_policy_is_in_force_in_sessions_too(place: Place) -> None:
    rules = policy("denied_commands: [touch], supported_languages: [python]")

    async def work(box: Sandbox) -> None:
        refused = await box.shell("touch made", context="a")
        assert isinstance(refused.ending, Refused) and "denied_commands touch" in refused.ending.rule
        assert box.contexts() == (), "nothing was started for it"
        with pytest.raises(CommandNotAllowed, match="touch"):
            await box.start("touch made")
        with pytest.raises(CommandNotAllowed, match="touch"):
            await box.start(["touch", "made"], terminal=(24, 80))
        language = await box.code("javascript", "1")
        assert isinstance(language.ending, Refused) and "supported_languages" in language.ending.rule
        assert (await box.python("print('fine')")).stdout == "fine\n"
        assert (await box.shell("echo fine", context="a")).stdout == "fine\n"

    place.in_box(work, policy=rules, tool="code_run")
    assert not (place.workspace / "made").exists()
    assert [record["verdict"] for record in journal(place)].count("deny") == 4


@pytest.mark.parametrize(("choice", "runs"), [(Choice.YES, True), (Choice.NO, False)])
def test_what_has_to_be_asked_is_asked_for_processes_and_shells_too(place: Place, choice: Choice, runs: bool) -> None:
    service = FakeConfirmationService(choice)

    async def work(box: Sandbox) -> None:
        assert (await box.shell("echo x", context="a")).ok is runs
        if runs:
            process = await box.start("echo x")
            assert await process.wait(LONG) is not None
        else:
            with pytest.raises(CommandNotAllowed, match="did not say yes"):
                await box.start("echo x")

    place.in_box(work, policy=policy("approvals: {ask_for: {patterns: [echo]}}"), confirmation=service)
    assert len(service.asked) == 2


# --- life -------------------------------------------------------------------------------------------------------------


def test_a_lost_box_is_replaced_and_its_state_is_gone(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        await box.python("x = 1")
        await box.shell("echo kept > file")
        process = await box.start("sleep 300")
        native: Any = box._box
        kill_first(native)
        with pytest.raises(Internal):
            await asyncio.wait_for(process.wait(), LONG)
        after = await box.python("print('x' in globals(), open('file').read())")
        assert after.stdout == "False kept\n\n"
        assert box.processes() == ()

    place.in_box(work)


def kill_first(native: Any) -> None:
    """Kill PID 1 of a box, by the pid that the kernel told us."""
    assert native._inside.control.first_pid > 1
    os.kill(native._inside.control.first_pid, signal.SIGKILL)


def test_a_call_whose_box_is_lost_under_it_is_told(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        for call in (
            lambda tell: box.python("print(1, flush=True)\nwhile True: pass", on_output=tell),
            lambda tell: box.shell("echo 1; sleep 60", on_output=tell),
            lambda tell: box.shell("echo 1; sleep 60", context="a", on_output=tell),
        ):
            task = await heard(call)
            kill_first(box._box)
            with pytest.raises(Internal, match="gone"):
                await asyncio.wait_for(task, LONG)
        assert (await box.shell("echo next")).stdout == "next\n"

    place.in_box(work)


@pytest.mark.parametrize("delay", [0.0, 0.005])
def test_closing_while_the_box_is_being_made_leaves_none(place: Place, delay: float) -> None:
    async def work() -> None:
        box = place.box()
        task = asyncio.ensure_future(box.shell("sleep 60"))
        await asyncio.sleep(delay)
        try:
            await box.close()
            await asyncio.wait((task,), timeout=2)
            assert task.done() and task.exception() is not None
            assert not box.is_active
        finally:
            task.cancel()
            await asyncio.wait((task,))
            if box._box is not None:
                await box._box.close()

    asyncio.run(work())


def test_many_calls_leave_no_descriptor_on_either_side(place: Place) -> None:
    async def work(box: Sandbox) -> None:
        async def one_of_each(number: int) -> None:
            await box.python("1")
            await box.python("2", context="b")
            await box.shell("echo x")
            await box.shell("echo x", context="s")
            process = await box.start("cat", terminal=(24, 80) if number % 2 else None)
            process.kill()
            await process.wait(LONG)

        for number in range(3):
            await one_of_each(number)
        await box.warm()
        before = descriptors()
        inside = (await box.python("import os; len(os.listdir('/proc/self/fd'))")).results[0].text
        for number in range(30):
            await one_of_each(number)
        await box.warm()
        assert descriptors() == before
        assert (await box.python("len(os.listdir('/proc/self/fd'))")).results[0].text == inside

    place.in_box(work)


def test_the_blocking_call_runs_code_too(place: Place) -> None:
    done = ringfence.run("x = 2\nx * 21", workspace=place.workspace, language="python")

    assert done.ok and done.results[0].text == "42"


# --- closed from elsewhere --------------------------------------------------------------------------------------------


async def _used(workspace: Path) -> Sandbox:
    box = Sandbox(workspace=workspace)
    await box.python("x = 1")
    await box.shell("sleep 60 & :", keep_background=True)
    await box.start("sleep 60")
    return box


@pytest.mark.req("C2")
def test_a_sandbox_may_be_closed_when_the_loop_of_its_calls_is_gone(tmp_path: Path) -> None:
    box = asyncio.run(_used(tmp_path))
    asyncio.run(box.close())

    assert not box.is_active


@pytest.mark.req("C2")
def test_a_sandbox_may_be_closed_by_a_loop_that_another_thread_runs(tmp_path: Path) -> None:
    async def main() -> None:
        box = await _used(tmp_path)
        call = asyncio.create_task(box.shell("sleep 60"))
        await asyncio.sleep(0.2)
        await asyncio.to_thread(lambda: asyncio.run(box.close()))
        with pytest.raises(ringfence.RingfenceError):
            await call
        assert not box.is_active

    asyncio.run(main())


@pytest.mark.req("C2")
def test_a_sandbox_may_be_closed_while_the_loop_of_its_calls_stands_still(tmp_path: Path) -> None:
    calls = asyncio.new_event_loop()
    box = calls.run_until_complete(_used(tmp_path))
    asyncio.run(box.close())
    calls.run_until_complete(asyncio.sleep(0))
    calls.close()

    assert not box.is_active


def test_processes_forgets_what_was_waited_for_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with Sandbox(workspace=tmp_path) as box:
            one, two = [await box.start(f"exit {code}") for code in (1, 2)]
            result = await one.wait()
            assert result is not None and result.exit_code == 1
            while two.alive:
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)  # its record is written, for which somebody waits, too
            assert box.processes() == (two,)
            await two.wait()
            assert box.processes() == ()

    asyncio.run(main())
