"""What `doctor` says about the native engine's own parts."""

import subprocess

from ringfence.engines.native import protocol
from ringfence.engines.native.starting import helper
from ringfence.errors import InitializationFailed


def helper_fact() -> tuple[str, bool, str, str]:
    """(name, whether it is well, what was found, what to do)"""
    name = "native helper"
    try:
        path = helper()
        said = subprocess.run([path, "version"], capture_output=True, timeout=5, env={}, check=True, text=True).stdout
    except InitializationFailed as fault:
        return name, False, fault.message, fault.hint
    except (OSError, subprocess.SubprocessError) as fault:
        return name, False, f"does not run: {fault}", "reinstall Ringfence on this machine"
    spoken = said.strip()
    fits = spoken == str(protocol.VERSION)
    hint = "" if fits else f"it speaks version {spoken}, we speak {protocol.VERSION}: reinstall Ringfence"
    return name, fits, f"C, protocol {spoken}", hint
