"""The Docker daemon's API: every call has a deadline, and every fault becomes one of ours, with what to do.

A connection is made for the making of a box, and another one for its end; none is kept while the box lives, so that a
daemon that hangs or restarts meanwhile takes nothing of ours with it. All questions of one connection have a deadline
in common, so that a box is made or given up in a time that can be told. What could not be removed is removed over the
next connection that works (`pending_removals`).
"""

import asyncio
import json
import math
from collections.abc import Awaitable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ringfence.dataclass import dataclass
from ringfence.engines.docker import pending_removals
from ringfence.errors import InitializationFailed

if TYPE_CHECKING:
    import aiodocker

_CALL_SECONDS = 10.0
"""For what a daemon answers from memory."""
_WORK_SECONDS = 30.0
"""For what it has to build."""
_IN_ALL_SECONDS = 30.0
"""For everything that is asked over one connection: as long as a caller waits for a box of a pool."""
_REMOVE_SECONDS = 8.0
"""For what it has to take down, also when the time is over: somebody waits, and what is left is not forgotten."""
OLDEST = (1, 41)
"""Docker 20.10: the first that can give a container a control-group namespace of its own."""
_MESSAGE_MAX = 500
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Image:
    """What we need to know of an image."""

    id: str
    path: str
    """PATH as the image sets it."""
    volumes: tuple[str, ...]
    """Where it wants volumes."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A runtime, as the daemon has it in its settings."""

    name: str
    path: str = ""
    """Its program; empty if it is called by its type."""
    type: str = ""
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class About:
    """What the daemon says of itself."""

    version: str
    bounds_memory: bool
    bounds_swap: bool
    bounds_processes: bool
    is_podman: bool = False
    """Podman speaks Docker's language, with an accent."""
    is_rootless: bool = False
    """Whether it lives in a user namespace of its user; so do its containers."""
    runtimes: tuple[Registered, ...] = ()
    default_runtime: str = ""

    @property
    def engine(self) -> str:
        return "Podman" if self.is_podman else "Docker"

    @classmethod
    def parse(cls, version: Mapping[str, Any], info: Mapping[str, Any]) -> Self:
        """From what `/version` and `/info` answer."""
        return cls(
            version=str(version.get("Version", "")),
            bounds_memory=bool(info.get("MemoryLimit")),
            bounds_swap=bool(info.get("SwapLimit")),
            bounds_processes=bool(info.get("PidsLimit")),
            is_podman=any("Podman" in str(part.get("Name")) for part in version.get("Components") or ()),
            is_rootless="name=rootless" in security_options(info) or bool(info.get("Rootless")),  # Podman's word for it
            runtimes=tuple(
                Registered(
                    str(name),
                    str(said.get("path") or ""),
                    str(said.get("runtimeType") or ""),
                    tuple(map(str, said.get("runtimeArgs") or ())),
                )
                for name, said in sorted((info.get("Runtimes") or {}).items())
            ),
            default_runtime=str(info.get("DefaultRuntime") or ""),
        )


class Daemon:
    """Use it as `async with Daemon(url) as daemon`.

    Raises, from every method:
        InitializationFailed: nobody answers, not in time, or with a refusal.
    """

    def __init__(self, url: str, *, call_seconds: float = _CALL_SECONDS) -> None:
        self._url = url
        self._seconds = call_seconds
        self._end = math.inf
        self._client: aiodocker.Docker | None = None

    async def __aenter__(self) -> Self:
        try:
            import aiodocker
        except ImportError as fault:
            raise InitializationFailed(
                "the Docker engine needs the package aiodocker", hint="pip install 'ringfence[docker]'"
            ) from fault
        self._client = aiodocker.Docker(url=self._url)
        self._end = asyncio.get_running_loop().time() + _IN_ALL_SECONDS
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._client is None:
            return
        try:
            if fault is None:  # so that it answers
                await asyncio.gather(*map(self._remove_owed, pending_removals.due_to(self._url)))
        finally:
            client, self._client = self._client, None
            await client.close()
            await asyncio.sleep(0)  # transports close one turn of the loop later

    @property
    def seconds_left(self) -> float:
        """Until the deadline of all that is asked over this connection."""
        return max(0.0, self._end - asyncio.get_running_loop().time())

    @property
    def _docker(self) -> "aiodocker.Docker":
        if self._client is None:
            raise AssertionError("a daemon is used within `async with`")
        return self._client

    async def about(self) -> About:
        """Whether it can be used, and what it can hold."""
        said = await self._describe("say its version", self._docker.version())
        spoken = str(said.get("ApiVersion", ""))
        if parse_version(spoken) < OLDEST:
            raise InitializationFailed(
                f"the Docker daemon is too old: it speaks version {spoken!r} of its API",
                hint="use Docker 20.10 or later",
            )
        info = await self._describe("describe itself", self._docker.system.info())
        if info.get("OSType", "linux") != "linux":
            raise InitializationFailed("the Docker daemon runs no Linux containers", hint="switch it to Linux ones")
        if "name=userns" in security_options(info):
            raise InitializationFailed(
                "the Docker daemon maps users (userns-remap), so that nobody inside could be the workspace's owner",
                hint="use a rootless daemon, one without userns-remap, or the native engine, which needs none",
            )
        return About.parse(said, info)

    async def image(self, name: str) -> Image:
        said = await self._describe(
            "describe the image",
            self._docker.images.inspect(name),
            missing=f"there is no image {name!r} in the Docker daemon",
            hint="run `ringfence image build`, or name another one in RINGFENCE_DOCKER_IMAGE",
        )
        config = said.get("Config") or {}
        variables = dict(word.partition("=")[::2] for word in config.get("Env") or ())
        return Image(
            id=str(said.get("Id", name)),
            path=variables.get("PATH") or "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            volumes=tuple(config.get("Volumes") or ()),
        )

    async def create(self, config: Mapping[str, Any], name: str) -> str:
        """Make a container; returns its id."""
        import aiodocker

        try:
            made = await self._ask(
                "make the container", self._docker.containers.create(dict(config), name=name), seconds=_WORK_SECONDS
            )
        except InitializationFailed as fault:
            if not isinstance(fault.__cause__, aiodocker.DockerError):  # else it refused, or was never asked
                pending_removals.owe(self._url, name, may_come=True)
            raise
        return str(made.id)

    async def start(self, container: str) -> None:
        await self._ask(
            "start the container", self._docker.containers.container(container).start(), seconds=_WORK_SECONDS
        )

    async def first_pid(self, container: str) -> int:
        """The host's number of the process that a container runs as, by the daemon's word."""
        said = await self._describe("describe the container", self._docker.containers.container(container).show())
        state = said.get("State") or {}
        pid = int(state.get("Pid") or 0)
        if not pid:
            raise InitializationFailed(
                f"the container ended at once, with {state.get('ExitCode')} {state.get('Error') or ''}".rstrip(),
                hint="see the daemon's own log",
            )
        return pid

    async def wait_ended(self, container: str) -> str:
        """Wait until it runs no more; how it ended, for people."""
        try:
            said = await self._docker.containers.container(container).wait()
        except self._faults() as fault:
            return str(fault)
        return f"it exited with {said.get('StatusCode')}"

    async def wait_removed(self, container: str, seconds: float = _WORK_SECONDS) -> bool:
        """Whether it was gone within that time, as far as the daemon can say."""
        with suppress(TimeoutError, *self._faults()):
            async with asyncio.timeout(seconds):
                await self._docker.containers.container(container).wait(condition="removed")
        return not await self._is_there(container)

    async def thaw_and_kill(self, container: str) -> None:
        """End a container that may have been paused behind our back. Never raises."""
        handle = self._docker.containers.container(container)
        for order in (handle.unpause, handle.kill):
            with suppress(TimeoutError, *self._faults()):
                async with asyncio.timeout(self._seconds):
                    await order()

    async def _remove_owed(self, container: str) -> None:
        if not await self.remove(container):
            pending_removals.put_off(self._url, container)

    async def remove(self, container: str) -> bool:
        """Have it gone, whatever it does; whether the daemon answered. Never raises: what is left is removed over the
        next connection, or found by the next manager."""
        import aiodocker

        pending_removals.owe(self._url, container)
        with suppress(TimeoutError, *self._faults()):
            try:
                async with asyncio.timeout(_REMOVE_SECONDS):
                    await self._docker.containers.container(container).delete(force=True, v=True)
                pending_removals.settle(self._url, container, was_there=True)
            except aiodocker.DockerError as fault:
                if fault.status in (404, 409):  # there is none, or it is being removed
                    pending_removals.settle(self._url, container, was_there=fault.status == 409)
            return True
        return False

    async def labelled(self, label: str) -> tuple[tuple[str, str], ...]:
        """(id, value) of all containers that carry a label."""
        wanted = json.dumps({"label": [label]})
        found = await self._ask("list containers", self._docker.containers.list(all=True, filters=wanted))
        return tuple((str(each.id), str(each["Labels"].get(label, ""))) for each in found)

    async def _is_there(self, container: str) -> bool:
        import aiodocker

        try:
            async with asyncio.timeout(self._seconds):
                await self._docker.containers.container(container).show()
        except aiodocker.DockerError as fault:
            return fault.status != 404
        except TimeoutError:
            return True
        except self._faults():
            return True
        return True

    async def _describe(
        self, what: str, answer: Awaitable[Any], *, missing: str = "", hint: str = ""
    ) -> dict[str, Any]:
        said = await self._ask(what, answer, missing=missing, hint=hint)
        if not isinstance(said, dict):
            raise InitializationFailed(
                f"what answers at {self._url} is no Docker daemon", hint="does `docker info` answer?"
            )
        return said

    async def _ask(
        self,
        what: str,
        answer: Awaitable[_T],
        *,
        seconds: float | None = None,
        missing: str = "",
        hint: str = "",
    ) -> _T:
        import aiodocker

        seconds = self._seconds if seconds is None else seconds
        try:
            async with asyncio.timeout(min(seconds, self.seconds_left)):
                return await answer
        except TimeoutError as fault:
            raise InitializationFailed(
                f"the Docker daemon at {self._url} did not {what} within {min(seconds, _IN_ALL_SECONDS):g} s",
                hint="does `docker info` answer?",
            ) from fault
        except aiodocker.DockerError as fault:
            if fault.status == 404 and missing:
                raise InitializationFailed(missing, hint=hint) from fault
            if fault.status == 900:
                raise InitializationFailed(
                    f"no Docker daemon answers at {self._url}",
                    hint="is dockerd running, and may this user use its socket? The native engine needs neither",
                ) from fault
            why = " ".join(str(fault.message).split())[:_MESSAGE_MAX]
            raise InitializationFailed(
                f"the Docker daemon refuses to {what}: {why}", hint=_hint_for(why) or "see the daemon's own log"
            ) from fault
        except self._faults() as fault:
            raise InitializationFailed(
                f"what answers at {self._url} went away, or is no Docker daemon ({type(fault).__name__})",
                hint="does `docker info` answer?",
            ) from fault

    @staticmethod
    def _faults() -> tuple[type[Exception], ...]:
        """What comes up when a daemon refuses, vanishes in mid-sentence, or is none."""
        import aiodocker
        import aiohttp

        return (aiodocker.DockerError, aiohttp.ClientError, OSError, KeyError, ValueError, TypeError, AttributeError)


def security_options(info: Mapping[str, Any]) -> frozenset[str]:
    """What `/info` says of how it separates, such as `name=rootless`, without further words."""
    return frozenset(str(option).partition(",")[0] for option in info.get("SecurityOptions") or ())


def parse_version(text: str) -> tuple[int, ...]:
    """`1.41` as numbers that compare; what is no version is older than any."""
    parts = text.split(".")
    return tuple(map(int, parts)) if all(part.isascii() and part.isdigit() for part in parts) else (0,)


def _hint_for(why: str) -> str:
    hints = {
        "bind source path does not exist": "the daemon has to run on this machine, and see the same files as we do",
        "no space left on device": "make room where the daemon keeps its data",
        "exec format error": "the image's machine is not this one",
        "permission denied": "may the workspace's owner reach it inside the container?",
    }
    return next((hint for sign, hint in hints.items() if sign in why), "")
