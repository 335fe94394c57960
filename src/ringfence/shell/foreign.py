"""Code in other languages, as far as its literals tell: commands it hands on, paths it names, what it does besides.

A scan for calls with literal arguments, not an understanding of those languages: what it finds is a fact, what it does
not find proves nothing. Text that is only printed is not a path and no command.

What this does not protect against: paths that code puts together at run time. Programs that it puts together are said
to be unseen (`calls`).
"""

import re
from typing import Final, NamedTuple

from ringfence.shell.calls import STRING as _STRING
from ringfence.shell.calls import folded, requoted, runs_unseen
from ringfence.shell.catalog.known import SUSPECTS
from ringfence.shell.dialects import DIALECTS, embedded, handed_on
from ringfence.shell.literals import written_out
from ringfence.values.facts import Touch

_STRINGS: Final = re.compile(_STRING)
_RUN: Final = re.compile(
    r"\b(?:system|popen[234]?|exec|execSync|execFile|execFileSync|exec[lv]p?e?|spawn|spawnSync|spawn[lv]p?e?|Popen|run|call"
    r"|check_call|check_output|getoutput|getstatusoutput|shell_exec|passthru|proc_open|pcntl_exec|execute|startfile"
    r"|posix_spawnp?|create_subprocess_shell|create_subprocess_exec|shell-command\S*|call-process|start-process|(?:ansi-)?term|callCommand|rawSystem|readProcess"
    r"|run-shell-command|run-program|cmd|shell|sh|capture[23]e?|pipeline\w*|Process\.Start|ProcessBuilder|Command(?:::new)?)\s*[({]?\s*(?:f|r|b|args\s*=)?\s*"
    rf"(\[?\s*{_STRING}(?:\s*,\s*(?:\[\s*)?{_STRING})*)"
)
_ASKS_DATABASES: Final = ("python", "pypy", "ipython", "ruby", "php", "perl", "node", "javascript", "deno", "bun")
"""How the names begin of languages in which `execute` is what a statement is given to, and no way to run a program."""
_BACKTICKS: Final = re.compile(r"`([^`]*)`|\bqx\s*[{(/|]([^})/|]*)[})/|]|%x[{(\[]([^})\]]*)[})\]]")
_PRINT: Final = re.compile(
    rf"\b(?:print|puts|echo|console\.log|say|printf|write)\s*\(?\s*{_STRING}(?:\s*,\s*{_STRING})*\s*\)?"
)
_REMOVES: Final = re.compile(
    r"\b(?:(?:File|Dir|Files)\.delete\w*|rmtree|unlink\w*|rmSync|rm_rf?|rm_r|rmdir\w*|removedirs|remove|rimraf|deltree|remove_entry|rm"
    r"|delete-directory|delete-file|move-file-to-trash|(?:Directory|File|Files)\.Delete|removeSync|emptyDirSync|remove_dir_all|RemoveAll"
    r"|remove_tree|remove_file|remove_dir|Deno\.remove\w*|file\s+delete|deleteRecursively|rm_tree|rmrf|removeRecursive\w*)\b\s*\(?"
)
_WRITES: Final = re.compile(
    r"""\b(?:write_text|write_bytes|writeFile\w*|appendFile\w*|file_put_contents|copyfile|copy2?|move|rename\w*|symlink\w*"""
    r"""|chmod|chown|truncate)\b|['"][rb]?[wax]\+?b?['"]|>>?\s*['"]"""
)
_FORKS: Final = re.compile(r"\bfork\b")
_LOOPS: Final = re.compile(r"\bwhile\b|\bfor\b|\bloop\b|\buntil\b|fork\s*\(?\)?\s*&&?\s*fork")
_SOCKETS: Final = re.compile(r"(?i)\bsocket\b|TCPSocket|\bfsockopen\b|net\.connect|net\.Socket|IO::Socket|/inet/tcp")
_HANDS_OVER: Final = re.compile(
    r"dup2|\bexec\b|\bspawn|child_process|subprocess|proc_open|/bin/(?:ba)?sh|\bpty\b|STDIN|os\.execute|io\.popen|\bsystem\b"
)
_DECODES: Final = re.compile(
    r"b64decode|base64|fromhex|unhexlify|decode_base64|atob\(|pack\(\s*['\"]H|rot13|zlib|marshal"
)
_EVALUATES: Final = re.compile(r"\b(?:eval|exec|compile|Function|loadstring|__import__|system)\b\s*\(?")
_FETCHES: Final = re.compile(
    r"urlopen|requests\.get|urllib|https?\.get\(|fetch\(|`\s*(?:curl|wget)\b|LWP|Net::HTTP|open-uri|file_get_contents\(\s*['\"]http"
)
_AWK_OUT: Final = re.compile(rf">>?\s*({_STRING})")
_AWK_PIPE: Final = re.compile(rf"\|&?\s*({_STRING})|({_STRING})\s*\|&?\s*getline")
_SED_SPLIT: Final = re.compile(r"\s*(?:[0-9]+(?:~[0-9]+)?|\$|/(?:[^/\\\n]|\\.)*/[IM]*|,|\+|!|\s)*\s*")


_BARE_PATH: Final = re.compile(r"(?<![\w:/.~])(~?/[\w.@*?-]+(?:/[\w.@*?-]+)*)")
_SHELL_CALLS: Final = ("popen", "proc_open", "shell_exec", "passthru", "getoutput", "getstatusoutput")
_PERL_OPEN: Final = re.compile(
    r"""\bopen\s*\(?\s*[^,;]{1,200},\s*(?:["'](?:-\||\|-)["']\s*,\s*["']([^"']+)["']|["']\s*(\|[^"']+|[^"']+\|)\s*["'])"""
)


_SQL_LOADS: Final = re.compile(
    r"(?im)\bload_extension[ \t]{0,9}\(|^[ \t]{0,9}\.load[ \t]|\bINSTALL[ \t]{1,9}PLUGIN\b|\bSONAME\b"
)
_MAKE_RUNS: Final = re.compile(r"\$[({]shell\s+([^(){}\n]+)|(?m:^[ \t]*[\w.-]+[ \t]*!=[ \t]*([^\n]+))")


class CodeReading(NamedTuple):
    """What was found; `notes` are things done that are worth a word by themselves."""

    shell: tuple[str, ...] = ()
    commands: tuple[tuple[str, ...], ...] = ()
    paths: tuple[tuple[Touch, str], ...] = ()
    notes: tuple[str, ...] = ()
    runs_arguments: bool = False
    """It runs something, and looks at the arguments that it was given."""
    unseen: bool = False
    """It runs something that is put together only when it runs."""


_ARGUMENTS: Final = re.compile(r"\bARGV\b|\bargv\b|\$argv|\bargs\b|@_")
_RUNS: Final = re.compile(
    r"\b(?:system|popen\w*|exec\w*|spawn\w*|posix_spawn\w*|Popen|run|call|check_\w+|getoutput|passthru|shell_exec"
    r"|proc_open|pcntl_exec|fork)\b|`|\bqx\b|\|&?\s*getline|\|\s*\w"
)


def read_code(language: str, code: str) -> CodeReading:
    """What `code` would do, as far as its literals tell."""
    code = requoted(language, code)
    if language not in ("sed", "make"):
        code = written_out(code)
    reading = _read(language, code)
    joined = folded(language, code) if language == "awk" else _PRINT.sub("", folded(language, code))
    if runs_unseen(language, joined):
        reading = reading._replace(unseen=True, shell=tuple(dict.fromkeys((*reading.shell, *_likely_commands(joined)))))
    if _ARGUMENTS.search(code) and _RUNS.search(code):
        return reading._replace(runs_arguments=True)
    return reading


def _likely_commands(code: str) -> list[str]:
    """Literals that read like a command, in code that runs something it puts together: what it may well be made of."""
    texts = [_unquote(found) for found in _STRINGS.findall(code)]
    return [text for text in texts if " " in text and text.split(" ", 1)[0].rpartition("/")[2] in SUSPECTS][:16]


_COMMENT: Final = re.compile(r"(?m)(?:^|\s)(?:#|//|--\s)[^\n]*")


def said_by(language: str, code: str) -> str:
    """The part of the code that may name a program: without what it prints, and without comments."""
    if language == "awk":
        return " ".join(_STRINGS.findall(_PRINT.sub("", code)))
    return _PRINT.sub("", _COMMENT.sub("", code))


def _read(language: str, code: str) -> CodeReading:
    if language == "sed":
        return _sed(code)
    if language in DIALECTS:
        general = _general(embedded(language, code) or code, language)
        handed = tuple(dict.fromkeys((*handed_on(language, code), *general.shell)))
        notes = (*general.notes, "loads a library") if language == "sql" and _SQL_LOADS.search(code) else general.notes
        paths = (*general.paths, *((Touch.NAME, path) for path in _BARE_PATH.findall(code)[:32]))
        return CodeReading(handed, general.commands, tuple(dict.fromkeys(paths)), notes)
    if language == "make":
        recipes = [line.lstrip("@-+ \t") for line in re.split(r"\n\t|;|\n", code) if ":=" not in line]
        lines = [line for line in recipes if line and not re.match(r"[\w .%-]+:(?!=)[^;]*\Z", line)]
        return CodeReading(shell=(*lines, *(match[1] or match[2] for match in _MAKE_RUNS.finditer(code))))
    return _general(code, language)


def _general(code: str, language: str) -> CodeReading:
    shell: list[str] = []
    commands: list[tuple[str, ...]] = []
    joined = folded(language, code)
    for match in _RUN.finditer(joined):
        if match[0].startswith("execute") and language.startswith(_ASKS_DATABASES):
            continue
        words = tuple(_unquote(found) for found in _STRINGS.findall(match[1]))
        listed = "[" in match[1].partition(words[0])[0]
        if not listed and (len(words) == 1 or match[0].startswith(_SHELL_CALLS)):
            shell.append(words[0])
        elif match[0].startswith(("Process.Start", "ProcessBuilder")):
            shell.append(" ".join(words))
        elif "posix_spawn" in match[0]:
            commands.append(words[1:] or words)
        elif match[0].startswith("execl"):
            commands.append((words[0], *words[2:]))  # the second one is the name that it is told
        else:
            commands.append(words)
    if language == "perl":
        for one, other in _PERL_OPEN.findall(code):
            shell.append((one or other).strip("| "))
    if language in ("perl", "ruby", "php", "julia"):
        shell += [next(group for group in match.groups() if group is not None) for match in _BACKTICKS.finditer(code)]
    paths: list[tuple[Touch, str]] = []
    if language == "awk":
        shell += [_unquote(found) for pair in _AWK_PIPE.findall(joined) for found in pair if found]
        paths += [(Touch.WRITE, _unquote(found)) for found in _AWK_OUT.findall(code)]
        paths += [(Touch.READ, _unquote(found)) for found in re.findall(rf"(?:<|@include|@load)\s*({_STRING})", code)]
        named = [_unquote(found) for found in _STRINGS.findall(_PRINT.sub("", joined))]
        paths += [(Touch.NAME, text) for text in named if text.startswith(("/", "~/")) and len(text) > 1]
        notes = ("awk runs a command",) if shell or commands else ()
        if "/inet" in code:
            notes = (*notes, "awk opens a network connection")
        return CodeReading(tuple(shell), tuple(commands), tuple(paths), notes)
    spoken = _PRINT.sub("", code)
    removes = bool(_REMOVES.search(spoken))
    writes = bool(_WRITES.search(spoken))
    for found in dict.fromkeys(_STRINGS.findall(spoken) + _STRINGS.findall(_PRINT.sub("", joined))):
        text = _unquote(found)
        if language == "perl" and text[:1] in ("<", ">", "+"):  # open F, "</etc/passwd"
            writes = writes or ">" in text[:2]
            text = text.lstrip("<>+ ")
        if text.startswith(("/", "~", "../")) or re.fullmatch(r"\.[\w.-]+(?:/[\w.-]+)*", text):
            touch = Touch.REMOVE if removes else Touch.WRITE if writes else Touch.READ
            paths.append((touch, text))
    return CodeReading(tuple(shell), tuple(commands), tuple(paths), tuple(_notes(spoken)))


def _notes(code: str) -> list[str]:
    notes: list[str] = []
    if _FORKS.search(code) and _LOOPS.search(code):
        notes.append("forks in a loop")
    if _SOCKETS.search(code) and _HANDS_OVER.search(code):
        notes.append("gives a socket to a shell")
    if "pty.spawn" in code and not notes:
        notes.append("starts a terminal")
    if _EVALUATES.search(code):
        if _DECODES.search(code):
            notes.append("runs decoded code")
        elif _FETCHES.search(code):
            notes.append("runs downloaded code")
    return notes


def _unquote(literal: str) -> str:
    return re.sub(r"\\(.)", r"\1", literal[1:-1])


def _sed(script: str) -> CodeReading:
    """`e`, `s///e`, `w` and `s///w` of sed; every other command only works on the text."""
    shell: list[str] = []
    paths: list[tuple[Touch, str]] = []
    position = 0
    notes: list[str] = []
    while position < len(script):
        address = _SED_SPLIT.match(script, position)
        position = address.end() if address else position
        if position >= len(script):
            break
        command = script[position]
        line_end = script.find("\n", position)
        line_end = len(script) if line_end < 0 else line_end
        if command in "sy" and position + 1 < len(script):
            position = _after_parts(script, position + 2, script[position + 1])
            flags = re.compile(r"[gpiImM0-9e]*").match(script, position)
            found = flags[0] if flags else ""
            position += len(found)
            if "e" in found and command == "s":
                notes.append("sed runs what it finds")
            if script[position : position + 1] == "w" and command == "s":
                paths.append((Touch.WRITE, script[position + 1 : line_end].strip()))
                position = line_end
        elif command == "e":
            shell.append(script[position + 1 : line_end].strip())
            notes.append("sed runs a command")
            position = line_end
        elif command in "wWrR":
            touch = Touch.WRITE if command in "wW" else Touch.READ
            paths.append((touch, script[position + 1 : line_end].strip()))
            position = line_end
        elif command in "aic:btTl#":
            stop = script.find(";", position) if command in "btT" else -1
            position = stop if 0 <= stop < line_end else line_end
        elif command == "\\":  # an address with a delimiter of its own: \%...%
            position = _after_parts(script, position + 2, script[position + 1 : position + 2], parts=1)
            continue
        else:
            position += 1
        position += script[position : position + 1] in (";", "\n", "}", "{")
    return CodeReading(tuple(code for code in shell if code), (), tuple(paths), tuple(notes))


def _after_parts(script: str, position: int, delimiter: str, parts: int = 2) -> int:
    while position < len(script) and parts:
        if script[position] == "\\":
            position += 1
        elif script[position] == delimiter:
            parts -= 1
        position += 1
    return position
