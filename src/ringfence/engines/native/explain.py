"""Says why a call is refused, from the grant: which rule, and what would allow it. Pure but for one look at the host.

A write is refused by name: the answer is final, so what is recorded is what happened. A read that the view hides comes
to nothing by itself; it is recorded where a rule names it, or where the host has something there that the box was not
granted. What is neither is a file that does not exist, which is nobody's doing.
"""

import errno
import ipaddress
import os
from typing import Final

from ringfence.confinement.base import How, View
from ringfence.policy.globs import compiled
from ringfence.values.grant import Grant
from ringfence.values.violation import Operation, Severity, Violation, ViolationType

_HARMLESS: Final = ("__pycache__",)  # Python tries to keep its bytecode beside every module, and does without
_MISSING: Final = "missing"
_SAME: Final = "same "
_KERNEL: Final = ("/proc", "/dev")
"""Where writing is the kernel's to judge: a process's own settings, its terminals."""
_LOOKED_FOR: Final = (
    "/run/nscd/socket",  # the C library looks for these wherever names of users and hosts are asked for
    "/var/run/nscd/socket",
    "/run/systemd/userdb",
    "/run/user",
    "/dev/log",
)
_SENSITIVE: Final = (ViolationType.SENSITIVE_FILE_ACCESS, Severity.HIGH)
_PROTECTED: Final = (ViolationType.PATH_ACCESS_DENIED, Severity.HIGH)
_DENIED: Final = (ViolationType.PATH_ACCESS_DENIED, Severity.MEDIUM)
_OPERATIONS: Final = {str(operation): operation for operation in Operation}
_NOTHING: Final = "nothing: the blacklist beats every grant"
_BY_HAND: Final = "a person's own hand, outside the box"
_CHANGES: Final = {
    "write": "written",
    "create": "made",
    "delete": "removed",
    "rename": "renamed",
    "link": "linked",
    "chmod": "changed in mode",
    "chown": "given away",
}


class Explainer:
    """For the supervisor: (operation, target, second target) to (errno, violation); errno 0 lets the wall decide."""

    def __init__(self, grant: Grant, view: View) -> None:
        self._rules = compiled(grant.denied)
        self._private = ("/tmp", "/var/tmp", "/dev/shm", *([view.home] if view.home not in view.readable else []))
        self._granted = (*map(os.fspath, grant.writable_roots), *view.readable)
        self._writable = (*map(os.fspath, grant.writable_roots), *self._private)
        # What the wall covers, and no more: a repository that is made during the run has hooks of its own.
        covers = (cover for cover in view.covers if cover.how is How.FREEZE)
        self._frozen = tuple((os.path.join(cover.root, cover.below), cover.below) for cover in covers)
        # Programs look at the machine in /sys and for services in /run, and do without.
        self._system = (*view.system, *(name for name, _ in view.links), "/etc", "/sys", "/run", *_KERNEL)
        self._stand_ins = frozenset(f"/etc/{name}" for name, _ in (*view.texts, *view.etc))

    def __call__(self, operation: str, one: str, two: str) -> tuple[int, Violation | None]:
        if operation in ("connect", "bind"):
            return self._on_address(operation, one, is_missing=two == _MISSING)
        if two.startswith(_SAME):
            return self._on_alias(operation, one, two.removeprefix(_SAME))
        if operation in ("read", "exec"):
            return self._on_read(operation, one, is_missing=two == _MISSING)
        for target in filter(None, (one, two)):
            error, violation = self._on_change(operation, target)
            if violation is not None:
                return error, violation
        return 0, None

    def _is_its_own(self, path: str) -> bool:
        """Whether the box has that directory for itself: rules about the host's files mean nothing there."""
        return _is_below(path, self._private) and not _is_below(path, self._granted)

    def _on_alias(self, operation: str, path: str, known: str) -> tuple[int, Violation | None]:
        """Another name of a file that the blacklist matched when the box was made."""
        row = self._rules.matches(known)
        why = f"{operation} of {path}: it is {known} by another name, which is blacklisted"
        return errno.EACCES, _of_path(
            operation, path, why, _SENSITIVE, f"filesystem.blacklist {row or known}", _NOTHING
        )

    def _on_read(self, operation: str, path: str, *, is_missing: bool) -> tuple[int, Violation | None]:
        row = self._rules.matches(path)
        if path in self._stand_ins or (self._is_its_own(path) and not is_missing):
            return 0, None
        if row is not None:
            why = f"{operation} of {path}: it is blacklisted"
            return errno.EACCES, _of_path(operation, path, why, _SENSITIVE, f"filesystem.blacklist {row}", _NOTHING)
        if not is_missing or _is_below(path, self._system) or not os.path.lexists(path):
            return 0, None
        why = f"{operation} of {path}: it is not in what is granted"
        return errno.ENOENT, _of_path(operation, path, why, _DENIED, "filesystem.whitelist", f"grant it: read={path}")

    def _on_change(self, operation: str, path: str) -> tuple[int, Violation | None]:
        done = _CHANGES.get(operation, "changed")
        if self._is_its_own(path):
            return 0, None
        row = self._rules.matches(path)
        if row is not None:
            why = f"{path} may not be {done}: it is blacklisted"
            return errno.EACCES, _of_path(operation, path, why, _SENSITIVE, f"filesystem.blacklist {row}", _NOTHING)
        below = next((below for place, below in self._frozen if _is_below(path, (place,))), None)
        if below is not None:
            why = f"{path} may be read, not {done}"
            return errno.EACCES, _of_path(operation, path, why, _PROTECTED, f"protected {below}", _BY_HAND)
        is_kernel_s = _is_below(path, _KERNEL) and not _is_below(path, ("/proc/sys",))
        if is_kernel_s or _is_below(path, self._writable) or any(part in _HARMLESS for part in path.split("/")):
            return 0, None
        why = f"{path} may not be {done}: it is not in what may be written"
        allow_by = f"grant its directory: write={os.path.dirname(path)}"
        return errno.EROFS, _of_path(operation, path, why, _DENIED, "filesystem.whitelist", allow_by)

    def _on_address(self, operation: str, address: str, *, is_missing: bool) -> tuple[int, Violation | None]:
        if address.startswith("unix:"):
            return self._on_socket(address.removeprefix("unix:"), is_missing=is_missing)
        ip = ipaddress.ip_address(address.rpartition(":")[0].strip("[]"))
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        if ip.is_loopback or ip.is_unspecified:
            return 0, None
        what = f"connection to {address}" if operation == "connect" else f"listening on {address}"
        violation = Violation(
            ViolationType.NETWORK,
            Severity.MEDIUM,
            f"{what}: there is no network inside",
            "network.allowNetwork false",
            "fetch it outside the box, and hand the result in as a file",
            _OPERATIONS[operation],
            address,
        )
        return (errno.ENETUNREACH if operation == "connect" else errno.EADDRNOTAVAIL), violation

    def _on_socket(self, path: str, *, is_missing: bool) -> tuple[int, Violation | None]:
        """A socket of the host that the view hides. One that the box made for itself is nobody's business."""
        row = self._rules.matches(path) if path.startswith("/") else None
        hidden = is_missing and not _is_below(path, _LOOKED_FOR) and os.path.lexists(path)
        if row is None and not hidden:
            return 0, None
        rule = f"filesystem.blacklist {row}" if row is not None else "filesystem.whitelist"
        return errno.EACCES, Violation(
            ViolationType.NETWORK,
            Severity.HIGH,
            f"connection to the socket {path}",
            rule,
            "nothing: it is the host's",
            Operation.CONNECT,
            path,
        )


def _of_path(
    operation: str, path: str, what: str, how: tuple[ViolationType, Severity], rule: str, allow_by: str
) -> Violation:
    return Violation(*how, what, rule, allow_by, _OPERATIONS.get(operation, Operation.OTHER), path)


def _is_below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(top.rstrip("/") + "/") for top in tops)
