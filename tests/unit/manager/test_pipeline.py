"""The pipeline: a request is checked, decided, written down, run and written down again; or nothing runs."""

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringfence.approvals.base import Choice
from ringfence.approvals.question import hash_request
from ringfence.audit.journal import Journal
from ringfence.errors import (
    CommandNotAllowed,
    FileError,
    Internal,
    InvalidArgument,
    NotADirectory,
    NotFound,
    PermissionDenied,
    RingfenceError,
    SpawnFailed,
)
from ringfence.manager.forming import check_form
from ringfence.manager.leases import Lease
from ringfence.manager.pipeline import Judge, Pipeline
from ringfence.policy import decide as module
from ringfence.policy.layer import effective
from ringfence.policy.load import load_policy
from ringfence.values.grant import Grant
from ringfence.values.limits import Limits
from ringfence.values.outcome import Exited, Refused, Result
from ringfence.values.request import Request
from ringfence.values.verdict import Decision
from tests.support.fakes import FakeBox
from tests.support.questions import FakeConfirmationService


class Bench:
    """A pipeline over a fake box, with its journal."""

    def __init__(self, tmp_path: Path, **grant: Any) -> None:
        self.workspace = tmp_path / "work"
        self.workspace.mkdir()
        self.state = tmp_path / "state"
        self.journal = Journal(self.state)
        self.grant = Grant(workspace=self.workspace, **grant)
        self.box = FakeBox(self.grant)
        self.acquired = 0

    async def acquire(self, _: object = None) -> Lease:
        self.acquired += 1
        return Lease.of(self.box, self.grant)

    def run(self, command: str | None = None, **parts: Any) -> Result:
        pipeline = Pipeline(self.grant, self.journal, self.acquire)
        try:
            return asyncio.run(pipeline.run(Request(command=command, **parts)))
        finally:
            self.journal.close()

    @property
    def lines(self) -> list[dict[str, Any]]:
        path = self.state / "journal.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.mark.req("B2")
def test_a_command_runs_and_leaves_one_complete_line(bench: Bench) -> None:
    result = bench.run("echo hello")

    assert (result.ending, result.stdout) == (Exited(0), "hello\n")
    (line,) = bench.lines
    assert (line["run"], line["command"], line["verdict"], line["ending"]) == (
        result.run_id,
        "echo hello",
        "allow",
        "exited with 0",
    )


@pytest.mark.req("B2", "C12")
def test_nothing_runs_if_the_journal_cannot_be_written_and_it_does_if_it_can(bench: Bench) -> None:
    bench.state.write_text("in the way")
    with pytest.raises(PermissionDenied, match="nothing is run"):
        bench.run("echo hello")
    assert (bench.acquired, bench.box.ran) == (0, [])

    bench.state.unlink()
    assert bench.run("echo hello").ok


@pytest.mark.req("A4", "A8")
def test_a_directory_outside_is_refused_quietly_and_the_next_command_runs(bench: Bench, tmp_path: Path) -> None:
    refused = bench.run("pwd", cwd=tmp_path)

    assert isinstance(refused.ending, Refused)
    assert (refused.blocked, refused.exit_code) == (True, 122)
    assert bench.acquired == 0
    assert bench.run("pwd").stdout == f"{bench.workspace}\n"
    assert [line["verdict"] for line in bench.lines] == ["deny", "allow"]


def test_a_link_that_leads_out_is_a_directory_outside(bench: Bench, tmp_path: Path) -> None:
    (bench.workspace / "link").symlink_to(tmp_path)

    assert isinstance(bench.run("pwd", cwd=Path("link")).ending, Refused)


@pytest.mark.req("A3")
def test_a_blacklisted_directory_inside_is_refused_and_is_not_without_the_rule(tmp_path: Path) -> None:
    for number, denied in enumerate([("**/secret",), ()]):
        (tmp_path / str(number)).mkdir()
        bench = Bench(tmp_path / str(number), denied=denied)
        (bench.workspace / "secret").mkdir()
        assert isinstance(bench.run("pwd", cwd=Path("secret")).ending, Refused) is bool(denied)


@pytest.mark.req("C12")
def test_what_was_allowed_is_not_judged_anew_and_everything_else_is(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[str | None] = []

    def decide(request: Request, *parts: Any, **named: Any) -> Decision:
        judged.append(request.command)
        return module.decide(request, *parts, **named)

    monkeypatch.setattr("ringfence.manager.pipeline.decide", decide)
    pipeline = Pipeline(bench.grant, bench.journal, bench.acquire)

    async def main() -> list[Result]:
        runs = [("pwd", None), ("pwd", None), ("echo", None), ("pwd", tmp_path), ("pwd", tmp_path), ("pwd", None)]
        return [await pipeline.run(Request(command=command, cwd=cwd)) for command, cwd in runs]

    results = asyncio.run(main())
    bench.journal.close()

    assert judged == ["pwd", "echo", "pwd", "pwd"]
    assert [result.blocked for result in results] == [False, False, False, True, True, False]
    assert [line["verdict"] for line in bench.lines] == ["allow", "allow", "allow", "deny", "deny", "allow"]


@pytest.mark.parametrize("cwd", ["sub", "/workspace/sub", "/workspace/sub/../sub", "./sub"])
def test_a_relative_directory_and_the_stable_name_start_at_the_workspace(bench: Bench, cwd: str) -> None:
    (bench.workspace / "sub").mkdir()

    assert bench.run("pwd", cwd=Path(cwd)).stdout == f"{bench.workspace}/sub\n"


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("missing", NotFound),
        ("file", NotADirectory),
        ("loop", FileError),
        ("nul\0byte", InvalidArgument),
        ("half\ud800", InvalidArgument),
    ],
)
def test_a_directory_that_cannot_be_used_is_an_error_that_names_it(
    bench: Bench, name: str, fault: type[RingfenceError]
) -> None:
    (bench.workspace / "file").touch()
    (bench.workspace / "loop").symlink_to("loop")

    with pytest.raises(fault):
        bench.run("pwd", cwd=Path(name))

    assert bench.acquired == 0


@pytest.mark.parametrize("parts", [{"command": ""}, {"command": " \n\t"}, {"argv": ()}, {"argv": ("",)}, {}])
def test_an_empty_command_is_refused(parts: dict[str, Any]) -> None:
    with pytest.raises(CommandNotAllowed, match="empty"):
        check_form(Request(**parts))


@pytest.mark.parametrize("text", ["echo a\0b", "echo \ud800"])
def test_what_the_kernel_would_cut_or_not_take_is_refused(text: str) -> None:
    with pytest.raises(CommandNotAllowed):
        check_form(Request(command=text))
    with pytest.raises(CommandNotAllowed):
        check_form(Request(argv=("echo", text)))


@pytest.mark.parametrize("text", ["echo \udcff", "echo ünï \N{PILE OF POO}", "x" * 2_000_000, "echo 'a\nb'"])
def test_odd_but_possible_commands_pass(text: str) -> None:
    check_form(Request(command=text))


@pytest.mark.parametrize("pair", [("", "x"), ("A=B", "x"), ("A\0", "x"), ("A", "x\0"), ("A", "\ud800")])
def test_a_variable_that_cannot_be_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        check_form(Request(command="true", env=(pair,)))


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("-inf")])
def test_a_time_that_is_not_above_zero_is_refused(seconds: float) -> None:
    with pytest.raises(InvalidArgument, match="above zero"):
        check_form(Request(command="true", timeout=seconds))
    check_form(Request(command="true", timeout=0.001))


def test_a_fault_of_the_engine_is_written_down_and_raised(bench: Bench) -> None:
    with pytest.raises(SpawnFailed):
        bench.run("not-a-program")

    assert [(line["ending"], line["error_code"]) for line in bench.lines] == [("fault", "spawn_failed")]


def test_a_lost_box_is_written_down_and_raised(bench: Bench) -> None:
    asyncio.run(bench.box.close())
    with pytest.raises(Internal):
        bench.run("echo hello")

    assert [line["error_code"] for line in bench.lines] == ["internal"]


def test_a_cancelled_command_is_written_down_as_abandoned(bench: Bench) -> None:
    async def cancel() -> None:
        pipeline = Pipeline(bench.grant, bench.journal, bench.acquire)
        task = asyncio.create_task(pipeline.run(Request(command="sleep 60")))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        bench.journal.close()

    asyncio.run(cancel())

    assert [line["ending"] for line in bench.lines] == ["abandoned"]


def test_a_long_command_is_kept_by_its_beginning_and_its_hash(bench: Bench) -> None:
    bench.run("echo " + "x" * 10_000)
    bench.run("echo " + "x" * 10_001)

    first, second = bench.lines
    assert first["command"] == second["command"] == "echo " + "x" * 4091
    assert first["code_hash"] != second["code_hash"]


def test_a_limit_that_was_hit_shows_in_the_line(tmp_path: Path) -> None:
    bench = Bench(tmp_path, limits=Limits(output_bytes=10))

    assert bench.run("yes").exit_code == 123
    assert bench.lines[0]["ending"].startswith("hit its output limit of 10")


# --- what a request is given ------------------------------------------------------------------------------------------


class AnyBox(FakeBox):
    """Everything ends well in it."""

    async def run(self, request: Request) -> Result:
        self.ran.append(request)
        return Result(ending=Exited(0))


class Asked(Bench):
    """A pipeline with terms, and somebody to ask."""

    def __init__(self, tmp_path: Path, rules: str | None = None, choice: Choice | None = None) -> None:
        super().__init__(tmp_path)
        self.box = AnyBox(self.grant)
        terms = None
        if rules is not None:
            terms = effective((load_policy(f"policies: {{default: {{{rules}}}}}", "p.yaml"),), "shell_exec", None)
        self.service = FakeConfirmationService(choice) if choice is not None else None
        self.pipeline = Pipeline(self.grant, self.journal, self.acquire, Judge(terms=terms, confirmation=self.service))

    def all(self, *requests: Request) -> list[Result]:
        async def main() -> list[Result]:
            return [await self.pipeline.run(request) for request in requests]

        try:
            return asyncio.run(main())
        finally:
            self.journal.close()


@pytest.mark.req("C3", "C12")
def test_a_line_that_was_allowed_is_judged_anew_with_other_input_and_variables(tmp_path: Path) -> None:
    bench = Asked(tmp_path, "denied_commands: [sudo]")

    results = bench.all(
        Request(command="bash", stdin=b"echo hello"),
        Request(command="bash", stdin=b"echo hello"),
        Request(command="bash", stdin=b"sudo id"),
        Request(command="bash"),
        Request(command="git log"),
        Request(command="git log", env=(("GIT_PAGER", "sudo id"),)),
        Request(command="git log", env=(("GIT_PAGER", "cat"),)),
    )

    assert [result.blocked for result in results] == [False, False, True, False, False, True, False]


@pytest.mark.req("E6")
def test_an_approval_covers_the_input_and_the_variables_that_were_shown(tmp_path: Path) -> None:
    bench = Asked(tmp_path, "approvals: {ask_for: {patterns: [deploy]}}", Choice.YES)
    request = Request(command="bash", stdin=b"deploy now", env=(("TARGET", "test"),))

    assert not bench.all(request)[0].blocked
    assert bench.service is not None
    (question,) = bench.service.asked
    assert ("input", "deploy now") in question.details and ("variable TARGET", "test") in question.details
    for other in (replace(request, stdin=b"deploy later"), replace(request, env=(("TARGET", "live"),))):
        assert hash_request(other, bench.grant) != question.request_hash


@pytest.mark.req("E1", "E6")
@pytest.mark.parametrize("choice", [Choice.YES, Choice.NO])
def test_without_a_policy_whoever_gave_a_service_is_asked_about_critical_code(tmp_path: Path, choice: Choice) -> None:
    bench = Asked(tmp_path, None, choice)

    critical, plain = bench.all(Request(command="sudo id"), Request(command="ls"))

    assert bench.service is not None
    assert [question.command for question in bench.service.asked] == ["sudo id"]
    assert critical.blocked is (choice is Choice.NO) and not plain.blocked


def test_without_a_policy_and_without_a_service_nothing_is_read(tmp_path: Path) -> None:
    bench = Asked(tmp_path)

    assert not bench.all(Request(command="sudo id", stdin=b"x"))[0].blocked


@pytest.mark.req("B9")
def test_the_record_says_what_was_given_without_secrets(tmp_path: Path) -> None:
    bench = Asked(tmp_path)
    secret = "ghp_" + "AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    stdin = f"curl -H 'Authorization: token {secret}' x".encode()

    bench.all(
        Request(command="bash", stdin=stdin, env=(("API_TOKEN", "pw1"), ("MODE", "fast"), ("X", secret))),
        Request(command="ls"),
        Request(command="cat", live_input=True),
    )

    fed, plain, live = bench.lines
    assert fed["stdin_hash"] == "sha256:" + hashlib.sha256(stdin).hexdigest() and fed["stdin_bytes"] == len(stdin)
    assert fed["stdin"].startswith("curl -H ") and fed["env"]["MODE"] == "fast"
    assert secret not in json.dumps(fed) and "pw1" not in json.dumps(fed["env"])
    assert not {"stdin", "env", "stdin_hash"} & plain.keys()
    assert live["stdin_stream"] is True
