"""Texts that code spells by numbers or codings, written out as literals: `chr(47)`, `"..."[::-1]`, `fromhex("...")`.

What is written out is added to what is judged, never taken away.
"""

import base64
import binascii
import re
from typing import Final

_SPELLS: Final = re.compile(
    r"\bchr\b|fromCharCode|fromCodePoint|\[::-1\]|fromhex|unhexlify|b64decode|decode64|decode_base64|atob|\bpack\b|reverse"
    r"|string\.char|base64_decode|\bbytes|\bbytearray|\.join\b|\bjoin\b|\\[xu0-7]|Buffer\.from|hex2bin|strrev|%c"
)
"""Code without any of these has nothing to write out."""
_NUMBERS: Final = r"(?:0x[0-9a-fA-F]{1,6}|\d{1,7})"
_LISTED: Final = rf"{_NUMBERS}(?:\s{{0,9}},\s{{0,9}}{_NUMBERS}){{0,400}}"
_CHARS: Final = re.compile(
    rf"(?:\bchr|String\.fromCharCode|String\.fromCodePoint|string\.char|\bbytes|\bbytearray)\s{{0,9}}\(\s{{0,9}}\[?\s{{0,9}}"
    rf"({_LISTED})\s{{0,9}}\]?\s{{0,9}}\)(?:\.decode\([^()]{{0,20}}\))?"
)
_MAPPED: Final = re.compile(
    rf"""["']["']\.join\(\s{{0,9}}(?:map\(\s{{0,9}}chr\s{{0,9}},\s{{0,9}}|chr\(\w{{1,9}}\)\s+for\s+\w{{1,9}}\s+in\s+)"""
    rf"""[\[(]\s{{0,9}}({_LISTED})\s{{0,9}}[\])]\s{{0,9}}\){{1,2}}"""
    rf"""|\[\s{{0,9}}({_LISTED})\s{{0,9}}\]\.(?:pack\(["'][CcU]\*["']\)|map\(&:chr\)\.join)"""
    rf"""|\bpack\s{{0,9}}\(?\s{{0,9}}["'][CcUW]\*["']\s{{0,9}},\s{{0,9}}({_LISTED})\s{{0,9}}\)?"""
)
_TEXT: Final = r"""[bru]{0,2}(?:"([^"\\\n]{1,4000})"|'([^'\\\n]{1,4000})')"""
_BACKWARDS: Final = re.compile(
    rf"""{_TEXT}(?:\[::-1\]|\.reverse\b(?:\(\))?|\.split\(["']["']\)\.reverse\(\)\.join\(["']["']\)|:reverse\(\))"""
    rf"""|(?:\bscalar\s+reverse|\bstrrev|string\.reverse)\s{{0,9}}\(?\s{{0,9}}{_TEXT}\s{{0,9}}\)?"""
)
_CODED: Final = re.compile(
    r"(b64decode|fromhex|unhexlify|decode64|decode_base64|atob|base64_decode|hex2bin|Buffer\.from)\s{0,9}\(?\s{0,9}"
    rf"""{_TEXT}(?:\s{{0,9}},\s{{0,9}}["'](hex|base64)["'])?\s{{0,9}}\)?(?:\.(?:decode|toString)\([^()]{{0,20}}\))?"""
)
_JOINED: Final = re.compile(
    r"""(["'])([^"'\\\n]{0,3})\1\.join\(\s{0,9}[\[(]((?:\s{0,9}(?:"[^"\\\n]*"|'[^'\\\n]*')\s{0,9},?){1,100})[\])]\s{0,9}\)"""
    r"""|[\[]((?:\s{0,9}(?:"[^"\\\n]*"|'[^'\\\n]*')\s{0,9},?){1,100})\]\.join\(\s{0,9}(["'])([^"'\\\n]{0,3})\5\s{0,9}\)"""
    r"""|(?<![.\w])join\(\s{0,9}(["'])([^"'\\\n]{0,3})\7\s{0,9},((?:\s{0,9}(?:"[^"\\\n]*"|'[^'\\\n]*')\s{0,9},?){1,100})\)"""
)
_PATH_JOINED: Final = re.compile(
    r"""(?:(?:\bpath|["']path["']\))\.(?:join|resolve)|\bFile\.join|\bjoinpath)\s{0,9}\(((?:[^()"'\n]{0,60}(?:"[^"\\\n]*"|'[^'\\\n]*')\s{0,9},?){1,30})"""
)
_SLASHED: Final = re.compile(
    r"""(?:(?:\bPath|\bPurePath)\(\s{0,9}(?:"([^"\\\n]*)"|'([^'\\\n]*)')\s{0,9}\)|\bPath\.(home|cwd)\(\))"""
    r"""((?:\s{0,9}/\s{0,9}(?:"[^"\\\n]*"|'[^'\\\n]*')){1,30})"""
)
_LITERAL: Final = re.compile(r""""([^"\\\n]*)"|'([^'\\\n]*)'""")
_HEX: Final = re.compile(r"\\x([0-9a-fA-F]{2})|\\u\{?([0-9a-fA-F]{4,6})\}?|\\([0-3][0-7]{2})")
_HOME: Final = re.compile(
    r"""(?:(?:\bos\.environ(?:\.get\(|\[)|\bgetenv\(|\$?ENV[\[{.]|\$_(?:ENV|SERVER)\[)\s{0,9}["']HOME["']\s{0,9}[\])}]"""
    r"""|\bprocess\.env\.HOME|(?:\bos\.|\brequire\(["'](?:node:)?os["']\)\.)?\bhomedir\(\)|\bDir\.home|\$ENV\{HOME\}|expanduser\(["']~["']\))"""
)


def written_out(code: str) -> str:
    """The code with texts that it spells by numbers or codings as literals."""
    if _HOME.search(code):
        code = _HOME.sub('"~"', code)
    if not _SPELLS.search(code) and "Path" not in code:
        return code
    code = _HEX.sub(_unescaped, code)
    code = _MAPPED.sub(lambda match: _numbered(match, next(found for found in match.groups() if found)), code)
    code = _CHARS.sub(lambda match: _numbered(match, match[1]), code)
    code = _BACKWARDS.sub(lambda match: _quoted(next(found for found in match.groups() if found)[::-1]), code)
    code = _CODED.sub(_decoded, code)
    code = _JOINED.sub(_joined, code)
    code = _PATH_JOINED.sub(lambda match: match[0] + "," + _quoted(_path(_texts(match[1]))), code)
    return _SLASHED.sub(_slashed, code)


def _unescaped(match: re.Match[str]) -> str:
    number = int(match[1] or match[2] or "0", 16) if match[3] is None else int(match[3], 8)
    return chr(number) if 32 <= number < 127 and chr(number) not in "\"'\\" else match[0]


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def _numbered(match: re.Match[str], numbers: str) -> str:
    found = [int(number.strip(), 0) if "x" in number else int(number) for number in numbers.split(",")]
    if not all(9 <= number < 0x110000 for number in found):
        return match[0]
    return _quoted("".join(map(chr, found)))


def _decoded(match: re.Match[str]) -> str:
    text = match[2] or match[3] or ""
    is_hex = match[1] in ("fromhex", "unhexlify", "hex2bin") or match[4] == "hex"
    if match[1] == "Buffer.from" and match[4] is None:
        return match[0]
    try:
        raw = bytes.fromhex(text) if is_hex else base64.b64decode(text, validate=True)
        return f"{match[0]},{_quoted(raw.decode())}"
    except (ValueError, binascii.Error):
        return match[0]


def _texts(listed: str) -> list[str]:
    return [one or other for one, other in _LITERAL.findall(listed)]


def _joined(match: re.Match[str]) -> str:
    between = next((match[n] for n in (2, 6, 8) if match[n] is not None), "")
    return _quoted(between.join(_texts(match[3] or match[4] or match[9] or "")))


def _path(texts: list[str]) -> str:
    path = ""
    for text in texts:
        path = text if text.startswith(("/", "~")) or not path else f"{path.rstrip('/')}/{text}"
    return path


def _slashed(match: re.Match[str]) -> str:
    begin = {"home": "~", "cwd": "."}.get(match[3] or "", match[1] or match[2] or "")
    return _quoted(_path([begin, *_texts(match[4])]))
