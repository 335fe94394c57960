"""Which runtime a box is made by, on whose kernel, and which ones are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ringfence.engines.docker.daemon import About
from ringfence.engines.docker.engine import guarantees_of
from ringfence.engines.docker.runtimes import Kernel, Runtime, choose_runtime
from ringfence.errors import InitializationFailed
from ringfence.values.guarantee import Guarantee

GVISOR = {"path": "/usr/bin/runsc", "runtimeArgs": ["--network=none", "--directfs=false"]}
KATA = {"runtimeType": "io.containerd.kata.v2"}
ALL: dict[str, Any] = {"runc": {"path": "runc"}, "crun": {"path": "/usr/bin/crun"}, "runsc": GVISOR, "vm": KATA}


def about(runtimes: dict[str, Any] | None = None, default: str = "runc", *, is_podman: bool = False) -> About:
    info = {"Runtimes": ALL if runtimes is None else runtimes, "DefaultRuntime": default}
    return About.parse({"Components": [{"Name": "Podman Engine"}]} if is_podman else {}, info)


@pytest.mark.req("B12", "D1")
@pytest.mark.parametrize(
    ("said", "asked", "own_kernel", "expected"),
    [
        (about(), None, False, Runtime("", Kernel.HOST)),
        (about(), "runc", False, Runtime("", Kernel.HOST)),
        (about(), "crun", False, Runtime("crun", Kernel.HOST)),
        (about(), "runsc", False, Runtime("runsc", Kernel.GVISOR)),
        (about(), "vm", False, Runtime("vm", Kernel.MACHINE)),
        (about(), None, True, Runtime("runsc", Kernel.GVISOR)),
        (about(), "vm", True, Runtime("vm", Kernel.MACHINE)),
        (about({"runc": {}, "vm": KATA}), None, True, Runtime("vm", Kernel.MACHINE)),
        (
            about({"runc": {}, "kata": {"path": "/opt/kata/bin/kata-runtime"}}),
            None,
            True,
            Runtime("kata", Kernel.MACHINE),
        ),
        (about({"mine": GVISOR}, "mine"), None, False, Runtime("", Kernel.GVISOR)),
        (about({}, "/usr/bin/kata-runtime", is_podman=True), None, True, Runtime("", Kernel.MACHINE)),
    ],
)
def test_the_one_that_is_asked_for_is_taken_else_one_that_gives_what_is_required(
    said: About, asked: str | None, own_kernel: bool, expected: Runtime
) -> None:
    assert choose_runtime(said, asked, own_kernel=own_kernel) == expected


def gvisor(*arguments: str) -> About:
    return about({"runc": {}, "runsc": {"path": "/usr/bin/runsc", "runtimeArgs": list(arguments)}})


@pytest.mark.req("B12", "D1")
@pytest.mark.parametrize(
    ("said", "asked", "own_kernel", "why", "hint"),
    [
        (about(), "youki", False, "it has crun, runc, runsc, vm", "RINGFENCE_DOCKER_RUNTIME"),
        (about(), "crun", True, "'crun' uses the host's", "RINGFENCE_PROCESS_SANDBOX=gvisor"),
        (about({"runc": {}}), None, True, "has only runc", '"runtimeArgs"'),
        (about({"crun": {}}, "crun", is_podman=True), "runc", False, "by crun", "--runtime runc"),
        (about({}, "/usr/bin/runsc", is_podman=True), None, False, "cannot be seen", '"runtimeArgs"'),
        (about({"g": {"runtimeType": "io.containerd.runsc.v1"}}), "g", False, "cannot be seen", '"runtimeArgs"'),
        (gvisor(), None, True, "open files by itself", "--directfs=false"),
        (gvisor("--directfs=true"), None, True, "open files by itself", "--directfs=false"),
        (gvisor("--directfs"), "runsc", False, "open files by itself", "--directfs=false"),
        (gvisor("--directfs=false", "--network=host"), None, True, "network stack", "--network=none"),
        (gvisor("-directfs=false", "-network", "host"), None, True, "network stack", "--network=none"),
        (gvisor("--directfs=false", "--host-uds=open"), None, True, "sockets of the host", "--network=none"),
        (gvisor("--directfs=false", "--fsgofer-host-uds"), None, True, "sockets of the host", "--network=none"),
        (gvisor("--fsgofer-host-uds=1", "--directfs=false"), None, True, "sockets of the host", "--network=none"),
        (gvisor("--directfs=false", "--TESTONLY-unsafe-nonroot"), None, True, "unconfined", "--network=none"),
        (gvisor("--rootless", "--directfs=false"), None, True, "unconfined", "--network=none"),
        (gvisor("--directfs=false", "--platform=kvm"), None, True, "kvm", "systrap"),
        (gvisor("--platform", "kvm", "--directfs=false"), None, True, "kvm", "systrap"),
        (replace(about(), is_rootless=True), None, True, "has not been tried", "a daemon of root's"),
        (replace(about(), is_rootless=True), "vm", False, "has not been tried", "a daemon of root's"),
    ],
)
def test_a_runtime_that_does_not_hold_what_we_promise_is_refused_with_what_would(
    said: About, asked: str | None, own_kernel: bool, why: str, hint: str
) -> None:
    with pytest.raises(InitializationFailed) as caught:
        choose_runtime(said, asked, own_kernel=own_kernel)

    assert why in caught.value.message and hint in caught.value.hint


@pytest.mark.parametrize("kernel", [Kernel.GVISOR, Kernel.MACHINE])
def test_a_kernel_of_its_own_is_promised_by_those_who_bring_one(kernel: Kernel) -> None:
    host, own = (guarantees_of(about(), Runtime("", each)) for each in (Kernel.HOST, kernel))

    assert own - host == {Guarantee.OWN_KERNEL}
