"""Programs that run other programs: the rows, and the reason beside each.

A row says how to find the command inside. What is missing here is seen as a program of its own, whose arguments are
only data: add a row rather than a special case.
"""

from dataclasses import dataclass, field
from typing import Final

from ringfence.values.facts import Via


def _set(text: str = "") -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True, slots=True)
class Wrapper:
    """`name [options] [operands] command arguments`."""

    why: str
    takes: frozenset[str] = field(default_factory=_set)
    """Options whose value is the next argument, unless it is attached."""
    flags: frozenset[str] = field(default_factory=_set)
    """Options without a value. One that is in neither set is read both ways."""
    operands: int = 0
    """Operands before the command."""
    assigns: bool = False
    """`NAME=value` may stand before the command."""
    joined: bool = False
    """The rest is put together and read by a shell."""
    via: Via = Via.WRAPPER
    words: frozenset[str] = field(default_factory=_set)
    """Sub-commands that wrap: `uv run`. Empty: the program itself does."""


WRAPPERS: Final[dict[str, Wrapper]] = {
    # Builtins and keywords of the shell.
    "command": Wrapper("skips functions and aliases", flags=_set("-p")),
    "builtin": Wrapper("a builtin of the shell"),
    "exec": Wrapper("replaces the shell", takes=_set("-a"), flags=_set("-c -l")),
    "time": Wrapper("measures", takes=_set("-f --format -o --output"), flags=_set("-a -p -v --append --portability")),
    "noglob": Wrapper("zsh: without file names"),
    "nocorrect": Wrapper("zsh: without correction"),
    "eval": Wrapper("reads its arguments as a command", joined=True, via=Via.SHELL),
    # As somebody else.
    "sudo": Wrapper(
        "as root or another user",
        takes=_set("-u -g -h -p -C -r -t -T -U -R -D --user --group --host --prompt --chroot --chdir --role --type"),
        flags=_set("-A -b -E -e -H -i -K -k -l -n -P -S -s -V -v --preserve-env --login --shell --stdin --set-home"),
        assigns=True,
    ),
    "doas": Wrapper("as root or another user", takes=_set("-u -C -a"), flags=_set("-L -n -s")),
    "pkexec": Wrapper("as root or another user", takes=_set("--user"), flags=_set("--disable-internal-agent")),
    "gosu": Wrapper("as another user", operands=1),
    "su-exec": Wrapper("as another user", operands=1),
    "setuidgid": Wrapper("as another user", operands=1),
    "setpriv": Wrapper("with other rights", takes=_set("--reuid --regid --groups --inh-caps --bounding-set")),
    "fakeroot": Wrapper("as if root", takes=_set("-l -f -s -i -b"), flags=_set("-u -v --")),
    # With another environment, directory, root or namespace.
    "env": Wrapper(
        "with other variables",
        takes=_set("-u --unset -C --chdir -a --argv0"),
        flags=_set("-i - --ignore-environment -0 --null -v --debug --list-signal-handling"),
        assigns=True,
    ),
    "chroot": Wrapper("with another root", takes=_set("--userspec --groups"), flags=_set("--skip-chdir"), operands=1),
    "unshare": Wrapper(
        "in new namespaces",
        takes=_set("-S -G -R -w --setuid --setgid --root --wd"),
        flags=_set("-m -u -i -n -p -U -C -T -f -r -c --mount --uts --ipc --net --pid --user --cgroup --fork")
        | _set("--map-root-user --map-current-user --mount-proc --keep-caps --kill-child --time"),
    ),
    "nsenter": Wrapper(
        "in the namespaces of another process",
        takes=_set("-t --target -S -G --setuid --setgid"),
        flags=_set("-a -m -u -i -n -p -U -C -T -F -r -w -Z -e --all --mount --uts --ipc --net --pid --user --cgroup"),
    ),
    "bwrap": Wrapper("in a sandbox of its own", takes=_set("--chdir --uid --gid --tmpfs --proc --dev --hostname")),
    "proot": Wrapper("with another root", takes=_set("-r -b -w -R -S --rootfs --bind --cwd")),
    "direnv": Wrapper("with a directory's variables", operands=1, words=_set("exec")),
    # When, how long, how fast, watched by whom.
    "nohup": Wrapper("goes on after the terminal"),
    "setsid": Wrapper("in a session of its own", flags=_set("-c -f -w --ctty --fork --wait")),
    "disown": Wrapper("goes on after the shell", flags=_set("-a -h -r")),
    "timeout": Wrapper(
        "for a time",
        takes=_set("-s --signal -k --kill-after"),
        flags=_set("-v -f -p --verbose --foreground --preserve-status"),
        operands=1,
    ),
    "nice": Wrapper("with another priority", takes=_set("-n --adjustment")),
    "ionice": Wrapper("with another priority", takes=_set("-c -n -p -P -u --class --classdata"), flags=_set("-t")),
    "chrt": Wrapper(
        "with another priority",
        takes=_set("-T -P -D"),
        flags=_set("-b -f -i -o -r -R -d --batch --fifo --idle --other --rr"),
        operands=1,
    ),
    "taskset": Wrapper("on some processors", flags=_set("-a -c --all-tasks --cpu-list"), operands=1),
    "numactl": Wrapper("on some processors", takes=_set("-C -N -m -p -i --cpunodebind --membind"), flags=_set("-l")),
    "cpulimit": Wrapper("slowed down", takes=_set("-l -p -e --limit"), flags=_set("-z -b -f -i --")),
    "prlimit": Wrapper("with limits"),
    "stdbuf": Wrapper("with other buffers", takes=_set("-i -o -e --input --output --error")),
    "unbuffer": Wrapper("with a terminal", flags=_set("-p")),
    "flock": Wrapper(
        "under a lock",
        takes=_set("-w --timeout -E --conflict-exit-code"),
        flags=_set("-e -F -n -o -s -u -x --exclusive --nonblock --shared --verbose --close --no-fork"),
        operands=1,
    ),
    "faketime": Wrapper("at another time", takes=_set("-p --exclude-monotonic"), flags=_set("-f -m"), operands=1),
    "chronic": Wrapper("quiet unless it fails", flags=_set("-v -e")),
    "caffeinate": Wrapper("keeps the machine awake", takes=_set("-t -w"), flags=_set("-d -i -m -s -u")),
    "logsave": Wrapper("with its output kept", flags=_set("-a -s -v"), operands=1),
    "strace": Wrapper(
        "traced",
        takes=_set("-a -b -e -E -I -o -O -p -P -s -S -u -U -X --trace --output"),
        flags=_set("-c -C -d -D -f -ff -h -i -k -n -q -r -t -tt -T -v -V -w -x -y -yy -z -Z"),
    ),
    "ltrace": Wrapper("traced", takes=_set("-a -e -l -n -o -p -s -u -x -A -D -F -w"), flags=_set("-b -c -C -f -i -L")),
    "valgrind": Wrapper("checked", flags=_set("-v -q -d -s")),
    "entr": Wrapper("when files change", flags=_set("-a -c -cc -d -n -p -r -s -x -z")),
    "watch": Wrapper(
        "again and again",
        takes=_set("-n --interval -q --equexit"),
        flags=_set("-b -c -C -d -e -g -p -r -t -w --beep --color --differences --errexit --chgexit --no-title"),
        joined=True,
        via=Via.SHELL,
    ),
    "dumb-init": Wrapper("as the first process", flags=_set("-c -v --"), takes=_set("-r")),
    "tini": Wrapper("as the first process", flags=_set("-s -v -w -g --"), takes=_set("-p -e")),
    "systemd-run": Wrapper("by the system", takes=_set("-p -u -M -H --unit --property --uid --gid -E --setenv")),
    "systemd-inhibit": Wrapper("keeps the machine awake"),
    "dbus-run-session": Wrapper("with a bus", takes=_set("--config-file"), flags=_set("--")),
    "xvfb-run": Wrapper("with a display", takes=_set("-n -e -f -p -s -w"), flags=_set("-a -l")),
    "catchsegv": Wrapper("watched"),
    "firejail": Wrapper("in a sandbox of its own"),
    "proxychains": Wrapper("through a proxy", takes=_set("-f"), flags=_set("-q")),
    "proxychains4": Wrapper("through a proxy", takes=_set("-f"), flags=_set("-q")),
    "torsocks": Wrapper("through a proxy"),
    "busybox": Wrapper("many programs in one"),
    "toybox": Wrapper("many programs in one"),
    # Tools for projects, which run what they are given.
    "uv": Wrapper("in a project", takes=_set("--with --python -p --extra --group --env-file"), words=_set("run")),
    "uvx": Wrapper("a package's program", takes=_set("--from --with --python -p")),
    "npx": Wrapper(
        "a package's program", takes=_set("-p --package -c --call"), flags=_set("-y --yes -q --no --no-install")
    ),
    "pnpx": Wrapper("a package's program"),
    "bunx": Wrapper("a package's program", flags=_set("--bun")),
    "poetry": Wrapper("in a project", words=_set("run")),
    "pipenv": Wrapper("in a project", words=_set("run")),
    "pdm": Wrapper("in a project", words=_set("run")),
    "hatch": Wrapper("in a project", words=_set("run")),
    "bundle": Wrapper("in a project", words=_set("exec")),
    "conda": Wrapper("in an environment", takes=_set("-n -p --name --prefix --cwd"), words=_set("run")),
    "mamba": Wrapper("in an environment", takes=_set("-n -p --name --prefix --cwd"), words=_set("run")),
    "mise": Wrapper("with tools", words=_set("exec x")),
    "asdf": Wrapper("with tools", words=_set("exec")),
    "rbenv": Wrapper("with tools", words=_set("exec")),
    "pyenv": Wrapper("with tools", words=_set("exec")),
    "rustup": Wrapper("with tools", operands=1, words=_set("run")),
    "aws-vault": Wrapper("with secrets", operands=1, words=_set("exec")),
    "op": Wrapper("with secrets", takes=_set("--env-file"), words=_set("run")),
    "doppler": Wrapper("with secrets", takes=_set("-p -c"), words=_set("run")),
    "perf": Wrapper("measured", takes=_set("-e -o -F -c -p -t -C"), words=_set("stat record trace")),
    # Elsewhere.
    "ssh": Wrapper(
        "on another machine",
        takes=_set("-B -b -c -D -E -e -F -I -i -J -L -l -m -O -o -P -p -Q -R -S -W -w"),
        flags=_set("-4 -6 -A -a -C -f -G -g -K -k -M -N -n -q -s -T -t -tt -V -v -vv -vvv -X -x -Y -y"),
        operands=1,
        joined=True,
        via=Via.REMOTE,
    ),
    "flatpak-spawn": Wrapper("outside of its sandbox", flags=_set("--host --clear-env --watch-bus"), via=Via.REMOTE),
    "distrobox-host-exec": Wrapper("outside of its container", via=Via.REMOTE),
    "host-spawn": Wrapper("outside of its container", via=Via.REMOTE),
    "adb": Wrapper("on a device", takes=_set("-s"), joined=True, via=Via.REMOTE, words=_set("shell")),
    "multipass": Wrapper("in a machine", operands=1, via=Via.REMOTE, words=_set("exec")),
    "lxc": Wrapper("in a container", operands=1, via=Via.REMOTE, words=_set("exec")),
}

CONTAINERS: Final = _set("docker podman nerdctl kubectl oc docker-compose crictl")
"""`docker run [options] image command`, `kubectl exec pod -- command`."""
CONTAINER_TAKES: Final = _set(
    "-a -c -e -h -l -m -p -u -v -w -n --add-host --cap-add --cap-drop --cpus --device --dns --entrypoint --env"
    " --env-file --gpus --hostname --ip --ipc --label --link --log-driver --log-opt --memory"
    " --mount --name --namespace --network"
    " --net --pid --platform --publish --pull --restart --runtime --security-opt --shm-size --stop-signal --tmpfs"
    " --ulimit --user --userns --uts --volume --volumes-from --workdir --container --context --kubeconfig --host -H"
)

PARALLEL_TAKES: Final = _set("-j -P -n -N -L -S -a -C -d --jobs --arg-file --colsep --delay --timeout --joblog")

SHELLS: Final = _set("sh bash dash zsh ksh mksh ash rbash fish csh tcsh yash posh oksh lksh busybox-sh")
SHELL_TAKES: Final = _set("-o +o -O +O --rcfile --init-file --emulate -C --init-command")
LOADERS: Final = ("ld-linux", "ld-musl", "ld.so", "ld64.so")
"""The dynamic linker runs the program that it is given."""
LOADER_TAKES: Final = _set("--library-path --preload --argv0 --audit --glibc-hwcaps-mask --inhibit-rpath")

INTERPRETERS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    # name: (options whose value is code, other options with a value)
    "python": (_set("-c"), _set("-W -X -m --check-hash-based-pycs")),
    "pypy": (_set("-c"), _set("-W -X -m")),
    "perl": (_set("-e -E"), _set("-I -M -m")),
    "ruby": (_set("-e"), _set("-I -r -C")),
    "node": (_set("-e -p -pe --eval --print"), _set("-r --require --import --loader")),
    "nodejs": (_set("-e -p -pe --eval --print"), _set("-r --require --import")),
    "bun": (_set("-e --eval -p --print"), _set("-r --preload")),
    "deno": (_set(), _set("--config -c")),
    "php": (_set("-r -B -R -E"), _set("-d -c -z")),
    "lua": (_set("-e"), _set("-l")),
    "luajit": (_set("-e"), _set("-l")),
    "tclsh": (_set(), _set()),
    "expect": (_set("-c"), _set("-f")),
    "osascript": (_set("-e"), _set("-l")),
    "Rscript": (_set("-e"), _set()),
    "R": (_set("-e"), _set("-f")),
    "groovy": (_set("-e"), _set("-cp")),
    "scala": (_set("-e"), _set("-cp")),
    "julia": (_set("-e -E --eval --print"), _set("-L -J")),
    "elixir": (_set("-e --eval"), _set("-r")),
    "guile": (_set("-c"), _set("-l -L")),
    "emacs": (_set("--eval -eval"), _set("-l --load")),
}

RUNS_BY_OPTION: Final[dict[str, frozenset[str]]] = {
    # Options whose value is run, by a shell or as a program.
    "tar": _set(
        "--to-command --checkpoint-action --use-compress-program -I --rsh-command --info-script -F --new-volume-script"
    ),
    "bsdtar": _set("--use-compress-program"),
    "rsync": _set("-e --rsh"),
    "rg": _set("--pre --hostname-bin"),
    "man": _set("-P --pager -H --html"),
    "sort": _set("--compress-program"),
    "split": _set("--filter"),
    "zip": _set("-TT --unzip-command"),
    "wget": _set("--use-askpass"),
    "scp": _set("-S"),
    "sftp": _set("-S"),
    "flock": _set("-c --command"),
    "script": _set("-c --command"),
    "su": _set("-c --command --session-command"),
    "runuser": _set("-c --command --session-command"),
    "sg": _set("-c"),
    "nix-shell": _set("--run --command"),
    "nix": _set("-c --command"),
    "vagrant": _set("-c --command"),
    "nc": _set("-e -c --exec --sh-exec"),
    "ncat": _set("-e -c --exec --sh-exec --lua-exec"),
    "netcat": _set("-e -c --exec"),
    "gcc": _set("-wrapper"),
    "fzf": _set("--preview --bind"),
    "npx": _set("-c --call"),
    "npm": _set("-c --call --script-shell"),
    "env": _set("-S --split-string"),
    "start-stop-daemon": _set("-x -a --exec --startas"),
    "xterm": _set("-e"),
    "dpkg": _set("--pre-invoke --post-invoke"),
    "less": _set(),
    "fd": _set("-x -X --exec --exec-batch"),
    "fdfind": _set("-x -X --exec --exec-batch"),
    "ssh-keygen": _set("-D"),
    "mysql": _set("--pager"),
    "crontab": _set(),
}

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
)
