"""What the checks do by strictness, and when one of them fails."""

from collections.abc import Iterator

import pytest

from ringfence.shell import Context, analyse, answer, checks, validate
from ringfence.shell.checks.removal import CRITICAL
from ringfence.values.facts import Answer, Facts, Finding, Strictness

STRICT = Context(strictness=Strictness.STRICT)
PERMISSIVE = Context(strictness=Strictness.PERMISSIVE)


def given(text: str, context: Context | None = None) -> Answer:
    return answer(validate(analyse(text), context or Context()))


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
    assert given(f"rm -rf {path}") is Answer.BLOCK
    assert given(f"ls {path}") is not Answer.BLOCK


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
    assert given(f"echo x > ~/{name}") >= Answer.WARN
    assert given(f"echo x > ./{name}") >= Answer.WARN


@pytest.mark.req("C5")
def test_the_switch_turns_blocks_of_sensitive_files_into_warnings() -> None:
    assert given("cat ~/.ssh/id_rsa") is Answer.BLOCK
    assert given("cat ~/.ssh/id_rsa", Context(sensitive=False)) is Answer.WARN


@pytest.mark.req("C6")
def test_strict_writes_below_tmp_only_below_our_own_prefix() -> None:
    assert given("touch /tmp/x") is Answer.PASS
    assert given("touch /tmp/x", STRICT) is Answer.BLOCK
    assert given("touch /tmp/x", Context(own_tmp_only=True)) is Answer.BLOCK
    assert given("touch /tmp/ringfence/x", STRICT) is Answer.PASS
    assert given("touch /tmp/ringfence/../x", STRICT) is Answer.BLOCK
    assert given("touch /tmp/ringfence-other", STRICT) is Answer.BLOCK


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    "text", ["a; b", "a && b", "a || b", "a | b", "a `b`", "a $(b)", "a ${b}", "a <(b)", "a >(b)", "a & b"]
)
def test_operators_are_blocked_when_strict_and_only_then(text: str) -> None:
    assert given(text, STRICT) is Answer.BLOCK
    assert given(text) is Answer.PASS


@pytest.mark.parametrize("text", ["echo 'a; b'", 'echo "a && b"', "echo a\\;b", "ls # a | b"])
def test_quoted_operators_pass_even_when_strict(text: str) -> None:
    assert given(text, STRICT) is Answer.PASS


def test_strict_blocks_what_is_warned_of_and_permissive_passes_it() -> None:
    assert [given("git reset --hard", context) for context in (PERMISSIVE, Context(), STRICT)] == [
        Answer.PASS,
        Answer.WARN,
        Answer.BLOCK,
    ]


@pytest.mark.parametrize("text", ["$x a", "eval $x", "rm -rf $x", "cat f | sh"])
def test_opaque_is_never_passed_not_even_when_permissive(text: str) -> None:
    assert given(text, PERMISSIVE) >= Answer.WARN


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("denied", "text", "expected"),
    [
        ("make", "sudo_x=1 make all", Answer.BLOCK),
        ("make", "echo make", Answer.PASS),
        ("git push", "git push origin", Answer.BLOCK),
        ("git push", "git pull", Answer.PASS),
        ("rm -rf", "rm -r -f build", Answer.BLOCK),
        ("rm -rf", "rm build", Answer.PASS),
        ("py*", "python3 x.py", Answer.BLOCK),
        ("make", "sh -c 'nice make'", Answer.BLOCK),
    ],
)
def test_listed_commands_are_denied_by_meaning(denied: str, text: str, expected: Answer) -> None:
    assert given(text, Context(denied_commands=(denied,))) is expected


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
    def broken(facts: Facts, context: Context) -> Iterator[Finding]:
        raise ValueError("no")

    assert given("ls") is Answer.PASS
    monkeypatch.setitem(checks.CHECKS, "broken", broken)
    assert given("ls") is Answer.BLOCK
    assert [finding.rule for finding in validate(analyse("ls"), Context())] == ["fault"]


def test_here_document_with_an_expanding_delimiter_is_blocked() -> None:
    assert given("cat <<$X\na\n$X") is Answer.BLOCK
    assert given("cat <<X\na\nX") is Answer.PASS


@pytest.mark.parametrize("path", ["/workspace", "/home/eve/p", "/tmp/p", "/root/p", "/var/lib/jobs/7"])
def test_work_inside_the_workspace_passes_wherever_it_lies(path: str) -> None:
    context = Context(workspace=path, home="/home/eve")

    assert given("rm -rf build; mkdir a; echo x > a/b; touch $PWD/c", context) is Answer.PASS
    assert given(f"rm -rf {path}/build && cp a {path}/b", context) is Answer.PASS
