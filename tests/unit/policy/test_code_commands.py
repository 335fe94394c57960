"""The rules on commands hold for code of a language as for the same code after its interpreter's name."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from ringfence.policy.decide import Place, decide
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.shell.lexer import MAX_TEXT
from ringfence.values.grant import Grant
from ringfence.values.request import Request
from ringfence.values.verdict import Decision, Verdict

pytestmark = pytest.mark.req("C3")
ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY
DENIES = "denied_commands: [curl, sudo]"
INLINE = {"python": "python3 -c", "perl": "perl -e", "ruby": "ruby -e", "javascript": "node -e", "lua": "lua -e"}


def judged(rules: str, request: Request, tool: str = "code_run") -> Decision:
    terms = effective((load_policy(f"policies: {{default: {{{rules}}}}}", "p.yaml"),), tool, None)
    workspace = Path("/home/ann/project")
    place = Place(workspace, "/home/ann")
    return decide(request, Grant(workspace=workspace), place, terms, language=request.language)


def verdict(code: str, language: str = "python", rules: str = DENIES) -> Verdict:
    return judged(rules, Request(code=code, language=language)).verdict


@pytest.mark.parametrize(
    ("language", "code", "expected"),
    [
        ("python", "import os; os.system('curl x')", DENY),
        ("python", "import subprocess\nsubprocess.run(['sudo', 'id'])", DENY),
        ("python", "x = 'curl'", ASK),
        ("python", "print('no curl here')", ALLOW),
        ("python", "import os; os.system('ls')", ALLOW),
        ("perl", 'system("curl x")', DENY),
        ("perl", "print `curl x`", DENY),
        ("ruby", "puts `sudo id`", DENY),
        ("javascript", "require('child_process').execSync('curl x')", DENY),
        ("lua", "os.execute('curl x')", DENY),
        ("lua", "print(1)", ALLOW),
    ],
)
def test_the_same_code_has_one_answer_by_both_doors(language: str, code: str, expected: Verdict) -> None:
    line = f"{INLINE[language]} {shlex.quote(code)}"

    assert verdict(code, language) is expected
    assert judged(DENIES, Request(command=line), "shell_exec").verdict is expected


@pytest.mark.parametrize("language", ["typescript", "php", "julia", "r"])
def test_code_of_every_language_is_read(language: str) -> None:
    assert verdict("system('curl x')", language) is DENY
    assert verdict("x = 1", language) is ALLOW


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("!curl x", DENY),
        ("!!curl x", DENY),
        ("out = !curl x", DENY),
        ("if True:\n    !ls; curl x", DENY),
        ("!ls \\\n  ; curl x", DENY),
        ("!cu''rl x", DENY),
        ("%%bash\ncurl x", DENY),
        ("\n%%sh\nif true; then sudo id; fi", DENY),
        ("%%time\n%%bash\ncu''rl x", DENY),
        ("s = '''\n%%bash\n'''\n!{tool} x", ASK),
        ("!{tool} x", ASK),
        ("!$tool x", ASK),
        ("!ls 'unclosed", ASK),
        ("!ls -l", ALLOW),
        ("!awk '{print $1}' notes", ALLOW),
        ("%%bash\nfor f in a b; do echo $f; done", ALLOW),
        ("x = 1 if a != b else 2", ALLOW),
        ("print('Hello!')", ALLOW),
    ],
)
def test_shell_lines_in_python_are_judged_as_shell_lines(code: str, expected: Verdict) -> None:
    assert verdict(code) is expected


def test_the_other_rules_on_commands_hold_as_well() -> None:
    asks = "approvals: {ask_for: {patterns: [git push]}}"
    assert verdict("!git push", rules=asks) is ASK
    assert verdict("!git status", rules=asks) is ALLOW
    assert verdict("!make", rules="allowed_commands: [ls]") is DENY
    assert verdict("!ls", rules="allowed_commands: [ls]") is ALLOW
    assert verdict("print(1)", rules="allowed_commands: [ls]") is ALLOW


def test_without_rules_on_commands_code_is_left_to_the_wall() -> None:
    assert verdict("!curl x", rules="max_memory: 1GB") is ALLOW


def test_what_is_too_long_to_read_is_asked_about() -> None:
    assert verdict("x = 1\n" * (MAX_TEXT // 6 + 1)) is ASK
    assert verdict("!a\\\n" * 25_000) is ASK
