"""How many boxes a keeper holds ready, and when it goes. Its variables are part of what makes a keeper's place."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

IDLE = "RINGFENCE_KEEPER_IDLE_SECONDS"
BOXES = "RINGFENCE_KEEPER_BOXES"
BOX_SECONDS = "RINGFENCE_KEEPER_BOX_SECONDS"
_MOST_BOXES = 64
_LONGEST = 7 * 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Settings:
    idle_seconds: float = 600.0
    """Without a call, until the keeper ends."""
    boxes: int = 4
    """Of how many kinds of calls a box waits for the next one; 0: none is made ahead."""
    box_seconds: float = 60.0
    """How long a box waits."""


def read_settings(environ: Mapping[str, str]) -> Settings:
    """What makes no sense is not taken: a keeper never is the reason for an error."""
    usual = Settings()
    return Settings(
        _number(environ.get(IDLE), usual.idle_seconds, _LONGEST),
        int(_number(environ.get(BOXES), usual.boxes, _MOST_BOXES)),
        _number(environ.get(BOX_SECONDS), usual.box_seconds, _LONGEST),
    )


def _number(text: str | None, usual: float, most: float) -> float:
    try:
        said = float(text or "")
    except ValueError:
        return usual
    return min(said, most) if math.isfinite(said) and said >= 0 else usual
