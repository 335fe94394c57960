"""What the checks do by strictness, and when one of them fails."""

from collections.abc import Iterator

import pytest

from ringfence.shell import CheckContext, analyse, answer, checks, validate
from ringfence.shell.checks.removal import CRITICAL
from ringfence.values.facts import CheckAnswer, Facts, Finding, Strictness

STRICT = CheckContext(strictness=Strictness.STRICT)
PERMISSIVE = CheckContext(strictness=Strictness.PERMISSIVE)


def given(text: str, context: CheckContext | None = None) -> CheckAnswer:
    return answer(validate(analyse(text), context or CheckContext()))


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/sbin",
        "/sys",
        "/tmp",
        "/usr",
        "/var",
        "~",
        "$HOME",
    ],
)
def test_removing_a_critical_path_is_blocked(path: str) -> None:
    assert given(f"rm -rf {path}") is CheckAnswer.BLOCK
    assert given(f"ls {path}") is not CheckAnswer.BLOCK


@pytest.mark.req("C4")
def test_the_table_has_every_critical_path_of_the_requirement() -> None:
    assert {
        "/",
        "/bin",
        "/boot",
        "/dev",
        "/etc",
        "/home",
        "/lib",
        "/lib64",
        "/opt",
        "/proc",
        "/root",
        "/sbin",
        "/sys",
        "/tmp",
        "/usr",
        "/var",
    } <= set(CRITICAL)


@pytest.mark.req("C5")
@pytest.mark.parametrize(
    "name",
    [
        ".gitconfig",
        ".git/config",
        ".git/hooks/x",
        ".bashrc",
        ".bash_profile",
        ".bash_history",
        ".zshrc",
        ".zsh_history",
        ".profile",
        ".zprofile",
        ".ssh/x",
        ".aws/x",
        ".docker/x",
        ".kube/x",
        ".gnupg/x",
        ".npmrc",
        ".pypirc",
        ".netrc",
        ".cargo/credentials",
        ".cargo/credentials.toml",
        ".env",
        ".env.local",
        ".env.production",
        "secrets.yaml",
        "secrets.json",
        ".secrets",
        ".vscode/settings.json",
        ".idea/x",
    ],
)
def test_writing_a_sensitive_file_is_not_passed(name: str) -> None:
    assert given(f"echo x > ~/{name}") >= CheckAnswer.WARN
    assert given(f"echo x > ./{name}") >= CheckAnswer.WARN


@pytest.mark.req("C5")
def test_the_switch_turns_blocks_of_sensitive_files_into_warnings() -> None:
    assert given("cat ~/.ssh/id_rsa") is CheckAnswer.BLOCK
    assert given("cat ~/.ssh/id_rsa", CheckContext(sensitive=False)) is CheckAnswer.WARN


@pytest.mark.req("C6")
def test_strict_writes_below_tmp_only_below_our_own_prefix() -> None:
    assert given("touch /tmp/x") is CheckAnswer.PASS
    assert given("touch /tmp/x", STRICT) is CheckAnswer.BLOCK
    assert given("touch /tmp/x", CheckContext(own_tmp_only=True)) is CheckAnswer.BLOCK
    assert given("touch /tmp/ringfence/x", STRICT) is CheckAnswer.PASS
    assert given("touch /tmp/ringfence/../x", STRICT) is CheckAnswer.BLOCK
    assert given("touch /tmp/ringfence-other", STRICT) is CheckAnswer.BLOCK
    for prefix in ("/tmp/ringfence-agent", "/private/tmp/ringfence", "/private/tmp/ringfence-agent"):
        assert given(f"touch {prefix}/x", STRICT) is CheckAnswer.PASS, "as the policy's key says"
        assert given(f"touch {prefix}", STRICT) is CheckAnswer.BLOCK


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "text", ["a; b", "a && b", "a || b", "a | b", "a `b`", "a $(b)", "a ${b}", "a <(b)", "a >(b)", "a & b"]
)
def test_operators_are_blocked_when_strict_and_only_then(text: str) -> None:
    assert given(text, STRICT) is CheckAnswer.BLOCK
    assert given(text) is CheckAnswer.PASS


@pytest.mark.parametrize("text", ["echo 'a; b'", 'echo "a && b"', "echo a\\;b", "ls # a | b"])
def test_quoted_operators_pass_even_when_strict(text: str) -> None:
    assert given(text, STRICT) is CheckAnswer.PASS


def test_strict_blocks_what_is_warned_of_and_permissive_passes_it() -> None:
    assert [given("git reset --hard", context) for context in (PERMISSIVE, CheckContext(), STRICT)] == [
        CheckAnswer.PASS,
        CheckAnswer.WARN,
        CheckAnswer.BLOCK,
    ]


@pytest.mark.parametrize("text", ["$x a", "eval $x", "rm -rf $x", "cat f | sh"])
def test_opaque_is_never_passed_not_even_when_permissive(text: str) -> None:
    assert given(text, PERMISSIVE) >= CheckAnswer.WARN


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("denied", "text", "expected"),
    [
        ("make", "sudo_x=1 make all", CheckAnswer.BLOCK),
        ("make", "echo make", CheckAnswer.PASS),
        ("git push", "git push origin", CheckAnswer.BLOCK),
        ("git push", "git pull", CheckAnswer.PASS),
        ("rm -rf", "rm -r -f build", CheckAnswer.BLOCK),
        ("rm -rf", "rm build", CheckAnswer.PASS),
        ("py*", "python3 x.py", CheckAnswer.BLOCK),
        ("make", "sh -c 'nice make'", CheckAnswer.BLOCK),
    ],
)
def test_listed_commands_are_denied_by_meaning(denied: str, text: str, expected: CheckAnswer) -> None:
    assert given(text, CheckContext(denied_commands=(denied,))) is expected


@pytest.mark.req("C11")
def test_every_module_of_the_package_is_a_check() -> None:
    assert set(checks.CHECKS) == {
        "denied_command",
        "here_document",
        "metacharacter",
        "pattern",
        "removal",
        "sensitive_path",
        "variable",
    }


@pytest.mark.req("C12")
def test_a_check_that_fails_is_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(facts: Facts, context: CheckContext) -> Iterator[Finding]:
        raise ValueError("no")

    assert given("ls") is CheckAnswer.PASS
    monkeypatch.setitem(checks.CHECKS, "broken", broken)
    assert given("ls") is CheckAnswer.BLOCK
    assert [finding.rule for finding in validate(analyse("ls"), CheckContext())] == ["fault"]


def test_here_document_with_an_expanding_delimiter_is_blocked() -> None:
    assert given("cat <<$X\na\n$X") is CheckAnswer.BLOCK
    assert given("cat <<X\na\nX") is CheckAnswer.PASS


@pytest.mark.parametrize(
    "path",
    ["/workspace", "/home/eve/p", "/tmp/p", "/root/p", "/var/lib/jobs/7", "/home/eve/.ringfence/workspaces/7"],
)
def test_work_inside_the_workspace_passes_wherever_it_lies(path: str) -> None:
    context = CheckContext(workspace=path, home="/home/eve")

    assert given("rm -rf build; mkdir a; echo x > a/b; touch $PWD/c", context) is CheckAnswer.PASS
    assert given(f"rm -rf {path}/build && cp a {path}/b", context) is CheckAnswer.PASS


def test_the_names_above_a_workspace_were_chosen_and_those_below_count() -> None:
    context = CheckContext(workspace="/home/eve/.config", home="/home/eve")

    assert given("echo x > notes", context) is CheckAnswer.PASS
    assert given("cat gh/hosts.yml", context) is CheckAnswer.BLOCK
    assert given("echo x > .ringfence/policy.yaml", context) is CheckAnswer.BLOCK
