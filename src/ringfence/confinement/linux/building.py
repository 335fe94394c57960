"""Writes the plan by which the launcher builds a box's file system from nothing (docs/box-protocol.md).

Order matters: later mounts cover earlier ones, hence system, then private directories, then what is granted, parents
before children, then covers, and last the seal that makes the root itself read-only.
"""

import os

from ringfence.confinement.base import Descriptors, How, Layered, StandIn, View

QUEUES = "/dev/mqueue"
"""Where POSIX message queues are mounted, once there is an IPC namespace: by whoever makes it."""
AREA = "/sys"
"""Where the launcher builds the new root, in a mount namespace of its own; the helper knows the same name."""
_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_DEVICE_LINKS = (
    ("fd", "/proc/self/fd"),
    ("stdin", "fd/0"),
    ("stdout", "fd/1"),
    ("stderr", "fd/2"),
    ("ptmx", "pts/ptmx"),
)


class LaunchPlan:
    """Collects what is taken from the host, and the steps that put it into the new root."""

    def __init__(self, stand_in: StandIn | None) -> None:
        self._stand_in = stand_in
        self._owners = {} if stand_in is None else {path: (uid, gid) for path, uid, gid in stand_in.owners}
        self._taken: list[str] = []
        self._count = 0
        self._steps: list[str] = []

    def put(self, verb: str, source: str, name: str) -> None:
        """Show (read-only), share (writable) or put as a device what lies at `source`."""
        if self._stand_in is not None and (verb == "share" or (verb == "show" and source in self._owners)):
            ids = (*self._owners[source], self._stand_in.uid, self._stand_in.gid)
            self._taken += ["map", *map(str, ids), "mapped", source]
        else:
            self._taken += ["take", source]
        self._steps += [verb, str(self._count), name]
        self._count += 1

    def put_shadow(self, layered: Layered, memory: int) -> None:
        """Put a shadow where its root lies on the host."""
        ids = self._owners.get(layered.root)
        sources = (f"{layered.store}/upper",) if layered.is_copy else (layered.root, layered.store)
        for source in sources:
            if self._stand_in is None or ids is None:
                self._taken += ["take", source]
            else:
                mapped = map(str, (*ids, self._stand_in.uid, self._stand_in.gid))
                self._taken += ["map" if layered.is_copy else "layers", *mapped, "mapped", source]
        numbers = [str(self._count + each) for each in range(len(sources))]
        self._count += len(sources)
        self._steps += ["share" if layered.is_copy else "overlay", *numbers, layered.root]
        if not layered.is_copy:
            self._steps += [str(layered.memory_bytes), str(memory)]

    def step(self, *words: str) -> None:
        self._steps += words

    def words(self) -> tuple[str, ...]:
        return ("private", *self._taken, "area", *self._steps)


def build(view: View, stand_in: StandIn | None, descriptors: Descriptors) -> LaunchPlan:
    """The plan for a view, up to and without the seal."""
    plan = LaunchPlan(stand_in)
    uid, gid = (os.getuid(), os.getgid()) if stand_in is None else (stand_in.uid, stand_in.gid)
    for path in view.system:
        plan.put("show", os.path.realpath(path), path)
    for where, target in view.links:
        plan.step("link", where, target)
    for name in _DEVICES:
        plan.put("device", f"/dev/{name}", f"/dev/{name}")
    for name, target in _DEVICE_LINKS:
        plan.step("link", f"/dev/{name}", target)
    plan.step("terminals", "/dev/pts")
    ids, outside = (str(uid), str(gid)), view.made_outside
    plan.step("tmpfs", "/dev/shm", _size(view, "/dev/shm", outside), "1777", *ids)
    plan.step("tmpfs", "/tmp", _size(view, "/tmp", outside), "1777", *ids)
    if view.home not in view.readable:
        plan.step("tmpfs", view.home, _size(view, view.home, outside), "0755", *ids)
    plan.step("dir", "/proc")
    plan.step("dir", QUEUES)
    plan.step("dir", "/run")
    for name, source in view.etc:
        plan.put("show", source, f"/etc/{name}")
    for name, text in view.texts:
        plan.step("text", f"/etc/{name}", text)
    granted = [("show", path) for path in view.readable] + [("share", path) for path in view.writable]
    behind = dict(view.linked)
    shadows = {layered.root: layered for layered in view.layered}
    for verb, path in sorted(granted, key=lambda entry: (entry[1].count("/"), entry[1])):
        if verb == "share" and path in shadows:
            plan.put_shadow(shadows[path], descriptors.memory)
        else:
            plan.put(verb, behind.get(path, path), path)
    for cover in sorted(view.covers, key=lambda cover: cover.how is not How.PIN):
        plan.step(cover.how.value, cover.root, cover.below)
    for path in view.hidden:
        plan.step("hide", os.path.dirname(path), os.path.basename(path))
    for (name, _), descriptor in zip(view.files, descriptors.files, strict=True):
        plan.step("file", name, str(descriptor))
    for each in view.replaced:
        plan.step("replace", each.root, each.below, each.source)
    return plan


def capture(descriptors: Descriptors, stand_in: StandIn | None) -> tuple[str, ...]:
    """What makes the network of a box that has one, and starts its socket maker; nothing for any other."""
    if descriptors.maker < 0:
        return ()
    uid, gid = (os.getuid(), os.getgid()) if stand_in is None else (stand_in.uid, stand_in.gid)
    return ("capture", str(descriptors.maker), str(uid), str(gid))


def captured_words(descriptors: Descriptors) -> tuple[str, ...]:
    """For PID 1 of a box with a network: to end if that is the host's."""
    return () if descriptors.maker < 0 else ("captured", str(os.stat("/proc/self/ns/net").st_ino))


def _size(view: View, path: str, made_outside: tuple[str, ...]) -> str:
    """How much a directory in memory may hold. What a name takes is counted for whoever makes it: where that is the
    guardian, which no limit of the box holds, their number is bounded too, to a quarter of that size at the most."""
    names = f",nr_inodes={max(view.tmp_bytes // 4096, 1024)}" if path in made_outside else ""
    return f"{view.tmp_bytes}{names}"
