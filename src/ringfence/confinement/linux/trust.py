"""Where programs in a box look for whom to trust, and how ours gets there: by mounts over the files themselves.

Variables reach only who reads them: not wget, not git with GnuTLS, not Java, not an older pip. A file of the view that
holds the system's authorities is covered by one that holds ours, too; nothing changes on the host.

What this does not reach: programs that carry their authorities in themselves (webpki-roots of Rust), browsers that keep
them in a database of their own, and directories of single certificates by hash, without a bundle beside them.
"""

import os
from collections.abc import Iterable, Iterator
from functools import cache
from glob import glob
from itertools import product
from typing import Final

from ringfence.confinement.base import BUNDLE, Replaced, Trust, View, is_within

JAVA: Final = "/etc/ringfence/cacerts"

BUNDLES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",  # Debian, Ubuntu, Arch, Alpine, Gentoo; Go, curl, GnuTLS
    "/etc/pki/tls/certs/ca-bundle.crt",  # Fedora, RHEL
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",  # what that is a link to
    "/etc/ssl/ca-bundle.pem",  # SUSE
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",  # Arch, behind its link
    "/usr/lib/ssl/cert.pem",  # OpenSSL's own default on Debian
    "/etc/ssl/cert.pem",  # on Alpine
    "/etc/pki/tls/cert.pem",  # on Fedora
    "/usr/local/ssl/cert.pem",  # built by hand
)
STORES: Final = (
    "/etc/ssl/certs/java/cacerts",  # Debian; its JDKs have links to it
    "/etc/pki/java/cacerts",  # Fedora
    "/etc/pki/ca-trust/extracted/java/cacerts",
    "/usr/lib/jvm/*/lib/security/cacerts",  # JDKs of others
    "/usr/lib/jvm/*/jre/lib/security/cacerts",
    "/opt/java/*/lib/security/cacerts",
)
_CERTIFI: Final = ("certifi/cacert.pem", "pip/_vendor/certifi/cacert.pem")
"""requests, httpx, aiohttp's friends; and pip's own copy."""
_LIBRARIES: Final = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib64/python3*/site-packages")
_SYSTEM_LIBRARIES: Final = ("/usr/lib/python3/dist-packages", "/usr/lib/python3*/site-packages")
_ENVIRONMENTS_MOST: Final = 16
"""Of virtual environments at the top of a writable directory."""


def system_bundle() -> bytes:
    """What this machine trusts, in PEM; nothing, if it has no bundle."""
    for path in BUNDLES:
        try:
            with open(path, "rb") as file:
                return file.read()
        except OSError:
            continue
    return b""


def trusting(view: View, trust: Trust) -> tuple[tuple[tuple[str, bytes], ...], tuple[Replaced, ...]]:
    """The view's `files` and what they replace, so that programs trust ours."""
    places: dict[tuple[str, str], str] = {}
    own = ((os.path.realpath(path), BUNDLE) for path in _certifi(view))
    for path, source in (*_of_the_system(), *own):
        place = _place(view, path) if os.path.isfile(path) else None
        if place is not None:
            places.setdefault(place, source)
    files = ((BUNDLE, trust.bundle), (JAVA, trust.java))
    return files, tuple(Replaced(root, below, source) for (root, below), source in places.items())


@cache
def _of_the_system() -> tuple[tuple[str, str], ...]:
    """(file, what replaces it), as they were when somebody first asked: systems seldom change while we run."""
    libraries = (*_SYSTEM_LIBRARIES, *(f"/usr/local/{library}" for library in _LIBRARIES))
    lists = (path for library, name in product(libraries, _CERTIFI) for path in glob(f"{library}/{name}"))
    stores = (path for pattern in STORES for path in glob(pattern))
    found = (*((path, BUNDLE) for path in (*BUNDLES, *lists)), *((path, JAVA) for path in stores))
    return tuple(dict.fromkeys((os.path.realpath(path), source) for path, source in found if os.path.isfile(path)))


def _certifi(view: View) -> Iterator[str]:
    """In virtual environments, and in interpreters that are no part of the system."""
    roots = (*view.readable, *(real for _, real in view.linked), *_environments(view.writable))
    for root, library, name in product(roots, _LIBRARIES, _CERTIFI):
        yield from glob(f"{_literal(root)}/{library}/{name}")


def _environments(roots: Iterable[str]) -> Iterator[str]:
    """Virtual environments at the top of writable directories, or that are one."""
    count = 0
    for root in roots:
        if os.path.isfile(f"{root}/pyvenv.cfg"):
            yield root
        try:
            with os.scandir(root) as entries:
                names = sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            continue
        for path in names:
            if count < _ENVIRONMENTS_MOST and os.path.isfile(f"{path}/pyvenv.cfg"):
                count += 1
                yield path


def _literal(path: str) -> str:
    """A path as a glob that means it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def _place(view: View, path: str) -> tuple[str, str] | None:
    """(directory of the view, path below it) where a file of the host is seen inside; None if it is not."""
    if any(path == hidden or is_within(path, hidden) for hidden in view.hidden):
        return None
    etc = ((f"/etc/{name}", source) for name, source in view.etc)
    linked = dict(view.linked)
    shadows = {each.root for each in view.layered if each.is_copy}
    granted = ((root, linked.get(root, root)) for root in (*view.readable, *view.writable) if root not in shadows)
    # The innermost one is what is seen: a directory that is granted may lie in another.
    pairs = (*((top, os.path.realpath(top)) for top in view.system), *etc, *granted)
    holding = [(inside, source) for inside, source in pairs if path != source and is_within(path, source)]
    if not holding:
        return None
    inside, source = max(holding, key=lambda pair: len(pair[1]))
    return inside, os.path.relpath(path, source)
