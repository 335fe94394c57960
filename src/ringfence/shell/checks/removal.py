"""Removing what cannot be had back: the system, somebody's home, the whole workspace."""

import posixpath
from collections.abc import Iterator
from typing import Final

from ringfence.shell.context import CheckContext, may_be, say
from ringfence.values.facts import CheckAnswer, Facts, Finding, PathFact, Touch
from ringfence.values.paths import is_below

CRITICAL: Final[dict[str, tuple[str, bool]]] = {
    # place: (reason, whether everything below it counts too)
    "/": ("everything", False),
    "/bin": ("programs", True),
    "/boot": ("the kernel", True),
    "/dev": ("devices", True),
    "/etc": ("the system's settings", True),
    "/home": ("everybody's files", False),
    "/lib": ("libraries", True),
    "/lib32": ("libraries", True),
    "/lib64": ("libraries", True),
    "/libx32": ("libraries", True),
    "/media": ("mounted disks", False),
    "/mnt": ("mounted disks", False),
    "/opt": ("installed software", True),
    "/proc": ("the kernel's view of processes", True),
    "/root": ("the administrator's files", True),
    "/run": ("the state of running services", True),
    "/sbin": ("programs", True),
    "/srv": ("served data", True),
    "/sys": ("the kernel's view of devices", True),
    "/tmp": ("everybody's temporary files", False),
    "/usr": ("programs and libraries", True),
    "/var": ("the state of services", True),
    "/Users": ("everybody's files", False),
    "/System": ("the system", True),
    "/Library": ("the system's settings", True),
    "/Applications": ("installed software", True),
    "/private": ("the system's state", False),
}
SPARED: Final = ("/var/tmp", "/dev/shm", "/private/tmp", "/private/var/folders", "/var/folders", "/run/user")
"""Below something critical, but made for passing things."""
_UNKNOWN: Final = "what is removed is not known before it runs"
_REMOVERS: Final = frozenset(("rm", "rmdir", "unlink", "shred", "srm", "trash"))


def check(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    for fact in facts.paths:
        if fact.touch is Touch.REMOVE:
            answer, rule, why = judge(fact, context)
            if not fact.sure:
                answer = min(answer, CheckAnswer.WARN)
                why += ", if the unknown part is empty"
            yield from say("removal", answer, rule, why, fact.span, context, firm=not fact.sure)
    for program in facts.programs:
        name = program.name
        if name in _REMOVERS or (name == "find" and any(word.text == "-delete" for word in program.argv)):
            for word in program.argv[1:]:
                if word.text is None:
                    yield from say(
                        "removal", CheckAnswer.WARN, "unknown-operand", _UNKNOWN, word.span, context, firm=True
                    )


def judge(fact: PathFact, context: CheckContext) -> tuple[CheckAnswer, str, str]:
    """How bad it is to remove this: the answer, the rule and the reason."""
    path = fact.path
    narrowed = "/**/" in path
    if narrowed:
        path = path.partition("/**/")[0] or "/"
    place = context.place(path)
    pattern = fact.pattern and not narrowed
    workspace = posixpath.normpath(context.workspace)
    home = posixpath.normpath(context.home)
    everything = False
    if pattern:
        parent, _, last = place.rpartition("/")
        if last.strip("*?.[]!^") == "" and last not in (".", ".."):
            place, everything = parent or "/", True
            pattern = any(char in place for char in "*?[")
    if place != workspace and is_below(place, workspace):
        if is_below(workspace + "/.git", place) or may_be(place, pattern, workspace + "/.git"):
            return CheckAnswer.WARN, "history", "the repository's history is lost"
        return CheckAnswer.PASS, "", ""
    if place == workspace or may_be(place, pattern, workspace):
        if narrowed:
            return CheckAnswer.PASS, "", ""
        return CheckAnswer.WARN, "workspace", "the whole workspace is lost"
    if is_below(workspace, place):
        return CheckAnswer.BLOCK, "ancestor", "a directory that the workspace lies in"
    if place == home or is_below(home, place):
        return CheckAnswer.BLOCK, "home", "a whole home directory"
    parent = posixpath.dirname(place)
    if parent in ("/home", "/Users"):
        return CheckAnswer.BLOCK, "home", "a whole home directory"
    for spared in SPARED:
        if is_below(place, spared):
            return (
                (CheckAnswer.WARN if place == spared else CheckAnswer.PASS),
                "temporary",
                "everybody's temporary files",
            )
    for critical, (why, below) in CRITICAL.items():
        if may_be(place, pattern, critical):
            if critical == "/tmp" and (everything or narrowed):
                return (CheckAnswer.PASS if narrowed else CheckAnswer.WARN), "temporary", why
            return CheckAnswer.BLOCK, critical, f"{critical}: {why}"
        if below and is_below(place, critical):
            return CheckAnswer.BLOCK, critical, f"below {critical}: {why}"
    if pattern and place.count("/") > 1 and _below_critical(place):
        return CheckAnswer.BLOCK, "glob", "a pattern that may match below a system directory"
    if is_below(place, "/tmp"):
        return CheckAnswer.PASS, "", ""
    if is_below(place, home):
        return CheckAnswer.WARN, "outside", "something in the home directory, outside of the workspace"
    return CheckAnswer.WARN, "outside", "something outside of the workspace"


def _below_critical(place: str) -> bool:
    top = "/" + place.split("/")[1]
    return any(below and may_be(top, True, critical) for critical, (_, below) in CRITICAL.items())
