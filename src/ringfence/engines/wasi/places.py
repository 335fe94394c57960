"""Where the WASI engine keeps what is a person's own: trust, bundles, guests, compiled code."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.errors import InvalidConfig

DIRECTORY: Final = "RINGFENCE_WASI_DIR"
CACHE: Final = "RINGFENCE_WASI_CACHE"


@dataclass(frozen=True, slots=True)
class WasiPlaces:
    bundles: Path
    """Trust store and installed bundles."""
    cache: Path
    """Guests and compiled code; all of it can be made again."""


def wasi_places(environ: Mapping[str, str], home: str) -> WasiPlaces:
    """As the environment says.

    Raises:
        InvalidConfig: a path that is not absolute, which would depend on where an agent works.
    """
    top = _absolute(environ, DIRECTORY) or os.path.join(home, ".ringfence", "wasi")
    return WasiPlaces(Path(top), Path(_absolute(environ, CACHE) or os.path.join(top, "cache")))


def _absolute(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if value and not os.path.isabs(value):
        raise InvalidConfig(f"{name} is {value!r}", hint="use an absolute path")
    return value
