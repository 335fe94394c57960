"""`SandboxBuilder`: a sandbox put together step by step (requirement C8).

What is built is written down as a policy, which is then read like any other: the builder can say nothing that a file
cannot, and `to_yaml()` gives the file.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

import yaml

from ringfence.errors import InvalidArgument
from ringfence.manager.options import OptionFields, SandboxOptions, StrPath, make_options
from ringfence.manager.policing import PolicyEngine
from ringfence.manager.sandbox import Sandbox

if TYPE_CHECKING:
    from ringfence.values.risk import SecurityMode

_SOURCE: Final = "SandboxBuilder"


class SandboxMode(StrEnum):
    """How much a sandbox allows; from loose to tight."""

    PERMISSIVE = "permissive"
    NORMAL = "normal"
    RESTRICTED = "restricted"
    STRICT = "strict"


class SandboxBuilder:
    """Every method returns the builder, so that calls can be chained.

    sandbox = (
        SandboxBuilder()
        .mode("restricted")
        .working_dir("project")
        .allow_command("ls")
        .block_command("rm -rf")
        .timeout(30)
        .memory_limit("512MB")
        .build()
    )
    """

    def __init__(self) -> None:
        self._enabled = True
        self._workspace: StrPath | None = None
        self._settings: dict[str, Any] = {}

    def enabled(self, enabled: bool = True) -> Self:
        """Whether there is to be a sandbox; `build` refuses to make a Sandbox that is none."""
        self._enabled = enabled
        return self

    def mode(self, mode: SandboxMode | str) -> Self:
        """One of permissive, normal, restricted, strict."""
        self._settings["mode"] = str(mode)
        return self

    def working_dir(self, path: StrPath) -> Self:
        """The directory that commands work in and may write."""
        self._workspace = path
        return self

    def allow_read(self, path: StrPath) -> Self:
        """A further file or directory that may be read; `/` is all of the host but what is hidden."""
        if os.path.abspath(path) == "/":
            self._settings["filesystem_access"] = "read_outside"
            return self
        return self._add(("filesystem", "read"), os.path.abspath(path))

    def allow_write(self, path: StrPath) -> Self:
        """A further directory that may be written."""
        return self._add(("filesystem", "write"), os.path.abspath(path))

    def deny_path(self, glob: str) -> Self:
        """A glob that is hidden, also in what is granted."""
        return self._add(("filesystem", "deny"), glob)

    def allow_command(self, command: str) -> Self:
        """A command that may be run; from the first one on, no other may."""
        return self._add(("allowed_commands",), command)

    def block_command(self, command: str) -> Self:
        """A command that may not be run."""
        return self._add(("denied_commands",), command)

    def allow_network(self, allowed: bool = True) -> Self:
        """Whether hosts may be reached at all; it opens none by itself: `allow_domain` does."""
        self._settings["network_access"] = allowed
        return self

    def allow_domain(self, domain: str) -> Self:
        """A host, or a preset such as `pip`, that may be reached through the proxy; from the first one on, no other
        may."""
        return self._add(("network", "allow"), domain)

    def strictness(self, strictness: str) -> Self:
        """How strictly the text of a command is checked: permissive, normal, strict."""
        self._validation()["strictness"] = str(strictness)
        return self

    def sensitive_files(self, handling: str) -> Self:
        """What naming a sensitive file leads to: `warn`, `block`, or `hide`, which the wall holds."""
        self._validation()["sensitive_files"] = handling
        return self

    def timeout(self, duration: float | str | timedelta) -> Self:
        """Wall-clock time of one command: seconds, text such as `5m`, or a timedelta."""
        return self._limit("wall", duration.total_seconds() if isinstance(duration, timedelta) else duration)

    def memory_limit(self, size: int | str) -> Self:
        """Memory of a command and all that it starts: bytes, or text such as `512MB`."""
        return self._limit("memory", size)

    def cpu_limit(self, duration: float | str) -> Self:
        """CPU time of a command and all that it starts."""
        return self._limit("cpu", duration)

    def output_limit(self, size: int | str) -> Self:
        """Bytes of stdout, and as many of stderr."""
        return self._limit("output", size)

    def file_size_limit(self, size: int | str) -> Self:
        """Size of one file."""
        return self._limit("file_size", size)

    def process_limit(self, count: int) -> Self:
        """Processes and threads."""
        return self._limit("processes", count)

    def open_files_limit(self, count: int) -> Self:
        """Open files of each process."""
        return self._limit("open_files", count)

    def require(self, guarantees: Sequence[str]) -> Self:
        """What the wall has to guarantee."""
        for guarantee in guarantees:
            self._add(("requires",), str(guarantee).replace(" ", "_"))
        return self

    def isolate(self, guarantees: Sequence[str]) -> Self:
        """What the wall has to guarantee, beyond that, for code that is isolated."""
        for guarantee in guarantees:
            self._add(("isolation_requires",), str(guarantee).replace(" ", "_"))
        return self

    def security_mode(self, mode: SecurityMode | str) -> Self:
        """Which code is isolated: `permissive`, what looks high or critical; `strict`, all that is not plainly safe."""
        self._settings["security_mode"] = str(mode)
        return self

    def to_yaml(self) -> str:
        """The policy that was built, as a file would hold it."""
        document = {"policies": {"default": self._settings}}
        return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)

    def policy(self) -> PolicyEngine:
        """The policy that was built.

        Raises:
            InvalidArgument: something that was given makes no sense.
        """
        return PolicyEngine.from_text(self.to_yaml(), _SOURCE)

    def options(self, **fields: Unpack[OptionFields]) -> SandboxOptions:
        """What was built, as options for whoever takes them; `fields` are further ones.

        Raises:
            InvalidConfig: something that was given makes no sense, or there is to be no sandbox.
        """
        if not self._enabled:
            raise InvalidArgument(
                "a sandbox that is not enabled would run commands without any wall",
                hint="leave out enabled(False); to run without a wall, start the program yourself",
            )
        built = SandboxOptions(workspace=self._workspace, policy=self.policy())
        return make_options(built, fields)

    def build(self, **fields: Unpack[OptionFields]) -> Sandbox:
        """The sandbox; `fields` are further options.

        Raises:
            InvalidConfig, PathAccessDenied: what was given makes no sense or cannot be granted.
            InitializationFailed: this machine cannot build the wall.
        """
        return Sandbox(self.options(**fields))

    def _limit(self, name: str, value: float | str) -> Self:
        self._settings.setdefault("limits", {})[name] = value
        return self

    def _validation(self) -> dict[str, Any]:
        section: dict[str, Any] = self._settings.setdefault("validation", {})
        return section

    def _add(self, path: tuple[str, ...], value: str) -> Self:
        section = self._settings
        for name in path[:-1]:
            section = section.setdefault(name, {})
        section.setdefault(path[-1], []).append(value)
        return self

    def __repr__(self) -> str:
        return f"<SandboxBuilder {self._workspace or '.'} {self._settings}>"
