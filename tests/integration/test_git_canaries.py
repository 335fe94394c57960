"""Repositories as an agent would leave them: the host's git really runs the program in them, and the search finds them.

Each case is planted bare, in a directory of its own, and then an everyday command of git is given there by "the
person", without a wall: a program that only leaves a mark must have run. That is the twin which shows that the attempt
works. Then the same is planted anew, and the search must name it. HOME and the machine's settings are shut out.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from ringfence.workspace.leftovers.disarm import disarm
from ringfence.workspace.leftovers.scan import Since, find_leftovers, leftovers_among
from tests.integration.stage import Place

pytestmark = [
    pytest.mark.req("A3", "C7"),
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine"),
]

_SECONDS = 20
_REPOSITORY = "git init -q -b main {0}; git -C {0} commit -q --allow-empty -m one; "


@dataclass(frozen=True)
class Canary:
    plant: str
    """What the agent does; `$EVIL` is a program below the workspace."""
    use: str
    """What the person does."""
    rule: str
    target: str


R = _REPOSITORY.format("r")
CANARIES = {
    "fsmonitor": Canary(R + 'git -C r config core.fsmonitor "$EVIL"', "git -C r status", "git-config", "r/.git/config"),
    "a comment that git does not continue": Canary(
        R + 'printf "[core]\\n# \\\\\\\\\\nfsmonitor = $EVIL\\n" >> r/.git/config',
        "git -C r status",
        "git-config",
        "r/.git/config",
    ),
    "quotes within a value": Canary(
        R + 'printf "[protocol]\\nallow=always\\n[remote \\"o\\"]\\nurl = \\"ex\\"t::$EVIL\\n" >> r/.git/config',
        "git -C r fetch o",
        "git-config",
        "r/.git/config",
    ),
    "an address to push to": Canary(
        R + "git -C r config protocol.ext.allow always; git -C r config remote.o.url x; "
        'git -C r config remote.o.pushurl "ext::$EVIL"',
        "git -C r push o main",
        "git-config",
        "r/.git/config",
    ),
    "an address that is replaced": Canary(
        R + 'git -C r config protocol.ext.allow always; git -C r config url."ext::$EVIL ".insteadOf https://; '
        "git -C r config remote.o.url https://example.org/",
        "git -C r fetch o",
        "git-config",
        "r/.git/config",
    ),
    "a branch's remote": Canary(
        R + 'git -C r config protocol.ext.allow always; git -C r config branch.main.remote "ext::$EVIL"; '
        "git -C r config branch.main.merge refs/heads/main",
        "git -C r fetch",
        "git-config",
        "r/.git/config",
    ),
    "an alias with an option": Canary(
        R + 'git -C r config alias.st "-c core.fsmonitor=$EVIL status"', "git -C r st", "git-config", "r/.git/config"
    ),
    "a key from a command": Canary(
        R + 'git -C r config gpg.format ssh; git -C r config gpg.ssh.defaultKeyCommand "$EVIL"; '
        "git -C r config commit.gpgSign true",
        "git -C r commit --allow-empty -m x",
        "git-config",
        "r/.git/config",
    ),
    "an included file": Canary(
        R + 'printf "[core]\\nfsmonitor = $EVIL\\n" > harmless; git -C r config include.path ../../harmless',
        "git -C r status",
        "git-config",
        "r/.git/config",
    ),
    "settings of a work tree": Canary(
        R + "git -C r config extensions.worktreeConfig true; "
        'printf "[core]\\nfsmonitor = $EVIL\\n" > r/.git/config.worktree',
        "git -C r status",
        "git-config",
        "r/.git/config.worktree",
    ),
    "a hook": Canary(
        R + 'cp "$EVIL" r/.git/hooks/pre-commit',
        "git -C r commit --allow-empty -m x",
        "git-hook",
        "r/.git/hooks/pre-commit",
    ),
    "a linked hook": Canary(
        R + 'ln -s "$EVIL" r/.git/hooks/pre-commit',
        "git -C r commit --allow-empty -m x",
        "git-hook",
        "r/.git/hooks/pre-commit",
    ),
    "linked hooks": Canary(
        R + 'mkdir h; cp "$EVIL" h/pre-commit; rm -r r/.git/hooks; ln -s ../../h r/.git/hooks',
        "git -C r commit --allow-empty -m x",
        "git-redirect",
        "r/.git/hooks",
    ),
    "linked settings": Canary(
        R + 'cp r/.git/config c; git config -f c core.fsmonitor "$EVIL"; ln -sf ../../c r/.git/config',
        "git -C r status",
        "git-redirect",
        "r/.git/config",
    ),
    "a .git that is a file": Canary(
        R + 'mv r/.git kit; git config -f kit/config core.fsmonitor "$EVIL"; echo "gitdir: ../kit" > r/.git',
        "git -C r status",
        "git-redirect",
        "r/.git",
    ),
    "a .git that is a link": Canary(
        R + 'mv r/.git kit; git config -f kit/config core.fsmonitor "$EVIL"; ln -s ../kit r/.git',
        "git -C r status",
        "git-redirect",
        "r/.git",
    ),
    "a chain of commondir": Canary(
        R + "mkdir d c; cp r/.git/HEAD d/; mv r/.git/objects r/.git/refs r/.git/config c/; rm -r r; "
        'git config -f c/config core.fsmonitor "$EVIL"; git config -f c/config core.bare false; '
        "echo ../c > d/commondir; "
        "mkdir r; echo 'gitdir: ../d' > r/.git",
        "git -C r status",
        "git-redirect",
        "d/commondir",
    ),
    "a bare directory by another name": Canary(
        R + 'mv r/.git innocent; git config -f innocent/config core.fsmonitor "$EVIL"; '
        "git config -f innocent/config core.bare false; git config -f innocent/config core.worktree ..; rm -rf r",
        "cd innocent && git status",
        "git-config",
        "innocent/config",
    ),
    "a gitlink of the top": Canary(
        _REPOSITORY.format(".")
        + _REPOSITORY.format("sub")
        + 'git add sub; git commit -qm sub; git -C sub config core.fsmonitor "$EVIL"',
        "git status",
        "git-config",
        "sub/.git/config",
    ),
    "a rebase with a step of its own": Canary(
        R + "cd r; for n in 1 2; do echo $n > $n; git add $n; git commit -qm $n; done; "
        "GIT_SEQUENCE_EDITOR='sed -i 1s/pick/edit/' git rebase -q -i HEAD~2; "
        'printf "exec $EVIL\\n" > .git/rebase-merge/git-rebase-todo',
        "git -C r rebase --continue",
        "git-hook",
        "r/.git/rebase-merge/git-rebase-todo",
    ),
    "an old file of remotes": Canary(
        R + 'mkdir r/.git/remotes; git init -q --bare evil.git; cp "$EVIL" evil.git/hooks/pre-receive; '
        'echo "URL: $PWD/evil.git" > r/.git/remotes/origin',
        "git -C r push origin main",
        "git-redirect",
        "r/.git/remotes/origin",
    ),
    "a hook of a bare repository": Canary(
        R + 'git init -q --bare b; cp "$EVIL" b/hooks/pre-receive; git -C r config remote.origin.url "$PWD/b"',
        "git -C r push origin main",
        "git-hook",
        "b/hooks/pre-receive",
    ),
    "a submodule's own settings": Canary(
        _REPOSITORY.format("s") + R + "cd r; git -c protocol.file.allow=always submodule -q add ../s s; "
        'git commit -qm s; git config -f .git/modules/s/config core.fsmonitor "$EVIL"',
        "git -C r status",
        "git-config",
        "r/.git/modules/s/config",
    ),
}


def _environment(place: Place) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(place.home),
        "EVIL": str(place.workspace / "tool"),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        **{f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    }


def _bare(place: Place, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", line],
        cwd=place.workspace,
        env=_environment(place),
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


def _marked(place: Place) -> Path:
    """A program that leaves a mark; harmless, and as an agent could write it."""
    mark = place.top / "ran"
    program = place.workspace / "tool"
    program.write_text(f"#!/bin/sh\necho ran >> {mark}\nexit 1\n")
    program.chmod(0o755)
    return mark


@pytest.mark.parametrize("name", CANARIES)
def test_what_the_hosts_git_would_run_is_found(place: Place, name: str) -> None:
    canary = CANARIES[name]
    mark = _marked(place)
    time.sleep(0.03)
    begin = time.clock_gettime_ns(5)  # CLOCK_REALTIME_COARSE, which file times are taken from
    planted = _bare(place, canary.plant)
    mark.unlink(missing_ok=True)

    scan = find_leftovers(place.workspace, Since(ns=begin))
    paths = [str(path.relative_to(place.workspace)) for path in place.workspace.rglob("*")]
    among = leftovers_among(place.workspace, paths, Since(ns=begin))

    used = _bare(place, canary.use)
    assert mark.exists(), f"the attempt itself does not work: {planted.stderr} {used.stderr}"
    for found in (scan, among):
        assert (f"leftover {canary.rule}", canary.target) in {(each.rule, each.target) for each in found.violations()}


@pytest.mark.parametrize("name", ["a hook", "a linked hook", "a hook of a bare repository"])
def test_a_hook_that_was_disarmed_does_not_run(place: Place, name: str) -> None:
    mark = _marked(place)
    begin = time.clock_gettime_ns(5)
    _bare(place, CANARIES[name].plant)
    mark.unlink(missing_ok=True)

    disarm(place.workspace, find_leftovers(place.workspace, Since(ns=begin)).leftovers)

    _bare(place, CANARIES[name].use)
    assert not mark.exists()


@pytest.mark.parametrize("name", CANARIES)
def test_what_the_hosts_git_would_run_is_found_behind_the_wall(place: Place, name: str) -> None:
    """The same, done by a command in a box: what it could not do is no leftover, what it could is said."""
    canary = CANARIES[name]
    mark = _marked(place)
    time.sleep(0.03)
    env = {key: value for key, value in _environment(place).items() if key.startswith(("GIT_", "EVIL"))}

    result = place.run(canary.plant, env=env)

    left = {(each.rule, each.target) for each in result.violations}
    mark.unlink(missing_ok=True)
    _bare(place, canary.use)
    is_said = (f"leftover {canary.rule}", canary.target) in left
    assert is_said or not mark.exists(), f"it ran, and only this was said: {left}"


ORDINARY = {
    "a fresh repository": R,
    "a clone": R
    + "git clone -q r c; cd c; git checkout -q -b x; echo x > x; git add x; git commit -qm x; git push -q origin x",
    "settings of a person's": R + "git -C r config user.name A; git -C r config pull.rebase true; git -C r gc -q",
    "a bare clone": R + "git clone -q --bare r b.git; git -C r remote add o ../b.git; git -C r push -q o main",
    "a rebase": R + "cd r; echo 1 > 1; git add 1; git commit -qm 1; git rebase -q -f HEAD~1; git stash list",
}


@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_work_with_git_leaves_nothing(place: Place, name: str) -> None:
    begin = time.clock_gettime_ns(5)
    done = _bare(place, f"set -e; {ORDINARY[name]}")
    assert done.returncode == 0, done.stderr
    assert find_leftovers(place.workspace, Since(ns=begin)).leftovers == ()
