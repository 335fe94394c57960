"""A small reader of sandbox-exec profiles, so that a test can ask what a profile decides and not just what it says.

It knows the forms that our profiles use and refuses any other. Like the kernel, it lets the last matching rule decide.
"""

import re
from fnmatch import fnmatchcase

Form = str | list["Form"]

_TOKEN = re.compile(
    r"""\s*(?:;[^\n]*\n\s*)*(?:(?P<paren>[()])|"(?P<text>(?:[^"\\]|\\.)*)"|(?P<word>[^\s()"]+))""", re.DOTALL
)
_ESCAPE = re.compile(r"\\(?:x([0-9a-f]{2})|(.))", re.DOTALL)


def parse(text: str) -> list[Form]:
    """The forms of a profile; a string keeps a leading quote, so that it is never taken for a word."""
    stack: list[list[Form]] = [[]]
    at = 0
    text = text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None, f"cannot be read: {text[at : at + 40]!r}"
        at = token.end()
        if token["paren"] == "(":
            stack.append([])
        elif token["paren"] == ")":
            done = stack.pop()
            stack[-1].append(done)
        elif token["text"] is not None:
            stack[-1].append(
                '"' + _ESCAPE.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[2], token["text"])
            )
        else:
            stack[-1].append(token["word"])
    assert len(stack) == 1, "a form is not closed"
    return stack[0]


def decide(profile: str, operation: str, path: str) -> str:
    """`allow` or `deny`, for one operation on one path (as the kernel sees it, links followed)."""
    answer = "allow"
    for form in parse(profile):
        assert isinstance(form, list)
        if form[0] == "version":
            continue
        assert form[0] in ("allow", "deny"), form
        operations = [word for word in form[1:] if isinstance(word, str)]
        filters = [each for each in form[1:] if isinstance(each, list)]
        named = any(word == "default" or fnmatchcase(operation, word) for word in operations)
        if named and (not filters or any(_holds(each, path) for each in filters)):
            answer = str(form[0])
    return answer


def _holds(each: list[Form], path: str) -> bool:
    kind, value = each
    assert isinstance(value, str)
    text = value[1:]
    match kind:
        case "subpath":
            return path == text or path.startswith(text.rstrip("/") + "/")
        case "literal":
            return path == text
        case "regex":
            # The kernel matches bytes.
            assert text.endswith("$"), "a pattern that is open at its end"
            return re.search(_as_bytes(text[:-1]) + rb"\Z", _as_bytes(path), re.DOTALL) is not None
        case "target" | "sysctl-name" | "sysctl-name-prefix" | "global-name":
            return False
        case _:
            raise AssertionError(f"unknown filter {kind}")


def _as_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")
