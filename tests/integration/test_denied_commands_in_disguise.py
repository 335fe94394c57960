"""Ways past a list of denied commands, really run in a box: what runs the program must not have been allowed.

A stand-in for the program leaves a mark. Which of the ways run it depends on what is installed; the ones that do are
compared with the decision. Nothing is said about ways that do not run it here.
"""

import os
from pathlib import Path

import pytest

import ringfence
from ringfence.policy.decide import Place as Where
from ringfence.policy.decide import decide
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.values.grant import Grant
from ringfence.values.request import Request
from ringfence.values.verdict import Verdict
from tests.integration.stage import Place
from tests.support.disguises import ways

NAME = "curl"
STEP = int(os.environ.get("RINGFENCE_DISGUISES_STEP", "10"))
"""Every so many of the ways are run; 1 for all, which takes minutes."""
DRIVER = """
here=$PWD
export PATH=$here/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin SHELL=/bin/bash TERM=dumb
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
mkdir template && cd template && seq 5 > lines && echo a >> lines && cp -r ../bin bin
git init -q --template= . && git add lines && git commit -qm a && git commit -qm b --allow-empty; cd "$here"
for case in cases/*; do
  number=${case#cases/}
  cp -r template "run-$number" && cd "run-$number" || exit 1
  MARK=$here/marks/$number timeout -k 1 2 setsid -w bash "../$case" > /dev/null 2>&1 < /dev/null
  cd "$here" && rm -rf "run-$number"
done
"""


def verdict(command: str) -> Verdict:
    terms = effective((load_policy(f"policies: {{default: {{denied_commands: [{NAME}, sudo]}}}}", "p"),), "shell_exec")
    workspace = Path("/home/ann/project")
    decision = decide(Request(command=command), Grant(workspace=workspace), Where(workspace, "/home/ann"), terms)
    return max(reason.verdict for reason in decision.reasons)


@pytest.mark.req("B4", "C3")
@pytest.mark.timeout(300)
def test_whatever_runs_a_denied_program_was_not_allowed(place: Place) -> None:
    workspace = place.workspace
    for directory in ("bin", "cases", "marks"):
        (workspace / directory).mkdir()
    stand_in = workspace / "bin" / NAME
    stand_in.write_text('#!/bin/sh\n: > "$MARK"\n')
    stand_in.chmod(0o755)
    texts = ways(NAME, f"{workspace}/bin")[int(os.environ.get("RINGFENCE_DISGUISES_FROM", "0")) :: STEP]
    for number, text in enumerate(texts):
        (workspace / "cases" / f"{number:04}").write_text(text + "\n")
    (workspace / "driver").write_text(DRIVER)

    done = ringfence.run("bash driver", workspace=workspace, timeout=240)

    assert done.ok, done
    ran = [text for number, text in enumerate(texts) if (workspace / "marks" / f"{number:04}").exists()]
    allowed = [text for text in ran if verdict(text) is Verdict.ALLOW]
    print(f"disguises: {len(ran)} of {len(texts)} ran it, {len(allowed)} of them allowed")
    assert len(ran) > len(texts) / 3, "the stand-in was hardly ever run: the test does not test"
    assert allowed == []


@pytest.mark.parametrize(
    "command",
    [
        "echo 'curl x'",
        "grep -rn curl docs",
        "git commit -m 'use curl instead of sudo'",
        "ls /usr/bin/curl",
        "which curl sudo",
        "man curl | head",
        "sed -i s/curl/wget/ README.md",
        "awk '/curl/ {print}' log.txt",
        "cat > notes.md <<'E'\ncurl x | sh\nE",
        "python3 -c 'print(\"curl\")'",
        "pytest -k curl tests/test_curl.py",
        "rg 'sudo|curl' scripts",
        "git checkout -b curl-support",
        "jq .curl in.json",
    ],
)
def test_a_denied_name_that_is_only_text_is_allowed(command: str) -> None:
    assert verdict(command) is Verdict.ALLOW
