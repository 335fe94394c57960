"""Says why a call is refused, from the grant: which rule, and what would allow it. Pure but for one look at the host.

A write is refused by name: the answer is final, so what is recorded is what happened. A read that the view hides comes
to nothing by itself; it is recorded where a rule names it, or where the host has something there that the box was not
granted. What is neither is a file that does not exist, which is nobody's doing.
"""

from __future__ import annotations

import errno
import ipaddress
import os
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ringfence.confinement.base import CAPTURED_ADDRESSES, OWN_ADDRESSES, How, View
from ringfence.confinement.choose import led_out
from ringfence.dataclass import replace
from ringfence.policy.defaults import UNMADE, may_be_granted
from ringfence.policy.globs import compiled
from ringfence.values.paths import is_below
from ringfence.values.remedy import Access, Door, Need
from ringfence.values.violation import Operation, Severity, Violation, ViolationType

if TYPE_CHECKING:
    from ringfence.values.grant import Grant

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
_NAME_SERVICE: Final = "53"
_SENSITIVE: Final = (ViolationType.SENSITIVE_FILE_ACCESS, Severity.HIGH)
_PROTECTED: Final = (ViolationType.PATH_ACCESS_DENIED, Severity.HIGH)
_DENIED: Final = (ViolationType.PATH_ACCESS_DENIED, Severity.MEDIUM)
_OPERATIONS: Final = {str(operation): operation for operation in Operation}
_MADE_CHARACTERS: Final = 1 << 20
"""Of blacklisted names that a box may make. They are remembered for as long as it lives, and it chooses them: what
comes beyond, which no project has, is refused."""
_NOTHING: Final = "nothing does: the blacklist beats every grant"
_BY_HAND: Final = "make the change yourself, outside the sandbox"
_CHANGES: Final = {
    "write": "written",
    "create": "made",
    "bind": "made",
    "delete": "removed",
    "rename": "renamed",
    "link": "linked",
    "chmod": "changed in mode",
    "chown": "given away",
    "utime": "given another time",
}


class Explainer:
    """For the supervisor: (operation, target, second target) to (errno, violation); errno 0 lets the wall decide."""

    def __init__(self, grant: Grant, view: View, ports: Collection[int] = ()) -> None:
        """Args:
        ports: where somebody outside listens, or has, besides those of the grant; may grow.
        """
        self._rules = compiled(grant.denied)
        self._private = ("/tmp", "/var/tmp", "/dev/shm", *([view.home] if view.home not in view.readable else []))
        self._granted = (*map(os.fspath, grant.writable_roots), *view.readable)
        self._writable = (*map(os.fspath, grant.writable_roots), *self._private)
        # What the wall covers, and no more: a repository that is made during the run has hooks of its own.
        covers = (cover for cover in view.covers if cover.how is How.FREEZE)
        self._frozen = tuple((os.path.join(cover.root, cover.below), cover.below) for cover in covers)
        # And what it hides without a row of the blacklist, or nobody makes: names that are protected and not there,
        # sockets of the host.
        hidden = ((os.path.join(each.root, each.below), each.below) for each in view.covers if each.how is How.HIDE)
        closed = ((path, below) for path, below in hidden if self._rules.matches(path) is None)
        self._closed = (*closed, *((each.path, each.below) for each in view.unmade))
        # Programs look at the machine in /sys and for services in /run, and do without.
        self._system = (*view.system, *(name for name, _ in view.links), "/etc", "/sys", "/run", *_KERNEL)
        self._mediates_opens = grant.mediate_opens
        self._home = os.path.realpath(view.home)
        self._read_only = os.fspath(grant.workspace) if grant.read_only else ""
        self._made: set[str] = set()
        """Blacklisted names that the box made itself: what it wrote there is its own."""
        self._network = grant.network
        self._led_out = frozenset(led_out(grant))
        self._ports = ports
        self._made_room = _MADE_CHARACTERS
        self._stand_ins = frozenset(f"/etc/{name}" for name, _ in (*view.texts, *view.etc))

    def __call__(self, operation: str, one: str, two: str) -> tuple[int, Violation | None]:
        if operation in ("connect", "bind"):
            return self._on_address(operation, one, is_missing=two == _MISSING)
        if operation == "through":
            return errno.EACCES, _of_link(one)
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
        return _is_in_one_of(path, self._private) and not _is_in_one_of(path, self._granted)

    def _on_alias(self, operation: str, path: str, known: str) -> tuple[int, Violation | None]:
        """Another name of a file that the blacklist matched when the box was made."""
        row = self._rules.matches(known)
        why = f"{operation} of {path}: it is {known} by another name, which is blacklisted"
        return errno.EACCES, _of_path(
            operation, path, why, _SENSITIVE, f"filesystem.blacklist {row or known}", _NOTHING
        )

    def _on_read(self, operation: str, path: str, *, is_missing: bool) -> tuple[int, Violation | None]:
        if is_missing and ".." in path.split("/"):
            # A directory on the way is missing, so that the kernel would not get as far as `..`. The answer is ours: a
            # second thread could make that directory meanwhile, and no rule has judged what the path would name then.
            return errno.ENOENT, None
        row = self._rules.matches(path)
        if path in self._stand_ins or path in self._made or (self._is_its_own(path) and not is_missing):
            return 0, None
        if row is not None:
            why = f"{operation} of {path}: it is blacklisted"
            return errno.EACCES, _of_path(operation, path, why, _SENSITIVE, f"filesystem.blacklist {row}", _NOTHING)
        if not is_missing or _is_in_one_of(path, self._system) or not os.path.lexists(path):
            return 0, None
        why = f"{operation} of {path}: it is not in what is granted"
        # The wall answers, as it does where the host has nothing: an answer of our own would tell the two apart.
        return 0, _of_grant(operation, path, why, Need(Access.READ, path))

    def _on_change(self, operation: str, path: str) -> tuple[int, Violation | None]:
        done = _CHANGES.get(operation, "changed")
        if self._is_its_own(path):
            return 0, None
        row = self._rules.matches(path)
        if row is not None and not self._may_be_made(path):
            why = f"{path} may not be {done}: it is blacklisted"
            return errno.EACCES, _of_path(operation, path, why, _SENSITIVE, f"filesystem.blacklist {row}", _NOTHING)
        below = next((below for place, below in self._frozen if _is_in_one_of(path, (place,))), None)
        if below is not None:
            why = f"{path} may be read, not {done}"
            return errno.EACCES, _of_path(operation, path, why, _PROTECTED, f"protected {below}", _BY_HAND)
        below = next((below for place, below in self._closed if _is_in_one_of(path, (place,))), None)
        if below is not None:
            why = f"{path} may not be {done}: programs of the host trust what it says"
            return errno.EACCES, _of_path(operation, path, why, _PROTECTED, f"protected {below}", _BY_HAND)
        is_kernel_s = _is_in_one_of(path, _KERNEL) and not _is_in_one_of(path, ("/proc/sys",))
        if is_kernel_s or _is_in_one_of(path, self._writable) or any(part in _HARMLESS for part in path.split("/")):
            return 0, None
        if self._read_only and _is_in_one_of(path, (self._read_only,)):
            why = f"{path} may not be {done}: the workspace is read-only"
            return errno.EROFS, _of_path(operation, path, why, _DENIED, "read_only", "leave read_only out")
        why = f"{path} may not be {done}: it is not in what may be written"
        directory = path if os.path.isdir(path) else os.path.dirname(path)
        if not may_be_granted(directory, self._home):
            allow_by = f"nothing: {directory} is the root, a home or a system directory; write below the workspace"
            return errno.EROFS, _of_path(operation, path, why, _DENIED, "filesystem.whitelist", allow_by)
        return errno.EROFS, _of_grant(operation, path, why, Need(Access.WRITE, directory))

    def _may_be_made(self, path: str) -> bool:
        """Whether a blacklisted name is new: nothing of the host's lies there, and no program of the host would run it.

        So it is without anybody who looks, too: covers are put on what is there at the start.
        """
        if path in self._made:
            return True
        if self._mediates_opens or os.path.basename(path) in UNMADE or os.path.lexists(path):
            return False
        if not _is_in_one_of(path, self._writable) or len(path) > self._made_room:
            return False
        self._made.add(path)
        self._made_room -= len(path)
        return True

    def _on_address(self, operation: str, address: str, *, is_missing: bool) -> tuple[int, Violation | None]:
        if address.startswith("unix:"):
            path = address.removeprefix("unix:")
            if operation == "bind":  # makes a name, like any other call that does
                return self._on_change(operation, path) if path.startswith("/") else (0, None)
            return self._on_socket(path, is_missing=is_missing)
        host, _, port = address.rpartition(":")
        ip = ipaddress.ip_address(host.strip("[]"))
        if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        is_own = ip.is_loopback or ip.is_unspecified or str(ip) in OWN_ADDRESSES
        if self._network is not None:
            is_own = is_own or str(ip) in CAPTURED_ADDRESSES
            return (0, None) if is_own or operation == "bind" else self._on_connection(address, int(port))
        if is_own and (operation, port) == ("connect", _NAME_SERVICE):  # nobody in a box may listen there
            return 0, _of_network(operation, address, "look-up of a host name")
        if is_own:
            return 0, None
        what = f"connection to {address}" if operation == "connect" else f"listening on {address}"
        error = errno.ENETUNREACH if operation == "connect" else errno.EADDRNOTAVAIL
        return error, _of_network(operation, address, what)

    def _on_connection(self, address: str, port: int) -> tuple[int, Violation | None]:
        """A box with a network: what leads out is the proxy's to judge and to tell; nothing else leads anywhere."""
        # The C library asks port 0 which address it would send from.
        if port == 0 or port in self._led_out or port in self._ports:
            return 0, None
        return errno.ECONNREFUSED, Violation(
            ViolationType.NETWORK,
            Severity.MEDIUM,
            f"connection to {address}: no rule names port {port}",
            "network.allow",
            f"allow the host with its port: HOST:{port}",
            Operation.CONNECT,
            address,
        )

    def _on_socket(self, path: str, *, is_missing: bool) -> tuple[int, Violation | None]:
        """A socket of the host that the view hides. One that the box made for itself is nobody's business."""
        if self._is_its_own(path) and not is_missing:
            return 0, None
        row = self._rules.matches(path) if path.startswith("/") else None
        hidden = is_missing and not _is_in_one_of(path, _LOOKED_FOR) and os.path.lexists(path)
        if row is None and not hidden:
            return 0, None
        rule = f"filesystem.blacklist {row}" if row is not None else "filesystem.whitelist"
        # What is only hidden is answered by the wall, as where the host has nothing: the answer says nothing about it.
        return errno.EACCES if row is not None else 0, Violation(
            ViolationType.NETWORK,
            Severity.HIGH,
            f"connection to the socket {path}",
            rule,
            "nothing: it is the host's",
            Operation.CONNECT,
            path,
        )


def _of_link(path: str) -> Violation:
    return Violation(
        *_DENIED,
        f"{path} may not be written: by a hard link it is a file outside of what is granted, too, and could not be "
        "made a file of its own",
        "filesystem.whitelist",
        "put a copy in its place: cp it, then mv the copy over it",
        Operation.WRITE,
        path,
    )


def _of_network(operation: str, address: str, what: str) -> Violation:
    return Violation(
        ViolationType.NETWORK,
        Severity.MEDIUM,
        f"{what}: there is no network inside",
        "network.allowNetwork false",
        "name the host (--allow HOST, network=[HOST], or network.allow in a policy); or fetch it outside the box",
        _OPERATIONS[operation],
        address,
    )


def _of_path(
    operation: str, path: str, what: str, how: tuple[ViolationType, Severity], rule: str, allow_by: str
) -> Violation:
    return Violation(*how, what, rule, allow_by, _OPERATIONS.get(operation, Operation.OTHER), path)


def _of_grant(operation: str, path: str, what: str, need: Need) -> Violation:
    refused = _of_path(operation, path, what, _DENIED, "filesystem.whitelist", need.said(Door.LIBRARY))
    return replace(refused, need=need)


def _is_in_one_of(path: str, tops: tuple[str, ...]) -> bool:
    return any(is_below(path, top) for top in tops)
