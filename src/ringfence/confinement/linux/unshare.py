"""The wall without bubblewrap: the same file system, namespaces, Landlock and seccomp, all made by our own helper.

It gives what bubblewrap gives (the contract, hostile and attack suites run against both), in less time: the process
that builds the file system is PID 1 already, and no further program is started.

What this does not protect against: what `bwrap` says of itself.
"""

import os
from functools import cache

from ringfence.confinement.base import Descriptors, Launch, Probe, StandIn, View
from ringfence.confinement.linux import seccomp
from ringfence.confinement.linux.building import build, capture, captured_words
from ringfence.confinement.linux.bwrap import profile_for
from ringfence.confinement.linux.inside import can_make_names, keeps_apart, kernel_notes, landlock_words, offered
from ringfence.confinement.linux.probe import can_build


class Unshare:
    name = "unshare"

    def probe(self) -> Probe:
        return _probe()

    def wrap(self, view: View, descriptors: Descriptors, stand_in: StandIn | None) -> Launch:
        plan = build(view, stand_in, descriptors)
        plan.step("seal", *(("captured",) if descriptors.maker >= 0 else ()))
        uid, gid = (os.getuid(), os.getgid()) if stand_in is None else (stand_in.uid, stand_in.gid)
        plan.step("enter", *map(str, (uid, gid, view.uid, view.gid)))
        is_first = descriptors.maker < 0  # the socket maker of a box stands outside of the pid namespace
        plan.step(*(descriptors.stay_words if is_first else ("exec", *descriptors.init_argv)))
        return Launch(
            plan=plan.words(),
            options=(),
            configure=(*captured_words(descriptors), *landlock_words(view), "filter"),
            seccomp=seccomp.assemble(profile_for(view, stand_in, debugging=keeps_apart())),
            filter_by_helper=True,
            is_first=is_first,
            before=capture(descriptors, stand_in),
        )


@cache
def _probe() -> Probe:
    problem = can_build()
    if problem:
        missing = f"our helper cannot build its wall ({problem})"
        return Probe(missing=missing, hint="allow unprivileged user namespaces, and mounts in them")
    return Probe(offered(), notes=kernel_notes(), stays=True, makes_names=can_make_names())
