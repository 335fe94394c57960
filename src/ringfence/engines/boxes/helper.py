"""Where our helper is: the program in C that starts a wall and is PID 1 inside it (native/)."""

import os
from typing import Final

from ringfence.errors import InitializationFailed

_DIRECTORY: Final = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", "..", "_native"))
_NATIVE: Final = os.path.join(_DIRECTORY, "ringfence-box")


def path() -> str:
    """The helper's absolute path.

    Raises:
        InitializationFailed: it is missing. Nothing runs then: there is no second helper that does less.
    """
    if not os.access(_NATIVE, os.X_OK):
        raise InitializationFailed(
            f"the native helper is missing ({_NATIVE})",
            hint="install Ringfence again: pip install --force-reinstall ringfence; in a checkout, make setup",
        )
    return _NATIVE


def zygote_path() -> str:
    """Where the same is as a library for an interpreter (native/zygote.c); it need not be there."""
    return os.path.join(_DIRECTORY, "ringfence-zygote.so")
