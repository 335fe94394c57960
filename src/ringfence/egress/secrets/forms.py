"""The spellings in which a text may lie in what is sent: raw, base64 at any alignment, hex, URL-encoded, escaped.

Each comes with the spelling of what stands in for it, of the same length, so that lengths that were announced hold.
"""

import base64
import html
import json
from typing import Final
from urllib.parse import quote, quote_from_bytes, quote_plus

_SHORTEST_CORE: Final = 8
"""Letters of base64: fewer could be any text."""


def spellings(value: bytes) -> tuple[bytes, ...]:
    """How a value may be written, itself first, none twice."""
    found: dict[bytes, None] = {value: None}
    for form in (*_encoded(value), *_escaped(value)):
        found.setdefault(form)
    for core in _cores(value):
        if len(core) >= _SHORTEST_CORE:
            found.setdefault(core)
            found.setdefault(core.translate(_TO_URL_SAFE))
    return tuple(found)


def replacements(value: bytes, stand_in: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Each spelling of `value` with what is written instead, longest first; of the same length each.

    `stand_in` is written where it is as long; where it is not, stars are.
    """
    instead = stand_in if len(stand_in) == len(value) else b"*" * len(value)
    cores = dict(zip(_cores(value), _cores(instead), strict=True))
    cores.update({core.translate(_TO_URL_SAFE): other.translate(_TO_URL_SAFE) for core, other in cores.items()})
    pairs: list[tuple[bytes, bytes]] = []
    for form in spellings(value):
        other = instead if form == value else cores.get(form, b"")
        pairs.append((form, other if len(other) == len(form) else b"*" * len(form)))
    return tuple(sorted(pairs, key=lambda pair: -len(pair[0])))


_TO_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


def _cores(value: bytes) -> tuple[bytes, bytes, bytes]:
    """The letters of base64 that `value` alone decides, with zero, one and two bytes before it."""
    found = []
    for before in range(3):
        letters = base64.b64encode(b"\0" * before + value).rstrip(b"=")
        first = (before * 8 + 5) // 6  # letters that hold a bit of what stands before
        last = (before + len(value)) * 8 // 6  # the one after may hold a bit of what follows
        found.append(letters[first:last])
    return found[0], found[1], found[2]


def _encoded(value: bytes) -> tuple[bytes, ...]:
    upper = quote_from_bytes(value, safe="").encode()
    in_hex = value.hex().encode()
    by_url = (upper, _lower_hex(upper), quote_from_bytes(value, safe="/").encode(), quote_plus(value).encode())
    return (*by_url, in_hex, in_hex.upper())


def _lower_hex(text: bytes) -> bytes:
    head, *rest = text.split(b"%")
    return b"%".join((head, *(part[:2].lower() + part[2:] for part in rest)))


def _escaped(value: bytes) -> tuple[bytes, ...]:
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return ()
    in_json = json.dumps(text)[1:-1]
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    return tuple(
        form.encode() for form in (in_json, plain, in_json.replace("/", "\\/"), html.escape(text), quote(text))
    )
