"""What one file is: by its name, by what git would make of it, by its rights."""

import stat
from collections.abc import Iterator

from ringfence.workspace.leftovers.base import Leftover, LeftoverFound, LeftoverKind
from ringfence.workspace.leftovers.gitfiles import CONFIGS, STEPS, judge_in_git
from ringfence.workspace.leftovers.npmrc import what_runs as what_npm_runs
from ringfence.workspace.leftovers.rows import BY_CONTENT, NPMRC, TOOLCHAINS, rows_for

_PLACES = (b"path", b"/", b"\\", b"{")
"""Without these a file of versions names no place: the key, a path, what may be an escaped letter, a template."""
_IN_GIT = CONFIGS | STEPS.keys()


def is_by_content(names: tuple[str, ...]) -> bool:
    """Whether the content decides about a file, by its path. In a git directory that is not called `.git`, the
    directory is known as a whole."""
    name = names[-1].casefold()
    return name in BY_CONTENT or (name in _IN_GIT and any(each.casefold() == ".git" for each in names[:-1]))


def judge(found: LeftoverFound) -> Iterator[Leftover]:
    """Everything that speaks against a file; directories are judged by what is in them."""
    if stat.S_ISDIR(found.mode) or stat.S_ISSOCK(found.mode):
        return  # nothing reads a socket; where a protected name is missing, a box's wall puts one
    for row, count in rows_for(found.names, is_link=stat.S_ISLNK(found.mode)):
        if row is NPMRC and (data := found.read()) is not None and not what_npm_runs(data):
            continue
        if row in TOOLCHAINS and (data := found.read()) is not None and not any(sign in data for sign in _PLACES):
            continue
        yield Leftover("/".join(found.names[:count]), row.kind, row.why, row.run_by)
    in_git = judge_in_git(found)
    if in_git is not None:
        yield in_git
    if stat.S_ISREG(found.mode):
        if found.mode & (stat.S_ISUID | stat.S_ISGID):
            why = f"its mode is {stat.S_IMODE(found.mode):04o}"
            yield Leftover(found.path, LeftoverKind.SET_UID, why, "anybody, with its owner's rights")
        if found.mode & 0o111 and found.has_capabilities():
            yield Leftover(
                found.path, LeftoverKind.FILE_CAPABILITY, "it carries capabilities", "anybody, with more rights"
            )
