"""What is left behind and would be run later is found, and what is only a file is not."""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.errors import InvalidConfig
from ringfence.policy.defaults import PROTECTED, UNMADE
from ringfence.values.violation import Severity
from ringfence.workspace.leftovers.base import Leftover, LeftoverKind
from ringfence.workspace.leftovers.disarm import disarm
from ringfence.workspace.leftovers.gitfiles import setting_that_runs
from ringfence.workspace.leftovers.rows import ROWS
from ringfence.workspace.leftovers.scan import Scan, find_leftovers, leftovers_among

pytestmark = pytest.mark.req("A3", "C7")


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    (tmp_path / "ws").mkdir()
    return tmp_path / "ws"


def put(ws: Path, path: str, content: bytes = b"x") -> None:
    (ws / path).parent.mkdir(parents=True, exist_ok=True)
    (ws / path).write_bytes(content)


def a_git_directory(ws: Path, path: str) -> None:
    """What git takes for a repository, whatever it is called."""
    put(ws, f"{path}/HEAD", b"ref: refs/heads/main\n")
    for name in ("objects", "refs"):
        (ws / path / name).mkdir(parents=True)


def now_ns() -> int:
    return time.clock_gettime_ns(5)  # CLOCK_REALTIME_COARSE, which file times are taken from


def found(scan: Scan | tuple[Leftover, ...]) -> dict[str, str]:
    leftovers = scan.leftovers if isinstance(scan, Scan) else scan
    return {leftover.path: str(leftover.kind) for leftover in leftovers}


def both_ways(ws: Path) -> dict[str, str]:
    """By a scan of all, and among the paths of all: they have to agree."""
    paths = [str(file.relative_to(ws)) for file in sorted(ws.rglob("*"))]
    by_scan = found(find_leftovers(ws))
    assert found(leftovers_among(ws, paths)) == by_scan
    return by_scan


# --- names ------------------------------------------------------------------------------------------------------------

NAMED = {
    "sub/.vscode/tasks.json": ("sub/.vscode", "editor-settings"),
    "a/b/.idea/workspace.xml": ("a/b/.idea", "editor-settings"),
    "x/.CURSOR/mcp.json": ("x/.CURSOR", "agent-settings"),
    "pkg/.claude/settings.json": ("pkg/.claude", "agent-settings"),
    "pkg/.mcp.json": ("pkg/.mcp.json", "agent-settings"),
    "deep/er/.envrc": ("deep/er/.envrc", "directory-environment"),
    ".github/workflows/ci.yml": (".github/workflows", "ci-workflow"),
    "sub/.gitlab-ci.yml": ("sub/.gitlab-ci.yml", "ci-workflow"),
    "Jenkinsfile": ("Jenkinsfile", "ci-workflow"),
    "my.code-workspace": ("my.code-workspace", "editor-settings"),
    ".bashrc": (".bashrc", "shell-startup"),
    "sub/.husky/pre-commit": ("sub/.husky", "git-hook"),
    "sub/.gitmodules": ("sub/.gitmodules", "git-redirect"),
}


@pytest.mark.parametrize("path", NAMED)
def test_a_name_that_others_obey_is_found_at_any_depth(ws: Path, path: str) -> None:
    put(ws, path)
    assert both_ways(ws) == dict([NAMED[path]])


@pytest.mark.parametrize(
    "path",
    [
        "Makefile",
        "package.json",
        "AGENTS.md",
        ".gitignore",
        "hooks/pre-commit",
        "sub/config",
        "vscode/tasks.json",
        ".github/CODEOWNERS",
        "docker/.bashrc",
        "workflows/ci.yml",
        ".git/hooks/pre-commit.sample",
        ".git/HEAD",
        "src/update",
        ".envrc.md",
    ],
)
def test_daily_work_is_no_leftover(ws: Path, path: str) -> None:
    put(ws, path)
    assert both_ways(ws) == {}


def test_every_protected_name_is_looked_for() -> None:
    known = {"/".join(row.names) for row in ROWS}
    by_content = {row for row in PROTECTED if row.startswith(".git/")}
    assert {*PROTECTED, *UNMADE} - by_content <= known
    assert by_content == {
        ".git/hooks", ".git/config", ".git/config.worktree", ".git/commondir", ".git/modules",
    }  # fmt: skip


# --- git --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("directory", ["sub/nested/.git", "sub/bare.git", "innocent", ".git/modules/x", "."])
def test_a_hook_of_any_git_directory_is_found(ws: Path, directory: str) -> None:
    a_git_directory(ws, directory)
    put(ws, f"{directory}/hooks/post-checkout", b"#!/bin/sh\nevil\n")
    put(ws, f"{directory}/hooks/post-checkout.sample", b"#!/bin/sh\n")
    put(ws, f"{directory}/hooks/README", b"")
    path = os.path.normpath(f"{directory}/hooks/post-checkout")
    assert both_ways(ws) == {path: "git-hook"}


def test_the_hook_of_a_real_nested_repository_is_found(ws: Path) -> None:
    """The attack PRT-07."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git on this machine")
    begin = now_ns()
    subprocess.run([git, "init", "-q", ws / "sub/nested"], check=True, env={"PATH": os.defpath, "HOME": str(ws.parent)})
    assert found(find_leftovers(ws, since_ns=begin)) == {}
    put(ws, "sub/nested/.git/hooks/post-checkout", b"evil")
    scan = find_leftovers(ws, since_ns=begin)

    assert found(scan) == {"sub/nested/.git/hooks/post-checkout": "git-hook"}
    (violation,) = scan.violations(at=7.0)
    assert (violation.rule, violation.severity, violation.at) == ("leftover git-hook", Severity.HIGH, 7.0)
    assert "post-checkout" in violation.what and violation.target == "sub/nested/.git/hooks/post-checkout"


HARMLESS = """[core]
\trepositoryformatversion = 0
\tfilemode = true
\tbare = false
\tfsmonitor = true
[remote "origin"]
\turl = https://example.org/x.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
[alias]
\tst = status
[user]
\tname = A ; comment
"""
RUNS = {
    "[core]\n\tfsmonitor = ./evil.sh\n": "core.fsmonitor",
    "[core] fsmonitor=./evil.sh\n": "core.fsmonitor",
    "[CORE]\nHooksPath = x\n": "core.hookspath",
    '[filter "lfs"]\n clean = evil\n': "filter.lfs.clean",
    '[filter "a\\"b"]\n process = evil\n': 'filter.a\\"b.process',
    "[filter.x]\nsmudge = evil\n": "filter.x.smudge",
    "[alias]\n st = !evil\n": "alias.st",
    '[alias]\n st = "!evil"\n': "alias.st",
    '[diff "pdf"]\ntextconv = evil\n': "diff.pdf.textconv",
    "[include]\npath = ../evil\n": "include.path",
    '[includeIf "gitdir:/"]\npath = ../evil\n': "includeif.gitdir:/.path",
    '[remote "o"]\nurl = ext::sh -c evil\n': "remote.o.url",
    "\ufeff[core]\nsshCommand = evil\n": "core.sshcommand",
    "[a]\n[core]\n[b][core]pager=evil": "core.pager",
    "[core]\n bare \\\n\n= \\\n true\n[core]\neditor = evil\n": "a line that cannot be understood",
    "[core\n": "a line that cannot be understood",
    "editor = evil\n": "a line that cannot be understood",
    "[core]\n x = a\\\n[core]\n fsmonitor = evil\n": "core.fsmonitor",
}


@pytest.mark.parametrize("text", RUNS)
def test_a_setting_that_makes_git_run_something_is_found(ws: Path, text: str) -> None:
    setting = setting_that_runs(text)
    assert setting is not None and setting.startswith(RUNS[text])
    for path in ("n/.git/config", "n/.git/config.worktree", "n/.git/modules/m/config"):
        put(ws, path, text.encode())
    a_git_directory(ws, "bare")
    put(ws, "bare/config", text.encode())
    put(ws, "other/config", text.encode())
    assert set(both_ways(ws).values()) == {"git-config"}
    assert len(both_ways(ws)) == 4


def test_the_settings_of_a_fresh_repository_are_harmless(ws: Path) -> None:
    assert setting_that_runs(HARMLESS) is None
    put(ws, "n/.git/config", HARMLESS.encode())
    assert both_ways(ws) == {}


def test_git_itself_agrees_about_what_is_set(tmp_path: Path) -> None:
    """The samples are no inventions: git reads the same settings from them."""
    git = shutil.which("git")
    if git is None:
        pytest.skip("there is no git on this machine")
    for text, expected in RUNS.items():
        if expected.startswith("a line"):
            continue
        (tmp_path / "config").write_text(text)
        done = subprocess.run(
            [git, "config", "-f", tmp_path / "config", "--name-only", "--list"], capture_output=True, text=True
        )
        assert done.returncode == 0 and expected.replace('\\"', '"') in done.stdout.split("\n"), (text, done)


def test_settings_that_cannot_be_read_count(ws: Path) -> None:
    put(ws, "n/.git/config", b"#" * 300_000)
    os.mkfifo(ws / "n/.git/config.worktree")
    assert both_ways(ws) == {"n/.git/config": "git-config", "n/.git/config.worktree": "git-config"}


def test_a_pointer_that_leads_out_is_found_and_one_inside_is_not(ws: Path) -> None:
    put(ws, "out/.git", b"gitdir: ../../elsewhere/.git\n")
    put(ws, "abs/.git", b"gitdir: /tmp/elsewhere\n")
    put(ws, "in/.git", b"gitdir: ../kit\n")
    (ws / "link").mkdir()
    (ws / "link/.git").symlink_to("../../elsewhere")
    put(ws, "n/.git/commondir", b"../../../elsewhere\n")
    put(ws, "n/.git/worktrees/w/commondir", b"../..\n")
    kinds = both_ways(ws)
    assert kinds == {path: "git-redirect" for path in ("out/.git", "abs/.git", "link/.git", "n/.git/commondir")}


# --- rights -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o4644])
def test_set_uid_files_are_found(ws: Path, mode: int) -> None:
    put(ws, "bin/tool")
    (ws / "bin/tool").chmod(mode)
    (ws / "shared").mkdir()
    (ws / "shared").chmod(0o2775)
    assert both_ways(ws) == {"bin/tool": "set-uid"}


@pytest.mark.root
def test_file_capabilities_are_found(ws: Path) -> None:
    put(ws, "tool")
    (ws / "tool").chmod(0o755)
    effective_net_raw = bytes.fromhex("0100000200200000000000000000000000000000")
    os.setxattr(ws / "tool", "security.capability", effective_net_raw)
    assert both_ways(ws) == {"tool": "file-capability"}
    (leftover,) = find_leftovers(ws).leftovers
    assert disarm(ws, [leftover]) == (leftover,)
    assert both_ways(ws) == {}


# --- what is new ------------------------------------------------------------------------------------------------------


def test_only_what_is_new_is_found(ws: Path) -> None:
    put(ws, "old/.vscode/tasks.json")
    a_git_directory(ws, "old/.git")
    put(ws, "old/.git/hooks/pre-commit")
    before = find_leftovers(ws)
    time.sleep(0.02)
    begin = now_ns()
    put(ws, "old/.git/index")  # daily work in a repository that was there
    put(ws, "new/.vscode/tasks.json")
    for scan in (find_leftovers(ws, since_ns=begin), find_leftovers(ws, before=before)):
        assert found(scan) == {"new/.vscode": "editor-settings"}
    (ws / "old/.git/hooks/pre-commit").write_bytes(b"changed")
    for scan in (find_leftovers(ws, since_ns=begin), find_leftovers(ws, before=before)):
        assert found(scan) == {"new/.vscode": "editor-settings", "old/.git/hooks/pre-commit": "git-hook"}


def test_what_was_moved_into_place_is_new(ws: Path) -> None:
    a_git_directory(ws, "kit")
    put(ws, "kit/sub/x/hooks/pre-commit")
    put(ws, "editor/tasks.json")
    before = find_leftovers(ws)
    time.sleep(0.02)
    begin = now_ns()
    (ws / "n").mkdir()
    (ws / "kit").rename(ws / "n/.git")
    (ws / "editor").rename(ws / "n/.vscode")
    for scan in (find_leftovers(ws, since_ns=begin), find_leftovers(ws, before=before)):
        assert found(scan) == {"n/.git/sub/x/hooks/pre-commit": "git-hook", "n/.vscode": "editor-settings"}


def test_the_time_of_a_file_cannot_be_set_back(ws: Path) -> None:
    begin = now_ns()
    put(ws, "n/.vscode/tasks.json")
    os.utime(ws / "n/.vscode/tasks.json", (1, 1))
    os.utime(ws / "n/.vscode", (1, 1))
    assert found(find_leftovers(ws, since_ns=begin)) == {"n/.vscode": "editor-settings"}


# --- hostile trees ----------------------------------------------------------------------------------------------------


def test_links_are_not_followed(ws: Path) -> None:
    put(ws.parent, "outside/.vscode/tasks.json")
    (ws / "link").symlink_to("../outside")
    assert both_ways(ws) == {}
    assert (
        leftovers_among(ws, ["link/.vscode/tasks.json", "../outside/.vscode/tasks.json", "/etc/passwd", "a\0b", ""])
        == ()
    )


def test_a_scan_says_when_its_budget_is_spent(ws: Path) -> None:
    for number in range(50):
        put(ws, f"d{number}/f")
    by_count = find_leftovers(ws, limit_entries=20)
    by_time = find_leftovers(ws, limit_seconds=0)

    assert "only 20 entries" in by_count.cut_short and "time was up" in by_time.cut_short
    assert [(v.rule, v.severity) for v in by_count.violations()] == [("leftover scan", Severity.MEDIUM)]
    assert find_leftovers(ws).cut_short == "" and find_leftovers(ws).violations() == ()


def test_a_directory_that_cannot_be_read_is_said(ws: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root reads everything")
    put(ws, "closed/.vscode/tasks.json")
    (ws / "closed").chmod(0)
    try:
        assert "'closed'" in find_leftovers(ws).cut_short
    finally:
        (ws / "closed").chmod(0o755)


def test_names_with_control_characters_are_shown_escaped(ws: Path) -> None:
    put(ws, "a\n\x1b[2J/.envrc")
    (violation,) = find_leftovers(ws).violations()
    assert not {"\n", "\x1b"} & set(violation.what)


def test_a_root_that_is_no_directory_is_a_mistake(ws: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: find_leftovers(ws / "no"),
        lambda: leftovers_among(ws / "no", []),
        lambda: disarm(ws / "no", []),
    ]
    for call in calls:
        with pytest.raises(InvalidConfig):
            call()


@given(text=st.text(max_size=200))
def test_any_text_can_be_read_as_settings(text: str) -> None:
    assert setting_that_runs(text) is None or len(setting_that_runs(text) or "") > 0


# --- disarming --------------------------------------------------------------------------------------------------------


def test_hooks_and_rights_are_disarmed_and_settings_are_left_to_people(ws: Path) -> None:
    a_git_directory(ws, "n/.git")
    put(ws, "n/.git/hooks/post-checkout", b"evil")
    put(ws, "n/.git/hooks/post-checkout.disarmed", b"an earlier one")
    put(ws, "n/.git/config", b"[core]\nfsmonitor = evil\n")
    put(ws, "tool")
    (ws / "tool").chmod(0o6755)
    done = disarm(ws, find_leftovers(ws).leftovers)

    assert found(done) == {"n/.git/hooks/post-checkout": "git-hook", "tool": "set-uid"}
    assert both_ways(ws) == {"n/.git/config": "git-config"}
    assert len(os.listdir(ws / "n/.git/hooks")) == 2 and not (ws / "n/.git/hooks/post-checkout").exists()
    assert stat.S_IMODE((ws / "tool").stat().st_mode) == 0o755


def test_disarming_follows_no_link(ws: Path) -> None:
    put(ws.parent, "outside/hooks/pre-commit", b"a person's")
    (ws.parent / "outside/tool").write_bytes(b"")
    (ws.parent / "outside/tool").chmod(0o4755)
    (ws / ".git").symlink_to("../outside")
    (ws / "tool").symlink_to("../outside/tool")
    hook = Leftover(".git/hooks/pre-commit", LeftoverKind.GIT_HOOK, "", "")
    tool = Leftover("tool", LeftoverKind.SET_UID, "", "")

    assert disarm(ws, [hook, tool]) == ()
    assert (ws.parent / "outside/hooks/pre-commit").exists()
    assert stat.S_IMODE((ws.parent / "outside/tool").stat().st_mode) == 0o4755
