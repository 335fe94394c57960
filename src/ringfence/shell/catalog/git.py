"""What makes git run programs: options and settings."""

from typing import Final

from ringfence.shell.catalog.base import names as _set

GIT_TAKES: Final = _set("-C -c --git-dir --work-tree --namespace --exec-path --super-prefix --config-env --attr-source")
GIT_CODE_OPTIONS: Final[dict[str, frozenset[str]]] = {
    "rebase": _set("-x --exec"),
    "filter-branch": _set("--tree-filter --index-filter --env-filter --msg-filter --commit-filter --parent-filter")
    | _set("--tag-name-filter --setup"),
    "grep": _set("-O --open-files-in-pager"),
    "difftool": _set("-x --extcmd"),
    "archive": _set("--exec"),
    "clone": _set("-u --upload-pack"),
    "fetch": _set("--upload-pack"),
    "pull": _set("--upload-pack"),
    "ls-remote": _set("--upload-pack --exec"),
    "push": _set("--receive-pack --exec"),
}
GIT_CODE_KEYS: Final = (
    # Settings whose value git runs; compared in lower case, `*` stands for a name.
    "alias.*",
    "core.pager",
    "core.editor",
    "core.sshcommand",
    "core.fsmonitor",
    "core.hookspath",
    "core.gitproxy",
    "core.askpass",
    "core.attributesfile",
    "core.worktree",
    "sequence.editor",
    "diff.external",
    "diff.*.textconv",
    "diff.*.command",
    "difftool.*.cmd",
    "mergetool.*.cmd",
    "merge.*.driver",
    "filter.*.clean",
    "filter.*.smudge",
    "filter.*.process",
    "credential.helper",
    "credential.*.helper",
    "gpg.program",
    "gpg.*.program",
    "pager.*",
    "interactive.difffilter",
    "uploadpack.packobjectshook",
    "remote.*.uploadpack",
    "remote.*.receivepack",
    "protocol.ext.allow",
    "init.templatedir",
    "include.path",
    "includeif.*.path",
    "browser.*.cmd",
    "browser.*.path",
    "man.*.cmd",
    "man.*.path",
    "trailer.*.command",
    "trailer.*.cmd",
    "guitool.*.cmd",
    "hook.*.command",
    "imap.tunnel",
    "sendemail.tocmd",
    "sendemail.cccmd",
    "sendemail.headercmd",
    "sendemail.sendmailcmd",
    "core.alternaterefscommand",
    "gpg.ssh.defaultkeycommand",
)
HG_CODE_KEYS: Final = _set("ui.ssh ui.editor ui.merge ui.remotecmd extdiff.cmd.x pager.pager ui.patch")
"""Settings whose value Mercurial runs."""
GIT_PROGRAMS: Final = ("/usr/lib/git-core", "/usr/libexec/git-core", "/usr/local/libexec/git-core")
"""Where git's own programs lie."""
GIT_KEEPS_TREE: Final = _set(
    # Sub-commands that leave the files of the work tree as they are.
    "status diff log show ls-files ls-tree ls-remote rev-parse rev-list branch tag remote config fetch push blame"
    " annotate grep describe cat-file diff-index diff-files diff-tree shortlog for-each-ref symbolic-ref show-ref"
    " write-tree commit-tree help version count-objects fsck gc reflog notes bundle archive var"
    " whatchanged check-ignore name-rev"
)
GIT_READS_TREE: Final = _set("add stage commit update-index hash-object")
"""Sub-commands that put files of the work tree into the repository."""
GIT_TARGETS: Final[dict[str, frozenset[str]]] = {
    # The last operand is a directory that is filled; options of each with a value.
    "clone": _set("-b --branch -o --origin -c --config -j --jobs -u --upload-pack --depth --reference --template")
    | _set("--reference-if-able --shallow-since --shallow-exclude --filter --separate-git-dir --server-option")
    | _set("--bundle-uri --revision --ref-format"),
    "init": _set("-b --initial-branch --template --separate-git-dir --object-format --ref-format"),
}
