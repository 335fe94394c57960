"""`SandboxBuilder`: a `SandboxConfig` put together step by step."""

import os
from datetime import timedelta
from typing import Self

from ringfence.compat.layered.config import SandboxConfig, SandboxMode
from ringfence.compat.layered.sandbox import DefaultSandbox

StrPath = str | os.PathLike[str]


class SandboxBuilder:
    """Every method returns the builder, so that calls can be chained; `build` gives a `DefaultSandbox`."""

    def __init__(self, config: SandboxConfig | None = None) -> None:
        self.config = config if config is not None else SandboxConfig.default()

    @classmethod
    def new(cls) -> Self:
        return cls()

    def enabled(self, enabled: bool) -> Self:
        """Whether there is to be a sandbox; `build` refuses to make one that is none."""
        self.config.enabled = enabled
        return self

    def mode(self, mode: SandboxMode) -> Self:
        self.config.mode = SandboxMode(mode)
        return self

    def working_dir(self, path: StrPath) -> Self:
        self.config.working_dir = path
        return self

    def allow_read(self, path: StrPath) -> Self:
        self.config.allowed_read_paths.append(path)
        return self

    def allow_write(self, path: StrPath) -> Self:
        self.config.allowed_write_paths.append(path)
        return self

    def allow_command(self, cmd: str) -> Self:
        self.config.allowed_commands.append(cmd)
        return self

    def block_command(self, cmd: str) -> Self:
        self.config.blocked_commands.append(cmd)
        return self

    def memory_limit(self, bytes: int) -> Self:
        self.config.limits.max_memory_bytes = bytes
        return self

    def timeout(self, duration: timedelta) -> Self:
        self.config.timeout = duration
        return self

    def build(self) -> DefaultSandbox:
        """
        Raises:
            InvalidConfig, PathAccessDenied: what was given makes no sense or cannot be granted.
            InitializationFailed: this machine cannot build the wall.
        """
        return DefaultSandbox.new(self.config)
