"""Which settings of git are harmless: an allow-list, each with what its value may be.

git has hundreds of keys, every version more, and many of them name a program, a file with further settings, or another
place to work in. So nobody lists the dangerous ones: what is not listed here counts. A listed key counts, too, if its
value is none that belongs there; a remote may be an address, but not one that is handed to a program (`ext::...`).

Values are compared as git reads them, without quotes and comments. Keys are lower case, but for their middle part.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

Setting = tuple[str, str | None]
"""(section.key or section.middle.key, its value; None where there is no `=`, which git takes for true)"""
_Check = Callable[[str], object]


def _matching(pattern: str) -> _Check:
    return re.compile(pattern, re.ASCII | re.DOTALL).fullmatch


_FLAG = _matching(r"(?i:true|false|yes|no|on|off|[01]|)")
_NUMBER = _matching(r"-?\d{1,12}[kmgKMG]?")
_WORD = _matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}")
_WORDS = _matching(r"[A-Za-z0-9#:,._+ -]{0,200}")
_TEXT = _matching(r"[^\x00-\x08\x0a-\x1f\x7f]{0,1000}")
"""One line of anything: for keys that git only shows or stores."""
_REMOTE = _matching(r"\.|[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}(?:/[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}){0,9}")
"""The name of a remote. git takes anything else there for an address, and so for `ext::PROGRAM`."""
_REF = _matching(r"\+?[A-Za-z0-9_][\w./*@{}+-]{0,300}(?::[A-Za-z0-9_][\w./*@{}+-]{0,300})?")
_ADDRESS = _matching(
    # Known protocols, with a host that is no option; `user@host:path`; a path. Two colons would name a program.
    r"(?!.*::)(?:(?:https?|ssh|git|git\+ssh|ssh\+git|ftps?|file)://(?!-)[^\s\x00-\x1f\x7f]{1,1000}"
    r"|(?:[A-Za-z0-9_][\w.-]*@)?[A-Za-z0-9_][\w.-]*:(?![-/]/)[\w./~+%=@-]{1,1000}"
    r"|(?:\.{0,2}/|[\w.])[\w./~+%=@ -]{0,1000})"
)
_ALIAS = _matching(
    # One command that only shows or notes, and plain options. `!PROGRAM`, `-c KEY=VALUE` and options with a value
    # (`grep -O PROGRAM`, `rebase --exec PROGRAM`) are none.
    r"(?:status|log|diff|show|branch|checkout|switch|restore|commit|add|stash|shortlog|reflog|describe|blame)"
    r"(?: --?[a-z][a-z-]*)*"
)
_REBASE = _matching(r"(?i:true|false|yes|no|on|off|merges|preserve|m|p|)")
_LFS: Final = {"clean": "git-lfs clean -- %f", "smudge": "git-lfs smudge -- %f", "process": "git-lfs filter-process"}
"""What `git lfs install --local` writes, word for word: the host's own git-lfs, if it has one."""

_HARMLESS: Final[dict[str, _Check]] = {
    # how this repository is kept
    **dict.fromkeys(
        (
            "core.bare",
            "core.filemode",
            "core.symlinks",
            "core.ignorecase",
            "core.precomposeunicode",
            "core.protecthfs",
            "core.protectntfs",
            "core.trustctime",
            "core.quotepath",
            "core.sparsecheckout",
            "core.sparsecheckoutcone",
            "core.preloadindex",
            "core.untrackedcache",
            "core.splitindex",
            "core.commitgraph",
            "core.multipackindex",
            "core.fscache",
            "core.longpaths",
            "core.fsyncobjectfiles",
            "core.fsmonitor",  # git's own daemon; a program only if it is something else than true or false
            "extensions.worktreeconfig",
            "extensions.preciousobjects",
            "extensions.relativeworktrees",
            "index.sparse",
            "index.threads",
            "feature.manyfiles",
            "gc.autodetach",
            "maintenance.auto",
            "pack.writebitmaps",
            "receive.denycurrentbranch",
            "receive.denynonfastforwards",
            "receive.denydeletes",
        ),
        _FLAG,
    ),
    "core.repositoryformatversion": _matching("[01]"),
    "core.logallrefupdates": _matching("(?i:true|false|always)"),
    "core.sharedrepository": _matching("(?i:true|false|group|all|world|everybody|umask|0[0-7]{3}|[0-2])"),
    "core.autocrlf": _matching("(?i:true|false|input)"),
    "core.safecrlf": _matching("(?i:true|false|warn)"),
    "core.eol": _matching("(?i:lf|crlf|native)"),
    "core.checkstat": _matching("(?i:default|minimal)"),
    "core.abbrev": _matching("(?i:auto|no|[0-9]{1,2})"),
    "core.commentchar": _matching(r"auto|[#;%!@*]"),
    "core.whitespace": _WORDS,
    "core.compression": _NUMBER,
    "core.loosecompression": _NUMBER,
    "core.bigfilethreshold": _NUMBER,
    "core.packedgitlimit": _NUMBER,
    "core.packedgitwindowsize": _NUMBER,
    "core.deltabasecachelimit": _NUMBER,
    "extensions.objectformat": _matching("(?i:sha1|sha256)"),
    "extensions.refstorage": _matching("(?i:files|reftable)"),
    "extensions.partialclone": _REMOTE,
    "index.version": _NUMBER,
    "gc.auto": _NUMBER,
    "gc.autopacklimit": _NUMBER,
    "pack.threads": _NUMBER,
    "pack.windowmemory": _NUMBER,
    "lfs.repositoryformatversion": _NUMBER,
    "filter.lfs.required": _FLAG,
    # who, and which words are used
    **dict.fromkeys(
        ("user.name", "user.email", "author.name", "author.email", "committer.name", "committer.email"), _TEXT
    ),
    "init.defaultbranch": _REF,
    "commit.gpgsign": _matching("(?i:false|no|off|0)"),  # true would start a program
    "tag.gpgsign": _matching("(?i:false|no|off|0)"),
    "commit.verbose": _FLAG,
    # how everyday commands behave
    "pull.rebase": _REBASE,
    "pull.ff": _matching("(?i:true|false|only)"),
    "push.default": _WORD,
    "push.autosetupremote": _FLAG,
    "push.followtags": _FLAG,
    "fetch.prune": _FLAG,
    "fetch.prunetags": _FLAG,
    "fetch.parallel": _NUMBER,
    "fetch.writecommitgraph": _FLAG,
    "rebase.autostash": _FLAG,
    "rebase.autosquash": _FLAG,
    "rebase.updaterefs": _FLAG,
    "merge.ff": _matching("(?i:true|false|only)"),
    "merge.conflictstyle": _WORD,
    "merge.log": _NUMBER,
    "merge.renamelimit": _NUMBER,
    "rerere.enabled": _FLAG,
    "rerere.autoupdate": _FLAG,
    "diff.algorithm": _WORD,
    "diff.renames": _WORD,
    "diff.renamelimit": _NUMBER,
    "diff.mnemonicprefix": _FLAG,
    "diff.noprefix": _FLAG,
    "diff.colormoved": _WORD,
    "diff.submodule": _WORD,
    "status.showuntrackedfiles": _WORD,
    "status.short": _FLAG,
    "status.branch": _FLAG,
    "status.submodulesummary": _NUMBER,
    "log.date": _WORD,
    "log.decorate": _WORD,
    "log.abbrevcommit": _FLAG,
    "help.autocorrect": _matching("(?i:never|prompt|0)"),  # else a mistyped word runs what git takes it for
    "submodule.recurse": _FLAG,
    "submodule.active": _WORDS,
    "checkout.defaultremote": _REMOTE,
    "remote.pushdefault": _REMOTE,
    "clone.defaultremotename": _REMOTE,
}

_HARMLESS_BY_SECTION: Final[dict[str, dict[str, _Check]]] = {
    # section.MIDDLE.key, whatever the middle is: the name of a remote, a branch, a submodule
    "remote": {
        "url": _ADDRESS,
        "pushurl": _ADDRESS,
        "fetch": _REF,
        "push": _REF,
        "mirror": _FLAG,
        "prune": _FLAG,
        "prunetags": _FLAG,
        "promisor": _FLAG,
        "partialclonefilter": _matching(r"(?:blob:(?:none|limit=\d+[kmg]?)|tree:\d+)"),
        "tagopt": _matching("--(?:no-)?tags"),
        "skipdefaultupdate": _FLAG,
        "skipfetchall": _FLAG,
        "gh-resolved": _WORDS,
    },
    "branch": {
        "remote": _REMOTE,
        "pushremote": _REMOTE,
        "merge": _REF,
        "rebase": _REBASE,
        "description": _TEXT,
        "gh-merge-base": _REF,
        "vscode-merge-base": _REF,
        "github-pr-owner-number": _TEXT,
    },
    "submodule": {
        "url": _ADDRESS,
        "active": _FLAG,
        "branch": _REF,
        "update": _matching("checkout|rebase|merge|none"),
        "ignore": _WORD,
        "fetchrecursesubmodules": _WORD,
        "shallow": _FLAG,
    },
    "lfs": {"access": _WORD, "locksverify": _FLAG},
}
_HARMLESS_SECTIONS: Final[dict[str, _Check]] = {
    # section.key, whatever the key is
    "advice": _FLAG,
    "alias": _ALIAS,
    "color": _WORDS,
}


def harmful(settings: Iterable[Setting]) -> str | None:
    """The first setting that could make git run a program, read other settings or work elsewhere; None if none can."""
    for name, value in settings:
        if not _is_harmless(name, value):
            return name
    return None


def _is_harmless(name: str, value: str | None) -> bool:
    section, _, rest = name.partition(".")
    middle, dot, key = rest.rpartition(".")
    check = _HARMLESS.get(name)
    if check is None and dot:
        if section == "filter" and middle == "lfs":
            return value is not None and _LFS.get(key) == value
        if section == "color":
            return _is_plain(_WORDS, value)
        check = _HARMLESS_BY_SECTION.get(section, {}).get(key)
    elif check is None:
        check = _HARMLESS_SECTIONS.get(section)
    return check is not None and _is_plain(check, value)


def _is_plain(check: _Check, value: str | None) -> bool:
    return bool(check("true" if value is None else value))
