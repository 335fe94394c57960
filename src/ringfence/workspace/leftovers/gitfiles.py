"""What in a git directory makes git run a program: hooks, settings, and files that point elsewhere.

A git directory is recognised as git does it: by `HEAD`, `objects` and `refs` in it. Whatever it is called, git takes it
for a repository when it is entered, also where it lies within another one.

A setting that cannot be understood counts as one that runs something.
"""

import re
from typing import Final

HOOKS: Final = frozenset(
    # githooks(5); git runs nothing else in a hooks directory
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
CONFIG_LIMIT_BYTES: Final = 256 * 1024
"""Nobody's settings are longer; one that is cannot be understood."""

_RUNS: Final = (
    # Settings whose value is a program, a directory of programs, or another file of settings: git-config(1). `*` stands
    # for the middle part, such as the name of a filter.
    "core.hookspath",
    "core.fsmonitor",
    "core.sshcommand",
    "core.editor",
    "core.pager",
    "core.askpass",
    "core.gitproxy",
    "core.alternaterefscommand",
    "sequence.editor",
    "pager.*",
    "interactive.difffilter",
    "diff.external",
    "diff.*.command",
    "diff.*.textconv",
    "filter.*.clean",
    "filter.*.smudge",
    "filter.*.process",
    "merge.*.driver",
    "mergetool.*.cmd",
    "mergetool.*.path",
    "difftool.*.cmd",
    "difftool.*.path",
    "browser.*.cmd",
    "man.*.cmd",
    "gpg.program",
    "gpg.*.program",
    "credential.helper",
    "credential.*.helper",
    "trailer.*.command",
    "trailer.*.cmd",
    "tar.*.command",
    "uploadpack.packobjectshook",
    "remote.*.uploadpack",
    "remote.*.receivepack",
    "remote.*.vcs",
    "sendemail.*",
    "init.templatedir",
    "include.path",
    "includeif.*.path",
)
_BOOLEANS: Final = frozenset({"", "true", "false", "yes", "no", "on", "off", "1", "0"})
_HEADER = re.compile(r'\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]')
_SETTING = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?", re.DOTALL)
_PATTERNS = re.compile("|".join(re.escape(row).replace(r"\*", ".*") for row in _RUNS), re.DOTALL)


def setting_that_runs(text: str) -> str | None:
    """The first setting of a git configuration that makes git run something; None if there is none."""
    section = ""
    lines = iter(text.removeprefix("\ufeff").splitlines())
    for line in lines:
        line = line.strip()
        while header := _HEADER.match(line):
            section = header[1].casefold() + (f".{header[2]}" if header[2] is not None else "")
            line = line[header.end() :].strip()
        if not line or line[0] in "#;":
            continue
        while _goes_on(line):
            line = line[:-1] + next(lines, "")
        setting = _SETTING.fullmatch(line)
        if setting is None or not section:
            return f"a line that cannot be understood: {line[:80]!r}"
        name = f"{section}.{setting[1].casefold()}"
        if _runs(name, (setting[2] or "").strip()):
            return name
    return None


def _goes_on(line: str) -> bool:
    """Whether a value continues in the next line: an odd number of backslashes at the end."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _runs(name: str, value: str) -> bool:
    plain = value.strip('"').strip()
    if name == "core.fsmonitor" and plain.casefold() in _BOOLEANS:
        return False
    if name.startswith("alias.") or (name.startswith("submodule.") and name.endswith(".update")):
        return "!" in plain
    if name.startswith("pager.") and plain.casefold() in _BOOLEANS:
        return False
    if name.endswith(".url"):
        return plain.casefold().startswith("ext::")
    return _PATTERNS.fullmatch(name) is not None
