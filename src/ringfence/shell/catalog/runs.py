"""Options whose value is run, and further facts of single programs."""

import re
from typing import Final

from ringfence.shell.catalog.base import names as _set

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

RUNS_BY_OPTION: Final[dict[str, frozenset[str]]] = {
    # Options whose value is run, by a shell or as a program.
    # Archives and copies.
    **dict.fromkeys(
        _set("tar gtar"),
        _set("--to-command --checkpoint-action --use-compress-program -I --rsh-command --rmt-command --info-script -F")
        | _set("--new-volume-script"),
    ),
    "bsdtar": _set("--use-compress-program"),
    "star": _set("--compress-program -compress-program"),
    "cpio": _set("--rsh-command"),
    "rsync": _set("-e --rsh --rsync-path"),
    "zip": _set("-TT --unzip-command"),
    "split": _set("--filter"),
    "sort": _set("--compress-program"),
    "ncftpput": _set("-W"),
    "rclone": _set("--password-command --sftp-ssh"),
    "restic": _set("--password-command -o"),
    "borg": _set("--rsh --remote-path"),
    "duplicity": _set("--rsync-options --ssh-options"),
    # Search.
    "rg": _set("--pre --hostname-bin"),
    "ag": _set("--pager"),
    "ack": _set("--pager --output-program"),
    "fzf": _set("--preview --bind --with-shell"),
    # Reading and editing.
    "man": _set("-P --pager -H --html"),
    "nano": _set("-s --speller"),
    "pico": _set("-s"),
    "enscript": _set("-I --filter"),
    "msgfilter": _set("-P"),
    "msgexec": _set("-P"),
    "pandoc": _set("-F --filter --pdf-engine"),
    "bat": _set("--pager"),
    "batcat": _set("--pager"),
    "glow": _set("-p"),
    "delta": _set("--pager"),
    "zathura": _set("-x --synctex-editor-command"),
    "mail": _set("--exec"),
    "mailx": _set("--exec"),
    "mutt": _set("-e"),
    # Network.
    "wget": _set("--use-askpass"),
    "aria2c": _set(
        "--on-download-complete --on-download-error --on-download-start --on-download-stop --on-bt-download-complete"
    ),
    "java": _set("-XX:OnOutOfMemoryError -XX:OnError"),
    "scrot": _set("-e --exec"),
    **dict.fromkeys(_set("rpm rpmquery rpmverify rpmdb"), _set("--pipe")),
    "scp": _set("-S"),
    "sftp": _set("-S"),
    "nc": _set("-e -c --exec --sh-exec"),
    "ncat": _set("-e -c --exec --sh-exec --lua-exec"),
    "netcat": _set("-e -c --exec"),
    "tcpdump": _set("-z"),
    "dumpcap": _set("-z"),
    "openvpn": _set("--up --down --route-up --ipchange --client-connect --auth-user-pass-verify --tls-verify"),
    "pppd": _set("pty connect disconnect init"),
    "dhclient": _set("-sf"),
    "udhcpc": _set("-s --script"),
    "certbot": _set("--pre-hook --post-hook --deploy-hook --renew-hook --manual-auth-hook --manual-cleanup-hook"),
    "acme.sh": _set("--pre-hook --post-hook --renew-hook --reloadcmd"),
    "ssh-keygen": _set("-D"),
    "ssh-copy-id": _set("-o"),
    "agetty": _set("-l --login-program"),
    "getty": _set("-l"),
    "cdist": _set("-s"),
    "perlbug": _set("-e"),
    "psql": _set("-o --output -L --log-file"),
    "busctl": _set("--address"),
    "dbus-send": _set("--address --bus"),
    **dict.fromkeys(
        _set("chrome chromium google-chrome chromium-browser electron brave msedge code"),
        _set("--gpu-launcher --renderer-cmd-prefix --utility-cmd-prefix --ppapi-plugin-launcher")
        | _set("--browser-subprocess-path"),
    ),
    "qemu-system-x86_64": _set("-netdev-script"),
    # Compilers and builders.
    **dict.fromkeys(_set("gcc g++ cc c++ cpp c89 c99 gfortran x86_64-linux-gnu-gcc"), _set("-wrapper")),
    "go": _set("-toolexec -exec -vettool"),
    "ctest": _set("--build-makeprogram --test-command"),
    "gtester": _set("-q"),
    "dosbox": _set("-c"),
    "msbuild": _set("-preprocess"),
    "doxygen": _set("-d"),
    # As somebody else, later, in a terminal.
    "flock": _set("-c --command"),
    "script": _set("-c --command"),
    "su": _set("-c --command --session-command"),
    "runuser": _set("-c --command --session-command"),
    "sg": _set("-c"),
    "genie": _set("-c"),
    "nix-shell": _set("--run --command"),
    "nix": _set("-c --command"),
    "vagrant": _set("-c --command"),
    "npx": _set("-c --call"),
    "npm": _set("-c --call --script-shell"),
    "pnpm": _set("-c --shell-mode --script-shell"),
    "env": _set("-S --split-string"),
    **dict.fromkeys(
        _set("xterm urxvt rxvt konsole gnome-terminal xfce4-terminal alacritty kitty st terminator lxterminal foot"),
        _set("-e -x --command --execute"),
    ),
    "dpkg": _set("--pre-invoke --post-invoke"),
    "tmate": _set("-c"),
    "tmux": _set("-c"),
    "entr": _set("-s"),
    "nodemon": _set("-x --exec"),
    "watchexec": _set("--shell-command"),
    "pexec": _set("-c"),
    **dict.fromkeys(_set("cargo cargo-watch"), _set("-s --shell")),
    "cpan": _set("-e"),
    "gem": _set("-e --editor"),
    "distcc": _set("--listen-program"),
    "dmsetup": _set("--exec"),
    "wall": _set(),
    "check_by_ssh": _set("-o -C"),
    "neofetch": _set("--ascii_command"),
    "mysql": _set("--pager"),
    "mariadb": _set("--pager"),
    # Builtins of the shell.
    "mapfile": _set("-C"),
    "readarray": _set("-C"),
    "compgen": _set("-C -F"),
    "complete": _set("-C -F"),
    "fc": _set("-e"),
    "bind": _set("-x"),
    "crontab": _set(),
}
RUNS_BY_NAME: Final = re.compile(
    r"--[a-z][a-z-]{0,40}-(?:cmd|command|program|askpass|pager|editor)|--(?:pager|editor|askpass)"
)
"""Long options that say so themselves, of whatever program."""
RUNS_THE_REST: Final[dict[str, frozenset[str]]] = {
    # Options after which everything is a command with its arguments.
    **dict.fromkeys(_set("fd fdfind"), _set("-x -X --exec --exec-batch")),
    **dict.fromkeys(
        _set("xterm uxterm urxvt rxvt konsole xfce4-terminal alacritty st terminator lxterminal foot wezterm"),
        _set("-e -x --command --execute"),
    ),
    "gnome-terminal": _set("-x --"),
    "nix": _set("-c --command"),
    "just": _set("--command -c"),
    "nodemon": _set("-x --exec"),
    "watchexec": _set("--"),
    "stap": _set("-c"),
    "lxterminal": _set("-e"),
}
ORDINARY_RUNNERS: Final = _set(
    "su script flock npx npm pnpm env nix nix-shell fd fdfind fzf vagrant runuser sg genie start-stop-daemon xterm"
    " urxvt konsole gnome-terminal alacritty kitty nodemon watchexec entr  tmux"
    " ctest go make variable"
)
"""Running a shell by an option is what these are for."""

CODE_BY_OPTION: Final[dict[str, tuple[frozenset[str], str]]] = {
    # Options whose value is code in a language of its own: the options, and the language.
    "gnuplot": (_set("-e"), "gnuplot"),
    "octave": (_set("--eval"), "octave"),
    "octave-cli": (_set("--eval"), "octave"),
    "matlab": (_set("-r -batch"), "octave"),
    "ghc": (_set("-e"), "haskell"),
    "rake": (_set("-e -p -E"), "ruby"),
    "irb": (_set("-e"), "ruby"),
    "pry": (_set("-e"), "ruby"),
    "rails": (_set("-e"), "ruby"),
    "puppet": (_set("-e --execute"), "ruby"),
    "knife": (_set("-E"), "ruby"),
    "jrunscript": (_set("-e"), "java"),
    "jshell": (_set("-e"), "java"),
    "mongo": (_set("--eval"), "node"),
    "mongosh": (_set("--eval"), "node"),
    "rpm": (_set("-E --eval --pipe"), "rpm"),
    "rpmbuild": (_set("-E --eval"), "rpm"),
    "rpmdb": (_set("-E --eval"), "rpm"),
    "rpmquery": (_set("-E --eval"), "rpm"),
    "rpmverify": (_set("-E --eval"), "rpm"),
    "rpmspec": (_set("-E --eval"), "rpm"),
    "exiftool": (_set("-if -p -api"), "perl"),
    "prename": (_set("-e"), "perl"),
    "bpftrace": (_set("-e"), "bpftrace"),
    "slsh": (_set("-e"), "slang"),
    "dc": (_set("-e --expression"), "dc"),
    "sqlite3": (_set("-cmd"), "sql"),
    "psql": (_set("-c --command -v --set --pset -P"), "sql"),
    "mysql": (_set("-e --execute --init-command"), "sql"),
    "mariadb": (_set("-e --execute --init-command"), "sql"),
    "duckdb": (_set("-c -s -cmd"), "sql"),
    "sqlmap": (_set("--eval"), "python"),
    "ipython": (_set("-c"), "python"),
    "ipython3": (_set("-c"), "python"),
    "bpython": (_set("-c"), "python"),
    "sage": (_set("-c"), "python"),
    "gimp": (_set("-b --batch"), "python"),
    "blender": (_set("--python-expr"), "python"),
    "gdb": (_set("-ex --ex -iex --iex -eval-command --eval-command -init-eval-command"), "gdb"),
    "lldb": (_set("-o -O --one-line"), "gdb"),
    "emacs": (_set("--eval -eval --execute"), "elisp"),
    "emacsclient": (_set("-e --eval"), "elisp"),
    "fennel": (_set("-e --eval"), "lua"),
    "tarantool": (_set("-e"), "lua"),
    "nmap": (_set("--script-args"), "lua"),
    "smbclient": (_set("-c --command"), "mail"),
    "lftp": (_set("-c -e"), "mail"),
    "csi": (_set("-e -eval"), "scheme"),
    "sbcl": (_set("--eval"), "lisp"),
    "clisp": (_set("-x"), "lisp"),
    "racket": (_set("-e --eval"), "scheme"),
    "swipl": (_set("-g -t"), "prolog"),
    "erl": (_set("-eval"), "erlang"),
    "iex": (_set("-e --eval"), "elixir"),
    "clojure": (_set("-e --eval -M"), "clojure"),
    "kotlinc": (_set("-e -expression"), "java"),
    "pwsh": (_set("-c -Command -command"), "powershell"),
    "powershell": (_set("-c -Command -command"), "powershell"),
    **dict.fromkeys(_set("tex latex pdftex pdflatex xetex xelatex luatex lualatex"), (_set("-cnf-line"), "tex")),
}
CODE_OPERANDS: Final[dict[str, str]] = {
    # Programs whose operands may be code.
    **dict.fromkeys(_set("tex latex pdftex pdflatex xetex xelatex luatex lualatex mpost"), "tex"),
    "sqlite3": "sql",
    "duckdb": "sql",
    "psql": "sql",
    "redis-cli": "redis",
    "rename": "perl",
    "prename": "perl",
    "file-rename": "perl",
}
STDIN_LANGUAGES: Final[dict[str, str]] = {
    # Programs that take commands from their standard input.
    "ed": "ed",
    "red": "ed",
    "ex": "vim",
    "vi": "vim",
    "vim": "vim",
    "nvim": "vim",
    "dc": "dc",
    "m4": "m4",
    "sqlite3": "sql",
    "duckdb": "sql",
    "psql": "sql",
    "mysql": "sql",
    "mariadb": "sql",
    "gdb": "gdb",
    "lldb": "gdb",
    "gnuplot": "gnuplot",
    "octave": "octave",
    "octave-cli": "octave",
    "wish": "tcl",
    "ftp": "mail",
    "sftp": "mail",
    "lftp": "mail",
    "telnet": "mail",
    "mail": "mail",
    "mailx": "mail",
    "smbclient": "mail",
    "irb": "ruby",
    "pry": "ruby",
    "jshell": "java",
    "ghci": "repl",
    "scanmem": "repl",
    "crash": "repl",
    "tdbtool": "repl",
    "tasksh": "repl",
    "ncftp": "repl",
    "dotnet": "fsharp",
    "fsi": "fsharp",
    "terraform": "hcl",
    "swift": "swift",
    "ocaml": "ocaml",
    "scala": "scala",
    "sbcl": "lisp",
    "clisp": "lisp",
    "iex": "elixir",
    "erl": "erlang",
    "csharp": "fsharp",
    "kotlinc": "java",
    "racket": "scheme",
    "guile": "scheme",
    "swipl": "prolog",
    "nu": "repl",
    "tofu": "hcl",
    "ipython": "python",
    "rpm": "rpm",
    "redis-cli": "redis",
    "slsh": "slang",
    **dict.fromkeys(_set("tex latex pdftex pdflatex xetex xelatex luatex lualatex"), "tex"),
}
LOADS_BY_OPTION: Final[dict[str, frozenset[str]]] = {
    # Options that put code of a file into the program: libraries, plug-ins, scripts.
    "openssl": _set("-engine -provider-path -provider_path"),
    "ssh": _set("-I"),
    "ssh-add": _set("-s"),
    "ssh-keygen": _set("-D"),
    "nmap": _set("--script --datadir"),
    **dict.fromkeys(_set("gcc g++ cc c++ clang clang++"), _set("-fplugin -load -B -specs")),
    "ld": _set("-plugin"),
    "curl": _set("--engine"),
    "mysql": _set("--plugin-dir --default-auth"),
    "mariadb": _set("--plugin-dir --default-auth"),
    "cowsay": _set("-f"),
    "cowthink": _set("-f"),
    "wireshark": _set("-X"),
    "tshark": _set("-X"),
    "redis-cli": _set("--eval"),
    "exiftool": _set("-config"),
    "neofetch": _set("--config"),
    "facter": _set("--custom-dir --external-dir"),
    "dstat": _set("--plugin"),
    "minicom": _set("-S --script"),
    "pidstat": _set("-e"),
    "yum": _set("-c --config"),
    "dnf": _set("-c --config"),
    "apt": _set("-c --config-file"),
    "apt-get": _set("-c --config-file"),
    "ansible": _set("-M --module-path"),
    "highlight": _set("--plug-in"),
    "pandoc": _set("-L --lua-filter"),
    "jjs": _set("-scripting"),
    "logrotate": _set("-s --state"),
    "nginx": _set("-c -g"),
    "apache2": _set("-c -f"),
    "httpd": _set("-c -f"),
    "ip": _set("-b -batch -force"),
    "screen": _set("-c"),
    "zathura": _set("-c --config-dir"),
    "mpv": _set("--script --scripts"),
    "vlc": _set("--lua-intf"),
    "enable": _set("-f"),
    "gawk": _set("-l --load"),
}
SINGLE_DASH: Final = _set(
    "gcc g++ cc c++ cpp c89 c99 clang clang++ gfortran ld openssl java javac gdb lldb exiftool ffmpeg convert go erl"
    " tex latex pdflatex xelatex lualatex qemu-system-x86_64 dhclient"
)
"""Their options are words after one dash, not letters that may stand together."""
SSH_LIKE: Final = _set("ssh scp sftp ssh-copy-id autossh sshfs slogin mosh rsync-ssh")
SSH_COMMANDS: Final = _set("proxycommand localcommand knownhostscommand match authorizedkeyscommand")
"""Settings whose value is run."""
SSH_FILES: Final = _set("pkcs11provider securitykeyprovider include")
"""Settings that name code, or further settings."""
XARGS_TAKES: Final = _set(
    "-I -n -P -L -s -d -E -a -J -R -S --arg-file --delimiter --max-args --max-procs --max-lines --max-chars --eof"
    " --process-slot-var"
)
XARGS_REPLACES: Final = _set("-I -J --replace")
XARGS_FILES: Final = _set("-a --arg-file")
FILE_LISTS: Final[dict[str, frozenset[str]]] = {
    # Options that name a list of files to read.
    **dict.fromkeys(_set("tar gtar bsdtar"), _set("-T --files-from")),
    "rsync": _set("--files-from"),
    **dict.fromkeys(_set("wc du sort"), _set("--files0-from")),
    "find": _set("-files0-from"),
    "file": _set("-f --files-from"),
    "zip": _set("-i@ -@"),
}
SENDERS: Final = _set("nc ncat netcat socat telnet openssl")
"""Send their standard input to the host that they are given."""
PASSING_NAMES: Final = _set("cpio pax afio")
"""Take the names of files from their standard input."""
