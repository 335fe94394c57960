"""What of the host a box may see without asking: system directories, and /etc by allow-list."""

import os
from functools import cache

from ringfence.confinement.base import NAME_SERVER

SYSTEM: tuple[str, ...] = (
    "/usr",  # programs and libraries
    "/bin",  # on a merged-usr system these five are links into /usr
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",  # NixOS keeps every program there
    "/gnu/store",
)

ETC: tuple[str, ...] = (
    "alternatives",  # Debian's choice of a program for a name; /usr/bin links into it
    "crypto-policies",  # Fedora's TLS settings, which OpenSSL and GnuTLS include
    "debian_version",
    "ethertypes",
    "fonts",  # fontconfig: without it a plot has no text
    "gai.conf",  # which address of a name is tried first
    "gdb",
    "groff",  # how a manual page is set
    "host.conf",
    "java-11-openjdk",  # configuration that Debian's JDKs keep outside /usr
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",  # where the loader finds libraries
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "lsb-release",
    "localtime",
    "magic",  # file(1)
    "magic.mime",
    "man_db.conf",  # Fedora's; man(1) does not start without
    "manpath.config",  # Debian's
    "mime.types",
    "networks",
    "os-release",
    "papersize",
    "perl",
    "pki/ca-trust",  # Fedora's certificates
    "pki/tls/certs",
    "protocols",
    "python3",
    "python3.11",
    "python3.12",
    "python3.13",
    "rpc",
    "services",  # names of ports
    "sgml",  # catalogues: where a document's definitions lie on this machine
    "shells",
    "ssl/certs",  # public certificates; ssl/private stays outside
    "ssl/openssl.cnf",
    "terminfo",
    "texmf",
    "timezone",
    "ca-certificates",
    "ca-certificates.conf",
    "xml",
)


_COPY_MAX = 16 * 1024


@cache
def system_view() -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Directories to bind and links to make for the system part: (directories, (link, target))."""
    directories: list[str] = []
    links: list[tuple[str, str]] = []
    for path in SYSTEM:
        if os.path.islink(path):
            links.append((path, os.readlink(path)))
        elif os.path.isdir(path):
            directories.append(path)
    return tuple(directories), tuple(links)


@cache
def etc_view() -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    """What exists of the allow-list: (name, source) to mount, and (name, content) of small text files to copy.

    A copy costs less than a mount. Sources are resolved, so that a link leads to its file.
    """
    mounted: list[tuple[str, str]] = []
    copied: list[tuple[str, str]] = []
    for name in ETC:
        source = os.path.realpath(f"/etc/{name}")
        text = _small_text(source)
        if text is not None:
            copied.append((name, text))
        elif os.path.exists(source):
            mounted.append((name, source))
    return tuple(mounted), tuple(copied)


_seen: list[tuple[object, ...]] = []


def forget_if_changed() -> None:
    """Look at the machine's files anew, if one of them is another or was changed; finding that out costs a tenth."""
    system_view.cache_clear()
    now = tuple(_version(f"/etc/{name}") for name in ETC)
    if _seen[:1] != [now]:
        etc_view.cache_clear()
        _seen[:] = [now]


def _version(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _small_text(path: str) -> str | None:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) > _COPY_MAX:
            return None
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError):
        return None
    return text if "\0" not in text else None


def synthetic_etc(
    uid: int, gid: int, home: str, covered: tuple[str, ...], *, has_network: bool = False
) -> tuple[tuple[str, str], ...]:
    """Files that programs expect and that must not be the host's."""
    # Without a network a name server is asked, though there is none, so that a look-up is seen and explained; the
    # second `files` has the answer be "not known" as without one, instead of "try again".
    order = "files dns" if has_network else "files dns [TRYAGAIN=continue UNAVAIL=continue] files"
    resolver = f"nameserver {NAME_SERVER}\n" if has_network else "# there is no network in here\n"
    return (
        (
            "passwd",
            f"root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:{uid}:{gid}:agent:{home}:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
        ),
        ("group", f"root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n"),
        ("hosts", "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n"),
        ("hostname", "sandbox\n"),
        (
            "nsswitch.conf",
            f"passwd: files\ngroup: files\nhosts: {order}\nservices: files\nprotocols: files\n",
        ),
        ("resolv.conf", resolver),
        # git reads this as the person's own list of ignored files (GIT_ENVIRONMENT): what is covered cannot be added.
        ("gitignore", "".join(f"{name}\n" for name in covered)),
    )


GIT_ENVIRONMENT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.excludesFile",
    "GIT_CONFIG_VALUE_0": "/etc/gitignore",
}
