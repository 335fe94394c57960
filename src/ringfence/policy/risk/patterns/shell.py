"""What is known about programs that shells run: how risky each is, and why."""

from typing import Final

from ringfence.policy.risk.patterns.base import RiskRow, Table, spread, words
from ringfence.values.facts import CommandShape, Touch, Unknown
from ringfence.values.risk import Risk

SAFE, LOW, MEDIUM, HIGH, CRITICAL = Risk.SAFE, Risk.LOW, Risk.MEDIUM, Risk.HIGH, Risk.CRITICAL

HARMLESS: Final = words(
    "echo printf true false : pwd seq expr basename dirname sleep date uname arch nproc whoami id tr"
)
"""Programs that print, and whose options neither write nor run anything. SAFE also needs plain text (see PLAIN)."""

PLAIN: Final = r"[A-Za-z0-9 _.,:;/@%+|&'\"\n-]*"
"""Texts in which a shell finds nothing to expand: only these can be SAFE."""

DANGEROUS_OPTIONS: Final[dict[str, tuple[str, ...]]] = {
    "printf": ("-v",),  # the name may be an index, and an index may hold a command
    "date": ("-s", "--s", "-f", "--f"),  # sets the clock, reads a file
}

SYSTEM: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")
"""Where a program with a path may lie and still be the one that its name says."""

_LOOKS = "looks at files or at the machine"
_CHANGES = "changes files"
_RUNS = "runs code that is not seen here"
_NETWORK = "talks to the network"
_MACHINE = "changes the machine itself"
_OTHERS = "acts as somebody else"
_ESCAPE = "handles walls, containers or other processes' memory"

PROGRAMS: Final[Table] = {
    **spread(
        LOW, _LOOKS, "cat head tail less more wc sort uniq cut paste join comm nl tac rev fold column od xxd hexdump"
    ),
    **spread(
        LOW, _LOOKS, "grep egrep fgrep rg ag ls ll stat file find fd du df tree diff cmp md5sum sha1sum sha256sum"
    ),
    **spread(
        LOW, _LOOKS, "which whereis type readlink realpath ps top free uptime hostname tty locale getconf strings jq"
    ),
    **spread(
        LOW, "steers the shell itself", "cd test [ [[ export local declare typeset readonly set unset shift read let"
    ),
    **spread(
        LOW, "steers the shell itself", "exit return break continue wait jobs fg bg umask getopts shopt pushd popd"
    ),
    **spread(
        LOW, "runs the command after it, differently", "time nice ionice nohup timeout stdbuf command builtin env"
    ),
    **spread(
        LOW, "tests or formats what is in the workspace", "yes cal bc dc factor base64 base32 iconv dos2unix fmt pr"
    ),
    **spread(MEDIUM, _CHANGES, "cp mv mkdir touch tee ln install truncate split csplit patch mktemp mkfifo rename"),
    **spread(MEDIUM, _CHANGES, "tar zip unzip gzip gunzip bzip2 bunzip2 xz unxz zstd 7z cpio ar sed sqlite3 rsync"),
    **spread(MEDIUM, "shows the environment, where secrets live", "printenv set-env compgen history"),
    **spread(MEDIUM, "runs the command after it on what it reads", "xargs parallel watch entr flock setsid script"),
    **spread(MEDIUM, "a language that can also write files and run programs", "awk gawk mawk nawk"),
    **spread(MEDIUM, "keeps versions; its configuration may name programs", "git hg svn"),
    **spread(
        HIGH, _RUNS, "make cmake ninja gradle mvn ant bazel npm npx yarn pnpm bun deno pip pip3 pipx uv uvx poetry"
    ),
    **spread(
        HIGH, _RUNS, "python python2 python3 node nodejs perl ruby php lua R Rscript julia java scala tclsh expect"
    ),
    **spread(
        HIGH, _RUNS, "bash sh dash zsh fish ksh ash busybox eval source . exec trap alias bind enable vim vi ed ex nano"
    ),
    **spread(
        HIGH, _RUNS, "cargo go rustc gcc g++ cc c++ clang tsc pytest tox nox jest mocha cypress gem bundle composer"
    ),
    **spread(
        HIGH,
        _NETWORK,
        "curl wget nc ncat netcat socat telnet ftp sftp scp ssh aria2c dig nslookup host ping traceroute",
    ),
    **spread(
        HIGH, _NETWORK, "http https lynx w3m gh aws gcloud az s3cmd rclone psql mysql redis-cli mongo mail sendmail"
    ),
    **spread(HIGH, "removes", "rm rmdir unlink shred wipe"),
    **spread(HIGH, "changes who may use a file", "chmod chown chgrp setfacl chattr setcap"),
    **spread(HIGH, "ends processes", "kill pkill killall fuser"),
    **spread(HIGH, "runs code later, when nobody looks", "crontab at batch"),
    **spread(HIGH, "installs software", "apt apt-get dnf yum apk pacman brew snap flatpak dpkg rpm conda mamba"),
    **spread(CRITICAL, _OTHERS, "sudo su doas pkexec runuser setpriv newgrp sg"),
    **spread(
        CRITICAL, _MACHINE, "dd mkfs mkswap fdisk parted mount umount losetup swapon insmod modprobe rmmod sysctl"
    ),
    **spread(CRITICAL, _MACHINE, "reboot shutdown halt poweroff init systemctl service iptables nft ip ifconfig route"),
    **spread(
        CRITICAL, _MACHINE, "passwd useradd usermod userdel groupadd visudo chsh chpasswd timedatectl hostnamectl"
    ),
    **spread(
        CRITICAL, _ESCAPE, "docker podman kubectl nerdctl ctr runc nsenter unshare chroot bwrap capsh gdb strace ltrace"
    ),
}

UNREADABLE: Final = RiskRow(CRITICAL, "cannot be read, and a shell runs what comes before the part that it cannot read")
UNKNOWN_PROGRAM: Final = RiskRow(HIGH, "a program that is not on the list of known ones")
UNSEEN_PROGRAM: Final = RiskRow(HIGH, "which program runs is known only when it runs")
OWN_PROGRAM: Final = RiskRow(HIGH, "a program from a place where anybody may have put it")
INLINE: Final = RiskRow(MEDIUM, "code on the command line; its imports may come from the working directory")
REMOTE: Final = RiskRow(HIGH, "runs on another machine")
HOST: Final = RiskRow(HIGH, _NETWORK)
UNSEEN: Final[dict[Unknown, RiskRow]] = {
    Unknown.TEXT: RiskRow(HIGH, "cannot be read"),
    Unknown.COMMAND: RiskRow(HIGH, "which program runs is known only when it runs"),
    Unknown.CODE: RiskRow(HIGH, "what code runs is known only when it runs"),
    Unknown.OPERAND: RiskRow(MEDIUM, "what it is done to is known only when it runs"),
}
HIDDEN_CODE: Final = RiskRow(CRITICAL, "runs code that comes from the network, or that is made so that it is not read")
SHAPES: Final[dict[CommandShape, RiskRow]] = {
    CommandShape.FORK_BOMB: RiskRow(CRITICAL, "starts itself without end"),
    CommandShape.SUBSCRIPT: RiskRow(HIGH, "text that is evaluated once more, and so can run commands"),
    CommandShape.ODD_CHARACTER: RiskRow(MEDIUM, "characters that may look like others"),
}
EXPANSION: Final = RiskRow(LOW, "the shell puts something in before it runs")
ASSIGNMENT: Final = RiskRow(LOW, "sets a variable")
ODD_OPTION: Final = RiskRow(HIGH, "an option that makes a harmless program do more")

LOADER_VARIABLES: Final = {
    **spread(
        HIGH, "loads code into every program that starts", "LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH DYLD_INSERT_LIBRARIES"
    ),
    **spread(HIGH, "changes which program a name means", "PATH CDPATH IFS"),
    **spread(HIGH, "names code that the shell runs", "BASH_ENV ENV PROMPT_COMMAND PS0 PS1 PS2 PS4 SHELLOPTS BASHOPTS"),
    **spread(
        HIGH, "names code that a language runs", "PYTHONPATH PYTHONSTARTUP PYTHONHOME NODE_OPTIONS NODE_PATH PERL5OPT"
    ),
    **spread(
        HIGH, "names a program that others start", "GIT_SSH GIT_SSH_COMMAND GIT_EXTERNAL_DIFF GIT_PAGER PAGER EDITOR"
    ),
}

INSIDE: Final[dict[Touch, RiskRow]] = {
    Touch.READ: RiskRow(LOW, "reads in the workspace"),
    Touch.WRITE: RiskRow(MEDIUM, "writes in the workspace"),
    Touch.REMOVE: RiskRow(HIGH, "removes in the workspace"),
    Touch.EXECUTE: RiskRow(HIGH, "runs a file of the workspace, which is not seen here"),
    Touch.NAME: RiskRow(LOW, "names a file of the workspace"),
}
OUTSIDE: Final[dict[Touch, RiskRow]] = {
    Touch.READ: RiskRow(MEDIUM, "reads outside the workspace"),
    Touch.WRITE: RiskRow(HIGH, "writes outside the workspace"),
    Touch.REMOVE: RiskRow(CRITICAL, "removes outside the workspace"),
    Touch.EXECUTE: RiskRow(HIGH, "runs a file outside the workspace, which is not seen here"),
    Touch.NAME: RiskRow(MEDIUM, "names a file outside the workspace"),
}
HARMLESS_PATHS: Final = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/zero"})
OWN_PLACES: Final = ("/workspace", "/tmp")
"""Absolute paths that are the box's own."""

INLINE_CODE: Final[dict[str, tuple[str, str]]] = {
    "python": ("-c", "python"),
    "python3": ("-c", "python"),
    "node": ("-e", "javascript"),
    "nodejs": ("-e", "javascript"),
}
"""Programs that take code as an argument, by which option, in which language."""
