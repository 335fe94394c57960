"""Variables that change what other programs do, and text that is run although nobody knows it yet."""

import re
from collections.abc import Iterator
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.shell.context import CheckContext, say
from ringfence.values.facts import CheckAnswer, Facts, Finding, Origin, Unknown


@dataclass(frozen=True, slots=True)
class VariableRow:
    why: str
    spares: re.Pattern[str] | None = None
    """Values that do no harm."""


_TOOL: Final = re.compile(r"(?:cat|less|more|true|:|false|vim?|nvim|nano|emacs|code|most|bat|delta|w3m)?(?: -\S+)*|-")
_LOADER: Final = VariableRow("the loader puts other code into every program")
_PAGER: Final = VariableRow("is run as a command", _TOOL)
_START: Final = VariableRow("names code that is run at the start")

VARIABLES: Final[dict[str, VariableRow]] = {
    "LD_PRELOAD": _LOADER,
    "LD_LIBRARY_PATH": _LOADER,
    "LD_AUDIT": _LOADER,
    "LD_DEBUG_OUTPUT": _LOADER,
    "DYLD_INSERT_LIBRARIES": _LOADER,
    "DYLD_LIBRARY_PATH": _LOADER,
    "GCONV_PATH": _LOADER,
    "PATH": VariableRow("decides which program a name means"),
    "CDPATH": VariableRow("decides where cd leads"),
    "HOME": VariableRow("decides whose settings programs read"),
    "ENV": _START,
    "BASH_ENV": _START,
    "PROMPT_COMMAND": VariableRow("is run before every prompt"),
    "PS1": VariableRow("a prompt that is expanded runs commands", re.compile(r"(?:[^$`]|\$(?![({]))*")),
    "PS4": VariableRow("a trace prompt that is expanded runs commands", re.compile(r"[^$`]*|[^(`]*")),
    "SHELLOPTS": VariableRow("changes how the shell reads"),
    "BASHOPTS": VariableRow("changes how the shell reads"),
    "SHELL": VariableRow("is run as a shell", re.compile(r"/(?:usr/)?bin/(?:ba|da|z)?sh")),
    "PAGER": _PAGER,
    "MANPAGER": _PAGER,
    "GIT_PAGER": _PAGER,
    "EDITOR": _PAGER,
    "VISUAL": _PAGER,
    "FCEDIT": _PAGER,
    "GIT_EDITOR": _PAGER,
    "GIT_SEQUENCE_EDITOR": _PAGER,
    "BROWSER": VariableRow("is run as a command", re.compile(r"(?:none|true|echo|)")),
    "LESSOPEN": VariableRow("is run for every file that less shows", re.compile(r"")),
    "LESSCLOSE": VariableRow("is run for every file that less shows", re.compile(r"")),
    "GIT_SSH": VariableRow("is run by git"),
    "GIT_SSH_COMMAND": VariableRow(
        "is run by git", re.compile(r"ssh(?: -[46qTv]| -i [\w~./-]+| -o (?!Proxy|Local)\w+=\w+)*")
    ),
    "GIT_EXTERNAL_DIFF": VariableRow("is run by git"),
    "GIT_PROXY_COMMAND": VariableRow("is run by git"),
    "GIT_ASKPASS": VariableRow("is run by git", re.compile(r"(?:true|echo|/bin/true|)")),
    "SSH_ASKPASS": VariableRow("is run by ssh", re.compile(r"(?:true|/bin/true|)")),
    "SUDO_ASKPASS": VariableRow("is run by sudo"),
    "GIT_EXEC_PATH": VariableRow("git takes its own commands from there"),
    "GIT_TEMPLATE_DIR": VariableRow("its hooks are copied into new repositories"),
    "GIT_CONFIG": VariableRow("settings of git can name commands"),
    "GIT_CONFIG_GLOBAL": VariableRow("settings of git can name commands", re.compile(r"/dev/null")),
    "GIT_CONFIG_SYSTEM": VariableRow("settings of git can name commands", re.compile(r"/dev/null")),
    "GIT_CONFIG_PARAMETERS": VariableRow("settings of git can name commands"),
    "GIT_CONFIG_COUNT": VariableRow("settings of git can name commands"),
    "PYTHONSTARTUP": _START,
    "PYTHONHOME": VariableRow("Python takes its own library from there"),
    "PYTHONBREAKPOINT": VariableRow("names code that breakpoint() runs", re.compile(r"0")),
    "PYTHONWARNINGS": VariableRow("can import code", re.compile(r"[\w:,]*")),
    "PERL5OPT": VariableRow("options can load code"),
    "PERL5LIB": VariableRow("Perl takes modules from there"),
    "PERL5DB": VariableRow("is run as code"),
    "RUBYOPT": VariableRow("options can load code", re.compile(r"-W\S*")),
    "RUBYLIB": VariableRow("Ruby takes libraries from there"),
    "NODE_OPTIONS": VariableRow(
        "options can load code", re.compile(r"(?:--(?!require|import|loader|experimental-loader)\S+ ?)*")
    ),
    "JAVA_TOOL_OPTIONS": VariableRow("options can load code", re.compile(r"(?:-X\S+|-D\S+| )*")),
    "_JAVA_OPTIONS": VariableRow("options can load code", re.compile(r"(?:-X\S+|-D\S+| )*")),
    "JDK_JAVA_OPTIONS": VariableRow("options can load code", re.compile(r"(?:-X\S+|-D\S+| )*")),
    "NODE_TLS_REJECT_UNAUTHORIZED": VariableRow("0 switches the check of certificates off", re.compile(r"1?")),
    "GIT_SSL_NO_VERIFY": VariableRow("switches the check of certificates off", re.compile(r"(?:0|false|)")),
    "RUSTC_WRAPPER": VariableRow("is run in place of the compiler", re.compile(r"(?:sccache|ccache|)")),
    "HISTFILE": VariableRow("hides what was run", re.compile(r"[^/]+|.*history")),
    "HISTSIZE": VariableRow("hides what was run", re.compile(r"-?[1-9]\d*|")),
    "HISTFILESIZE": VariableRow("hides what was run", re.compile(r"-?[1-9]\d*|")),
    "HOSTALIASES": VariableRow("changes which host a name means"),
    "WGETRC": VariableRow("settings can name commands"),
    "CURL_HOME": VariableRow("settings can name hosts and files"),
    "MAKEFILES": VariableRow("is read before every Makefile"),
    "npm_config_script_shell": VariableRow("is run as a shell"),
}

CODE: Final[dict[Origin, tuple[CheckAnswer, str]]] = {
    Origin.NETWORK: (CheckAnswer.BLOCK, "runs what comes from the network, unseen"),
    Origin.DECODED: (CheckAnswer.BLOCK, "runs text that is encoded so that it is not read"),
    Origin.FILE: (CheckAnswer.WARN, "runs text out of a file that is not seen here"),
    Origin.UNKNOWN: (CheckAnswer.WARN, "runs text that is not known before it runs"),
}


def check(facts: Facts, context: CheckContext) -> Iterator[Finding]:
    for assignment in facts.assignments:
        row = VARIABLES.get(assignment.name)
        if row is None:
            if not assignment.name.startswith(("BASH_FUNC_", "DYLD_", "LD_", "GIT_CONFIG_KEY")):
                continue
            row = _LOADER
        if row.spares is not None and assignment.value is not None and row.spares.fullmatch(assignment.value):
            continue
        yield from say(
            "variable", CheckAnswer.WARN, assignment.name, f"{assignment.name}: {row.why}", assignment.span, context
        )
    for opaque in facts.opaque:
        if opaque.origin is Origin.BUILT:
            continue  # scripts do so all the time; it counts where there are rules on commands
        if opaque.unknown is Unknown.CODE:
            answer, why = CODE[opaque.origin]
            rule = f"code-{opaque.origin.value}"
            yield from say("variable", answer, rule, f"{why}: {opaque.why}", opaque.span, context, firm=True)
        elif opaque.unknown is Unknown.COMMAND:
            answer = CODE[opaque.origin][0]
            yield from say("variable", answer, "command-unknown", opaque.why, opaque.span, context, firm=True)
