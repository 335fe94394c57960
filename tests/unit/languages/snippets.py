"""Pieces of TypeScript with what they print: the same as when the TypeScript compiler (5.8) translates them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_PIECE: Final = re.compile(r"^### ([^\n]*)\n(.*?)^>>>\n(.*?)(?=^### |\Z)", re.M | re.S)

SNIPPETS: Final = {
    name: (code, prints) for name, code, prints in _PIECE.findall(Path(__file__).with_suffix(".txt").read_text("utf-8"))
}
"""By name: the code and its output."""
