"""Our end of the lifeline: what the guardian asks is answered, whatever it asks and whatever goes wrong."""

from __future__ import annotations

import asyncio
import errno
import socket
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.engines.boxes.protocol import VERSION, MessageKind
from ringfence.engines.native.supervisor import Judge, Supervisor
from ringfence.values.violation import Severity, Violation, ViolationType

REFUSAL = Violation(ViolationType.PATH_ACCESS_DENIED, Severity.MEDIUM, "no", "a rule")
HEAD = struct.Struct("=IIII")


def packet(kind: int, question: int, *words: str, version: int = VERSION) -> bytes:
    words = (*words, "", "-", "")
    return HEAD.pack(version, kind, question, 7) + "\0".join((*words, "")).encode()


def converse(judge: Judge, *packets: bytes) -> tuple[list[tuple[int, ...]], tuple[Violation, ...]]:
    """What the supervisor answers to these packets, and the violations that it keeps."""

    async def talk() -> tuple[list[tuple[int, ...]], tuple[Violation, ...]]:
        ours, guardian = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        guardian.setblocking(False)
        with ours, guardian:
            supervisor = Supervisor(ours, judge, reads=False)
            supervisor.begin(7)
            for each in packets:
                guardian.send(each)
            violations, _ = supervisor.end(7)
            answers = []
            try:
                while True:
                    answers.append(HEAD.unpack(guardian.recv(64)))
            except BlockingIOError:
                supervisor.close()
                return answers, violations

    return asyncio.run(talk())


@pytest.mark.req("C2")
def test_the_guardian_is_made_to_forget_only_where_it_has_said_something_since() -> None:
    async def talk() -> list[str]:
        ours, guardian = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        guardian.setblocking(False)
        seen: list[str] = []

        def hear() -> None:
            try:
                while True:
                    seen.append(MessageKind(HEAD.unpack(guardian.recv(64))[1]).name)
            except BlockingIOError:
                seen.append("-")

        with ours, guardian:
            supervisor = Supervisor(ours, lambda *_: (0, None), reads=False)
            for job in (7, 8):  # a fresh one has said nothing yet
                supervisor.begin(job)
                hear()
            guardian.send(packet(MessageKind.ASKED, 3, "write", "/x", ""))
            supervisor.begin(9)  # what was asked before a call begins is the last thing to be forgotten
            hear()
            supervisor.begin(10)
            hear()
            guardian.send(packet(MessageKind.ASKED, 4, "write", "/y", ""))
            supervisor.forget()
            hear()
            supervisor.close()
        return seen

    assert asyncio.run(talk()) == ["-", "-", "ANSWER", "FORGET", "-", "-", "ANSWER", "FORGET", "-"]


@pytest.mark.req("C2")
def test_who_asks_again_for_each_answer_holds_up_nobody() -> None:
    """At a call's end everything is heard that was asked before; what comes after each answer has no end."""

    async def talk() -> int:
        ours, guardian = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        asked = 0

        def judge(operation: str, one: str, two: str) -> tuple[int, Violation | None]:
            nonlocal asked
            asked += 1
            if asked > 1:
                guardian.recv(64)  # the answer to the last question
            if asked < 5000:
                guardian.send(packet(MessageKind.ASKED, 3, "write", "/x", ""))
            return errno.EACCES, REFUSAL

        with ours, guardian:
            supervisor = Supervisor(ours, judge, reads=False)
            supervisor.begin(7)
            guardian.send(packet(MessageKind.ASKED, 3, "write", "/x", ""))
            supervisor.end(7)
            supervisor.close()
        return asked

    assert asyncio.run(talk()) == 256


def broken(operation: str, one: str, two: str) -> tuple[int, Violation | None]:
    raise KeyError(one)


@pytest.mark.req("C12")
def test_a_fault_in_judging_refuses_and_is_recorded() -> None:
    answers, violations = converse(broken, packet(MessageKind.ASKED, 3, "write", "/x", ""))

    assert answers == [(VERSION, MessageKind.ANSWER, 3, errno.EACCES)]
    assert [(violation.rule, violation.target) for violation in violations] == [("fault in judging", "/x")]


def test_every_question_is_answered_by_its_number() -> None:
    asked = [packet(MessageKind.ASKED, number, "write", f"/{number}", "") for number in (5, 1, 9)]

    answers, violations = converse(lambda *_: (errno.EROFS, REFUSAL), *asked)

    assert [(kind, number, error) for _, kind, number, error in answers] == [
        (MessageKind.ANSWER, number, errno.EROFS) for number in (5, 1, 9)
    ]
    assert violations == (REFUSAL,)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=64), max_size=8))
def test_what_makes_no_sense_is_passed_over(noise: list[bytes]) -> None:
    good = packet(MessageKind.ASKED, 2, "write", "/x", "")

    answers, _ = converse(lambda *_: (0, None), *noise, good)

    assert (VERSION, MessageKind.ANSWER, 2, 0) in answers
