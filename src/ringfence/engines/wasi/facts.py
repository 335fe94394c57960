"""What `doctor` says about WebAssembly: whether the engine can be used here, and which languages it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ringfence.dataclass import dataclass
from ringfence.engines.wasi.cache import Cache
from ringfence.engines.wasi.guests import PythonGuest, quickjs, userland
from ringfence.engines.wasi.places import wasi_places
from ringfence.engines.wasi.staging import find_library
from ringfence.errors import NotInstalled, RingfenceError
from ringfence.values.guarantee import Guarantee

GIVEN: Final = frozenset({Guarantee.NO_NATIVE_CODE})
LACKING: Final = frozenset({Guarantee.OWN_LOOPBACK})
"""Modules have no sockets at all, not even to each other."""


@dataclass(frozen=True, slots=True)
class WasiFact:
    """What was found; `missing` says why modules cannot be run here."""

    languages: tuple[str, ...] = ()
    missing: str = ""
    hint: str = ""


def wasi_fact(environ: Mapping[str, str], home: str) -> WasiFact:
    """Never raises for what it finds."""
    try:
        find_library()
        guest = PythonGuest(Cache(wasi_places(environ, home).cache)).read()
    except NotInstalled as fault:
        return WasiFact(missing=fault.message, hint=f"only for portable tools: {fault.hint}")
    except RingfenceError as fault:
        return WasiFact(missing=fault.message, hint=fault.hint)
    found = (("tools", userland()), ("javascript", quickjs()), ("python", guest))
    return WasiFact(tuple(name for name, module in found if module is not None))
