"""What programs do with their operands, and which of their options name files: one row for each program."""

from typing import Final

from ringfence.dataclass import dataclass, field
from ringfence.shell.catalog.mirrors import RSYNC_TAKES
from ringfence.values.facts import Touch

_R, _W, _X = Touch.READ, Touch.WRITE, Touch.REMOVE


@dataclass(frozen=True, slots=True)
class TouchRow:
    operand: Touch | None = _R
    """What happens to an operand; None: it is not a path."""
    last: Touch | None = None
    """What happens to the last of several operands, if something else."""
    skip: int = 0
    """Operands before the files: a pattern, a mode."""
    unless: frozenset[str] = frozenset()
    """Options that stand for what is skipped."""
    takes: frozenset[str] = frozenset()
    """Options with a value that is not a path."""
    files: dict[str, Touch] = field(default_factory=dict)
    """Options with a value that is a path."""
    recursive: frozenset[str] = frozenset()


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


NO_PATHS: Final = TouchRow(None)
_READ: Final = TouchRow(_R, takes=words("-n -c -w -d -f -t -s"))
GREP: Final = TouchRow(
    _R,
    skip=1,
    unless=words("-e -f --regexp --file"),
    takes=words("-e -A -B -C -m --regexp --include --exclude -g -t -T")
    | words("--exclude-dir --glob --type --max-count --context -d -D"),
    files={"-f": _R, "--file": _R},
    recursive=words("-r -R --recursive"),
)
_REMOVE: Final = TouchRow(_X, recursive=words("-r -R --recursive"))
_MODE: Final = TouchRow(_W, skip=1, unless=words("--reference"), recursive=words("-R --recursive"))
_COMPILER: Final = TouchRow(
    _R,
    takes=words("-x -D -I -L -l -std -isystem -include -arch -target -MF -MT -Xlinker"),
    files={"-o": _W, "--output": _W},
)

ROWS: Final[dict[str, TouchRow]] = {
    # Words that are only words.
    **dict.fromkeys(
        words(
            "echo printf true false : exit return break continue set shift test [ let sleep wait jobs"
            " kill pkill killall seq"
            " date expr basename dirname type which whereis hash help man info whatis apropos unset"
            " trap alias unalias yes bg fg"
            " export declare typeset local readonly read mapfile getopts ulimit umask shopt history"
            " logout times enable bind"
            " nohup exec eval command builtin env sudo xargs uname id whoami groups hostname ps top free uptime cal bc"
        ),
        NO_PATHS,
    ),
    # Readers.
    **dict.fromkeys(
        words(
            "cat tac nl od xxd hexdump strings wc cksum md5sum sha1sum sha256sum sha512sum b2sum sum"
            " head tail less more view"
            " cut paste join comm sort uniq tr rev fold fmt expand unexpand column pr stat file ls dir"
            " vdir du tree diff cmp"
            " sdiff diff3 base64 base32 zcat bzcat xzcat zless gunzip readlink realpath getfacl lsattr"
            " bat batcat exa eza"
            " mapfile readarray source . shuf csplit split xmllint pdftotext iconv"
        ),
        _READ,
    ),
    "ls": TouchRow(_R, takes=words("-I -w -T")),
    "tree": TouchRow(_R, takes=words("-L -I -P"), files={"-o": _W}),
    "sort": TouchRow(_R, takes=words("-k -t -S"), files={"-o": _W, "--output": _W, "--files0-from": _R}),
    "wc": TouchRow(_R, files={"--files0-from": _R}),
    "tr": NO_PATHS,
    "uniq": TouchRow(_R, last=_W),
    **dict.fromkeys(words("grep egrep fgrep zgrep rgrep rg ag ack pcregrep ugrep"), GREP),
    **dict.fromkeys(
        words("sed gsed"),
        TouchRow(
            _R,
            skip=1,
            unless=words("-e -f --expression --file"),
            takes=words("-e --expression -l"),
            files={"-f": _R, "--file": _R},
        ),
    ),
    **dict.fromkeys(
        words("awk gawk mawk nawk"),
        TouchRow(
            _R,
            skip=1,
            unless=words("-f --file -e --source"),
            takes=words("-v -F --assign -e --source"),
            files={"-f": _R, "--file": _R},
        ),
    ),
    **dict.fromkeys(
        words("jq yq"),
        TouchRow(
            _R,
            skip=1,
            unless=words("-f --from-file"),
            takes=words("--arg --argjson --indent --args"),
            files={"-f": _R, "--from-file": _R, "--slurpfile": _R, "--rawfile": _R},
        ),
    ),
    "tar": TouchRow(
        _R,
        takes=words("--exclude --transform --strip-components --owner --group --mode"),
        files={"-C": _W, "--directory": _W, "-T": _R, "-X": _R},
    ),
    **dict.fromkeys(
        words("unsquashfs unar cabextract lha unace unarj"),
        TouchRow(_R, files={"-d": _W, "-dest": _W, "-o": _W, "-output-directory": _W, "--directory": _W}),
    ),
    **dict.fromkeys(
        words("gzip bzip2 xz lzma zstd lz4 compress lzop brotli lrzip pigz pbzip2 pixz"),
        TouchRow(_R, takes=words("-S --suffix -T --threads -o -b -M"), recursive=words("-r --recursive")),
    ),
    **dict.fromkeys(words("7z 7za"), TouchRow(_R, takes=words("-p"))),
    "unzip": TouchRow(_R, files={"-d": _W}, takes=words("-x")),
    "zip": TouchRow(_R, takes=words("-x -i")),
    "openssl": TouchRow(
        None, takes=words("-pass -k -K -iv"), files={"-in": _R, "-out": _W, "-inkey": _R, "-CAfile": _R}
    ),
    # Writers.
    **dict.fromkeys(
        words("tee touch mkdir mkfifo mknod mktemp truncate fallocate"),
        TouchRow(_W, takes=words("-m -d -t -s -l -o -r --mode --date --size --length"), files={"-r": _R}),
    ),
    "truncate": TouchRow(_W, takes=words("-s --size"), files={"-r": _R, "--reference": _R}),
    **dict.fromkeys(
        words("cp install scp"),
        TouchRow(
            _R,
            last=_W,
            takes=words("-m -o -g -S --mode --owner --group --suffix -P -l"),
            files={"-t": _W, "--target-directory": _W},
            recursive=words("-r -R -a --recursive"),
        ),
    ),
    "rsync": TouchRow(
        _R,
        last=_W,
        takes=RSYNC_TAKES,
        files={"--log-file": _W},
        recursive=words("-r -a"),
    ),
    "mv": TouchRow(_X, last=_W, takes=words("-S --suffix"), files={"-t": _W, "--target-directory": _W}),
    "ln": TouchRow(_R, last=_W, takes=words("-S --suffix"), files={"-t": _W, "--target-directory": _W}),
    **dict.fromkeys(words("rm unlink shred srm rmdir trash trash-put del wipe"), _REMOVE),
    **dict.fromkeys(words("chmod chown chgrp chattr chcon"), _MODE),
    "setfacl": TouchRow(
        _W,
        takes=words("-m -x --modify --remove"),
        files={"-M": _R, "-X": _R, "--modify-file": _R, "--remove-file": _R, "--restore": _R},
        recursive=words("-R --recursive"),
    ),
    "setfattr": TouchRow(_W, takes=words("-n -v -x --name --value --remove"), files={"--restore": _R}),
    **dict.fromkeys(words("gcc g++ cc c++ clang clang++ ld rustc go javac tsc esbuild"), _COMPILER),
    **dict.fromkeys(
        words("ed ex vi vim nvim nano pico emacs joe micro code"), TouchRow(_W, takes=words("-c --cmd -S --eval -l"))
    ),
    "patch": TouchRow(_W, takes=words("-p"), files={"-i": _R, "-o": _W, "-d": _W}),
    "curl": TouchRow(
        None,
        takes=words("-H -X -A -e -u -m -b -x -w -r --header --request --max-time --retry --url"),
        files={
            "-o": _W,
            "--output": _W,
            "-K": _R,
            "--config": _R,
            "-T": _R,
            "--upload-file": _R,
            "-c": _W,
            "--cookie-jar": _W,
            "-D": _W,
            "--dump-header": _W,
            "-E": _R,
            "--cert": _R,
            "--key": _R,
            "--output-dir": _W,
            "--netrc-file": _R,
            "--unix-socket": _R,
            "--abstract-unix-socket": _R,
        },
    ),
    "wget": TouchRow(
        None,
        takes=words("-U -t -T -w --header --user --password --tries --timeout"),
        files={
            "-O": _W,
            "--output-document": _W,
            "-P": _W,
            "--directory-prefix": _W,
            "-i": _R,
            "--input-file": _R,
            "--post-file": _R,
            "--body-file": _R,
            "-o": _W,
            "-a": _W,
            "--load-cookies": _R,
        },
    ),
    "cd": TouchRow(None),
    "pushd": TouchRow(None),
    "popd": TouchRow(None),
    **dict.fromkeys(
        words("ping dig host nslookup nc ncat netcat telnet traceroute whois ssh"),
        TouchRow(None, takes=words("-c -W -p -w -t -i -l"), files={"-i": _R, "-F": _R}),
    ),
}

_PACKS: Final = (
    words("-c -k -l -t -h -V -L --stdout --to-stdout --keep --list --test --help --version"),
    frozenset[str](),
)
EATERS: Final[dict[str, tuple[frozenset[str], frozenset[str]]]] = {
    # Remove what they have packed: unless one of the first is given; only if one of the second is.
    **dict.fromkeys(words("gzip bzip2 xz lzma compress pigz pbzip2 pixz"), _PACKS),
    **dict.fromkeys(words("zstd lz4 brotli lzop"), (frozenset[str](), words("--rm -U --delete"))),
    "zip": (frozenset(), words("-m --move")),
    **dict.fromkeys(words("7z 7za"), (frozenset[str](), words("-sdel"))),
}
