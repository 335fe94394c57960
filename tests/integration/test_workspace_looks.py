"""A workspace looks inside as it does outside: no names that are not there, and what is protected looks like itself.

Each layout is made twice, and one script of everyday programs is run on the one without a wall, on the other in a box.
It says the same.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import Sandbox
from tests.integration.stage import Place

pytestmark = pytest.mark.req("A4", "B6")

GIT = "git -c user.name=A -c user.email=a@b.c -c init.defaultBranch=main"
COMMIT = f"{GIT} init -q . && {GIT} add -A && {GIT} commit -q --allow-empty -m one"

LAYOUTS = {
    "empty": "true",
    "plain files": "echo a > a; mkdir -p b/c; echo d > b/c/d; chmod 600 a; chmod 750 b",
    "python": "mkdir -p src/p tests; touch src/p/__init__.py; echo '[project]' > pyproject.toml;"
    f"echo '*.pyc' > .gitignore; {COMMIT}",
    "node": 'echo \'{"name":"n","version":"1.0.0"}\' > package.json; mkdir -p node_modules/x;'
    "echo 1 > node_modules/x/i.js; echo 'console.log(1)' > index.js; touch .npmignore .editorconfig",
    "rust": f"mkdir src; echo 'fn main() {{}}' > src/main.rs; echo target > .gitignore; touch Cargo.toml; {COMMIT}",
    "repository with changes": f"echo a > a; echo b > b; {COMMIT}; echo c > c; rm b; echo x >> a; {GIT} stash list",
    "nested repository": f"mkdir -p deep/er; echo n > deep/er/n; (cd deep/er; {COMMIT}); echo o > o; {GIT} init -q .",
    "two repositories": f"mkdir one two; (cd one; echo 1 > f; {COMMIT});"
    f"(cd two; echo 2 > f; {COMMIT}; chmod 640 .git/config)",
    "work tree": f"mkdir main; (cd main; echo m > m; {COMMIT}; {GIT} worktree add -q ../tree)",
    "settings": "mkdir -p .vscode .claude/agents; echo '{}' > .vscode/settings.json; echo '{}' > .claude/settings.json;"
    "echo x > .claude/agents/a.md; echo '[]' > .mcp.json; chmod 600 .mcp.json",
    "dotfiles": "echo 'alias x=y' > .bashrc; echo > .profile; mkdir -p .config/app .husky; echo hi > .husky/pre-commit;"
    f"chmod +x .husky/pre-commit; {COMMIT}",
    "links": "mkdir -p real/sub; echo t > real/sub/t; ln -s real link; ln -s missing dangling; ln real/sub/t hard;"
    "mkfifo pipe",
    "half of them": f"mkdir .idea .github; touch .gitmodules .envrc.example; echo on > .github/ci.yml; {COMMIT}",
}

LIST = "find . -mindepth 1 -not -path './.git/index' -printf '%y %m %n %P %l\\n' | LC_ALL=C sort"

SCRIPT = f"""
T=$(mktemp -d)
{LIST}
cp -r . $T/copied && (cd $T/copied && {LIST.replace("%n ", "")})
tar cf $T/all.tar . && tar tf $T/all.tar | LC_ALL=C sort
python3 -c "import shutil as s; s.copytree('.', '$T/tree', symlinks=True, ignore=s.ignore_patterns('pipe'))"
(cd $T/tree && {LIST.replace("%n ", "")})
for name in .claude .vscode .bashrc .git/commondir .git/modules .git/config.worktree; do
    test -e $name && echo "$name is there"
done
if command -v rsync >/dev/null; then rsync -a . $T/synced && (cd $T/synced && {LIST.replace("%n ", "")}); fi
if [ -d .git ]; then
    git status --porcelain
    git clone -q --no-hardlinks . $T/cloned && (cd $T/cloned && find . -path ./.git -prune -o -print | LC_ALL=C sort)
fi
chmod -R u+w . && {LIST}
ls -A | LC_ALL=C sort
rm -rf $T
"""


def build(place: Place, layout: str) -> None:
    done = place.host(LAYOUTS[layout])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_everyday_programs_see_what_they_see_outside(place: Place, layout: str) -> None:
    build(place, layout)
    twin = place.home / "twin"
    place.host(f"cp -a . {twin}")
    outside = place.host(SCRIPT, cwd=twin)

    inside = place.run(SCRIPT)

    assert (inside.stdout, inside.stderr) == (outside.stdout, outside.stderr)
    assert inside.violations == ()
    assert place.host(LIST).stdout == place.host(LIST, cwd=twin).stdout, "nothing has come or gone"


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_npm_packs_what_it_packs_outside(place: Place) -> None:
    build(place, "node")
    line = "npm pack --silent --offline >/dev/null && tar tf n-1.0.0.tgz | sort; rm -f *.tgz"

    inside = place.run(line)

    assert inside.stdout == place.host(line).stdout != ""


def test_what_the_host_makes_while_a_box_runs_is_made_and_stays_as_it_is(place: Place) -> None:
    """A person opens an editor on the directory in which an agent works."""

    async def work(box: Sandbox) -> list[str]:
        await box.shell("true")
        (place.workspace / ".vscode").mkdir()
        (place.workspace / ".vscode/settings.json").write_text("{}\n")
        seen = await box.shell("cat .vscode/settings.json; ls -A")
        tried = await box.shell(
            "echo evil > .vscode/settings.json; echo evil > .vscode/tasks.json; mkdir .vscode/x; mv .vscode v; "
            "mkdir n; mv -T n .vscode/y"
        )
        assert {violation.rule for violation in tried.violations} == {"protected .vscode"}
        return seen.stdout.split()

    assert place.in_box(work) == ["{}", ".vscode"]
    assert place.names() == {".vscode", ".vscode/settings.json", "n"}
    assert (place.workspace / ".vscode/settings.json").read_text() == "{}\n"


REFUSED = {
    "mkdir .claude": "protected .claude",
    "mkdir -p .claude/agents; echo x > .claude/settings.json": "protected .claude",
    "echo x > .vscode/tasks.json": "protected .vscode",
    "echo x > .bashrc": "protected .bashrc",
    "touch .zshenv": "protected .zshenv",
    "echo x > plain; mv plain .profile": "protected .profile",
    "echo x > linked; ln linked .zshrc": "protected .zshrc",
    "ln -s linked .mcp.json": "protected .mcp.json",
    "mkfifo .bash_login": "protected .bash_login",
    "echo x > .git/hooks/pre-commit": "protected .git/hooks",
    "echo .. > .git/commondir": "protected .git/commondir",
    "mkdir -p .git/modules/x": "protected .git/modules",
    "echo x > $PWD/deep/er/.git/config.worktree": "protected deep/er/.git/config.worktree",
    "cd /workspace/deep/er/.git && echo x > commondir": "protected deep/er/.git/commondir",
    "echo x > .envrc": "filesystem.blacklist **/.envrc",
    "mkdir made; cd made; echo x > ../.husky": "protected .husky",
    "ln -s . around; echo x > around/.idea": "protected .idea",
    "python3 -c \"import os; d = os.open('.', os.O_PATH); os.mkdir('.gemini', dir_fd=d)\"": "protected .gemini",
    "python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('.codex')\"": "protected .codex",
    "python3 -c \"import os; os.mkdir('.cursor'.encode() + b'/')\"": "protected .cursor",
    "python3 -c \"import ctypes, os, sys; f = os.open('.', os.O_TMPFILE | os.O_RDWR); "
    "sys.exit(ctypes.CDLL(None).linkat(-100, b'/proc/self/fd/%d' % f, -100, b'.ripgreprc', 0x400))\"": (
        "protected .ripgreprc"
    ),
}


@pytest.mark.parametrize("wall", ["bwrap", "unshare"])
@pytest.mark.req("C7")
def test_a_protected_name_cannot_be_made_and_the_refusal_says_why(
    repository: Place, monkeypatch: pytest.MonkeyPatch, wall: str
) -> None:
    monkeypatch.setenv("RINGFENCE_PROCESS_SANDBOX", wall)
    repository.host(f"mkdir -p deep/er; cd deep/er; {COMMIT}")
    before = repository.names()

    async def work(box: Sandbox) -> dict[str, set[str]]:
        said = {}
        for command in REFUSED:
            done = await box.shell(command)
            assert not done.ok, command
            said[command] = {violation.rule for violation in done.violations}
        return said

    said = repository.in_box(work)

    assert said == {command: {rule} for command, rule in REFUSED.items()}
    assert repository.names() - before == {"plain", "linked", "made", "around"}
    for command in REFUSED:
        repository.host(command)
    assert {".claude", ".bashrc", ".profile", ".zshrc", ".codex", ".husky", ".idea"} <= repository.names()


def test_where_nobody_looks_at_calls_covers_refuse_the_same_names(place: Place) -> None:
    done = place.run("mkdir .claude; echo x > .bashrc; ls -A", trace="off")

    assert {".claude", ".bashrc"} <= set(done.stdout.split()), "placeholders show"
    assert place.names() == set()


def test_a_socket_of_the_workspace_keeps_the_address_that_it_was_given(place: Place) -> None:
    code = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('run.sock'); print(s.getsockname())"
    (place.workspace / "code.py").write_text(code)

    done = place.run("python3 code.py")

    assert done.stdout == "run.sock\n", done.stderr
    assert stat.S_ISSOCK((place.workspace / "run.sock").stat().st_mode)


def test_a_directory_above_the_workspace_cannot_be_moved_to_give_a_name_another_path(place: Place) -> None:
    """In the box, the directories above a workspace are its own: of an empty home."""
    deep = place.home / "way" / "to"
    deep.mkdir(parents=True)

    done = place.run("cd; mv way moved; mkdir moved/to/.claude; echo x > way/to/.bashrc; echo tried", workspace=deep)

    assert done.stdout == "tried\n"
    assert list(Path(deep).iterdir()) == []


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Inside it is 022; what is compared is made with the same outside."""
    before = os.umask(0o022)
    yield
    os.umask(before)
