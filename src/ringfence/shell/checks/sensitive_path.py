"""Files that hold secrets, files that are run later by somebody else, and writes outside of where work belongs."""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.shell.context import CheckContext, say, segment_may_be
from ringfence.values.facts import CheckAnswer, Facts, Finding, PathFact, Touch
from ringfence.values.paths import is_below

_P, _W, _B = CheckAnswer.PASS, CheckAnswer.WARN, CheckAnswer.BLOCK


@dataclass(frozen=True, slots=True)
class SensitivePathRow:
    """`path` is absolute, or holds at any depth. It stands for what lies below it too."""

    path: str
    read: CheckAnswer
    write: CheckAnswer
    why: str
    milder: bool = False
    """Inside the workspace, reading and writing is only warned of: it may be the project's own."""
    spares: frozenset[str] = frozenset()


_SECRET: Final = "credentials"
_START: Final = "is run when somebody logs in"
_TOOL: Final = "can make a tool run commands"
_HISTORY: Final = "what somebody typed, passwords included"
_SAMPLES: Final = frozenset((".env.example", ".env.sample", ".env.template", ".env.dist", ".env.test", ".env.defaults"))

_SAMPLE_ENDS: Final = (".example", ".sample", ".template", ".dist", ".tmpl")

ROWS: Final[tuple[SensitivePathRow, ...]] = (
    # Keys and tokens.
    SensitivePathRow(".ssh", _B, _B, "keys and who may log in", milder=True),
    SensitivePathRow(".aws", _B, _B, _SECRET, milder=True),
    SensitivePathRow(".azure", _B, _B, _SECRET, milder=True),
    SensitivePathRow(".gnupg", _B, _B, "keys", milder=True),
    SensitivePathRow(".kube", _B, _B, "keys of clusters", milder=True),
    SensitivePathRow(".docker", _B, _B, "tokens of registries", milder=True),
    SensitivePathRow(".config/gcloud", _B, _B, _SECRET),
    SensitivePathRow(".config/gh", _B, _B, "tokens"),
    SensitivePathRow(".config/hub", _B, _B, "tokens"),
    SensitivePathRow(".config/op", _B, _B, "tokens"),
    SensitivePathRow(".config/rclone", _B, _B, _SECRET),
    SensitivePathRow(".terraform.d", _B, _B, _SECRET),
    SensitivePathRow(".vault-token", _B, _B, "a token"),
    SensitivePathRow(".netrc", _B, _B, "passwords", milder=True),
    SensitivePathRow("_netrc", _B, _B, "passwords", milder=True),
    SensitivePathRow(".pgpass", _B, _B, "passwords", milder=True),
    SensitivePathRow(".my.cnf", _B, _B, "passwords", milder=True),
    SensitivePathRow(".npmrc", _B, _B, "tokens of registries", milder=True),
    SensitivePathRow(".yarnrc.yml", _P, _W, "tokens of registries", milder=True),
    SensitivePathRow(".pypirc", _B, _B, "tokens of registries", milder=True),
    SensitivePathRow(".git-credentials", _B, _B, "passwords"),
    SensitivePathRow(".config/git/credentials", _B, _B, "passwords"),
    SensitivePathRow(".cargo/credentials", _B, _B, "tokens of registries"),
    SensitivePathRow(".cargo/credentials.toml", _B, _B, "tokens of registries"),
    SensitivePathRow(".gem/credentials", _B, _B, "tokens of registries"),
    SensitivePathRow(".composer/auth.json", _B, _B, "tokens of registries"),
    SensitivePathRow(".m2/settings.xml", _B, _B, "passwords"),
    SensitivePathRow(".gradle/gradle.properties", _B, _B, "passwords"),
    SensitivePathRow(".password-store", _B, _B, "passwords"),
    SensitivePathRow(".local/share/keyrings", _B, _B, "passwords"),
    SensitivePathRow(".mozilla", _B, _B, "cookies and passwords"),
    SensitivePathRow(".config/google-chrome", _B, _B, "cookies and passwords"),
    SensitivePathRow(".config/chromium", _B, _B, "cookies and passwords"),
    SensitivePathRow("Library/Keychains", _B, _B, "passwords"),
    SensitivePathRow("id_rsa", _B, _B, "a key", milder=True),
    SensitivePathRow("id_dsa", _B, _B, "a key", milder=True),
    SensitivePathRow("id_ecdsa", _B, _B, "a key", milder=True),
    SensitivePathRow("id_ed25519", _B, _B, "a key", milder=True),
    SensitivePathRow(".env", _W, _W, "secrets of a project"),
    SensitivePathRow(".env.*", _W, _W, "secrets of a project", spares=_SAMPLES),
    SensitivePathRow(".envrc", _W, _B, "secrets of a project; is run by direnv", milder=True),
    SensitivePathRow("secrets.yaml", _W, _W, "secrets of a project"),
    SensitivePathRow("secrets.yml", _W, _W, "secrets of a project"),
    SensitivePathRow("secrets.json", _W, _W, "secrets of a project"),
    SensitivePathRow(".secrets", _W, _W, "secrets of a project"),
    SensitivePathRow("credentials.json", _W, _W, "secrets of a project"),
    # What was typed.
    SensitivePathRow(".bash_history", _B, _B, _HISTORY),
    SensitivePathRow(".zsh_history", _B, _B, _HISTORY),
    SensitivePathRow(".history", _W, _W, _HISTORY),
    SensitivePathRow(".python_history", _B, _B, _HISTORY),
    SensitivePathRow(".node_repl_history", _B, _B, _HISTORY),
    SensitivePathRow(".psql_history", _B, _B, _HISTORY),
    SensitivePathRow(".mysql_history", _B, _B, _HISTORY),
    SensitivePathRow(".sqlite_history", _B, _B, _HISTORY),
    SensitivePathRow(".lesshst", _W, _W, _HISTORY),
    SensitivePathRow(".viminfo", _W, _B, _HISTORY),
    # What is run later.
    *(
        SensitivePathRow(name, _W, _B, _START, milder=True)
        for name in (
            ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".zshrc", ".zshenv",
            ".zprofile", ".zlogin", ".zlogout", ".kshrc", ".cshrc", ".tcshrc", ".login", ".xinitrc", ".xprofile",
            ".xsessionrc", ".inputrc", ".pam_environment",
        )
    ),
    SensitivePathRow(".config/fish", _P, _B, _START),
    SensitivePathRow(".config/autostart", _P, _B, _START),
    SensitivePathRow(".config/systemd", _P, _B, "is run by the system"),
    SensitivePathRow(".config/environment.d", _P, _B, _START),
    SensitivePathRow("Library/LaunchAgents", _P, _B, _START),
    SensitivePathRow(".local/bin", _P, _W, "is found before the system's own programs", milder=True),
    SensitivePathRow(".gitconfig", _W, _B, _TOOL),
    SensitivePathRow(".config/git", _W, _B, _TOOL),
    SensitivePathRow(".git/config", _P, _B, _TOOL),
    SensitivePathRow(".git/hooks", _P, _B, "is run by git"),
    SensitivePathRow(".git/info/attributes", _P, _B, _TOOL),
    SensitivePathRow(".gitmodules", _P, _W, _TOOL),
    SensitivePathRow(".husky", _P, _W, "is run by git"),
    SensitivePathRow(".vscode/settings.json", _P, _B, _TOOL),
    SensitivePathRow(".vscode/tasks.json", _P, _B, _TOOL),
    SensitivePathRow(".vscode/launch.json", _P, _B, _TOOL),
    SensitivePathRow(".vscode/extensions.json", _P, _W, _TOOL),
    SensitivePathRow(".idea", _P, _B, _TOOL),
    SensitivePathRow(".vimrc", _P, _B, _TOOL, milder=True),
    SensitivePathRow(".exrc", _P, _B, _TOOL),
    SensitivePathRow(".config/nvim", _P, _B, _TOOL),
    SensitivePathRow(".emacs", _P, _B, _TOOL, milder=True),
    SensitivePathRow(".emacs.d", _P, _B, _TOOL, milder=True),
    SensitivePathRow(".gdbinit", _P, _B, _TOOL),
    SensitivePathRow(".lldbinit", _P, _B, _TOOL),
    SensitivePathRow(".tmux.conf", _P, _B, _TOOL, milder=True),
    SensitivePathRow(".screenrc", _P, _B, _TOOL, milder=True),
    SensitivePathRow(".wgetrc", _P, _B, _TOOL),
    SensitivePathRow(".curlrc", _P, _B, _TOOL),
    SensitivePathRow(".ripgreprc", _P, _W, _TOOL),
    SensitivePathRow(".cargo/config.toml", _P, _B, _TOOL, milder=True),
    SensitivePathRow(".config/pip", _P, _B, _TOOL),
    SensitivePathRow(".pip", _P, _B, _TOOL),
    SensitivePathRow(".pythonrc", _P, _B, _TOOL),
    SensitivePathRow(".irbrc", _P, _B, _TOOL),
    SensitivePathRow("sitecustomize.py", _P, _W, "is imported by every Python"),
    SensitivePathRow("usercustomize.py", _P, _W, "is imported by every Python"),
    # Agents' own settings: who writes them frees himself.
    SensitivePathRow(".claude", _P, _B, "settings of an agent"),
    SensitivePathRow(".claude.json", _W, _B, "settings of an agent"),
    SensitivePathRow(".codex", _P, _B, "settings of an agent"),
    SensitivePathRow(".cursor", _P, _B, "settings of an agent"),
    SensitivePathRow(".gemini", _P, _B, "settings of an agent"),
    SensitivePathRow(".mcp.json", _P, _B, "servers that an agent starts"),
    SensitivePathRow(".ringfence", _W, _B, "our own settings and records"),
    # The system's.
    SensitivePathRow("/etc/shadow", _B, _B, "password hashes"),
    SensitivePathRow("/etc/shadow-", _B, _B, "password hashes"),
    SensitivePathRow("/etc/gshadow", _B, _B, "password hashes"),
    SensitivePathRow("/etc/master.passwd", _B, _B, "password hashes"),
    SensitivePathRow("/etc/security/opasswd", _B, _B, "password hashes"),
    SensitivePathRow("/etc/sudoers", _B, _B, "who may become root"),
    SensitivePathRow("/etc/sudoers.d", _B, _B, "who may become root"),
    SensitivePathRow("/etc/passwd", _W, _B, "names of accounts"),
    SensitivePathRow("/etc/ssl/private", _B, _B, "keys"),
    SensitivePathRow("/etc/ssh/ssh_host_*_key", _B, _B, "keys"),
    SensitivePathRow("/etc/krb5.keytab", _B, _B, "keys"),
    SensitivePathRow("/etc/kubernetes", _B, _B, "keys of a cluster"),
    SensitivePathRow("/etc/rancher", _B, _B, "keys of a cluster"),
    SensitivePathRow("/var/lib/kubelet", _B, _B, "keys of a cluster"),
    SensitivePathRow("/var/run/secrets", _B, _B, "tokens of a service"),
    SensitivePathRow("/run/secrets", _B, _B, "tokens of a service"),
    SensitivePathRow("/var/run/docker.sock", _B, _B, "whoever reaches it is root"),
    SensitivePathRow("/run/docker.sock", _B, _B, "whoever reaches it is root"),
    SensitivePathRow("/run/containerd/containerd.sock", _B, _B, "whoever reaches it is root"),
    SensitivePathRow("/var/spool/cron", _B, _B, "is run by the system"),
    SensitivePathRow("/var/log/auth.log", _W, _B, "who logged in"),
    SensitivePathRow("/root", _W, _B, "the administrator's files"),
    SensitivePathRow("/proc/*/environ", _B, _B, "variables of a process, secrets included"),
    SensitivePathRow("/proc/*/mem", _B, _B, "memory of a process"),
    SensitivePathRow("/proc/*/fd", _W, _W, "open files of a process", spares=frozenset(("self",))),
    SensitivePathRow("/proc/*/auxv", _W, _W, "addresses of a process"),
    SensitivePathRow("/proc/kcore", _B, _B, "memory of the kernel"),
    SensitivePathRow("/proc/kmem", _B, _B, "memory of the kernel"),
    SensitivePathRow("/proc/sysrq-trigger", _B, _B, "commands to the kernel"),
    SensitivePathRow("/dev/mem", _B, _B, "memory of the machine"),
    SensitivePathRow("/dev/kmem", _B, _B, "memory of the kernel"),
    SensitivePathRow("/dev/port", _B, _B, "ports of the machine"),
    *(
        SensitivePathRow(f"/dev/{name}", _B, _B, "a whole disk")
        for name in ("sd[a-z]*", "hd[a-z]*", "vd[a-z]*", "xvd*", "nvme*", "mmcblk*", "dm-*", "md[0-9]*", "loop[0-9]*",
                     "mapper", "disk", "rdisk*", "disk[0-9]*", "block")
    ),
)  # fmt: skip

SYSTEM: Final = (
    "/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/opt", "/proc", "/root", "/run", "/sbin",
    "/srv", "/sys", "/usr", "/var", "/System", "/Library", "/Applications",
)  # fmt: skip
"""Nobody's work lies there."""
HARMLESS: Final = frozenset(
    ("null", "zero", "full", "random", "urandom", "tty", "stdin", "stdout", "stderr", "fd", "shm", "ptmx", "pts")
) | {"tcp", "udp"}
"""Below /dev; /dev/tcp is not a file, and another check speaks of it."""
_RECURSIVE_READ: Final = "reads everything below a directory that holds secrets"


_Wanted = tuple[SensitivePathRow, tuple[str, ...]]


def _index() -> tuple[dict[str, list[_Wanted]], dict[str, list[_Wanted]], list[_Wanted]]:
    """Rows by their first segment: plain ones, absolute ones with globs; and globs for a name at any depth."""
    plain: dict[str, list[_Wanted]] = {}
    absolute: dict[str, list[_Wanted]] = {}
    names: list[_Wanted] = []
    for row in ROWS:
        wanted = tuple(row.path.casefold().strip("/").split("/"))
        if not any(char in row.path for char in "*["):
            plain.setdefault(wanted[0], []).append((row, wanted))
        elif row.path[0] == "/":
            absolute.setdefault(wanted[0], []).append((row, wanted))
        else:
            names.append((row, wanted))
    return plain, absolute, names


_PLAIN, _ABSOLUTE, _NAMES = _index()
_ALL: Final = [pair for index in (_PLAIN, _ABSOLUTE) for pairs in index.values() for pair in pairs] + _NAMES
_ALL_NAMES: Final = [(row, wanted) for row, wanted in _ALL if row.path[0] != "/"]
_NAMES_BEGIN: Final = tuple(wanted[0].partition("*")[0] for _, wanted in _NAMES)


def check(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    for fact in facts.paths:
        place = context.place(fact.path)
        answer, rule, why = _secret(fact, place, context)
        if not context.sensitive:
            answer = min(answer, _W)
        if fact.touch is Touch.WRITE and answer is not _B:
            answer, rule, why = max((answer, rule, why), _outside(fact, place, context), key=lambda vote: vote[0])
        elif fact.touch is Touch.READ and fact.recursive and place in ("/", "/etc", "/home", context.home):
            answer, rule, why = max((answer, rule, why), (_W, "everything", _RECURSIVE_READ), key=lambda vote: vote[0])
        if not fact.sure:
            answer = min(answer, _W)
        if answer is not _P:
            yield from say("sensitive_path", answer, rule, f"{fact.path}: {why}", fact.span, context)
        if fact.sent:
            yield from _upload(fact, place, answer, context)


def _upload(fact: PathFact, place: str, answer: CheckAnswer, context: CheckContext) -> Iterator[Finding]:
    inside = context.inside(place) and answer is _P
    why = "a file's content goes to another machine"
    yield from say("sensitive_path", _W if inside else _B, "upload", f"{fact.path}: {why}", fact.span, context)


def _secret(fact: PathFact, place: str, context: CheckContext) -> tuple[CheckAnswer, str, str]:
    best: tuple[CheckAnswer, str, str] = (_P, "", "")
    segments = place.casefold().strip("/").split("/")
    inside: bool | None = None
    own = _segments_of_workspace(place, context)
    for row, start in _matches(segments, fact.pattern):
        if row.path[0] == "/" and start != 0:
            continue
        if row.path[0] != "/" and start + row.path.count("/") < own:
            continue
        if row.spares and not row.spares.isdisjoint(segments[start : start + 2]):
            continue
        if row.path == ".env.*" and segments[start].endswith(_SAMPLE_ENDS):
            continue
        answer = row.read if fact.touch in (Touch.READ, Touch.EXECUTE, Touch.NAME) else row.write
        if row.milder and answer is _B:
            if inside is None:
                inside = context.inside(place)
            answer = _W if inside else _B
        if fact.touch is Touch.EXECUTE:
            answer = min(answer, _W)
        if fact.touch is Touch.REMOVE:
            answer = min(answer, _W) if context.inside(place) else answer
        if row.path == "/root" and (context.inside(place) or is_below(place, context.home)):
            continue
        if answer > best[0]:
            best = (answer, row.path, row.why)
    return best


def is_secret(path: str) -> bool:
    """Whether a path, wherever it begins, names something that must not be read."""
    segments = path.casefold().strip("/").split("/")
    return any(
        row.read is _B and (row.path[0] != "/" or (start == 0 and path.startswith("/")))
        for row, start in _matches(segments, pattern=False)
    )


def is_run_later(path: str) -> bool:
    """Whether a path, wherever it begins, names something that must not be written, since others run it."""
    segments = path.casefold().strip("/").split("/")
    return "/" in path and any(
        row.write is _B and row.why in (_START, "is run by git", "is run by the system")
        for row, start in _matches(segments, pattern=False)
        if row.path[0] != "/" or (start == 0 and path.startswith("/"))
    )


def _segments_of_workspace(place: str, context: CheckContext) -> int:
    """How many segments of the place are the workspace's own: whoever chose it chose their names, such as the
    `~/.ringfence` that the sessions of a manager lie below. A row has to reach further than that."""
    root = context.root_of(place)
    return 0 if root is None else len(root.strip("/").split("/"))


def _matches(segments: list[str], pattern: bool) -> Iterator[tuple[SensitivePathRow, int]]:
    rows: Sequence[_Wanted]
    for start, segment in enumerate(segments):
        if pattern and any(char in segment for char in "*?["):
            # Anywhere but at the top, a row is a name, and `*.json` is not a search for secrets.json.
            rows = _ALL if start == 0 else _ALL_NAMES if segment[0] not in "*?[" else ()
        else:
            rows = _PLAIN.get(segment, ())
            if start == 0 and segment in _ABSOLUTE:
                rows = (*rows, *_ABSOLUTE[segment])
            if segment.startswith(_NAMES_BEGIN):
                rows = (*rows, *_NAMES)
        for row, wanted in rows:
            if _fits(segments, start, wanted, row):
                yield row, start


def _fits(segments: list[str], start: int, wanted: tuple[str, ...], row: SensitivePathRow) -> bool:
    if start + len(wanted) > len(segments):
        return False
    for offset, want in enumerate(wanted):
        have = segments[start + offset]
        if have == want or segment_may_be(want, have):
            continue
        if not segment_may_be(have, want):
            return False
        if row.path[0] != "/" and have[:1] in ("*", "?", "["):
            return False
    return True


def _outside(fact: PathFact, place: str, context: CheckContext) -> tuple[CheckAnswer, str, str]:
    """Whether a write leaves the workspace, and where it goes."""
    if context.inside(place):
        return _P, "", ""
    if place.startswith("/dev/"):
        name = place.split("/")[2]
        if name in HARMLESS:
            return _P, "", ""
    if place.startswith(("/proc/self/fd/", "/dev/fd/")):
        return _P, "", ""
    for directory in context.tmp_directories:
        if is_below(place, directory):
            own = any(is_below(place, prefix) and place != prefix for prefix in context.tmp_prefixes)
            if context.tmp_is_confined and not own:
                return (
                    _B,
                    "temporary",
                    "below the temporary directory only the product's own directories may be written",
                )
            return _P, "", ""
    home = posixpath.normpath(context.home)
    if is_below(place, home):
        return _W, "home", "writes into the home directory, outside of the workspace"
    if place == "/" or any(is_below(place, directory) for directory in SYSTEM):
        return _B, "system", "writes into the system"
    if fact.pattern and any(segment_may_be("/" + place.split("/")[1], directory) for directory in SYSTEM):
        return _B, "system", "writes into the system"
    if place in ("/home", "/Users") or posixpath.dirname(place) in ("/home", "/Users"):
        return _B, "system", "writes into somebody's home directory"
    return _W, "outside", "writes outside of the workspace"
