"""Programs that run the command that follows them."""

from typing import Final

from ringfence.dataclass import dataclass, field
from ringfence.shell.catalog.base import names as _set
from ringfence.values.facts import Via


@dataclass(frozen=True, slots=True)
class Wrapper:
    """`name [options] [operands] command arguments`."""

    why: str
    takes: frozenset[str] = field(default_factory=_set)
    """Options whose value is the next argument, unless it is attached."""
    pairs: frozenset[str] = field(default_factory=_set)
    """Options with two values."""
    flags: frozenset[str] = field(default_factory=_set)
    """Options without a value. One that is in neither set is read both ways."""
    operands: int = 0
    """Operands before the command."""
    assigns: bool = False
    """`NAME=value` may stand before the command."""
    joined: bool = False
    """The rest is put together and read by a shell."""
    via: Via = Via.WRAPPER
    names_first: bool = False
    """A first operand may name something else than the command: `setarch x86_64 ls`."""
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
    "bwrap": Wrapper(
        "in a sandbox of its own",
        takes=_set(
            "--chdir --uid --gid --tmpfs --proc --dev --hostname --args --userns --userns2 --pidns --unsetenv --dir"
        )
        | _set("--lock-file --sync-fd --mqueue --remount-ro --exec-label --file-label --seccomp --block-fd")
        | _set(
            "--add-seccomp-fd --userns-block-fd --info-fd --json-status-fd --cap-add --cap-drop --perms --size"
            " --overlay-src --argv0"
        ),
        pairs=_set(
            "--bind --bind-try --dev-bind --dev-bind-try --ro-bind --ro-bind-try --bind-fd --ro-bind-fd --symlink"
        )
        | _set("--setenv --file --bind-data --ro-bind-data --chmod"),
        flags=_set(
            "--unshare-all --share-net --unshare-user --unshare-user-try --unshare-ipc --unshare-pid --unshare-net"
        )
        | _set("--unshare-uts --unshare-cgroup --clearenv --new-session --die-with-parent --as-pid-1 --disable-userns"),
    ),
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
    "setarch": Wrapper("as another machine", flags=_set("-B -F -I -L -R -S -T -X -Z -h -v -3"), names_first=True),
    **dict.fromkeys(
        _set("linux32 linux64 i386 i486 i586 i686 x86_64 uname26 s390 s390x ppc ppc64 sparc sparc64 mips mips64"),
        Wrapper("as another machine", flags=_set("-B -F -I -L -R -S -T -X -Z -h -v -3")),
    ),
    "ssh-agent": Wrapper("with an agent", takes=_set("-a -E -t -P -O"), flags=_set("-c -d -D -k -s")),
    "gpg-agent": Wrapper("with an agent", takes=_set("--homedir --options"), flags=_set("--daemon -q -v")),
    "keychain": Wrapper("with an agent", takes=_set("--agents --dir --host --timeout")),
    "rlwrap": Wrapper(
        "with a line editor",
        takes=_set("-b -C -D -f -H -l -m -M -O -P -q -s -S -t -w -z --history-filename --file --prompt --filter"),
        flags=_set("-a -A -c -e -E -g -h -i -I -n -N -o -p -r -R -u -U -v -W -X"),
    ),
    "sem": Wrapper("one of several", takes=_set("-j --id --jobs --timeout"), flags=_set("--fg --wait"), joined=True),
    "choom": Wrapper("with another score", takes=_set("-n -p --adjust --pid")),
    "coresched": Wrapper("on some processors", takes=_set("-s -d -t --source --dest --dest-type"), words=_set("new")),
    "cgexec": Wrapper("in a control group", takes=_set("-g"), flags=_set("--sticky")),
    "pasta": Wrapper("in another network", takes=_set("-t -u -T -U -l -i -a")),
    "slirp4netns": Wrapper("in another network", operands=2),
    "aa-exec": Wrapper("under a profile", takes=_set("-p -n --profile --namespace"), flags=_set("-i -d -v")),
    "runcon": Wrapper("under another label", takes=_set("-u -r -t -l -c --user --role --type --range"), operands=1),
    "sandbox-exec": Wrapper("in a sandbox of its own", takes=_set("-f -p -n -D")),
    "softlimit": Wrapper("with limits", takes=_set("-m -d -s -l -a -o -p -f -c -r -t")),
    "chpst": Wrapper("with other rights", takes=_set("-u -U -b -e -/ -C -n -l -L -m -d -o -p -f -c")),
    "setlock": Wrapper("under a lock", flags=_set("-n -N -x -X"), operands=1),
    "envdir": Wrapper("with other variables", operands=1),
    "envuidgid": Wrapper("as another user", operands=1),
    "fghack": Wrapper("in the foreground"),
    "pgrphack": Wrapper("in a group of its own"),
    "s6-setsid": Wrapper("in a session of its own"),
    "execlineb": Wrapper("reads its argument as a command", joined=True, flags=_set("-c")),
    "retry": Wrapper("until it succeeds", takes=_set("-d -t -m --delay --times --max --until")),
    "ts": Wrapper("with times", flags=_set("-r -i -s -m"), operands=1),
    "pee": Wrapper("for a copy of the input", joined=True, via=Via.SHELL),
    "ifne": Wrapper("if there is input", flags=_set("-n")),
    "vipe": Wrapper("with an editor"),
    "errno-run": Wrapper("watched"),
    "hyperfine": Wrapper(
        "measured",
        takes=_set("-w -r -m -M -N -S -n -P -u --warmup --runs --min-runs --max-runs --shell --export-json"),
        joined=True,
        via=Via.SHELL,
    ),
    "multitime": Wrapper("measured", takes=_set("-n -I -i -o -r -s")),
    "gtime": Wrapper("measured", takes=_set("-f --format -o --output"), flags=_set("-a -p -v")),
    "heaptrack": Wrapper("measured", takes=_set("-o -p")),
    "rr": Wrapper("recorded", words=_set("record")),
    "uftrace": Wrapper("traced", words=_set("record live"), takes=_set("-F -N -d")),
    "bear": Wrapper("recorded", takes=_set("--output --config"), flags=_set("--append --")),
    "scan-build": Wrapper("checked", takes=_set("-o --use-cc --use-c++"), flags=_set("-v -k")),
    "intercept-build": Wrapper("recorded", takes=_set("--cdb")),
    "ccache": Wrapper("with a cache"),
    "sccache": Wrapper("with a cache"),
    "distcc": Wrapper("elsewhere, with a cache"),
    "libtool": Wrapper("a compiler", takes=_set("--mode --tag"), flags=_set("--quiet --silent -n")),
    "xvfb-run-safe": Wrapper("with a display", flags=_set("-a")),
    "dtach": Wrapper("in a terminal of its own", takes=_set("-r -e"), flags=_set("-E -z"), operands=1),
    "abduco": Wrapper("in a terminal of its own", flags=_set("-c -n -f -a"), operands=1),
    "reptyr": Wrapper("in another terminal"),
    "cset": Wrapper("on some processors", words=_set("exec --exec")),
    "trickle": Wrapper("slowed down", takes=_set("-u -d -w -t -l -n"), flags=_set("-s -v")),
    "eatmydata": Wrapper("without waiting for disks", flags=_set("--")),
    "fakechroot": Wrapper("as if root", takes=_set("-l -e -c -b -d"), flags=_set("-s -h -v --")),
    "pseudo": Wrapper("as if root", takes=_set("-P -l -r")),
    "daemonize": Wrapper("in the background", takes=_set("-c -e -E -l -o -p -u"), flags=_set("-a -v")),
    "daemon": Wrapper("in the background", takes=_set("-n -p -u -c -l -o -e")),
    "at-spi-bus-launcher": Wrapper("with a bus"),
    "dbus-launch": Wrapper("with a bus", flags=_set("--exit-with-session --sh-syntax --autolaunch")),
    "xinit": Wrapper("with a display"),
    "startx": Wrapper("with a display"),
    "lxc-attach": Wrapper("in a container", takes=_set("-n --name"), flags=_set("--"), via=Via.REMOTE),
    "systemd-nspawn": Wrapper("in a container", takes=_set("-D -M -b --directory --machine --bind"), via=Via.REMOTE),
    "crun": Wrapper("in a container", words=_set("exec"), operands=1, via=Via.REMOTE),
    "runc": Wrapper("in a container", words=_set("exec"), operands=1, via=Via.REMOTE),
    "toolbox": Wrapper("in a container", takes=_set("-c --container"), words=_set("run"), via=Via.REMOTE),
    "distrobox": Wrapper("in a container", takes=_set("-n --name"), words=_set("enter"), via=Via.REMOTE),
    "wsl": Wrapper("in another system", takes=_set("-d -u --cd"), flags=_set("-e --exec --"), via=Via.REMOTE),
    "rsh": Wrapper("on another machine", takes=_set("-l"), operands=1, joined=True, via=Via.REMOTE),
    "sshpass": Wrapper("with a password", takes=_set("-f -d -p -P"), flags=_set("-e -v")),
    "autossh": Wrapper("again and again", takes=_set("-M")),
    "mosh": Wrapper("on another machine", operands=1, flags=_set("--"), via=Via.REMOTE),
    "pssh": Wrapper("on other machines", takes=_set("-h -H -l -p -o -e -t"), joined=True, via=Via.REMOTE),
    "dsh": Wrapper("on other machines", takes=_set("-m -g -f"), flags=_set("-a -c -M"), joined=True, via=Via.REMOTE),
    "salt": Wrapper("on other machines", operands=2, joined=True, via=Via.REMOTE),
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
    "pexec": Wrapper("several at once", takes=_set("-p -f -e -n -s -t -y -z -l -g -G -o -u --parameters --shell")),
    "snap": Wrapper("in a package", takes=_set("--shell"), words=_set("run")),
    "flatpak": Wrapper("in a package", takes=_set("--command --arch --branch"), words=_set("run")),
    # Tools for projects, which run what they are given.
    "uv": Wrapper("in a project", takes=_set("--with --python -p --extra --group --env-file"), words=_set("run")),
    "uvx": Wrapper("a package's program", takes=_set("--from --with --python -p")),
    "npx": Wrapper(
        "a package's program", takes=_set("-p --package -c --call"), flags=_set("-y --yes -q --no --no-install")
    ),
    "pnpx": Wrapper("a package's program"),
    "npm": Wrapper("in a project", takes=_set("-p --package -w --workspace"), flags=_set("--"), words=_set("exec x")),
    "pnpm": Wrapper("in a project", takes=_set("--package --filter"), flags=_set("--"), words=_set("exec dlx")),
    "watchexec": Wrapper(
        "when files change",
        takes=_set("-e -w -W -f -i -o -s -d -E --exts --watch --filter --ignore --signal --debounce --env"),
        flags=_set("-r -c -n -p -N --restart --clear --postpone"),
    ),
    "kitty": Wrapper("in a terminal", takes=_set("-o -c -d -T --title --config --directory"), flags=_set("-1 --hold")),
    "bunx": Wrapper("a package's program", flags=_set("--bun")),
    "poetry": Wrapper("in a project", words=_set("run")),
    "cabal": Wrapper("in a project", words=_set("exec"), flags=_set("--")),
    "stack": Wrapper("in a project", words=_set("exec runghc"), flags=_set("--")),
    "opam": Wrapper("in a project", words=_set("exec"), flags=_set("--")),
    "dune": Wrapper("in a project", words=_set("exec"), flags=_set("--")),
    "yarn": Wrapper("in a project", words=_set("exec dlx"), flags=_set("--")),
    "composer": Wrapper("in a project", words=_set("exec"), flags=_set("--")),
    "rye": Wrapper("in a project", words=_set("run")),
    "pixi": Wrapper("in a project", words=_set("run exec")),
    "devbox": Wrapper("in a project", words=_set("run"), flags=_set("--")),
    "nvm": Wrapper("with tools", operands=1, words=_set("exec")),
    "fnm": Wrapper("with tools", takes=_set("--using"), words=_set("exec")),
    "volta": Wrapper("with tools", takes=_set("--node --npm"), words=_set("run")),
    "xdotool": Wrapper("in a desktop", flags=_set("--sync --terminator"), words=_set("exec")),
    "timew": Wrapper("measured", words=_set("exec")),
    "dotenv": Wrapper("with variables of a file", takes=_set("-f --file -e"), words=_set("run"), flags=_set("--")),
    "chamber": Wrapper("with secrets", operands=1, flags=_set("--"), words=_set("exec")),
    "vault": Wrapper("with secrets", words=_set("exec")),
    "grc": Wrapper("coloured", flags=_set("--pty -e -s"), takes=_set("-c --config")),
    "script-run": Wrapper("recorded"),
    "kitchen": Wrapper("in a machine", takes=_set("-c"), words=_set("exec"), via=Via.REMOTE),
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
