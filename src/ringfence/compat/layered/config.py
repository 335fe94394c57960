"""`SandboxConfig` and `ResourceLimits`: what a sandbox is to be, as the document writes it down."""

import os
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Self

from ringfence.dataclass import dataclass, field
from ringfence.manager.builder import SandboxBuilder as OurBuilder
from ringfence.values.limits import Limits

StrPath = str | os.PathLike[str]


class SandboxMode(StrEnum):
    """How much a sandbox allows; from loose to tight."""

    Permissive = "permissive"
    Normal = "normal"
    Restricted = "restricted"
    Strict = "strict"

    PERMISSIVE = Permissive
    NORMAL = Normal
    RESTRICTED = Restricted
    STRICT = Strict


@dataclass(slots=True, kw_only=True)
class ResourceLimits:
    """Each is our default where it is None: no limit can be switched off."""

    max_memory_bytes: int | None = None
    max_cpu_seconds: float | None = None
    max_output_bytes: int | None = None
    max_file_size_bytes: int | None = None
    max_processes: int | None = None
    max_open_files: int | None = None

    @classmethod
    def of(cls, limits: Limits) -> Self:
        """The limits that are in force."""
        return cls(
            max_memory_bytes=limits.memory_bytes,
            max_cpu_seconds=limits.cpu_seconds,
            max_output_bytes=limits.output_bytes,
            max_file_size_bytes=limits.file_bytes,
            max_processes=limits.processes,
            max_open_files=limits.open_files,
        )


@dataclass(slots=True, kw_only=True)
class SandboxConfig:
    """What a sandbox is to be. `None` and empty lists: what the mode says."""

    enabled: bool = True
    mode: SandboxMode = SandboxMode.Normal
    working_dir: StrPath | None = None
    allowed_read_paths: list[StrPath] = field(default_factory=list)
    allowed_write_paths: list[StrPath] = field(default_factory=list)
    allowed_commands: list[str] = field(default_factory=list)
    blocked_commands: list[str] = field(default_factory=list)
    allow_network: bool = False
    timeout: timedelta | None = None
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    strict_sensitive_files: bool = True
    """Of the document's `PathPolicy`: whether sensitive files are refused."""

    @classmethod
    def default(cls) -> Self:
        return cls()

    @classmethod
    def permissive(cls) -> Self:
        """Reads anywhere but the blacklist; writes only in the working directory."""
        return cls(mode=SandboxMode.Permissive, allowed_read_paths=["/"], allow_network=True)

    @classmethod
    def strict(cls, working_dir: StrPath) -> Self:
        """Reads and writes in the working directory only."""
        return cls(
            mode=SandboxMode.Strict,
            working_dir=working_dir,
            allowed_read_paths=[working_dir],
            allowed_write_paths=[working_dir],
        )

    def to_builder(self) -> OurBuilder:
        """The same as a builder of ours, which writes it down as a policy."""
        builder = OurBuilder().enabled(self.enabled).mode(str(self.mode)).allow_network(self.allow_network)
        builder.sensitive_files("block" if self.strict_sensitive_files else "warn")
        if self.working_dir is not None:
            builder.working_dir(self.working_dir)
        for path in self._others(self.allowed_read_paths):
            builder.allow_read(path)
        for path in self._others(self.allowed_write_paths):
            builder.allow_write(path)
        for command in self.allowed_commands:
            builder.allow_command(command)
        for command in self.blocked_commands:
            builder.block_command(command)
        if self.timeout is not None:
            builder.timeout(self.timeout)
        self._add_limits(builder)
        return builder

    def _others(self, paths: Sequence[StrPath]) -> Sequence[StrPath]:
        """But for the working directory, which is granted as it is."""
        here = os.path.abspath(self.working_dir) if self.working_dir is not None else None
        return [path for path in paths if os.path.abspath(path) != here]

    def _add_limits(self, builder: OurBuilder) -> None:
        limits = self.limits
        for value, add in (
            (limits.max_memory_bytes, builder.memory_limit),
            (limits.max_output_bytes, builder.output_limit),
            (limits.max_file_size_bytes, builder.file_size_limit),
            (limits.max_processes, builder.process_limit),
            (limits.max_open_files, builder.open_files_limit),
        ):
            if value is not None:
                add(value)
        if limits.max_cpu_seconds is not None:
            builder.cpu_limit(limits.max_cpu_seconds)
