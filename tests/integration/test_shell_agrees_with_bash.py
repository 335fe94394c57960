"""The reader against Bash itself: what it accepts, and what arguments a program would get."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from ringfence.shell import analyse
from ringfence.shell.lexer import Misread
from ringfence.shell.parse import parse

BASH = shutil.which("bash")
CORPUS = Path(__file__).parents[1] / "corpus"
pytestmark = pytest.mark.skipif(BASH is None, reason="bash is not installed")

# Only whole braces: with a quoted comma between lone ones, Bash itself drops characters.
PIECES = [
    "a",
    "b1",
    " ",
    "  ",
    "'",
    '"',
    "\\",
    "x y",
    "'q r'",
    '"s t"',
    "\\ ",
    "\\'",
    "$'\\n'",
    "{1..3}",
    "{a,b}",
    "{a,{b,c}}",
    "~/",
    "=",
    "#",
    "\\\n",
    "/",
]
WORDS = st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join)


def bash(text: str, *options: str) -> subprocess.CompletedProcess[bytes]:
    assert BASH is not None
    environment = {"PATH": "/usr/bin:/bin", "HOME": "~", "LC_ALL": "C.UTF-8"}
    return subprocess.run([BASH, *options, "-c", text], capture_output=True, env=environment, stdin=subprocess.DEVNULL)


def reads(text: str) -> bool:
    try:
        parse(text)
    except Misread:
        return False
    return True


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "name", ["validator.jsonl", "validator_own.jsonl", "validator_fresh_a.jsonl", "validator_fresh_c.jsonl"]
)
def test_the_reader_accepts_what_bash_accepts(name: str) -> None:
    differing = []
    for line in (CORPUS / name).read_text(encoding="utf-8").splitlines():
        command = json.loads(line)["command"]
        if "\0" not in command and reads(command) != (bash(command, "-n").returncode == 0):
            differing.append(command)

    assert differing == []


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
@given(WORDS)
def test_arguments_are_those_that_bash_gives(words: str) -> None:
    text = f"printf '<%s>' {words}"
    assume(reads(text) and not text.endswith("\\"))  # a backslash at the very end means either, after a continuation
    program = analyse(text).programs[0]
    assume(all(word.text is not None for word in program.argv))  # more alternatives than we follow
    expected = "".join(f"<{word.text}>" for word in program.argv[2:]) if len(program.argv) > 2 else "<>"

    # HOME is `~` there, so that both write the home the same way.
    assert bash(text).stdout.decode() == expected


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [*PIECES, ";", "&&", "|", "(", ")", "\n", "if ", "then ", "fi", "<<E\n", "E\n", "$(", "`", "${x}"]
        ),
        max_size=14,
    ).map("".join)
)
def test_nothing_is_accepted_that_bash_refuses(text: str) -> None:
    if reads(text):
        assert bash(text, "-n").returncode == 0, text
