"""Calls in other languages that run programs or code: whether what they run is written there or is put together.

Literals that are simply joined are read as one. A call whose argument is anything but literals is unseen: which program
it starts is known only when it runs.

What this does not protect against: a call that is reached under a name made at run time, and one that stands where a
scan of the text takes it for a part of a string.
"""

import re
from typing import Final

from ringfence.shell.catalog import SHELLS

STRING: Final = r"""(?:'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*")"""
_FAMILIES: Final = {
    **dict.fromkeys(("python", "pypy", "ipython"), "python"),
    **dict.fromkeys(("node", "nodejs", "bun", "deno", "tsx", "qjs", "gjs"), "node"),
    **dict.fromkeys(("lua", "luajit", "lua5", "luajit-2", "texlua"), "lua"),
    **dict.fromkeys(("awk", "perl", "ruby", "php")),
}
_JOINED: Final = {"python": r"\+?", "node": r"\+", "ruby": r"(?:\+|<<)?", "perl": r"\.", "php": r"\.", "lua": r"\.\."}
"""What stands between literals that become one; in awk nothing does."""
_CALLS: Final = {
    "awk": r"\bsystem",
    "python": (
        r"\.(?:system|popen[234]?|exec[lv]p?e?|spawn[lv]p?e?|posix_spawnp?|startfile)|(?<![\w.])(?:exec|eval|system|popen)"
        r"|\b(?:Popen|check_call|check_output|getoutput|getstatusoutput|create_subprocess_(?:exec|shell)|subprocess_(?:exec|shell))"
    ),
    "node": r"(?<![\w.])(?:eval|Function)",
    "perl": r"(?<![\w$@%>{-])(?:system|exec)",
    "ruby": r"(?<![\w$@:])(?:system|exec|spawn|popen|eval|capture[23]e?|pipeline\w*)",
    "php": r"(?<![\w$>])(?:system|exec|shell_exec|passthru|popen|proc_open|pcntl_exec|eval)",
    "lua": r"\b(?:execute|popen|load|loadstring)",
}
_MORE: Final = {
    # Names that mean little by themselves: they count where the code has to do with programs.
    "python": (
        re.compile(r"\bsubprocess\b|\bpty\b|__import__|import_module|\bgetattr\b"),
        r"(?<!asyncio)(?<!anyio)(?<!trio)(?<!loop)\.(?:run|call|spawn)|(?<![\w.])(?:run|call)",
    ),
    "node": (
        re.compile(rf"child_process|\bBun\b|\bDeno\b|\b(?:require|import)\s*\(\s*(?!{STRING}\s*\))"),
        r"\b(?:exec|execSync|execFile|execFileSync|spawn|spawnSync|fork|Command)",
    ),
}
_BY_TEXT: Final = {
    # What runs a program, or text as code, without a call; and names of calls that are put together.
    "python": (
        r"\bgetattr\s*\(\s*(?:os|posix|subprocess|pty|builtins|__builtins__|__import__\s*\([^()]*\))\s*,"
        r"|\b(?:os|posix)\.(?:system|popen|exec[lv]p?e?|spawn[lv]p?e?)\b(?!\s*\()"
        r"|\bsubprocess\.(?:run|call|Popen|check_call|check_output|getoutput)\b(?!\s*\()"
        r"|\bimport\b[^\n;]{0,200}\b(?:system|popen|run|call|Popen|check_call|check_output|getoutput)\s+as\b"
    ),
    "perl": (
        r"\bqx\s{0,9}[^\w\s][^\n]{0,200}?[$@]|(?<![\w$@%>{-])eval\s*\(?\s*(?![{\s(])(?:[$@]|[\"'q])"
        r"|\bopen\s*\(?[^;]{0,200}?,\s*[\"'](?:-\||\|-)[\"']\s*,\s*[$@]"
        r"|(?<![\w$@%>{-])(?:system|exec)\s*[$@{]|(?<![\w$@%>{-])(?:system|exec)\s+(?:join|reverse|map|pack|lc|uc|sprintf|chr|q)\b"
    ),
    "ruby": (
        r"%x.[^\n]{0,200}?#\{|(?<![\w$@:.])(?:system|exec|spawn)\s+[a-z_@$\[*](?!\w*\s*=)"
        r"|\bsend\s*\(?\s*(?!:\w)"
    ),
    "lua": r"\b(?:os|io)\s*\[",
}
_MOVING: Final = {"perl": ("$", "@"), "ruby": ("#{",), "php": ("$",)}
"""What is put into the text between backticks, which runs it."""
_AWK_REGEX: Final = re.compile(r"((?:\A|[~(,!&|{;])\s*)/(?:[^/\\\n]|\\.)+/")
_AWK_PIPE: Final = re.compile(r"\bprintf?\b[^;}\n|]{0,500}\|&?\s*[^\s\"|&]|[\w\])]\s{0,20}\|&?\s{0,20}getline\b")
_AWK_SHELL: Final = re.compile(r"""\|&?\s*["'](?:[^"'\s]*/)?([\w.-]+)""")
_BACKTICKS: Final = re.compile(r"`([^`]*)`")
_TEMPLATE: Final = re.compile(r"`([^`$\\\n\"]*)`")
_ITSELF: Final = {"python": ("sys.executable", '"python3"'), "node": ("process.execPath", '"node"')}
_PLAIN: Final = re.compile(
    rf"\s{{0,99}}(?:\)|(?:args\s?=\s?)?[rbu]{{0,2}}(?:{STRING}|[\[(]\s{{0,99}}(?:[rbu]{{0,2}}{STRING}\s{{0,99}}(?:,\s{{0,99}})?)*[\])])"
    rf"(?:\s{{0,99}},\s{{0,99}}(?:[\[(]\s{{0,99}})?{STRING}(?:\s{{0,99}}[\])])?)*"
    r"\s{0,99}(?=[,;)\]}\n|&#]|\Z|(?:or|and|if|unless)\b))"
)
"""The arguments are literals, or there are none; what comes after the first one by name or as a number is an option."""


_QUOTES: Final = {
    # Ways to write a literal that are not quotes: the expression, with the kind, the sign and what is within.
    "perl": re.compile(
        r"(?<![\w$@%&>{-])(q[qw]?)\s{0,9}(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\]|<([^<>]*)>|([/|!])((?:[^/|!\\\n]|\\.)*)\6)"
    ),
    "ruby": re.compile(r"\*?%([qQwWiI]?)(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\]|<([^<>]*)>|([|!])([^|!\n]*)\6)"),
    "lua": re.compile(r"()\[(={0,9})\[([^\[\]]{0,500})\]\2\]()()()"),
}


_PERL_GLOB: Final = re.compile(r"<(~?/[^<>\s]{1,200})>")
"""`</home/*>`: the files of that pattern."""


def requoted(language: str, code: str) -> str:
    """The code with literals of the language's own kinds, `qw(a b)`, `%w[a b]`, `[[a]]`, written with quotes."""
    if language == "perl":
        code = _PERL_GLOB.sub(r'"\1"', code)
    row = _QUOTES.get(family(language))
    return code if row is None else row.sub(_requote, code)


def _requote(match: re.Match[str]) -> str:
    within = next((group for group in match.groups()[6:0:-1] if group), "")
    words = within.split() if match[1][-1:] in ("w", "W", "i", "I") else [within.replace("\\/", "/")]
    texts = ['"' + word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"' for word in words]
    return f"[{', '.join(texts)}]" if match[0].lstrip("*")[0] == "%" and len(texts) > 1 else ", ".join(texts)


def family(language: str) -> str:
    """The language by whose rules the code is read; empty if there are none."""
    known = _FAMILIES.get(language, "")
    return language if known is None else known


def folded(language: str, code: str) -> str:
    """The code with literals that are joined as one literal."""
    kind = family(language)
    if not kind:
        return code
    if kind == "node":
        code = _TEMPLATE.sub(r'"\1"', code)
    itself = _ITSELF.get(kind)
    if itself is not None:
        code = code.replace(*itself)
    between = _JOINED.get(kind, "")
    # An escaped character is passed over, so that a text of escaped quotes is not read from each of them to the end.
    return re.sub(rf"\\.|{STRING}(?:\s{{0,99}}{between}\s{{0,99}}{STRING})*", _join, code)


def _join(match: re.Match[str]) -> str:
    if match[0][0] == "\\":
        return match[0]
    found = re.findall(STRING, match[0])
    if len(found) < 2:
        return match[0]
    parts = [re.sub(r"\\([\"'\\])", r"\1", one[1:-1]) for one in found]
    text = "".join(parts).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _bare(code: str) -> str:
    """Without what its strings say."""
    return re.sub(rf"\\.|{STRING}", lambda match: match[0] if match[0][0] == "\\" else '""', code)


def runs_unseen(language: str, code: str) -> bool:
    """Whether folded code runs something that its literals do not say."""
    kind = family(language)
    if not kind:
        return False
    if kind == "awk":
        plain = _AWK_REGEX.sub(r"\1 ", code)
        if _AWK_PIPE.search(_bare(plain)) or any(found in SHELLS for found in _AWK_SHELL.findall(plain)):
            return True
    elif kind in _BY_TEXT and re.search(_BY_TEXT[kind], _bare(code)):
        return True
    if any(sign in text for sign in _MOVING.get(kind, ()) for text in _BACKTICKS.findall(code)):
        return True
    names = _CALLS[kind]
    gate, more = _MORE.get(kind, (None, ""))
    if gate is not None and gate.search(code):
        names = f"{names}|{more}"
    # With a bracket it counts within strings, too: they may be code that is evaluated.
    for call in re.finditer(rf"""(?:{names})(?:["']\s*\])?\s*\(""", code):
        if not _PLAIN.match(code, call.end()):
            return True
    if kind in ("perl", "ruby"):
        for call in re.finditer(rf"""\\.|{STRING}|(?:{names})\s*(?=["'])""", code):
            if call[0][0] not in "\\\"'" and not _PLAIN.match(code, call.end()):
                return True
    return False
