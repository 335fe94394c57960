"""Places in a command line: where a path is only text, where a program is told to work, what is written to."""

import re
from typing import Final

from ringfence.shell.catalog.base import names as _set

TEXT_OPTIONS: Final = _set(
    # Long options whose value is text, a pattern, or a name, whatever the program.
    "--message --msg --grep --author --committer --date --format --pretty --regexp --pattern --name --iname --title"
    " --body --description --desc --label --comment --notes --header --user-agent --data-raw --filter --query --search"
    " --match --template-string --expression --subject --text --reason --summary --jq --tag --annotation --skip"
    " --deselect --omit --glob --iglob --include --include-dir --exclude --exclude-dir --exclude-from-name --ignore"
    " --ignore-dir --ignore-path --hidden --type --type-add --env --build-arg --arg --argjson --invert-match --since"
    " --until --word --replace --old --new --branch --prompt --topic --homepage --keyword --marker --section --key"
    " --trailer --signoff-by --fixup --squash --reset-author --with-message --changelog --release-notes --transform"
)
TEXT_LETTERS: Final[dict[str, frozenset[str]]] = {
    # Short options of which the same is true, by program.
    "git": _set("-m -S -G -b -B -u --pickaxe-all -L"),
    "hg": _set("-m -l -u"),
    "svn": _set("-m"),
    "gh": _set("-t -b -m -q -l -H -B -f -F"),
    "glab": _set("-t -d -m -l"),
    "docker": _set("-e -t -m -l --name"),
    "podman": _set("-e -t -m -l"),
    "kubectl": _set("-l -n"),
    "curl": _set("-H -A -X -e -w -u -d"),
    "rg": _set("-e -g -t -T -r"),
    "tree": _set("-I -P"),
    "ls": _set("-I"),
    "zip": _set("-x -i"),
    "unzip": _set("-x"),
    "rsync": _set("-f"),
    "pytest": _set("-k -m -W"),
    "make": _set("-W -o"),
    "jq": _set("--arg --argjson"),
    "fd": _set("-E -e -t"),
    "fdfind": _set("-E -e -t"),
    "ag": _set("-G --ignore"),
    "logger": _set("-t -p"),
    "notify-send": _set("-u -t"),
    "psql": _set("-U -d -h"),
    "sort": _set("-t -k"),
    "cut": _set("-d -f"),
    "tar": _set("-X"),
    "gcc": _set("-D"),
    "g++": _set("-D"),
    "clang": _set("-D"),
}
TEXT_COMMANDS: Final = _set(
    # All that these are given is text, a name or a number.
    "echo printf true false : exit return break continue shift let sleep wait jobs kill pkill killall pgrep pidof seq"
    " expr basename dirname type which whereis help man info whatis apropos unset trap alias unalias yes bg fg"
    " getopts ulimit umask shopt logout times uname id whoami groups hostname ps top free uptime cal logger"
    " notify-send say figlet cowsay toilet tput clear dircolors locale getconf nproc arch lscpu lsblk factor numfmt"
    " tr [ test set export declare typeset local readonly read cd pushd popd dirs pwd find"
)
TEXT_WORDS: Final[dict[str, frozenset[str]]] = {
    # Sub-commands whose operands are text or names.
    "git": _set("branch tag checkout switch remote config stash notes describe rev-parse grep"),
    "gh": _set("pr issue release repo label gist search"),
    "npm": _set("pkg run search view version"),
    "hg": _set("branch tag bookmark grep"),
}
ASSIGN_OPTIONS: Final[dict[str, frozenset[str]]] = {
    # Set a variable, and the program's code may open what it names. jq has no way to open a file by a variable.
    **dict.fromkeys(_set("awk gawk mawk nawk"), _set("-v --assign")),
    **dict.fromkeys(_set("gcc g++ clang clang++ cc c++"), _set("-D")),
}
DIRECTORY_OPTIONS: Final[dict[str, frozenset[str]]] = {
    # The program goes there first.
    "git": _set("-C --work-tree"),
    "make": _set("-C --directory"),
    "gmake": _set("-C --directory"),
    "ninja": _set("-C"),
    "meson": _set("-C"),
    "go": _set("-C"),
    "cargo": _set("-C"),
    "pnpm": _set("-C --dir"),
    "hg": _set("-R --cwd --repository"),
    "cpio": _set("-D --directory"),
    "bsdtar": _set("-C --directory --cd"),
    "patch": _set("-d --directory"),
    "gdb": _set("--cd -cd"),
    "env": _set("-C --chdir"),
    "sudo": _set("-D --chdir"),
    "unshare": _set("-w --wd"),
    "nsenter": _set("-w --wd"),
    "bwrap": _set("--chdir"),
    "systemd-run": _set("--working-directory"),
    "start-stop-daemon": _set("-d --chdir"),
    "uv": _set("--directory --project"),
    "poetry": _set("-C --directory"),
    "ruby": _set("-C"),
    "flatpak-spawn": _set("--directory"),
    "conda": _set("--cwd"),
    "ctags": _set("-C"),
    "just": _set("-d --working-directory"),
    "cmake": _set("-E chdir"),
    "terraform": _set("-chdir"),
    "nix": _set("-C"),
}
ROOT_OPTIONS: Final[dict[str, frozenset[str]]] = {
    # Absolute paths below it are meant.
    "chroot": frozenset(),
    "sudo": _set("-R --chroot"),
}
WRITE_OPTIONS: Final[dict[str, frozenset[str]]] = {
    # Name where something is put, although they are called after something else.
    **dict.fromkeys(_set("npm pnpm yarn bun"), _set("--prefix --global-dir --global-folder")),
    **dict.fromkeys(_set("pip pip3 uv"), _set("--target -t --prefix --root")),
    "cargo": _set("--root"),
    "gem": _set("-i --install-dir -n --bindir"),
    "cmake": _set("--prefix --install-prefix"),
}
ROOTS: Final = _set("-C -R -D --root --chroot --directory --chdir --cwd --basedir --base-dir --fs-root")
"""Options that say from where other words count, whatever the program."""
OUT_OPTION: Final = re.compile(
    r"(?:^|-)(?:o|out|output|outfile|out-file|outdir|out-dir|output-dir|output-directory|dest|destination|log|logfile"
    r"|log-file|log_file|write|report|target|target-directory|target-dir|directory-prefix|install|prefix-path|save|to"
    r"|dump|export|extract|unpack|into|keyout|dump-header|cookie-jar|trace|pidfile|pid-file|stderr|stdout)(?:\Z|-)"
)
"""Options that name what is written, whatever the program."""
