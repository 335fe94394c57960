"""Variables that change what other programs do, and text that is run although nobody knows it yet."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ringfence.shell.context import Context, say
from ringfence.values.facts import Answer, Facts, Finding, Origin, Unknown


@dataclass(frozen=True, slots=True)
class Row:
    why: str
    spares: re.Pattern[str] | None = None
    """Values that do no harm."""


_TOOL: Final = re.compile(r"(?:cat|less|more|true|:|false|vim?|nvim|nano|emacs|code|most|bat|delta|w3m)?(?: -\S+)*|-")
_LOADER: Final = Row("the loader puts other code into every program")
_PAGER: Final = Row("is run as a command", _TOOL)
_START: Final = Row("names code that is run at the start")

VARIABLES: Final[dict[str, Row]] = {
    "LD_PRELOAD": _LOADER,
    "LD_LIBRARY_PATH": _LOADER,
    "LD_AUDIT": _LOADER,
    "LD_DEBUG_OUTPUT": _LOADER,
    "DYLD_INSERT_LIBRARIES": _LOADER,
    "DYLD_LIBRARY_PATH": _LOADER,
    "GCONV_PATH": _LOADER,
    "PATH": Row("decides which program a name means"),
    "CDPATH": Row("decides where cd leads"),
    "HOME": Row("decides whose settings programs read"),
    "ENV": _START,
    "BASH_ENV": _START,
    "PROMPT_COMMAND": Row("is run before every prompt"),
    "PS1": Row("a prompt that is expanded runs commands", re.compile(r"[^$`]*")),
    "PS4": Row("a trace prompt that is expanded runs commands", re.compile(r"[^$`]*|[^(`]*")),
    "SHELLOPTS": Row("changes how the shell reads"),
    "BASHOPTS": Row("changes how the shell reads"),
    "SHELL": Row("is run as a shell", re.compile(r"/(?:usr/)?bin/(?:ba|da|z)?sh")),
    "PAGER": _PAGER,
    "MANPAGER": _PAGER,
    "GIT_PAGER": _PAGER,
    "EDITOR": _PAGER,
    "VISUAL": _PAGER,
    "FCEDIT": _PAGER,
    "GIT_EDITOR": _PAGER,
    "GIT_SEQUENCE_EDITOR": _PAGER,
    "BROWSER": Row("is run as a command", re.compile(r"(?:none|true|echo|)")),
    "LESSOPEN": Row("is run for every file that less shows", re.compile(r"")),
    "LESSCLOSE": Row("is run for every file that less shows", re.compile(r"")),
    "GIT_SSH": Row("is run by git"),
    "GIT_SSH_COMMAND": Row("is run by git", re.compile(r"ssh(?: -[46qTv]| -i [\w~./-]+| -o (?!Proxy|Local)\w+=\w+)*")),
    "GIT_EXTERNAL_DIFF": Row("is run by git"),
    "GIT_PROXY_COMMAND": Row("is run by git"),
    "GIT_ASKPASS": Row("is run by git", re.compile(r"(?:true|echo|/bin/true|)")),
    "SSH_ASKPASS": Row("is run by ssh", re.compile(r"(?:true|/bin/true|)")),
    "SUDO_ASKPASS": Row("is run by sudo"),
    "GIT_EXEC_PATH": Row("git takes its own commands from there"),
    "GIT_TEMPLATE_DIR": Row("its hooks are copied into new repositories"),
    "GIT_CONFIG": Row("settings of git can name commands"),
    "GIT_CONFIG_GLOBAL": Row("settings of git can name commands", re.compile(r"/dev/null")),
    "GIT_CONFIG_SYSTEM": Row("settings of git can name commands", re.compile(r"/dev/null")),
    "GIT_CONFIG_PARAMETERS": Row("settings of git can name commands"),
    "GIT_CONFIG_COUNT": Row("settings of git can name commands"),
    "PYTHONSTARTUP": _START,
    "PYTHONHOME": Row("Python takes its own library from there"),
    "PYTHONBREAKPOINT": Row("names code that breakpoint() runs", re.compile(r"0")),
    "PYTHONWARNINGS": Row("can import code", re.compile(r"[\w:,]*")),
    "PERL5OPT": Row("options can load code"),
    "PERL5LIB": Row("Perl takes modules from there"),
    "PERL5DB": Row("is run as code"),
    "RUBYOPT": Row("options can load code", re.compile(r"-W\S*")),
    "RUBYLIB": Row("Ruby takes libraries from there"),
    "NODE_OPTIONS": Row(
        "options can load code", re.compile(r"(?:--(?!require|import|loader|experimental-loader)\S+ ?)*")
    ),
    "JAVA_TOOL_OPTIONS": Row("options can load code", re.compile(r"(?:-X\S+|-D\S+| )*")),
    "_JAVA_OPTIONS": Row("options can load code", re.compile(r"(?:-X\S+|-D\S+| )*")),
    "JDK_JAVA_OPTIONS": Row("options can load code", re.compile(r"(?:-X\S+|-D\S+| )*")),
    "NODE_TLS_REJECT_UNAUTHORIZED": Row("0 switches the check of certificates off", re.compile(r"1?")),
    "GIT_SSL_NO_VERIFY": Row("switches the check of certificates off", re.compile(r"(?:0|false|)")),
    "RUSTC_WRAPPER": Row("is run in place of the compiler", re.compile(r"(?:sccache|ccache|)")),
    "HISTFILE": Row("hides what was run", re.compile(r"[^/]+|.*history")),
    "HOSTALIASES": Row("changes which host a name means"),
    "WGETRC": Row("settings can name commands"),
    "CURL_HOME": Row("settings can name hosts and files"),
    "MAKEFILES": Row("is read before every Makefile"),
    "npm_config_script_shell": Row("is run as a shell"),
}

CODE: Final[dict[Origin, tuple[Answer, str]]] = {
    Origin.NETWORK: (Answer.BLOCK, "runs what comes from the network, unseen"),
    Origin.DECODED: (Answer.BLOCK, "runs text that is encoded so that it is not read"),
    Origin.FILE: (Answer.WARN, "runs text out of a file that is not seen here"),
    Origin.UNKNOWN: (Answer.WARN, "runs text that is not known before it runs"),
}


def check(facts: Facts, context: Context) -> Iterator[Finding]:
    for assignment in facts.assignments:
        row = VARIABLES.get(assignment.name)
        if row is None:
            if not assignment.name.startswith(("BASH_FUNC_", "DYLD_", "LD_", "GIT_CONFIG_KEY")):
                continue
            row = _LOADER
        if row.spares is not None and assignment.value is not None and row.spares.fullmatch(assignment.value):
            continue
        yield from say(
            "variable", Answer.WARN, assignment.name, f"{assignment.name}: {row.why}", assignment.span, context
        )
    for opaque in facts.opaque:
        if opaque.unknown is Unknown.CODE:
            answer, why = CODE[opaque.origin]
            rule = f"code-{opaque.origin.value}"
            yield from say("variable", answer, rule, f"{why}: {opaque.why}", opaque.span, context, firm=True)
        elif opaque.unknown is Unknown.COMMAND:
            answer = CODE[opaque.origin][0]
            yield from say("variable", answer, "command-unknown", opaque.why, opaque.span, context, firm=True)
