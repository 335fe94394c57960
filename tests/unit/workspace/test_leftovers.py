"""What is left behind and would be run later is found, and what is only a file is not."""

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringfence.errors import NotADirectory, NotFound
from ringfence.policy.defaults import PROTECTED, UNMADE
from ringfence.values.outcome import FileState, Touched
from ringfence.values.violation import Severity
from ringfence.workspace.leftovers.base import Leftover, LeftoverKind
from ringfence.workspace.leftovers.disarm import disarm
from ringfence.workspace.leftovers.gitconfig import read_strictly, what_runs
from ringfence.workspace.leftovers.gitreader import read_by_git
from ringfence.workspace.leftovers.rows import ROWS
from ringfence.workspace.leftovers.scan import Scan, ScanLimits, Since, find_leftovers, leftovers_among

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


def since(ns: int) -> Since:
    return Since(ns=ns)


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
    "q/latexmkrc": ("q/latexmkrc", "tool-settings"),
    "q/.latexmkrc": ("q/.latexmkrc", "tool-settings"),
    "q/.ocamlinit": ("q/.ocamlinit", "tool-settings"),
    "q/.bundle/config": ("q/.bundle/config", "tool-settings"),
    "q/bunfig.toml": ("q/bunfig.toml", "tool-settings"),
    "q/.pnp.cjs": ("q/.pnp.cjs", "tool-settings"),
    "q/.bazelrc": ("q/.bazelrc", "tool-settings"),
    "q/ansible.cfg": ("q/ansible.cfg", "tool-settings"),
    "q/.sl/config": ("q/.sl/config", "tool-settings"),
    "q/.bzr/branch/branch.conf": ("q/.bzr/branch/branch.conf", "tool-settings"),
    "q/.amp/settings.json": ("q/.amp", "agent-settings"),
    "q/.grok/settings.json": ("q/.grok", "agent-settings"),
    "q/.openhands/setup.sh": ("q/.openhands", "agent-settings"),
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
    assert found(find_leftovers(ws, since(begin))) == {}
    put(ws, "sub/nested/.git/hooks/post-checkout", b"evil")
    scan = find_leftovers(ws, since(begin))

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
UNPLAIN = "what cannot be understood"
RUNS = {
    # text: what is said to be set
    "[core]\n\tfsmonitor = ./evil.sh\n": "core.fsmonitor",
    "[core]\n\tfsmonitor = true ./evil\n": "core.fsmonitor",
    "[core] fsmonitor=./evil.sh\n": "core.fsmonitor",
    "[CORE]\nHooksPath = x\n": "core.hookspath",
    '[filter "lfs"]\n clean = evil\n': "filter.lfs.clean",
    '[filter "lfs"]\n clean = git-lfs clean -- %f | evil\n': "filter.lfs.clean",
    '[filter "a\\"b"]\n process = evil\n': 'filter.a"b.process',
    "[filter.x]\nsmudge = evil\n": "filter.x.smudge",
    "[alias]\n st = !evil\n": "alias.st",
    '[alias]\n st = "!evil"\n': "alias.st",
    "[alias]\n st = -c core.fsmonitor=./evil status\n": "alias.st",
    "[alias]\n st = --exec-path=. status\n": "alias.st",
    "[alias]\n g = grep -Oevil x\n": "alias.g",
    "[alias]\n r = rebase --exec evil\n": "alias.r",
    '[alias "st"]\n command = !evil\n': "alias.st.command",
    '[diff "pdf"]\ntextconv = evil\n': "diff.pdf.textconv",
    "[include]\npath = ../evil\n": "include.path",
    '[includeIf "gitdir:/"]\npath = ../evil\n': "includeif.gitdir:/.path",
    '[remote "o"]\nurl = ext::sh -c evil\n': "remote.o.url",
    '[remote "o"]\nurl = "ex"t::sh -c evil\n': "remote.o.url",
    '[remote "o"]\npushurl = ext::sh -c evil\n': "remote.o.pushurl",
    '[remote "o"]\nurl = fd::17/x\n': "remote.o.url",
    '[remote "o"]\nurl = evil://x\n': "remote.o.url",
    '[remote "o"]\nurl = ssh://-oProxyCommand=evil/x\n': "remote.o.url",
    '[remote "o"]\nvcs = evil\n': "remote.o.vcs",
    '[remote "o"]\nuploadpack = evil\n': "remote.o.uploadpack",
    '[branch "main"]\nremote = ext::sh -c evil\n': "branch.main.remote",
    "[remote]\npushDefault = ext::sh -c evil\n": "remote.pushdefault",
    '[url "ext::sh -c evil "]\ninsteadOf = https://\n': "url.ext::sh -c evil .insteadof",
    '[url "ext::sh -c evil "]\npushInsteadOf = https://\n': "url.ext::sh -c evil .pushinsteadof",
    "[protocol]\nallow = always\n": "protocol.allow",
    '[protocol "ext"]\nallow = always\n': "protocol.ext.allow",
    '[gpg "ssh"]\ndefaultKeyCommand = evil\n': "gpg.ssh.defaultkeycommand",
    "[user]\nsigningKey = evil\n": "user.signingkey",
    "[commit]\ngpgSign = true\n": "commit.gpgsign",
    "[commit]\ngpgSign\n": "commit.gpgsign",
    "[core]\nworktree = /home/somebody\n": "core.worktree",
    "[core]\nattributesFile = evil\n": "core.attributesfile",
    "[credential]\nhelper = evil\n": "credential.helper",
    '[hook "x"]\ncommand = evil\n': "hook.x.command",
    '[submodule "x"]\nupdate = !evil\n': "submodule.x.update",
    "[extensions]\nrefStorage = files:///elsewhere\n": "extensions.refstorage",
    "[help]\nautocorrect = 1\n": "help.autocorrect",
    "\ufeff[core]\nsshCommand = evil\n": "core.sshcommand",
    "[a]\n[core]\n[b][core]pager=evil": "core.pager",
    "[core]\r\nfsmonitor = evil\r\n": "core.fsmonitor",
    # a comment is not continued, so what follows it is a setting
    "[core]\n# \\\nfsmonitor = evil\n": "core.fsmonitor",
    "[core]\n; x \\\n\tfsmonitor = evil\n": "core.fsmonitor",
    "[core]\n bare = false # x \\\n fsmonitor = evil\n": "core.fsmonitor",
    "[core] # \\\n fsmonitor = evil\n": "core.fsmonitor",
    '[core]\n bare = "false" # "\\\n fsmonitor = evil\n': "core.fsmonitor",
    "[core]\n x = a\\\n[core]\n fsmonitor = evil\n": "core.x",
    # none of git's settings
    "[core]\n bare \\\n\n= \\\n true\n[core]\neditor = evil\n": UNPLAIN,
    "[core\n": UNPLAIN,
    "editor = evil\n": "editor",
    "[core]\n bare = false\0\n": UNPLAIN,
    '[core]\n bare = "false\n': UNPLAIN,
}


@pytest.mark.parametrize("text", RUNS)
def test_a_setting_that_is_not_known_to_be_harmless_is_found(ws: Path, text: str) -> None:
    needs_git = read_strictly(text.encode()) is None
    if needs_git and shutil.which("git") is None:
        assert what_runs(text.encode()) == UNPLAIN
    else:
        assert what_runs(text.encode()) == RUNS[text]
    for path in ("n/.git/config", "n/.git/config.worktree", "n/.git/modules/m/config"):
        put(ws, path, text.encode())
    a_git_directory(ws, "bare")
    put(ws, "bare/config", text.encode())
    put(ws, "other/config", text.encode())
    put(ws, "n/.git/refs/heads/config", b"0" * 40)  # a branch of that name
    assert set(both_ways(ws).values()) == {"git-config"}
    assert len(both_ways(ws)) == 4


@pytest.mark.parametrize("text", [text for text in RUNS if RUNS[text] != UNPLAIN])
def test_where_there_is_no_git_in_doubt_it_counts(text: str) -> None:
    assert what_runs(text.encode(), lambda data: None) in (RUNS[text], UNPLAIN)


def test_the_settings_of_a_fresh_repository_are_harmless(ws: Path) -> None:
    assert what_runs(HARMLESS.encode()) is None
    put(ws, "n/.git/config", HARMLESS.encode())
    assert both_ways(ws) == {}


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/x.git",
        "ssh://git@example.org:22/x.git",
        "git@example.org:team/x.git",
        "example.org:x.git",
        "../other",
        "/srv/git/x.git",
        "x.git",
        "file:///srv/x",
    ],
)
def test_an_ordinary_address_is_harmless(url: str) -> None:
    assert what_runs(f'[remote "o"]\n\turl = {url}\n\tpushurl = {url}\n'.encode()) is None


def test_what_git_lfs_writes_is_harmless() -> None:
    text = """[filter "lfs"]
\tclean = git-lfs clean -- %f
\tsmudge = git-lfs smudge -- %f
\tprocess = git-lfs filter-process
\trequired = true
[lfs]
\trepositoryformatversion = 0
"""
    assert what_runs(text.encode()) is None


_PIECES = st.sampled_from(
    [
        "[core]",
        "[core",
        "]",
        '[filter "x"]',
        '"',
        "\\",
        "\n",
        "\r",
        "#",
        ";",
        "=",
        " ",
        "\t",
        "fsmonitor",
        "evil",
        "a.b",
    ]
)


@given(text=st.one_of(st.lists(_PIECES, max_size=14).map("".join), st.text(max_size=60)))
@settings(max_examples=200, deadline=None)
def test_our_strict_reader_says_what_git_says_or_nothing(text: str) -> None:
    git = shutil.which("git")
    data = text.encode("utf-8", "surrogateescape") if text.isascii() else text.encode("utf-8", "replace")
    ours = read_strictly(data)
    if git is None or ours is None:
        return
    assert read_by_git(data) == ours


def test_git_reads_a_hostile_text_without_anything_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git on this machine")
    ran = tmp_path / "ran"
    program = tmp_path / "evil"
    program.write_text(f"#!/bin/sh\necho ran > {ran}\n")
    program.chmod(0o755)
    (tmp_path / "more").write_text("[user]\nname = included\n")
    for name in ("GIT_PAGER", "PAGER", "GIT_EDITOR", "GIT_ASKPASS", "GIT_TRACE2_EVENT", "GIT_CONFIG_PARAMETERS"):
        monkeypatch.setenv(name, str(program))
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    text = f'[core]\npager = "{program}"\nfsmonitor = {program}\n[include]\npath = {tmp_path}/more\n'
    text += f"[alias]\nx = !{program}\n"
    assert read_by_git(text.encode()) == (
        ("core.pager", str(program)),
        ("core.fsmonitor", str(program)),
        ("include.path", f"{tmp_path}/more"),
        ("alias.x", f"!{program}"),
    )
    assert not ran.exists()


def test_settings_that_cannot_be_read_count(ws: Path) -> None:
    put(ws, "n/.git/config", b"#" * 300_000)
    os.mkfifo(ws / "n/.git/config.worktree")
    assert both_ways(ws) == {"n/.git/config": "git-config", "n/.git/config.worktree": "git-config"}


def test_every_redirection_of_a_git_directory_is_found(ws: Path) -> None:
    put(ws, "out/.git", b"gitdir: ../../elsewhere/.git\n")
    put(ws, "in/.git", b"gitdir: ../kit\n")
    (ws / "link").mkdir()
    (ws / "link/.git").symlink_to("../kit")
    put(ws, "n/.git/commondir", b"../../../elsewhere\n")
    put(ws, "n/.git/worktrees/w/commondir", b"../..\n")
    put(ws, "n/.git/worktrees/w/gitdir", b"/elsewhere/.git\n")
    put(ws, "n/.git/objects/info/alternates", b"/elsewhere\n")
    put(ws, "n/.git/remotes/origin", b"URL: ext::sh -c evil\n")
    put(ws, "n/.git/branches/origin", b"ext::sh -c evil\n")
    expected = {str(path.relative_to(ws)) for path in ws.rglob("*") if not path.is_dir() or path.is_symlink()}
    assert both_ways(ws) == dict.fromkeys(expected, "git-redirect")


@pytest.mark.parametrize("text", [b".", b".\n"])
def test_a_commondir_that_leads_to_its_own_directory_leads_nowhere(ws: Path, text: bytes) -> None:
    put(ws, "n/.git/commondir", text)
    put(ws, "m/.git/commondir", text + b"/x")
    assert both_ways(ws) == {"m/.git/commondir": "git-redirect"}


def test_a_directory_that_is_gits_by_its_commondir_alone_is_found(ws: Path) -> None:
    put(ws, "kit/HEAD", b"ref: refs/heads/main\n")
    put(ws, "kit/commondir", b"../c\n")
    put(ws, "c/config", b"[core]\nfsmonitor = evil\n")  # no HEAD beside it: nothing of git's by itself
    assert both_ways(ws) == {"kit/commondir": "git-redirect"}


@pytest.mark.parametrize("where", ["n/.git", "innocent"])
def test_links_in_a_git_directory_are_found(ws: Path, where: str) -> None:
    a_git_directory(ws, where)
    put(ws, "h/post-checkout", b"evil")
    (ws / where / "hooks").symlink_to(ws / "h")
    (ws / where / "config").symlink_to(ws / "c")
    (ws / where / "objects/info").symlink_to(ws / "i")
    (ws / "elsewhere").symlink_to("h")
    assert both_ways(ws) == dict.fromkeys(
        (f"{where}/{name}" for name in ("hooks", "config", "objects/info")), "git-redirect"
    )


def test_a_linked_hook_and_one_of_a_later_git_are_found(ws: Path) -> None:
    a_git_directory(ws, "n/.git")
    (ws / "n/.git/hooks").mkdir()
    (ws / "n/.git/hooks/pre-commit").symlink_to("../../evil")
    put(ws, "n/.git/hooks/post-something", b"evil")
    (ws / "n/.git/hooks/post-something").chmod(0o755)
    put(ws, "n/.git/hooks/notes.txt", b"not to be run")
    assert both_ways(ws) == dict.fromkeys(("n/.git/hooks/pre-commit", "n/.git/hooks/post-something"), "git-hook")


def test_steps_of_a_rebase_that_run_programs_are_found(ws: Path) -> None:
    put(ws, "a/.git/rebase-merge/git-rebase-todo", b"pick 0000 x\nexec evil\n")
    put(ws, "b/.git/rebase-merge/git-rebase-todo", b"pick 0000 x\n  x evil\n")
    put(ws, "c/.git/rebase-merge/git-rebase-todo", b"pick 0000 exec\nfixup 1111 y\n")
    assert both_ways(ws) == {f"{name}/.git/rebase-merge/git-rebase-todo": "git-hook" for name in "ab"}


@pytest.mark.parametrize(
    ("path", "text", "is_found"),
    [
        ("rebase-merge/strategy", b"x/y\n", True),
        ("rebase-merge/strategy", b"ort\nx/y\n", True),
        ("rebase-merge/strategy", b"", True),
        ("rebase-merge/strategy", b"ort\n", False),
        ("rebase-merge/strategy", b"ours", False),
        ("sequencer/opts", b"[options]\n\tstrategy = x/y\n", True),
        ("sequencer/opts", b"[options]\n\tno-commit = true\n\tstrategy = recursive\n", False),
        ("sequencer/opts", b"[include]\n\tpath = elsewhere\n", True),
        ("sequencer/opts", b"nothing that git would take\0", True),
    ],
)
def test_a_merge_strategy_that_is_a_program_is_found(ws: Path, path: str, text: bytes, is_found: bool) -> None:
    """`git rebase --continue` and `git cherry-pick --skip` start `git-merge-STRATEGY`, also by a path."""
    put(ws, f"n/.git/{path}", text)
    assert both_ways(ws) == ({f"n/.git/{path}": "git-hook"} if is_found else {})


def test_git_runs_a_strategy_of_a_rebase_that_somebody_else_has_begun(ws: Path) -> None:
    """The twin: why it is looked for."""
    git = partial(subprocess.run, cwd=ws, check=False, capture_output=True, env={"PATH": os.defpath, "HOME": str(ws)})
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    assert git(["git", "init", "-q"]).returncode == 0
    for name in ("one", "two", "three"):
        put(ws, name)
        git(["git", "add", name])
        git(["git", *who, "commit", "-qm", name])
    base, last = (git(["git", "rev-parse", each]).stdout.decode() for each in ("HEAD~2", "HEAD"))
    git(["git", "reset", "-q", "--hard", "HEAD~2"])
    put(ws, "git-merge-x/y", b"#!/bin/sh\n: > ran\n")
    (ws / "git-merge-x/y").chmod(0o755)
    state = {"head-name": "refs/heads/any", "onto": base, "orig-head": base, "interactive": "", "strategy": "x/y"}
    for name, text in (state | {"git-rebase-todo": f"pick {last.strip()} three\n"}).items():
        put(ws, f".git/rebase-merge/{name}", text.encode())
    git(["git", *who, "rebase", "--continue"], timeout=30)
    assert (ws / "ran").exists()
    assert found(find_leftovers(ws))[".git/rebase-merge/strategy"] == "git-hook"


# --- other tools ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        (b"legacy-peer-deps=true\n# a comment\n\nsave-prefix = ~\n", False),
        (b"script-shell=./evil\n", True),
        (b"legacy-peer-deps=true\nnode-options = --require ./evil.js\n", True),
        (b"# x\rscript-shell=./evil\n", True),
        (b'"script-shell"=./evil\n', True),
        (b"[a]\naudit=false\n", True),
        (b"registry=https://evil.example/\n", True),
        (b"audit=${HOME}\n", True),
    ],
)
def test_settings_of_npm_are_found_unless_they_are_known_to_be_harmless(ws: Path, text: bytes, is_found: bool) -> None:
    put(ws, "sub/.npmrc", text)
    assert both_ways(ws) == ({"sub/.npmrc": "tool-settings"} if is_found else {})


@pytest.mark.parametrize(
    ("name", "text", "is_found"),
    [
        ("rust-toolchain.toml", b'[toolchain]\nchannel = "1.80"\ncomponents = ["clippy"]\n', False),
        ("rust-toolchain.toml", b'[toolchain]\npath = "evil"\n', True),
        ("rust-toolchain.toml", b'[toolchain]\n"\\u0070ath" = "evil"\n', True),
        ("rust-toolchain", b"stable\n", False),
        ("rust-toolchain", b"/w/evil\n", True),
        (".tool-versions", b"nodejs 22.1.0\n", False),
        (".tool-versions", b"nodejs path:./evil\n", True),
        (".tool-versions", b"nodejs {{ exec(command='evil') }}\n", True),
    ],
)
def test_a_choice_of_tools_is_found_if_it_names_a_place(ws: Path, name: str, text: bytes, is_found: bool) -> None:
    put(ws, f"q/{name}", text)
    assert both_ways(ws) == ({f"q/{name}": "tool-settings"} if is_found else {})


def test_a_link_in_the_place_of_a_directory_that_others_obey_is_found(ws: Path) -> None:
    put(ws, "kit/workflows/ci.yml")
    put(ws, "kit/config.toml")
    (ws / ".github").symlink_to("kit")
    (ws / ".cargo").symlink_to("kit")
    (ws / ".hg").symlink_to("kit")
    assert both_ways(ws) == {".github": "ci-workflow", ".cargo": "tool-settings", ".hg": "tool-settings"}


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


def later() -> int:
    time.sleep(0.03)
    return now_ns()


def test_only_what_is_new_is_found(ws: Path) -> None:
    put(ws, "old/.vscode/tasks.json")
    a_git_directory(ws, "old/.git")
    put(ws, "old/.git/hooks/pre-commit")
    begin = later()
    put(ws, "old/.git/index")  # daily work in a repository that was there
    put(ws, "new/.vscode/tasks.json")
    held = frozenset({"old/.git/hooks", "old/.git/config"})
    assert found(find_leftovers(ws, Since(ns=begin, held=held))) == {"new/.vscode": "editor-settings"}


def test_what_the_wall_held_is_nobodys_doing_whatever_its_times_say(ws: Path) -> None:
    a_git_directory(ws, ".git")
    put(ws, ".git/hooks/pre-commit", b"a person's")
    put(ws, ".git/config", b"[core]\nhooksPath = mine\n")
    put(ws, ".vscode/tasks.json")
    begin = later()
    for path in ws.rglob("*"):
        path.touch()
        path.chmod(0o755)
    held = frozenset({".git/hooks", ".git/config", ".vscode"})
    names = [str(path.relative_to(ws)) for path in ws.rglob("*")]

    assert find_leftovers(ws, Since(ns=begin, held=held)).leftovers == ()
    assert leftovers_among(ws, names, Since(ns=begin, held=held)).leftovers == ()
    assert len(find_leftovers(ws, Since(ns=begin)).leftovers) == 3  # the twin: nothing was held


def test_what_may_have_been_there_before_is_reported_and_keeps_its_name(ws: Path) -> None:
    a_git_directory(ws, "mine.git")
    put(ws, "mine.git/hooks/pre-receive", b"a person's")
    begin = later()
    (ws / "mine.git/hooks/pre-receive").chmod(0o755)
    a_git_directory(ws, "new.git")
    put(ws, "new.git/hooks/pre-receive", b"evil")
    scan = find_leftovers(ws, since(begin))

    assert {leftover.path: leftover.is_old for leftover in scan.leftovers} == {
        "mine.git/hooks/pre-receive": True,
        "new.git/hooks/pre-receive": False,
    }
    assert found(disarm(ws, scan.leftovers)) == {"new.git/hooks/pre-receive": "git-hook"}
    assert (ws / "mine.git/hooks/pre-receive").exists() and not (ws / "new.git/hooks/pre-receive").exists()
    assert "was changed, or put where it is" in scan.leftovers[0].violation().what


def test_what_was_moved_into_place_is_found(ws: Path) -> None:
    a_git_directory(ws, "kit")
    put(ws, "kit/sub/x/hooks/pre-commit")
    put(ws, "editor/tasks.json")
    begin = later()
    (ws / "n").mkdir()
    (ws / "kit").rename(ws / "n/.git")
    (ws / "editor").rename(ws / "n/.vscode")
    expected = {"n/.git/sub/x/hooks/pre-commit": "git-hook", "n/.vscode": "editor-settings"}
    assert found(find_leftovers(ws, since(begin))) == expected
    put(ws, "n/.git/x")  # so that it looks like one that was only written to
    put(ws, "n/.vscode/x")
    assert found(find_leftovers(ws, since(begin))) == expected


def test_a_directory_that_has_become_one_of_gits_is_looked_at_as_a_whole(ws: Path) -> None:
    put(ws, "kit/HEAD", b"ref: refs/heads/main\n")
    put(ws, "kit/hooks/pre-commit")
    put(ws, "kit/config", b"[core]\nfsmonitor = evil\n")
    (ws / "kit/objects").mkdir()
    begin = later()
    assert found(find_leftovers(ws, since(begin))) == {}
    (ws / "kit/refs").mkdir()
    expected = {"kit/hooks/pre-commit": "git-hook", "kit/config": "git-config"}
    assert found(find_leftovers(ws, since(begin))) == expected
    assert found(leftovers_among(ws, ["kit/refs"], Since(ns=begin))) == expected


# --- what is known from before ----------------------------------------------------------------------------------------


def state_of(path: Path) -> FileState:
    status = path.lstat()
    return FileState(
        status.st_dev, status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


def touched(states: Mapping[str, FileState | None], *operations: str) -> dict[str, Touched]:
    return {name: Touched(name, state, frozenset(operations)) for name, state in states.items()}


def test_what_was_only_tried_is_no_leftover(ws: Path) -> None:
    """`mkdir .vscode` where there is one, `git init` in a repository, `chmod` that was refused."""
    a_git_directory(ws, "mine.git")
    put(ws, "mine.git/hooks/pre-receive")
    put(ws, "sub/.vscode/tasks.json")
    names = ("mine.git", "mine.git/hooks", "mine.git/hooks/pre-receive", "sub/.vscode", "sub/.vscode/tasks.json")
    before = {name: state_of(ws / name) for name in names}
    begin = later()
    assert leftovers_among(ws, names, Since(ns=begin, touched=touched(before, "write"))).leftovers == ()


def test_a_directory_that_was_written_to_makes_nothing_new_that_was_in_it(ws: Path) -> None:
    a_git_directory(ws, "mine.git")
    put(ws, "mine.git/hooks/pre-receive")
    before = {name: state_of(ws / name) for name in ("mine.git", "mine.git/hooks")}
    begin = later()
    (ws / "mine.git").chmod(0o700)
    put(ws, "mine.git/hooks/README")
    assert leftovers_among(ws, before, Since(ns=begin, touched=touched(before, "write"))).leftovers == ()


def test_what_lies_below_a_name_that_was_given_is_new_at_its_place(ws: Path) -> None:
    a_git_directory(ws, "kit")
    put(ws, "kit/hooks/pre-commit", b"evil, of the project")
    put(ws, "kit2/hook", b"evil, of the project")
    (ws / "n").mkdir()
    a_git_directory(ws, "m/.git")
    begin = later()
    before: dict[str, FileState | None] = {"n/.git": None, "m/.git/hooks": None}
    (ws / "kit").rename(ws / "n/.git")
    (ws / "m/.git/hooks").mkdir()
    (ws / "m/.git/hooks/pre-push").hardlink_to(ws / "kit2/hook")
    before["m/.git/hooks/pre-push"] = None
    scan = leftovers_among(ws, before, Since(ns=begin, touched=touched(before, "rename", "link")))

    assert found(scan) == dict.fromkeys(("n/.git/hooks/pre-commit", "m/.git/hooks/pre-push"), "git-hook")
    assert disarm(ws, scan.leftovers) == scan.leftovers


def test_a_mode_that_was_set_to_what_it_was_is_no_change(ws: Path) -> None:
    put(ws, "sub/.vscode/tasks.json")
    before = {"sub/.vscode/tasks.json": state_of(ws / "sub/.vscode/tasks.json")}
    begin = later()
    (ws / "sub/.vscode/tasks.json").chmod((ws / "sub/.vscode/tasks.json").stat().st_mode)
    for operations, expected in ((("chmod",), {}), (("chmod", "write"), {"sub/.vscode": "editor-settings"})):
        scan = leftovers_among(ws, before, Since(ns=begin, touched=touched(before, *operations)))
        assert found(scan) == expected


def test_one_that_was_written_to_is_found_although_its_times_were_set_back(ws: Path) -> None:
    a_git_directory(ws, "mine.git")
    hook = ws / "mine.git/hooks/pre-receive"
    put(ws, "mine.git/hooks/pre-receive", b"good")
    before = {"mine.git/hooks/pre-receive": state_of(hook)}
    times = (hook.stat().st_atime_ns, hook.stat().st_mtime_ns)
    begin = later()
    hook.write_bytes(b"evil")
    os.utime(hook, ns=times)
    (leftover,) = leftovers_among(ws, before, Since(ns=begin, touched=touched(before, "write"))).leftovers
    assert leftover.is_old and leftover.path == "mine.git/hooks/pre-receive"


def test_the_time_of_a_file_cannot_be_set_back(ws: Path) -> None:
    begin = now_ns()
    put(ws, "n/.vscode/tasks.json")
    os.utime(ws / "n/.vscode/tasks.json", (1, 1))
    os.utime(ws / "n/.vscode", (1, 1))
    assert found(find_leftovers(ws, since(begin))) == {"n/.vscode": "editor-settings"}


# --- hostile trees ----------------------------------------------------------------------------------------------------


def test_links_are_not_followed(ws: Path) -> None:
    put(ws.parent, "outside/.vscode/tasks.json")
    (ws / "link").symlink_to("../outside")
    assert both_ways(ws) == {}
    assert (
        leftovers_among(
            ws, ["link/.vscode/tasks.json", "../outside/.vscode/tasks.json", "/etc/passwd", "a\0b", ""]
        ).leftovers
        == ()
    )


def test_a_scan_says_when_its_budget_is_spent(ws: Path) -> None:
    for number in range(50):
        put(ws, f"d{number}/f")
    by_count = find_leftovers(ws, limits=ScanLimits(entries=20))
    by_time = find_leftovers(ws, limits=ScanLimits(seconds=0))
    by_modes = find_leftovers(ws, limits=ScanLimits(modes=20))

    assert "more than 20 names" in by_count.cut_short and "time was up" in by_time.cut_short
    assert "modes of 80 files" not in by_modes.cut_short and "modes of" in by_modes.cut_short
    (violation,) = by_count.violations()
    assert (violation.rule, violation.severity) == ("leftover scan", Severity.HIGH)
    assert "could not all be looked at" in violation.what and "by hand" in violation.allow_by
    assert find_leftovers(ws).cut_short == "" and find_leftovers(ws).violations() == ()


def test_a_flood_of_files_hides_nothing_that_has_a_name_of_its_own(ws: Path) -> None:
    begin = now_ns()
    for number in range(300):
        put(ws, f"a{number % 7}/flood{number}")
    a_git_directory(ws, "z/.git")
    put(ws, "z/.git/hooks/pre-commit")
    put(ws, "z/deep/er/.vscode/tasks.json")
    scan = find_leftovers(ws, since(begin), ScanLimits(modes=10))
    assert found(scan) == {"z/.git/hooks/pre-commit": "git-hook", "z/deep/er/.vscode": "editor-settings"}
    assert "modes of" in scan.cut_short


def test_what_has_a_name_of_its_own_is_entered_first(ws: Path) -> None:
    a_git_directory(ws, "z/.git")
    put(ws, "z/.git/hooks/pre-commit")
    for number in range(100):
        put(ws, f"z/a/flood{number}")
    scan = find_leftovers(ws, limits=ScanLimits(entries=20))
    assert scan.cut_short and found(scan) == {"z/.git/hooks/pre-commit": "git-hook"}


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
        with pytest.raises((NotFound, NotADirectory)):
            call()


@given(data=st.binary(max_size=200))
def test_any_bytes_can_be_read_as_settings(data: bytes) -> None:
    why = what_runs(data, lambda _: None)
    assert why is None or len(why) > 0


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


def test_a_hook_of_a_persons_is_not_disarmed_by_way_of_a_link(ws: Path) -> None:
    """A name was given in a directory of the run's own, which then became a link to a person's hooks, within the
    workspace. Whether the link is there before the look or comes between the look and the disarming."""
    a_git_directory(ws, ".git")
    put(ws, ".git/hooks/pre-commit", b"a person's")
    begin = later()
    a_git_directory(ws, "n/.git")
    (ws / "n/.git/hooks").symlink_to("../../.git/hooks")
    before: dict[str, FileState | None] = dict.fromkeys(("n/.git/hooks/pre-commit", "n/.git/hooks"))
    seen = Since(ns=begin, held=frozenset({".git/hooks"}), touched=touched(before, "rename", "link"))
    scan = leftovers_among(ws, before, seen)
    raced = Leftover("n/.git/hooks/pre-commit", LeftoverKind.GIT_HOOK, "", "")

    assert found(scan) == {"n/.git/hooks": "git-redirect"}
    assert disarm(ws, [*scan.leftovers, raced]) == ()
    assert os.listdir(ws / ".git/hooks") == ["pre-commit"]

    (ws / "n/.git/hooks").unlink()  # the twin: in a directory of the run's own the same name is found and disarmed
    put(ws, "n/.git/hooks/pre-commit", b"evil")
    scan = leftovers_among(ws, before, seen)
    assert "n/.git/hooks/pre-commit" in found(disarm(ws, scan.leftovers))
