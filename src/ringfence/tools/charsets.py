"""Bytes of the web as text: by what the answer says, else by what the page says, else as UTF-8."""

import codecs
import re
from email.message import Message
from typing import Final

_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_IN_PAGE: Final = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})", re.IGNORECASE)
_LOOKED_AT: Final = 2048
_NOT_OF_THE_WEB: Final = frozenset(
    ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf_7", "undefined", "mbcs")
)
_AS_BROWSERS_DO: Final = {"iso8859-1": "cp1252", "ascii": "cp1252"}


def decoded(data: bytes, content_type: str = "", *, is_page: bool = False) -> str:
    """The text; what cannot be read becomes U+FFFD."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return data.decode(name, "replace")
    name = _known(media_type(content_type)[1])
    if not name and is_page and (found := _IN_PAGE.search(data[:_LOOKED_AT])):
        name = _known(found[1].decode("ascii"))
    return data.decode(name or "utf-8", "replace")


def media_type(content_type: str) -> tuple[str, str]:
    """`text/html` and the charset, in small letters."""
    message = Message()
    message["content-type"] = content_type[:200]
    charset = message.get_param("charset", "")
    return message.get_content_type() if content_type else "", charset.lower() if isinstance(charset, str) else ""


def _known(name: str) -> str:
    """A charset that Python can read; empty if it is none."""
    if not name:
        return ""
    try:
        found = codecs.lookup(name)
        "".encode(found.name)  # some codecs are no charsets
    except (LookupError, ValueError):
        return ""
    if found.name.replace("-", "_") in _NOT_OF_THE_WEB:
        return ""
    return _AS_BROWSERS_DO.get(found.name, found.name)
