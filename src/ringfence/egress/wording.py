"""What is said of a request: why it may be another one than it looks, and a reason as a status line holds it."""

from typing import Final

from ringfence.egress.base import RequestHead
from ringfence.values.network import Asking, NetworkRule

_LONGEST_REASON: Final = 160
_OTHER_METHOD: Final = frozenset((b"x-http-method-override", b"x-http-method", b"x-method-override"))
_OTHER_PATH: Final = frozenset((b"x-original-url", b"x-rewrite-url"))
"""Headers by which some servers take a request for another one."""


def means_another(head: RequestHead, rule: NetworkRule | None) -> str:
    """Why a request may be another one to its server than the one that was judged; else empty."""
    if rule is None:
        return ""
    for name, value in head.headers:
        small = name.lower()
        if small in _OTHER_METHOD and (rule.methods or rule.asking is Asking.CHANGES):
            if value.strip() != head.method.encode("latin-1", "replace"):
                return f"the header {small.decode()} asks for another method than the rule was judged by"
        elif small in _OTHER_PATH and rule.paths:
            return f"the header {small.decode()} asks for another path than the rule was judged by"
    return ""


def reason_line(reason: str) -> str:
    """A reason as a status line holds it: printable ASCII, not too long, and said by whom."""
    text = visible(reason)
    return f"Ringfence: {text if len(text) <= _LONGEST_REASON else text[: _LONGEST_REASON - 3] + '...'}"


def visible(text: str) -> str:
    return "".join(letter if " " <= letter <= "~" else "?" for letter in text)
