"""Texts that a line or its code hides and takes out again, harm by unusual ways, and near misses that pass."""

import pytest

from ringfence.shell import CheckContext, analyse, answer, validate
from ringfence.shell.literals import written_out
from ringfence.values.facts import CheckAnswer

pytestmark = pytest.mark.req("C3")


def given(command: str, *denied: str) -> CheckAnswer:
    return answer(validate(analyse(command), CheckContext(denied_commands=denied)))


@pytest.mark.parametrize(
    "command",
    [
        'cat "$(echo L2V0Yy9zaGFkb3c= | base64 -d)"',
        'cat "$(base64 --decode <<< L2V0Yy9zaGFkb3c=)"',
        'cat "$(echo F4SZ2LZTNBQWI33X | base32 -d)" /etc/shadow',
        "cat $(echo 2f6574632f736861646f77 | xxd -r -p)",
        "cat $(rev <<< wodahs/cte/)",
        "cat $(echo /rgp/funqbj | tr a-z n-za-m)",
        "cat $(echo xx/etc/shadow | cut -c3-)",
        "cat $(printf 'a\\n/etc/shadow\\n' | tail -n 1)",
        "cat $(printf '/etc/shadow\\na\\n' | head -1)",
    ],
)
def test_an_operand_in_disguise_is_the_path_that_it_stands_for(command: str) -> None:
    assert given(command) is CheckAnswer.BLOCK


@pytest.mark.parametrize(
    "command",
    [
        'cat "$(echo UkVBRE1FLm1k | base64 -d)"',
        "cat $(git ls-files | tr '\\n' ' ')",
        "echo hello | rev | tr a-z A-Z",
        "echo aGVsbG8= | base64 -d",
        "x=$(echo ABC | tr A-Z a-z); touch out-$x.txt",
    ],
)
def test_taking_a_harmless_text_out_of_a_disguise_passes(command: str) -> None:
    assert given(command) is CheckAnswer.PASS


@pytest.mark.parametrize("command", ["eval $(echo bHM= | base64 -d)", "echo bHM= | base64 -d | sh", "$(rev <<< sl)"])
def test_running_what_was_hidden_is_refused_whatever_it_is(command: str) -> None:
    assert given(command) is CheckAnswer.BLOCK
    assert given("ls") is CheckAnswer.PASS


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("open(chr(47)+'etc')", '"/"'),
        ("String.fromCharCode(47,101)", '"/e"'),
        ("'wodahs'[::-1]", '"shadow"'),
        ("''.join(['a','b'])", '"ab"'),
        ("['a','b'].join('/')", '"a/b"'),
        ("bytes.fromhex('2f65')", '"/e"'),
        ("base64.b64decode('L2U=')", '"/e"'),
        ("os.path.join('/', 'etc', 'x')", '"/etc/x"'),
        ("Path.home() / '.ssh' / 'id'", '"~/.ssh/id"'),
        ("open('\\x2fetc')", "'/etc'"),
    ],
)
def test_what_code_spells_is_written_out(code: str, text: str) -> None:
    assert text in written_out(code)


@pytest.mark.parametrize("code", ["print(1)", "x = [1, 2]", "a.join(b)", "chr(n)", "s[::-1]", "'\\n'.join(lines)"])
def test_code_that_spells_nothing_stays_as_it_is(code: str) -> None:
    assert written_out(code) == code


@pytest.mark.parametrize(
    "command",
    [
        'T=~; rm -rf "$T"',
        'T=$HOME; rm -rf "$T"',
        "T=$HOME; U=$T; rm -rf ${U}/",
        "git -C / clean -ffdx",
        "cmake -E rm -rf /usr",
        "sometool purge /usr/lib",
        "zip -rm x.zip /etc",
        "gzip -r /etc",
        "setfacl -R -b /",
        "declare -l X=RM; $X -rf /",
        "printf 'all:\\n\\trm -rf /\\n' > Makefile; make",
        'echo \'{"scripts": {"a": "rm -rf ~"}}\' > package.json && npm run a',
    ],
)
def test_removals_by_another_way_are_refused(command: str) -> None:
    assert given(command) is CheckAnswer.BLOCK


@pytest.mark.parametrize(
    "command",
    [
        'T=build; rm -rf "$T"',
        "git clean -n ~",
        "cmake -E rm -rf build/tmp",
        "sometool purge ./cache",
        "zip -m done.zip a.txt",
        "gzip report.csv",
        "gzip -rk docs",
        "setfacl -m u:ann:r notes.txt",
        "declare -l x=ANN; echo $x",
        "printf 'all:\\n\\techo hi\\n' > Makefile; make",
        'echo \'{"scripts": {"a": "rm -rf dist"}}\' > package.json && npm run a',
        'd=$(mktemp -d); rm -rf "$d"',
        "git commit -m 'rm -rf / is refused'",
        "pytest -k 'sudo rm'",
    ],
)
def test_the_same_ways_within_the_workspace_pass(command: str) -> None:
    assert given(command) is CheckAnswer.PASS


@pytest.mark.parametrize(
    "command",
    [
        "bwrap --bind / / curl x",
        "make CC='curl x'",
        "snap run curl",
        "nix run nixpkgs#curl",
        "ln -s /usr/bin/curl bin/ls",
        "ocaml <<< 'Sys.command \"curl x\"'",
        "redis-cli eval 'os.execute(\"curl x\")' 0",
        'python3 -c \'import os; c="cu"+"rl"; os.system(c)\'',
    ],
)
def test_a_denied_program_by_another_way_is_not_passed(command: str) -> None:
    assert given(command, "curl") >= CheckAnswer.WARN
    findings = validate(analyse(command), CheckContext(denied_commands=("wget",)))
    assert not [finding for finding in findings if finding.rule in ("listed", "named")]


@pytest.mark.parametrize(
    "command", ["ls /usr/bin/curl", "awk '$1 == \"curl\"' log", "cp src/curl.c x.c", "npm test -- -t 'curl wrapper'"]
)
def test_a_denied_name_that_nothing_runs_passes(command: str) -> None:
    assert given(command, "curl") is CheckAnswer.PASS


@pytest.mark.parametrize(
    "command",
    ["aws configure export-credentials", "kubectl config view --raw", "git credential fill", "gh auth status -t"],
)
def test_a_secret_that_a_tool_prints_is_warned_of(command: str) -> None:
    assert given(command) is CheckAnswer.WARN


@pytest.mark.parametrize(
    "command", ["aws s3 ls", "git config --get user.email", "npm run get-token", "gh pr view 1", "helm list"]
)
def test_other_questions_to_the_same_tools_pass(command: str) -> None:
    assert given(command) is CheckAnswer.PASS
