"""What `doctor` says about the native engine's own parts."""

import os
import subprocess

from ringfence.engines.boxes import helper, protocol
from ringfence.errors import RingfenceError


def helper_fact() -> tuple[str, bool, str, str]:
    """(name, whether it is well, what was found, what to do)"""
    name = "native helper"
    try:
        chosen = helper.choose()
        spoken = _version(chosen)
    except RingfenceError as fault:
        return name, False, fault.message, fault.hint
    except (OSError, subprocess.SubprocessError) as fault:
        return name, False, f"does not run: {fault}", "reinstall Ringfence on this machine"
    fits = spoken == str(protocol.VERSION)
    hint = "" if fits else f"it speaks version {spoken}, we speak {protocol.VERSION}: reinstall Ringfence"
    if not chosen.interpreter:
        return name, fits, f"C, protocol {spoken}", hint
    asked = os.environ.get(helper.VARIABLE) == "python"
    why = f"{helper.VARIABLE}=python" if asked else "no compiler was there when Ringfence was built"
    return name, fits, f"pure Python, protocol {spoken} ({why})", hint


def _version(chosen: helper.Helper) -> str:
    program = chosen.open()
    try:
        line = [*chosen.argv(program), "version"]
        done = subprocess.run(
            line, capture_output=True, timeout=10, env={}, check=True, text=True, pass_fds=[program], cwd="/"
        )
    finally:
        os.close(program)
    return done.stdout.strip()
