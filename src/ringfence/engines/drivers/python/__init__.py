"""The interpreter that keeps its state inside a box, as one text: its parts, joined.

Inside, there is nothing of this package: an interpreter is given the whole as one program, which imports little and
has one namespace. Outside, it is written as modules that say what they use of each other, where only type checkers
look, so that they can be read and checked one by one.
"""

import re
from functools import cache
from pathlib import Path

PARTS = ("beginning", "imports", "displays", "notebook", "cells", "life")
"""In the order in which they are run."""
_FOR_CHECKERS = re.compile(r"^TYPE_CHECKING = False\nif TYPE_CHECKING:\n(?:(?: {4}.*)?\n)*", re.MULTILINE)
_FUTURE = "from __future__ import annotations\n"


@cache
def joined() -> str:
    """The program."""
    first, *others = ((Path(__file__).parent / f"{part}.py").read_text("utf-8") for part in PARTS)
    return first + "".join(_FOR_CHECKERS.sub("", text.replace(_FUTURE, "", 1), count=1) for text in others)
