"""Whom programs in a box trust where connections are looked into: the machine's authorities, and ours."""

from functools import lru_cache

from ringfence.confinement.base import Trust
from ringfence.confinement.choose import system_bundle
from ringfence.engines.networking.java_store import java_store


@lru_cache(maxsize=4)
def make_trust(authority_pem: bytes, known_hosts: str = "") -> Trust:
    """Both forms. Ours is added to the machine's, since some clients take the file that they are told for all there is,
    and connections that nobody looks into still end at the real server."""
    system = system_bundle()
    gap = b"" if not system or system.endswith(b"\n") else b"\n"
    bundle = system + gap + authority_pem
    return Trust(bundle, java_store(bundle), known_hosts)
