"""What in a git directory makes git run a program, or leads it elsewhere: hooks, settings, links and pointers.

A git directory is recognised as git does it: by `HEAD`, and by `objects` and `refs` beside it or a `commondir` that
says where these are. Whatever it is called, git takes it for a repository when it is entered, also where it lies within
another one. What is called `.git` counts before it is complete.

Every redirection counts, wherever it leads: a `.git` that is a file or a link, `commondir`, `gitdir`, alternates, old
files of remotes, and any link in a git directory. Where it leads now says nothing about where it leads when git follows
it, and what lies there need not look like anything of git's.
"""

import stat
from typing import Final, Protocol

from ringfence.workspace.leftovers.base import Leftover, LeftoverFound, LeftoverKind
from ringfence.workspace.leftovers.gitconfig import read_strictly, what_runs

HOOKS: Final = frozenset(
    # githooks(5). Others count if they can be executed: a later git may know more
    {
        "applypatch-msg",
        "commit-msg",
        "fsmonitor-watchman",
        "p4-changelist",
        "p4-post-changelist",
        "p4-pre-submit",
        "p4-prepare-changelist",
        "post-applypatch",
        "post-checkout",
        "post-commit",
        "post-index-change",
        "post-merge",
        "post-receive",
        "post-rewrite",
        "post-update",
        "pre-applypatch",
        "pre-auto-gc",
        "pre-commit",
        "pre-merge-commit",
        "pre-push",
        "pre-rebase",
        "pre-receive",
        "prepare-commit-msg",
        "proc-receive",
        "push-to-checkout",
        "reference-transaction",
        "sendemail-validate",
        "update",
    }
)
CONFIGS: Final = frozenset({"config", "config.worktree"})
STEPS: Final = {
    # What git goes on with at `--continue` and `--skip`, by the directory that it lies in
    "git-rebase-todo": "rebase-merge",
    "strategy": "rebase-merge",
    "opts": "sequencer",
}
NAMES: Final = frozenset({".git", "head", "commondir", "gitdir", "alternates", "http-alternates", *STEPS}) | CONFIGS
"""Names that say something by themselves; the rest goes by the directory that a file lies in."""
DIRECTORIES: Final = frozenset({".git", "hooks", "remotes", "branches"})
DISARMED: Final = ".disarmed"

_HOOKS: Final = "hooks"
_NO_HOOKS: Final = (".sample", DISARMED)
_OLD_REMOTES: Final = frozenset({"remotes", "branches"})
_ALTERNATES: Final = frozenset({"alternates", "http-alternates"})
STORED: Final = frozenset({"refs", "logs", "objects", "lfs", "annex"})
"""Directories of git's that hold names of branches and contents, whatever these are called."""
_MAKE_COMPLETE: Final = frozenset({"HEAD", "objects", "refs", "commondir"})
_HERE: Final = (b".", b".\n")
_RUNS: Final = (b"exec", b"x")
_STRATEGIES: Final = frozenset({"octopus", "ort", "ours", "recursive", "resolve", "subtree"})
"""Those that git brings along. For any other name it looks for a program, `git-merge-NAME`; a name with a slash leads
to one of the workspace."""
_BY: Final = "git, by any command in the repository"


class Names(Protocol):
    def __contains__(self, name: object) -> bool: ...


def is_complete(names: Names) -> bool:
    """Whether a directory with these names is one of git's."""
    return "HEAD" in names and (("objects" in names and "refs" in names) or "commondir" in names)


def completes(name: str) -> bool:
    """Whether a directory may become one of git's by this name."""
    return name in _MAKE_COMPLETE


def judge_in_git(found: LeftoverFound) -> Leftover | None:
    """What a file of a git directory is; None if it is harmless, or lies in none."""
    name = found.names[-1].casefold()
    above = found.names[-2].casefold() if len(found.names) > 1 else ""
    if name == ".git":
        return _redirect(found, "git takes it for the repository of its directory, and it leads elsewhere")
    inside = _inside_dot_git(found.names)
    if above == _HOOKS and (inside is not None or found.is_git_directory(1)):
        return _hook(found, name)
    if stat.S_ISLNK(found.mode):
        in_git = inside is not None or any(map(found.is_git_directory, range(3)))
        return _redirect(found, "a link in a git directory") if in_git else None
    if name in CONFIGS and _is_right_in(found, inside):
        return _config(found)
    if name in ("commondir", "gitdir") and _is_right_in(found, inside):
        if name == "commondir" and found.read() in _HERE:
            return None  # the directory itself: so says the wall where a git directory has no such file
        return _redirect(found, "it says where git finds the rest of the repository")
    if name in _ALTERNATES and found.names[-3:-1] == ("objects", "info"):
        in_git = inside is not None or found.is_git_directory(2)
        return _redirect(found, "it says where git finds further objects") if in_git else None
    if above in _OLD_REMOTES and (inside == above or found.is_git_directory(1)):
        return _redirect(found, "an address to fetch from, as old versions of git kept them")
    if STEPS.get(name) == above and above and (inside is not None or found.is_git_directory(1)):
        return _step(found, name)
    return None


def _inside_dot_git(names: tuple[str, ...]) -> str | None:
    """The name that follows the last `.git` on the way to a file; empty if it lies right in it, None if none is."""
    folded = [name.casefold() for name in names[:-1]]
    if ".git" not in folded:
        return None
    below = folded[len(folded) - folded[::-1].index(".git") :]
    return below[0] if below else ""


def _is_right_in(found: LeftoverFound, inside: str | None) -> bool:
    """Whether git would read a file of that name there; a branch may be called `config`."""
    return (inside is not None and inside not in STORED) or (inside is None and found.is_git_directory(0))


def _hook(found: LeftoverFound, name: str) -> Leftover | None:
    is_program = stat.S_ISLNK(found.mode) or bool(found.mode & 0o111)
    if name in HOOKS or (is_program and not name.endswith(_NO_HOOKS) and DISARMED not in name):
        return Leftover(found.path, LeftoverKind.GIT_HOOK, "a hook of a repository", f"git, at {found.names[-1]}")
    return None


def _config(found: LeftoverFound) -> Leftover | None:
    data = found.read()
    why = "what cannot be read" if data is None else what_runs(data, found.by_git)
    if why is None:
        return None
    return Leftover(found.path, LeftoverKind.GIT_CONFIG, f"it sets {why[:200]}", _BY)


def _step(found: LeftoverFound, name: str) -> Leftover | None:
    data = found.read()
    if data is not None and _STEPS[name](data, found):
        return None
    run_by = f"git {'cherry-pick' if name == 'opts' else 'rebase'} --continue"
    return Leftover(found.path, LeftoverKind.GIT_HOOK, "steps that run programs", run_by)


def _has_plain_steps(data: bytes, _: LeftoverFound) -> bool:
    return not any(line.split(None, 1)[:1] in ([word] for word in _RUNS) for line in data.splitlines())


def _names_strategy(data: bytes, _: LeftoverFound) -> bool:
    return data.removesuffix(b"\n").decode("utf-8", "replace") in _STRATEGIES


def _has_plain_options(data: bytes, found: LeftoverFound) -> bool:
    """Written as settings are, in one section."""
    settings = read_strictly(data)
    if settings is None:
        settings = found.by_git(data)
    return settings is not None and all(
        key.startswith("options.") and (key != "options.strategy" or value in _STRATEGIES) for key, value in settings
    )


_STEPS: Final = {"git-rebase-todo": _has_plain_steps, "strategy": _names_strategy, "opts": _has_plain_options}


def _redirect(found: LeftoverFound, why: str) -> Leftover:
    return Leftover(found.path, LeftoverKind.GIT_REDIRECT, why, _BY)
