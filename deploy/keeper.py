"""Keeps a pool of boxes, serves its metrics, and sends a heartbeat through a box again and again.

This is what a container of Ringfence runs that does not serve (compose.server.yaml does): the program to replace by
your agent's own, which uses `SandboxManager` in the same way. It opens no port but that of the metrics.

It never runs with a weaker wall than it was told. If no box can be made at the start it ends with 1; if the heartbeat
fails three times in a row, too, so that whoever started it starts it anew. SIGTERM ends it cleanly.

    RINGFENCE_POLICY         the policy in force
    RINGFENCE_POOL_SIZE      how many boxes are kept ready; default: 2
    RINGFENCE_MAX_MEMORY     of one execution, such as 512m; at most what the policy says
    RINGFENCE_MAX_CPU        processors that one execution may use, such as 1.0; held in containers
    RINGFENCE_NETWORK        `none` (default): there is nothing else yet
                             Each of these four is also read under the name that the design document gives it:
                             SANDBOX_POOL_SIZE, SANDBOX_MAX_MEMORY, SANDBOX_MAX_CPU, SANDBOX_NETWORK.
    RINGFENCE_METRICS_PORT   default: 9464
    RINGFENCE_WALL           `full` (default): everything that Ringfence guarantees.
                             `landlock`: what can be had where user namespaces are forbidden. The command sees names of
                             files, though not their contents, and processes of its own user, and protected paths of a
                             workspace are not held. Give such a pod one agent.
"""

import asyncio
import os
import signal
import sys

from prometheus_client import start_http_server

import ringfence
from ringfence import Guarantee

HEARTBEAT_SECONDS = 30.0
FAILURES_MAX = 3

BEHIND_LANDLOCK = frozenset(
    {
        Guarantee.HOST_FILES_HIDDEN,
        Guarantee.NETWORK_OFF,
        Guarantee.KERNEL_SURFACE_REDUCED,
        Guarantee.NEVER_ROOT,
        Guarantee.TREE_DIES,
        Guarantee.MEMORY_BOUNDED,
        Guarantee.PROCESSES_BOUNDED,
    }
)


def make_manager() -> ringfence.SandboxManager:
    """The manager as the environment asks for it; the library itself reads the pool's size and the bounds.

    Raises:
        InvalidConfig: a variable makes no sense.
    """
    wall = os.environ.get("RINGFENCE_WALL", "full")
    observers = (ringfence.MetricsObserver(),)
    match wall:
        case "full":
            return ringfence.SandboxManager(observers=observers)
        case "landlock":
            return ringfence.SandboxManager(observers=observers, requires=BEHIND_LANDLOCK)
        case _:
            raise ringfence.InvalidConfig(f"RINGFENCE_WALL is {wall!r}", hint="give `full` or `landlock`")


async def keep(ended: asyncio.Event) -> int:
    """Until it is told to end; the exit code."""
    failures = 0
    async with make_manager() as manager:
        port = int(os.environ.get("RINGFENCE_METRICS_PORT", "9464"))
        server, thread = start_http_server(port)
        try:
            while failures < FAILURES_MAX:
                done = await manager.execute_code("python", "print(6 * 7)", timeout=HEARTBEAT_SECONDS)
                failures = 0 if done.success and done.stdout.strip() == "42" else failures + 1
                if failures:
                    print(f"keeper: the heartbeat failed: {done.error or done.stderr}", file=sys.stderr, flush=True)
                try:
                    await asyncio.wait_for(ended.wait(), HEARTBEAT_SECONDS)
                    return 0
                except TimeoutError:
                    continue
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
    return 1


def check_user() -> None:
    """With Docker's engine we may be uid 0, of a rootless daemon's user namespace; never of the machine.

    Raises:
        InvalidConfig: we are, and so would be whoever broke into us.
    """
    if os.environ.get("RINGFENCE_TOOL_ENGINE") != "docker" or os.getuid() != 0:
        return
    with open("/proc/self/uid_map", encoding="ascii") as file:
        _, outside, _ = file.readline().split()
    if outside == "0":
        raise ringfence.InvalidConfig(
            "this is root of the machine, with a way to its Docker daemon",
            hint="start compose.docker.yaml by a rootless daemon: set DOCKER_HOST to its socket",
        )


async def main() -> int:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        check_user()
        return await keep(ended)
    except ringfence.RingfenceError as fault:
        print(f"keeper: [{fault.code}] {fault}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
