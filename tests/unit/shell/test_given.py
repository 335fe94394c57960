"""What comes from outside of the text: standard input and variables of the request."""

import pytest

from ringfence.shell import STREAM, CheckContext, analyse, answer, validate
from ringfence.values.facts import CheckAnswer, Facts, Unknown


def judged(facts: Facts) -> CheckAnswer:
    return answer(validate(facts, CheckContext()))


def names(facts: Facts) -> list[str | None]:
    return [program.name for program in facts.programs]


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "text",
    ["bash", "sh -s", "env bash", "bash /dev/stdin", "cat | sh", "sudo -u x bash", "timeout 5 sh -e -", "bash -x <&0"],
)
def test_a_script_on_standard_input_is_read_like_one_that_is_given_by_an_option(text: str) -> None:
    assert "rm" in names(analyse(text, stdin="rm -rf /\n"))
    assert judged(analyse(text, stdin="rm -rf /\n")) is CheckAnswer.BLOCK


@pytest.mark.parametrize("text", ["grep x", "python3 app.py", "bash build.sh", "wc -l", "bash -c 'cat'"])
def test_what_no_interpreter_reads_is_only_data(text: str) -> None:
    assert judged(analyse(text, stdin="rm -rf /\n")) is CheckAnswer.PASS
    assert judged(analyse(text, stdin=STREAM)) is CheckAnswer.PASS


@pytest.mark.parametrize("text", ["bash", "python3", "python3 -", "env sh", "node", "perl"])
def test_a_stream_that_cannot_be_read_ahead_is_opaque_code(text: str) -> None:
    facts = analyse(text, stdin=STREAM)

    assert any(part.unknown is Unknown.CODE for part in facts.opaque)
    assert not analyse(text).opaque


def test_code_of_another_language_on_standard_input_is_read() -> None:
    assert judged(analyse("python3 -", stdin="import os\nos.system('sudo id')\n")) is CheckAnswer.BLOCK
    assert judged(analyse("python3 -", stdin="print('sudo id')\n")) is CheckAnswer.PASS


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_SSH_COMMAND", "sudo id"),
        ("GIT_PAGER", "sudo id"),
        ("EDITOR", "sh -c 'sudo id'"),
        ("PROMPT_COMMAND", "sudo id"),
        ("PS4", "$(sudo id)"),
        ("BASH_ENV", "$(sudo id)"),
        ("TAR_OPTIONS", "--checkpoint=1 --checkpoint-action=exec='sudo id'"),
        ("LESSOPEN", "|sudo id %s"),
        ("GIT_CONFIG_PARAMETERS", "'alias.x'='!sudo id'"),
        ("BASH_FUNC_ls%%", "() { sudo id; }"),
    ],
)
def test_the_value_of_a_variable_that_is_run_is_walked(name: str, value: str) -> None:
    facts = analyse("ls", variables={name: value})

    assert "sudo" in names(facts)
    assert judged(facts) is CheckAnswer.BLOCK


def test_variables_are_known_to_the_text() -> None:
    assert names(analyse('$X "$Y"', variables={"X": "rm", "Y": "a"})) == ["rm"]
    assert [(one.name, one.exported) for one in analyse("ls", variables={"LD_PRELOAD": "x"}).assignments] == [
        ("LD_PRELOAD", True)
    ]
    assert judged(analyse("ls", variables={"PAGER": "less -R", "EDITOR": "vim", "CI": "1"})) is CheckAnswer.PASS


def test_every_span_lies_in_the_text() -> None:
    facts = analyse("bash", stdin="x=1; sudo id; cat /etc/shadow; curl x.example", variables={"PAGER": "sudo id"})
    spans = [*facts.programs, *facts.paths, *facts.hosts, *facts.assignments, *facts.opaque, *facts.constructs]

    assert spans
    assert all(0 <= one.span.start <= one.span.end <= 4 for one in spans)
