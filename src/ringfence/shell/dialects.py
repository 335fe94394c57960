"""Small languages of tools, as far as they hand text to a shell: editors, calculators, databases, typesetters.

Each row is an expression whose first group is a command. What they do besides is not looked at.
"""

import re
from typing import Final

_BANG: Final = re.compile(r"(?m)^[ \t]*!(?![=~])([^\n]+)")
_CALLS: Final = re.compile(r"\b(?:system|shell|shell_cmd|exec)\s*\(?\s*[\"']([^\"'\n]+)[\"']")
_SQL: Final = (
    re.compile(r"(?m)(?:^|;)[ \t]*(?:\\!|system\s|\.shell\s|\.system\s)[ \t]*([^\n]*)"),
    re.compile(r"(?i)\b(?:to|from)\s+program\s+'((?:[^']|'')*)'"),
    re.compile(r"\\(?:o|g|w|copy|out|gx|watch|P|pager)\s*\|\s*([^\n]+)"),
    re.compile(r"(?m)^[ \t]*\.(?:output|once|import|open|read|excel)\s+['\"]?\|\s*([^\n'\"]+)"),
    re.compile(r"(?m)(?:^|;)[ \t]*(?:pager|edit|\\P)\s+([^\n;]+)"),
    re.compile(r"(?i)\b(?:sys_exec|sys_eval|xp_cmdshell)\s*\(?\s*'([^']*)'"),
)
DIALECTS: Final[dict[str, tuple[re.Pattern[str], ...]]] = {
    "ed": (re.compile(r"(?m)^[\d,$%.; \t]{0,40}[rwWeE]?[ \t]{0,9}!([^\n]+)"),),
    "dc": (re.compile(r"!(?![<>=])([^\n]+)"),),
    "m4": (re.compile(r"\b(?:e?syscmd|m4_e?syscmd)\(\s*`?([^)']*)"),),
    "tcl": (
        re.compile(r"\b(?:exec|spawn|system)\s+(?:-\w+\s+)*([^;\]\n}]+)"),
        re.compile(r"\bopen\s+[\"{]?\|\s*([^\"\]}\n]+)"),
    ),
    "gnuplot": (_CALLS, _BANG, re.compile(r"`([^`]+)`"), re.compile(r"\b(?:plot|load)\s+[\"']<\s*([^\"']+)")),
    "tex": (
        re.compile(r"\\(?:immediate\s*\\)?write18\s*\{([^}]*)\}"),
        re.compile(r"\\(?:input|openin\d*\s*=?)\s*\{?\s*[\"']?\|\s*[\"']?([^\"'}]*)"),
        re.compile(r"\\(?:ShellEscape|sys_shell_now:n|DeclareGraphicsRule[^`]*`)\s*\{?([^}]*)"),
        re.compile(r"os\.execute\(\s*[\"']([^\"']*)"),
    ),
    "rpm": (
        re.compile(r"%\(([^)]{0,2000})\)"),
        re.compile(r"(?:os\.execute|posix\.exec|io\.popen)\(\s*[\"']([^\"']*)"),
    ),
    "sql": _SQL,
    "gdb": (
        re.compile(r"(?m)^[ \t]*(?:!|shell\s|make\s|platform shell\s|pipe\s[^|\n]*\|)\s*([^\n]*)"),
        _CALLS,
    ),
    "vim": (
        re.compile(
            r"(?m)(?:^|[|:])[ \t:]{0,9}(?:silent!?[ \t]{0,9})?(?:[%\d,.$]{0,20}|r[ \t]{0,9}"
            r"|w[ \t]{0,9}|term(?:inal)?[ \t]{1,9})!{1,9}[ \t]{0,9}([^\n|]+)"
        ),
        re.compile(r"\b(?:system|systemlist|job_start|jobstart|termopen|term_start)\(\s*\[?[\"']([^\"']*)"),
        re.compile(r"\b(?:grepprg|makeprg|formatprg|equalprg|keywordprg)=(\S+)"),
    ),
    "less": (re.compile(r"!\s*(.*)"), re.compile(r"\|.\s*(.*)")),
    "mail": (re.compile(r"(?m)^[ \t]*~?![ \t]*([^\n]+)"), re.compile(r"~\|\s*([^\n]+)")),
    "nft": (),
    "bpftrace": (_CALLS,),
    "octave": (_CALLS, re.compile(r"\b(?:popen|popen2|unix|dos)\s*\(\s*[\"']([^\"']*)")),
    "slang": (_CALLS,),
    "redis": (re.compile(r"(?:os\.execute|io\.popen)\(\s*[\"']([^\"']*)"),),
    "ssh": (re.compile(r"(?mi)^[ \t]*(?:ProxyCommand|LocalCommand|KnownHostsCommand)[\s=]+([^\n]+)"),),
}
DIALECTS["groovy"] = (re.compile(r"[\"']([^\"'\n]+)[\"'][ \t]{0,9}\.[ \t]{0,9}execute[ \t]{0,9}\("),)
DIALECTS["scala"] = (re.compile(r"[\"']([^\"'\n]+)[\"'][ \t]{0,9}\.?[ \t]{0,9}!"),)
DIALECTS["osascript"] = (re.compile(r"do shell script\s+\"((?:[^\"\\]|\\.)*)\""),)
_CMAKE_WORDS: Final = (
    r"COMMAND|WORKING_DIRECTORY|TIMEOUT|RESULT_VARIABLE|RESULTS_VARIABLE|OUTPUT_VARIABLE|ERROR_VARIABLE|INPUT_FILE"
    r"|OUTPUT_FILE|ERROR_FILE|OUTPUT_QUIET|ERROR_QUIET|COMMAND_ECHO|COMMAND_ERROR_IS_FATAL|ENCODING|ECHO_\w+|OUTPUT_STRIP\w+"
)
DIALECTS["cmake"] = (
    re.compile(rf"(?s)\bCOMMAND\s+((?:(?!\b(?:{_CMAKE_WORDS})\b)[^()])+)"),
    re.compile(r"(?i)\bexec_program\s*\(\s*([^()]*)"),
)
DIALECTS["scripts"] = (
    # Settings of which some values are commands.
    re.compile(r"""(?m)["']?[\w.:-]+["']?[ \t]{0,9}[:=][ \t]{0,9}["']?([\w./~-]+[ \t][^\n"]{1,500})"""),
    re.compile(r"(?mi)^[ \t]*(?:RUN|CMD|ENTRYPOINT|-)[ \t]+([\w./~-]+[ \t][^\n]{1,500})"),
    re.compile(r"(?m)^[ \t]{0,20}([\w./~-]+[ \t][^\n:=]{1,500})"),
)
DIALECTS["repl"] = (
    # What tools with a prompt of their own take for a way into a shell.
    re.compile(r"(?m)^[ \t]*[:~.\\]?![ \t]*([^\n]+)"),
    re.compile(r"(?m)^[ \t]*[:.\\]?(?:shell|system|sh|exec)[ \t]+([^\n]+)"),
    re.compile(r"~\|\s*([^\n]+)"),
)
DIALECTS["gitconfig"] = (
    re.compile(r"(?m)=[ \t]*\"?!([^\n\"]+)"),
    re.compile(
        r"(?mi)^[ \t]*(?:sshCommand|pager|editor|fsmonitor|askPass|gitProxy|textconv|command|cmd|clean|smudge|process"
        r"|program|external|driver|uploadpack|receivepack|packObjectsHook)[ \t]*=[ \t]*\"?([^\n\"]+)"
    ),
)
for _name in ("tclsh", "expect", "wish"):
    DIALECTS[_name] = DIALECTS["tcl"]
DIALECTS["powershell"] = (re.compile(r"(?i)\b(?:Start-Process|saps|Invoke-Expression|iex)\s+[\"']?([^\"'\n;|]+)"),)
_REMOVES: Final = {
    # Words of their own for what `rm -rf` does.
    "cmake": re.compile(r"(?i)\bfile\s*\(\s*REMOVE(?:_RECURSE)?\s+([^()]*)"),
    "powershell": re.compile(r"(?i)\bRemove-Item\s+([^;|\n{}]*)"),
}
_PYTHON: Final = re.compile(r"\b(?:python|py3?x?|pythonx|pyx?file)\s+(.*)", re.DOTALL)


def handed_on(language: str, code: str) -> list[str]:
    """The texts that a tool of this language gives to a shell."""
    found = [match[1].strip() for row in DIALECTS[language] for match in row.finditer(code)]
    removes = _REMOVES.get(language)
    if removes is not None:
        found += [f"rm -rf {match[1]}" for match in removes.finditer(code)]
    return [text for text in found if text][:32]


def embedded(language: str, code: str) -> str:
    """Code in Python within that of an editor or debugger."""
    match = _PYTHON.search(code) if language in ("gdb", "vim") else None
    return match[1] if match else ""
