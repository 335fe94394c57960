"""What `doctor` says about the native engine's own parts."""

import subprocess

from ringfence.engines.boxes import helper, protocol
from ringfence.errors import RingfenceError


def helper_fact() -> tuple[str, bool, str, str]:
    """(name, whether it is well, what was found, what to do)"""
    name = "native helper"
    try:
        spoken = _version(helper.path())
    except RingfenceError as fault:
        return name, False, fault.message, fault.hint
    except (OSError, subprocess.SubprocessError) as fault:
        return name, False, f"does not run: {fault}", "install Ringfence again, for this machine's architecture"
    fits = spoken == str(protocol.VERSION)
    hint = "" if fits else f"it speaks version {spoken}, we speak {protocol.VERSION}: install Ringfence again"
    return name, fits, f"protocol {spoken}", hint


def _version(program: str) -> str:
    line = [program, "version"]
    done = subprocess.run(line, capture_output=True, timeout=10, env={}, check=True, text=True, cwd="/")
    return done.stdout.strip()
