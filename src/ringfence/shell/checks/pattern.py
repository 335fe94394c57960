"""Uses of harmless programs that do harm: shells started by options, set-uid files, reverse shells, lost work."""

import re
from collections.abc import Iterator
from typing import Final

from ringfence.shell.catalog import ORDINARY_RUNNERS, SHELLS
from ringfence.shell.catalog.mirrors import MIRRORS
from ringfence.shell.catalog.secrets import gives_out_secret, keeps_secrets
from ringfence.shell.context import CheckContext, say
from ringfence.shell.options import operands, option_values
from ringfence.shell.rows import ProgramRow, index, matching, words
from ringfence.shell.unwrap import interpreter
from ringfence.values.facts import CheckAnswer, CommandShape, Facts, Finding, Program, Span

_B, _W, _P = CheckAnswer.BLOCK, CheckAnswer.WARN, CheckAnswer.PASS

ROWS: Final[tuple[ProgramRow, ...]] = (
    # Work that is lost.
    ProgramRow(
        "git-clean",
        words("git"),
        _W,
        "untracked files are lost",
        first=words("clean"),
        options=words("-f --force -x"),
        dry=True,
    ),
    ProgramRow("git-reset", words("git"), _W, "changes are lost", first=words("reset"), options=words("--hard")),
    ProgramRow(
        "git-push",
        words("git"),
        _W,
        "history that others have is rewritten",
        first=words("push"),
        options=words("-f --force --force-with-lease --mirror --delete -d"),
        dry=True,
    ),
    ProgramRow(
        "git-push",
        words("git"),
        _W,
        "history that others have is rewritten",
        first=words("push"),
        starts=("+",),
        dry=True,
    ),
    ProgramRow("git-history", words("git"), _W, "history is rewritten", first=words("filter-branch filter-repo")),
    ProgramRow(
        "git-history", words("git"), _W, "what could be had back is lost", first=words("reflog"), second=words("expire")
    ),
    ProgramRow("git-stash", words("git"), _W, "stashed work is lost", first=words("stash"), second=words("clear")),
    ProgramRow(
        "git-template",
        words("git"),
        _W,
        "hooks of the template are run later",
        first=words("init clone"),
        options=words("--template"),
    ),
    ProgramRow(
        "git-hooks",
        words("git"),
        _W,
        "git is told to use programs of the text",
        first=words("config"),
        starts=("core.hooksPath", "core.hookspath"),
    ),
    ProgramRow(
        "rsync-delete",
        words("rsync"),
        _W,
        "removes what the source does not have",
        options=MIRRORS["rsync"][0].deletes | MIRRORS["rsync"][0].moves,
        dry=True,
    ),
    # Secrets that a program gives out.
    ProgramRow(
        "secret-keys",
        words("gpg gpg2"),
        _B,
        "gives out secret keys",
        options=words("--export-secret-keys --export-secret-subkeys --export-secret-key"),
    ),
    ProgramRow("history", words("unset"), _W, "hides what was run", first=words("HISTFILE HISTSIZE HISTFILESIZE")),
    ProgramRow("history", words("set"), _W, "hides what was run", first=words("+o"), second=words("history")),
    ProgramRow("hash", words("hash"), _W, "gives a name to another program", options=words("-p")),
    # Archives.
    ProgramRow(
        "tar-absolute",
        words("tar bsdtar"),
        _W,
        "takes absolute names out of an archive",
        options=words("-P --absolute-names --absolute-paths"),
    ),
    # Foreign code.
    ProgramRow(
        "foreign-package",
        words("npm pnpm yarn pip pip3 pipx uv gem cargo bun npx bunx pnpx uvx deno"),
        _W,
        "installs from a place of its own",
        starts=(
            "http://",
            "https://",
            "git+",
            "git://",
            "git@",
            "--index-url",
            "--extra-index-url",
            "--registry",
            "--find-links",
            "--trusted-host",
            "--git",
        ),
    ),
    ProgramRow("shell-socket", words("ztcp zsocket"), _B, "the shell itself opens a network connection"),
    ProgramRow(
        "foreign-registry",
        words("npm pnpm yarn pip pip3 bun"),
        _W,
        "changes where packages come from",
        first=words("config set"),
        second=words("set registry global.index-url"),
    ),
    ProgramRow(
        "publish",
        words("npm pnpm yarn cargo twine gem poetry"),
        _W,
        "publishes a package",
        first=words("publish upload push"),
        dry=True,
    ),
    # Rights.
    ProgramRow("no-certificate", words("curl"), _W, "does not check whom it talks to", options=words("-k --insecure")),
    ProgramRow(
        "no-certificate", words("wget"), _W, "does not check whom it talks to", options=words("--no-check-certificate")
    ),
    ProgramRow(
        "extension", words("code codium cursor"), _W, "installs an extension", options=words("--install-extension")
    ),
    ProgramRow(
        "listen", words("nc ncat netcat socat"), _W, "waits for somebody to connect", options=words("-l --listen")
    ),
    ProgramRow("enable", words("enable"), _W, "loads code into the shell", options=words("-f")),
    ProgramRow("openssl-engine", words("openssl"), _W, "loads code", options=words("-engine -provider-path")),
)
_TABLE: Final = index(ROWS)

RUN_BY_OPTION: Final[dict[str, tuple[CheckAnswer, CheckAnswer]]] = {
    # How the label of a wrapper begins: (the answer if it runs a shell or interpreter, if it runs something else).
    "tar ": (_B, _W),
    "bsdtar ": (_B, _W),
    "rsync ": (_B, _W),
    "rg ": (_B, _W),
    "man ": (_B, _W),
    "sort ": (_B, _W),
    "split ": (_B, _P),
    "zip ": (_B, _W),
    "wget ": (_B, _W),
    "scp ": (_B, _W),
    "sftp ": (_B, _W),
    "nc ": (_B, _B),
    "ncat ": (_B, _B),
    "netcat ": (_B, _B),
    "gcc ": (_B, _W),
    "ssh -o": (_B, _W),
    "ssh-keygen ": (_B, _B),
    "socat ": (_B, _B),
    "dpkg ": (_B, _W),
    "apt -o": (_B, _W),
    "apt-get -o": (_B, _W),
    "git ext::": (_B, _B),
    "git -c ": (_B, _W),
    "git --config-env ": (_B, _W),
    "git config ": (_B, _W),
    "git clone -c ": (_B, _W),
    "git grep ": (_B, _P),
    "git archive ": (_B, _W),
    "git clone ": (_B, _W),
    "git fetch ": (_B, _W),
    "git pull ": (_B, _W),
    "git push ": (_B, _W),
    "git ls-remote ": (_B, _W),
    "git difftool ": (_B, _P),
    "mysql ": (_B, _W),
    "psql ": (_B, _W),
    "sqlite3 ": (_B, _W),
    "gdb ": (_B, _W),
    "make SHELL": (_P, _W),
    "npm --script-shell": (_P, _W),
}
FOREIGN: Final[dict[str, CheckAnswer]] = {
    "forks in a loop": _B,
    "gives a socket to a shell": _B,
    "runs decoded code": _B,
    "runs downloaded code": _B,
    "sed runs what it finds": _B,
    "sed runs a command": _B,
    "awk runs a command": _W,
    "awk opens a network connection": _B,
    "starts a terminal": _W,
}
_SET_ID: Final = re.compile(r"0*[2-7]\d{3}|(?:[ugoa]*[+=][rwxXt]*s[rwxXst]*(?:,|\Z))|.*[ug][+=]\w*s.*")
_OPEN: Final = re.compile(
    r"0?0?\d?(?:77[67]|666|777|\d[67]7|\d\d[2367])|(?:[a]|ugo|[ug]*o)?[+=][rx]*w[rwx]*|.*\bo\+\w*w.*|a\+\w*w.*"
)
_KEYS: Final = re.compile(
    r"\*?\.?(?:id_(?:rsa|dsa|ecdsa|ed25519)|ssh|aws|env|pem|netrc|npmrc|pgpass|kdbx|ppk|git-credentials)\*?|.*"
    r"(?:passw|secret|credential|private.?key|\.pem|\.key|token|wallet|id_rsa).*",
    re.IGNORECASE,
)
_INDEXES: Final = words("locate plocate mlocate slocate mdfind")
"""Search the whole machine."""
_LOOKUPS: Final = words("ping ping6 dig host nslookup drill resolvectl getent delv kdig")
_NETWORK: Final = words("nc ncat netcat socat telnet openssl")


def check(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    interactive: Span | None = None
    network = False
    for program in facts.programs:
        span = program.span
        name = program.name
        for row in matching(name, program, _TABLE):
            yield from say("pattern", row.answer, row.rule, row.why, span, context)
        if keeps_secrets(name) and gives_out_secret(name or "", tuple(word.text for word in program.argv[1:])):
            yield from say("pattern", _W, "secret", f"{name} gives out a secret that it keeps", span, context)
        if program.wrappers:
            yield from _by_option(program, context)
        if name == "chmod":
            yield from _modes(program, context)
        elif name == "install":
            for _, value in option_values(program.argv[1:], frozenset(("-m", "--mode"))):
                if _SET_ID.fullmatch(value.text or ""):
                    why = "whoever runs the file becomes its owner"
                    yield from say("pattern", _B, "set-id", why, value.span, context)
        elif name == "find":
            yield from _searches(program, context)
        elif name == "go" and len(program.argv) > 2 and program.argv[1].text in ("install", "run"):
            if any("@" in (word.text or "") for word in program.argv[2:]):
                yield from say("pattern", _W, "foreign-package", "runs or installs what it fetches", span, context)
        elif name in _INDEXES:
            for word in operands(program.argv[1:]):
                if _KEYS.fullmatch(word.text or ""):
                    yield from say("pattern", _W, "search-for-keys", "searches for secrets", word.span, context)
        elif name == "mknod" and len(program.argv) > 2 and any(word.text in ("b", "c", "u") for word in program.argv):
            yield from say("pattern", _B, "device", "makes a way to a device", span, context)
        elif name == "setfattr" and any((word.text or "").startswith("security.") for word in program.argv):
            yield from say("pattern", _B, "set-id", "gives rights to a file", span, context)
        elif name in ("tar", "bsdtar"):
            if len(program.argv) > 1 and re.fullmatch(r"[a-zA-Z]*P[a-zA-Z]*", program.argv[1].text or ""):
                why = "takes absolute names out of an archive"
                yield from say("pattern", _W, "tar-absolute", why, span, context)
        elif name in _LOOKUPS:
            for word in program.argv[1:]:
                if word.text is None and word.if_unset.startswith("."):
                    why = "puts the output of a command into a name that is looked up"
                    yield from say("pattern", _B, "exfiltration-by-name", why, word.span, context)
        elif name in SHELLS:
            if any(word.text and re.fullmatch(r"-\w*i\w*", word.text) for word in program.argv[1:]):
                interactive = span
            if _from_within(program):
                why = f"{program.wrappers[-1]} starts a shell"
                yield from say("pattern", _W, "shell-from-within", why, span, context)
            if program.wrappers and program.wrappers[-1] == "find" and not _has_command(program):
                why = "runs every file that is found"
                yield from say("pattern", _B, "find-shell", why, span, context)
        network = network or name in _NETWORK
    if interactive is not None and network:
        why = "an interactive shell next to a network connection"
        yield from say("pattern", _B, "reverse-shell", why, interactive, context)
    for host in facts.hosts:
        if host.program == "/dev/tcp":
            why = "the shell itself opens a network connection"
            yield from say("pattern", _B, "shell-socket", why, host.span, context)
    for construct in facts.constructs:
        if construct.shape is CommandShape.FOREIGN:
            answer = FOREIGN.get(construct.detail, _W)
            yield from say("pattern", answer, "foreign-code", construct.detail, construct.span, context)


def _by_option(program: Program, context: CheckContext) -> Iterator[Finding]:
    label = program.wrappers[-1] if program.wrappers else ""
    if " " not in label:
        return
    for begin, (shell, other) in RUN_BY_OPTION.items():
        if label.startswith(begin):
            yield from _made_to_run(program, label, shell, other, context)
            return
    if (
        label.partition(" ")[0] not in ORDINARY_RUNNERS
        and re.search(r" (?:-|!\Z)", label)
        and not label.startswith("git")
    ):
        yield from _made_to_run(program, label, _B, _W, context)


def _made_to_run(
    program: Program, label: str, shell: CheckAnswer, other: CheckAnswer, context: CheckContext
) -> Iterator[Finding]:
    name = program.name
    runs_shell = name is not None and (name in SHELLS or bool(interpreter(name)))
    why = f"{label} makes it run {name or 'something unknown'}"
    yield from say("pattern", shell if runs_shell else other, "run-by-option", why, program.span, context)


def _modes(program: Program, context: CheckContext) -> Iterator[Finding]:
    for word in program.argv[1:]:
        text = word.text or ""
        if re.fullmatch(r"-[RvcfhHLP]+|--\w.*", text):
            continue
        if _SET_ID.fullmatch(text):
            yield from say("pattern", _B, "set-id", "whoever runs the file becomes its owner", word.span, context)
        elif _OPEN.fullmatch(text):
            yield from say("pattern", _W, "open-mode", "everybody may change it", word.span, context)
        return


def _searches(program: Program, context: CheckContext) -> Iterator[Finding]:
    texts = [word.text for word in program.argv]
    outside = len(texts) > 1 and (texts[1] or "").startswith(("/", "~", ".."))
    for number, text in enumerate(texts[:-1]):
        value = texts[number + 1]
        if text in ("-name", "-iname", "-path", "-ipath", "-regex") and value and outside and _KEYS.fullmatch(value):
            yield from say(
                "pattern", _W, "search-for-keys", "searches for secrets", program.argv[number + 1].span, context
            )
    if "-perm" in texts and outside:
        why = "searches for files with special rights"
        yield from say("pattern", _W, "search-for-rights", why, program.span, context)


def _from_within(program: Program) -> bool:
    """A shell without a script, started by an interpreter."""
    if not program.wrappers or any(not (word.text or "-").startswith("-") for word in program.argv[1:]):
        return False
    return bool(interpreter(program.wrappers[-1])) and not _has_command(program)


def _has_command(program: Program) -> bool:
    return any(word.text and re.fullmatch(r"-\w*c\w*", word.text) for word in program.argv[1:])
