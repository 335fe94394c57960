"""A policy in force: what it refuses does not run, what it asks for waits for a yes, what it hides the wall hides."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import ringfence
from ringfence import PolicyEngine, Sandbox, SandboxBuilder, Verdict
from ringfence.approvals.base import Choice, ConfirmationService
from ringfence.errors import CommandNotAllowed, InvalidArgument, InvalidConfig, PathAccessDenied
from ringfence.policy.defaults import SENSITIVE
from ringfence.values.outcome import Refused
from tests.integration.stage import Place
from tests.support.questions import FakeConfirmationService

FOLDERS = (".git/hooks", ".ssh", ".aws", ".docker", ".kube", ".gnupg", ".idea")
"""Rows that are directories."""


def engine(line: str) -> PolicyEngine:
    return PolicyEngine.from_text(f"policies: {{default: {{{line}}}}}", "p.yaml")


def test_a_refusal_names_the_rule_and_nothing_runs(place: Place) -> None:
    policy = engine("denied_commands: [touch]")

    refused = ringfence.run("touch made", workspace=place.workspace, policy=policy)
    allowed = ringfence.run("echo x > made-otherwise", workspace=place.workspace, policy=policy)

    assert isinstance(refused.ending, Refused) and refused.ending.rule == "denied_commands touch at p.yaml:1"
    assert not (place.workspace / "made").exists()
    assert allowed.ok and (place.workspace / "made-otherwise").exists()


def test_what_the_policy_asks_for_is_refused_where_nobody_can_be_asked(place: Place) -> None:
    done = ringfence.run("echo x", workspace=place.workspace, policy=engine("approvals: {ask_for: {patterns: [echo]}}"))

    assert isinstance(done.ending, Refused)
    assert "nobody to ask" in done.ending.why and "confirmation" in done.ending.allow_by


@pytest.mark.req("E6")
@pytest.mark.parametrize(("choice", "runs"), [(Choice.YES, True), (Choice.NO, False)])
def test_a_person_decides_and_the_journal_says_who(place: Place, choice: Choice, runs: bool) -> None:
    service = FakeConfirmationService(choice)
    policy = engine("approvals: {ask_for: {patterns: [echo]}}")

    done = ringfence.run("echo x", workspace=place.workspace, policy=policy, confirmation=service)

    assert done.ok is runs
    record = json.loads((place.state / "journal.jsonl").read_text().splitlines()[-1])
    assert record["verdict"] == "ask"
    assert (record["approval"]["granted"], record["approval"]["by"]) == (runs, "a test")


def test_no_answer_in_time_is_a_refusal(place: Place) -> None:
    policy = engine("approvals: {ask_for: {patterns: [echo]}, timeout: 50ms}")
    slow = FakeConfirmationService(after_seconds=30)

    done = ringfence.run("echo x", workspace=place.workspace, policy=policy, confirmation=slow)

    assert isinstance(done.ending, Refused) and "no answer within" in done.ending.why


@pytest.mark.parametrize(("remember", "questions"), [("session", 1), ("never", 2)])
def test_a_yes_for_the_session_is_remembered_where_the_policy_lets_it(
    place: Place, remember: str, questions: int
) -> None:
    service = FakeConfirmationService(Choice.YES_FOR_SESSION)
    policy = engine(f"approvals: {{ask_for: {{patterns: [echo]}}, remember: {remember}}}")

    async def twice() -> None:
        async with ringfence.Sandbox(place.workspace, policy=policy, confirmation=service) as box:
            for _ in range(2):
                assert (await box.shell("echo x")).ok

    asyncio.run(twice())

    assert len(service.asked) == questions


def test_a_yes_for_the_session_is_for_no_shell_or_interpreter_that_has_moved_on(place: Place) -> None:
    service = FakeConfirmationService(Choice.YES_FOR_SESSION)
    policy = engine("approvals: {ask_for: {patterns: [touch]}, remember: session}")
    (place.workspace / "scratch").mkdir()

    async def both() -> None:
        async with ringfence.Sandbox(place.workspace, policy=policy, confirmation=service) as box:
            for before in ("true", "cd scratch", "touch() { echo other; }; cd .."):
                await box.shell(before, context="a")
                assert (await box.shell("touch x", context="a")).ok
            asked = [question.command for question in service.asked]
            assert asked.count("touch x") == 3
            for before in ("import os", "os.chdir('scratch')"):
                await box.python(before)
                assert (await box.python("!touch x")).ok

    asyncio.run(both())

    asked = [dict(question.details)["in"] for question in service.asked if question.command == "!touch x"]
    assert asked == ["wherever the interpreter is now, with what it keeps"] * 2


def test_what_the_policy_denies_is_hidden_by_the_wall_however_it_is_named(place: Place) -> None:
    (place.workspace / "server.key").write_text("secret")
    reach = (
        "for f in *; do case $f in serv*) base64 < ./$f; esac; done; python3 -c \"print(open('ser'+'ver.key').read())\""
    )

    hidden = ringfence.run(reach, workspace=place.workspace, policy=engine("denied_paths: ['/workspace/**/*.key']"))
    shown = ringfence.run(reach, workspace=place.workspace)

    assert "secret" not in hidden.stdout and "c2VjcmV0" not in hidden.stdout
    assert "secret" in shown.stdout


@pytest.mark.req("C5")
def test_a_switch_hides_every_sensitive_file_of_the_workspace(place: Place) -> None:
    names = [f"{row[3:]}/x" if row.endswith(FOLDERS) else row[3:] for row in SENSITIVE]
    for name in (*names, "plain"):
        (place.workspace / "sub" / name).parent.mkdir(parents=True, exist_ok=True)
        (place.workspace / "sub" / name).write_text(f"content-of-{name}\n")
    (place.workspace / "names").write_text("\n".join((*names, "plain")) + "\n")
    look = "cd sub; while read f; do cat $f; done < ../names"  # no name stands in the command
    hide = engine("validation: {strictness: permissive, sensitive_files: hide}")

    hidden = place.run(look, policy=hide)
    shown = place.run(look, policy=engine("validation: {strictness: permissive, sensitive_files: warn}"))

    assert hidden.stdout == "content-of-plain\n"
    assert "content-of-.npmrc" in shown.stdout and "content-of-.git/config" in shown.stdout
    with place.box_closed(policy=hide) as box:
        for name in names:
            assert box.check_path(f"sub/{name}").verdict is Verdict.DENY, name
            assert box.check_path(f"sub/{name}", write=True).verdict is Verdict.DENY, name
        assert box.check_path("sub/plain").verdict is Verdict.ALLOW


@pytest.mark.req("C5")
def test_the_sensitive_files_are_the_design_documents() -> None:
    assert [row[3:] for row in SENSITIVE] == [
        *(".gitconfig", ".git/config", ".git/hooks", ".bashrc", ".bash_profile", ".bash_history", ".zshrc"),
        *(".zsh_history", ".profile", ".zprofile", ".ssh", ".aws", ".docker", ".kube", ".gnupg", ".npmrc", ".pypirc"),
        *(".netrc", ".cargo/credentials", ".cargo/credentials.toml", ".env", ".env.local", ".env.production"),
        *("secrets.yaml", "secrets.json", ".secrets", ".vscode/settings.json", ".idea"),
    ]


def test_the_policys_limits_hold_and_a_request_can_only_lower_them(place: Place) -> None:
    policy = engine("max_execution_time: 1s, max_memory: 256MB")
    box = ringfence.Sandbox(
        place.workspace, policy=policy, limits=ringfence.Limits(memory_bytes=2**40, wall_seconds=0.5)
    )

    assert box.resource_limits.memory_bytes == 256 * 1024**2
    assert box.resource_limits.wall_seconds == 0.5
    assert isinstance(ringfence.run("sleep 9", workspace=place.workspace, policy=policy).ending, ringfence.TimedOut)


def test_a_request_cannot_have_a_directory_that_the_policy_does_not_grant(place: Place) -> None:
    other = place.home / "other"
    (other / "part").mkdir(parents=True)

    with pytest.raises(PathAccessDenied, match="filesystem_access"):
        ringfence.Sandbox(place.workspace, read=[other], policy=engine("filesystem_access: workspace_only"))
    with pytest.raises(PathAccessDenied, match=r"filesystem\.write"):
        ringfence.Sandbox(place.workspace, write=[other], policy=engine("filesystem: {write: [/srv]}"))
    ringfence.Sandbox(place.workspace, write=[other / "part"], policy=engine(f"filesystem: {{write: [{other}]}}"))


def test_a_directory_that_the_policy_grants_may_be_written_unless_it_is_a_link(place: Place) -> None:
    other = place.home / "other"
    other.mkdir()
    (place.home / "link").symlink_to(other)

    done = ringfence.run(
        f"echo x > {other}/a", workspace=place.workspace, policy=engine(f"filesystem: {{write: [{other}]}}")
    )

    assert done.ok, done.stderr
    with pytest.raises(InvalidConfig, match="through a link"):
        ringfence.Sandbox(place.workspace, policy=engine(f"filesystem: {{write: [{place.home / 'link'}]}}"))


def test_a_policy_file_in_the_workspace_counts_only_if_it_is_named_and_cannot_be_written(place: Place) -> None:
    file = place.workspace / ".ringfence" / "policy.yaml"
    file.parent.mkdir()
    file.write_text("policies: {default: {denied_commands: [id]}}")

    assert ringfence.run("id", workspace=place.workspace).ok
    assert not ringfence.run("id", workspace=place.workspace, policy=file).ok
    written = ringfence.run("echo > .ringfence/policy.yaml", workspace=place.workspace, policy=file)
    assert not written.ok and "denied_commands" in file.read_text()


def test_the_organisations_policy_is_in_force_whatever_is_named(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "organisation.yaml"
    file.write_text("policies: {default: {denied_commands: [id]}}")
    own = engine("allowed_commands: [id]")
    assert ringfence.run("id", workspace=place.workspace, policy=own).ok

    monkeypatch.setenv("RINGFENCE_POLICY", str(file))

    for policy in (None, own):
        done = ringfence.run("id", workspace=place.workspace, policy=policy)
        assert isinstance(done.ending, Refused) and str(file) in done.ending.rule


def test_a_policy_that_is_wrong_or_missing_means_that_nothing_runs(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidConfig, match="cannot be read"):
        ringfence.run("id", workspace=place.workspace, policy=place.home / "none.yaml")
    with pytest.raises(InvalidArgument, match="role"):
        ringfence.run("id", workspace=place.workspace, role="reviewer")
    monkeypatch.setenv("RINGFENCE_POLICY", str(place.home / "none.yaml"))
    with pytest.raises(InvalidConfig, match="cannot be read"):
        ringfence.run("id", workspace=place.workspace)


@pytest.mark.req("C8")
def test_a_built_sandbox_obeys_what_was_built(place: Place) -> None:
    async def use() -> None:
        builder = SandboxBuilder().enabled(True).mode("restricted").working_dir(place.workspace)
        builder.allow_command("echo").allow_command("ls").block_command("ls -R").timeout(30).memory_limit("256MB")
        async with builder.build() as box:
            assert (await box.shell("ls && echo done")).stdout == "done\n"
            for command in ("ls -R", "id"):
                assert isinstance((await box.shell(command)).ending, Refused), command
            assert box.check_command("id").verdict is ringfence.Verdict.DENY
            assert box.resource_limits.memory_bytes == 256 * 1024**2

    asyncio.run(use())


def test_the_fake_is_a_confirmation_service() -> None:
    service: ConfirmationService = FakeConfirmationService()

    assert service


# --- what a command is given ------------------------------------------------------------------------------------------

DENIES = "policies: {default: {denied_commands: [sudo]}}"


@pytest.mark.req("C3")
def test_a_shell_that_is_written_to_later_needs_a_yes_unless_a_person_types(place: Place) -> None:
    rules = PolicyEngine.from_text(DENIES, "p.yaml")

    async def refused(box: Sandbox) -> None:
        for command in (["bash"], "cat | sh", ["python3", "-i"]):
            with pytest.raises(CommandNotAllowed, match="not known before it runs"):
                await box.start(command)
        process = await box.start(["cat"])
        await process.write(b"x")
        process.kill()
        typed = await box.start(["bash"], typed_by_person=True)
        await typed.write(b"exit 3\n")
        done = await typed.wait(20)
        assert done is not None and done.exit_code == 3

    place.in_box(refused, policy=rules)

    async def asked(box: Sandbox) -> None:
        process = await box.start(["bash"])
        await process.write(b"exit 4\n")
        done = await process.wait(20)
        assert done is not None and done.exit_code == 4

    service = FakeConfirmationService()
    place.in_box(asked, policy=rules, confirmation=service)
    assert [question.details[-1] for question in service.asked] == [("input", "a stream, not known beforehand")]


@pytest.mark.req("C3")
def test_a_script_on_standard_input_is_refused_like_one_in_the_arguments(place: Place) -> None:
    rules = PolicyEngine.from_text("policies: {default: {denied_commands: [touch]}}", "p.yaml")

    for parts in ({"stdin": b"touch ran"}, {"env": {"BASH_ENV": "/dev/stdin"}, "stdin": b"touch ran"}):
        done = place.run("bash", policy=rules, **parts)
        assert done.blocked and not (place.workspace / "ran").exists()
    assert not place.run("bash", stdin=b"touch ran").blocked, "without the rule it runs"
    assert (place.workspace / "ran").exists()


async def _pieces() -> AsyncIterator[bytes]:
    yield b"touch "
    yield b"ran"


@pytest.mark.req("C3", "E6")
def test_a_stream_into_a_shell_asks_and_a_no_runs_nothing(place: Place) -> None:
    rules = PolicyEngine.from_text("policies: {default: {max_memory: 1GB}}", "p.yaml")

    async def work(box: Sandbox) -> list[bool]:
        passed = await box.shell("cat", stdin=_pieces())
        assert passed.stdout == "touch ran"
        return [(await box.shell("bash", stdin=_pieces())).blocked]

    for choice in (None, Choice.NO, Choice.YES):
        service = FakeConfirmationService(choice) if choice is not None else None
        assert place.in_box(work, policy=rules, confirmation=service) == [choice is not Choice.YES]
        assert (place.workspace / "ran").exists() is (choice is Choice.YES)
