"""One result for everything: what it says in one line, as plain values and back, and in a notebook."""

from __future__ import annotations

import html.parser
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import InvalidArgument
from ringfence.values.display import CodeError, DisplayData
from ringfence.values.guarantee import Guarantee, Wall
from ringfence.values.limits import Limit
from ringfence.values.outcome import (
    Ending,
    Exited,
    FileState,
    LimitHit,
    Observed,
    OutputFile,
    Refused,
    Result,
    SandboxAudit,
    Signalled,
    TimedOut,
    Touched,
    Usage,
)
from ringfence.values.sandbox_type import SandboxType
from ringfence.values.violation import Operation, Severity, Violation, ViolationType

ENDINGS: list[Ending] = [
    Exited(0),
    Exited(3),
    Signalled(9),
    TimedOut(2.5),
    LimitHit(Limit.MEMORY, 64 * 1024 * 1024),
    Refused("curl is denied", "commands.deny", "allow curl"),
]
FULL = Result(
    ending=Exited(1),
    stdout_bytes=b"out\xff\n",
    stderr_bytes="wörds\n".encode(),
    stdout_dropped=7,
    stderr_dropped=8,
    usage=Usage(0.25, 0.125, 4096, "wait4"),
    violations=(
        Violation(
            ViolationType.PATH_ACCESS_DENIED,
            Severity.HIGH,
            "~/.ssh is hidden",
            "blacklist ~/.ssh",
            "nothing",
            Operation.READ,
            "/home/a/.ssh",
            "policy.yaml:3",
            1.5,
            77,
            "cat",
            2,
        ),
    ),
    wall=Wall("bwrap", frozenset({Guarantee.NETWORK_OFF, Guarantee.NEVER_ROOT}), ("cgroup",), ("a note",)),
    audit=SandboxAudit("bwrap", ("bwrap", "--", "x")),
    inner_audits=(SandboxAudit("wasmtime", ("tools.wasm", "ls")),),
    run_id="r1",
    results=(
        DisplayData((("text/plain", "42"), ("image/png", b"\x89PNG\xff")), is_value=True),
        DisplayData((("text/html", "<b>x</b>"),)),
    ),
    exception=CodeError("ValueError", "no", "Traceback\nValueError: no"),
    state_kept=False,
    overlapped=2,
    observed=Observed(
        ("/w/a",), (Touched("/w/a", FileState(1, 2, 3, 4, 5, 6), frozenset({"write"})),), ("/r",), ("/x",)
    ),
    files=(OutputFile("a", 3, b"\xff\x00a"), OutputFile("big", 10**9)),
    sandbox_type=SandboxType.DOCKER,
    session_id="s1",
)


@pytest.mark.req("A8", "E1")
@pytest.mark.parametrize("ending", ENDINGS, ids=str)
def test_error_is_one_line_that_says_why_and_none_for_a_success(ending: Ending) -> None:
    result = Result(ending=ending)

    assert result.success == result.ok == (ending == Exited(0))
    assert result.error == (None if result.ok else str(ending))
    assert "\n" not in (result.error or "")


def test_the_error_of_code_is_its_exception() -> None:
    assert FULL.error == "ValueError: no"
    assert Result(ending=Exited(0), exception=FULL.exception).error is None


@pytest.mark.parametrize("ending", ENDINGS, ids=str)
def test_every_ending_goes_through_json_and_comes_back(ending: Ending) -> None:
    result = Result(ending=ending)

    assert Result.from_dict(json.loads(result.to_json())) == result


@pytest.mark.req("E1")
def test_everything_that_a_result_holds_goes_through_json_and_comes_back() -> None:
    plain = json.loads(FULL.to_json(indent=1))

    assert Result.from_dict(plain) == FULL
    assert Result.from_dict(FULL.to_dict()) == FULL
    otherwise = {"stdout_bytes", "stderr_bytes", "inner_audits"}  # by `stdout`, `stderr` and `sandbox_audits`
    missing = [name for name in Result.__slots__ if name not in plain and name not in otherwise]
    assert missing == []


def test_plain_values_hold_what_can_be_worked_out_as_well() -> None:
    plain = FULL.to_dict()

    names = ("ok", "exit_code", "error", "stdout", "stderr", "blocked", "blocked_reason")
    assert {name: plain[name] for name in names} == {name: getattr(FULL, name) for name in names}
    assert (plain["stdout_base64"], "stderr_base64" in plain) == ("b3V0/wo=", False), "only where text is not enough"


@settings(deadline=None)
@given(out=st.binary(), err=st.binary())
def test_any_output_comes_back_byte_for_byte(out: bytes, err: bytes) -> None:
    result = Result(ending=Exited(0), stdout_bytes=out, stderr_bytes=err)

    assert Result.from_dict(json.loads(result.to_json())) == result


@pytest.mark.parametrize(
    "spoil",
    [
        lambda plain: plain.pop("ending"),
        lambda plain: plain["ending"].update(kind="vanished"),
        lambda plain: plain["ending"].update(code="x", more=1),
        lambda plain: plain.update(usage=None),
        lambda plain: plain.update(stdout_base64="&"),
        lambda plain: plain["violations"][0].pop("rule"),
        lambda plain: plain.update(sandbox_type="castle"),
    ],
)
def test_what_is_no_result_is_an_error_that_says_so(spoil: object) -> None:
    plain = FULL.to_dict()
    spoil(plain)  # type: ignore[operator]

    with pytest.raises(InvalidArgument, match="not a result"):
        Result.from_dict(plain)


# --- for people -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ENDINGS, ids=str)
def test_repr_is_one_short_line_whatever_was_written(ending: Ending) -> None:
    result = Result(ending=ending, stdout_bytes=b"a\nb\x1b[2J" * 100_000, stderr_bytes=b"\xff\r\n" * 9)

    shown = repr(result)
    assert shown.isprintable() and len(shown) < 400
    assert str(ending) in shown or result.blocked


def test_repr_says_what_was_written_shown_and_refused() -> None:
    assert repr(Result(ending=Exited(0), stdout_bytes=b"hello\n")) == "<Result exited with 0, stdout 'hello\\n'>"
    assert "shown '42'" in repr(Result(ending=Exited(0), results=FULL.results[:1]))
    assert "curl is denied" in repr(Result(ending=ENDINGS[-1]))


def test_a_notebook_gets_the_forms_that_it_asks_for() -> None:
    assert FULL._repr_mimebundle_() == {"text/plain": repr(FULL), "text/html": FULL._repr_html_()}
    assert list(FULL._repr_mimebundle_(include=["text/plain"])) == ["text/plain"]
    assert list(FULL._repr_mimebundle_(exclude={"text/html"})) == ["text/plain"]


class _Elements(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


EVIL = "</pre></div><script>steal()</script><img src=x onerror=steal()>"


def test_nothing_that_code_writes_or_shows_becomes_part_of_the_page() -> None:
    forms = DisplayData((("text/html", f'"></iframe>{EVIL}'),))
    picture = DisplayData((("image/svg+xml", "<svg onload='steal()'/>"),))
    result = Result(
        ending=Refused(EVIL, EVIL),
        stdout_bytes=EVIL.encode(),
        stderr_bytes=EVIL.encode(),
        results=(forms, picture, DisplayData(((EVIL, "x"),)), DisplayData((("text/plain", EVIL),))),
        exception=CodeError("E", EVIL, EVIL),
        violations=(Violation(ViolationType.COMMAND, Severity.HIGH, EVIL, EVIL),),
        wall=Wall(EVIL, frozenset()),
    )

    page = _Elements()
    page.feed(result._repr_html_())

    assert {tag for tag, _ in page.found} <= {"div", "b", "small", "pre", "ul", "li", "iframe", "img"}
    assert not [name for _, attributes in page.found for name in attributes if name.startswith("on")]
    (frame,) = [attributes for tag, attributes in page.found if tag == "iframe"]
    assert frame["sandbox"] == "" and "steal()" in (frame["srcdoc"] or ""), "it is shown, and without any right"
    assert "default-src 'none'" in (frame["srcdoc"] or "")
    (image,) = [attributes for tag, attributes in page.found if tag == "img"]
    assert (image["src"] or "").startswith("data:image/svg+xml;base64,")
    assert "<script>steal()</script>" in page.text, "as text"


def test_a_page_shows_a_picture_rather_than_its_text_and_cuts_long_output() -> None:
    shown = Result(ending=Exited(0), results=FULL.results[:1])._repr_html_()
    long = Result(ending=Exited(0), stdout_bytes=b"x" * 100_000)._repr_html_()

    assert re.search(r'<img alt="" src="data:image/png;base64,[\w+/=]+">', shown)
    assert len(long) < 25_000 and "80000 more characters" in long
